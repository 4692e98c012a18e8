/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Libraries that are opened with RTLD_DEEPBIND, as PHP's extensions are, are bound to themselves and to what they need, and so to the C
 * library, before what is preloaded. Once such a one is loaded, what it and the libraries behind it have taken from there and we have, too,
 * is put right.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preload/preload.h"

#if defined(__x86_64__)
#define SLOT R_X86_64_JUMP_SLOT
#define DATUM R_X86_64_GLOB_DAT
#define WORD R_X86_64_64
#elif defined(__aarch64__)
#define SLOT R_AARCH64_JUMP_SLOT
#define DATUM R_AARCH64_GLOB_DAT
#define WORD R_AARCH64_ABS64
#endif

#ifdef SLOT
struct loaded {
	struct dl_phdr_info object;
	const ElfW(Sym) * names;
	const char *strings;
	void *lib; /* what was opened: its scope is that of the others */
	uintptr_t fixed, fixed_end; /* read-only since it was loaded */
};

struct wanted {
	uintptr_t first;
	size_t skip;
	bool begun;
	struct dl_phdr_info found;
};

static const char here;

static const void *base_of(const void *at)
{
	Dl_info info;

	return dladdr(at, &info) ? info.dli_fbase : NULL;
}

static void set(const struct loaded *of, uintptr_t *at, uintptr_t value)
{
	uintptr_t page = (uintptr_t)at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	size_t len = (uintptr_t)(at + 1) - page;
	bool fixed = (uintptr_t)at >= of->fixed && (uintptr_t)at < of->fixed_end;

	if (fixed && mprotect((void *)page, len, PROT_READ | PROT_WRITE))
		return;
	__atomic_store_n(at, value, __ATOMIC_RELAXED);
	if (fixed)
		(void)mprotect((void *)page, len, PROT_READ);
}

static void put_right(const struct loaded *of, const ElfW(Rela) * rel, size_t bytes)
{
	for (const ElfW(Rela) *end = rel + bytes / sizeof(*rel); rel < end; rel++) {
		uint32_t type = (uint32_t)ELF64_R_TYPE(rel->r_info);
		const ElfW(Sym) *sym = &of->names[ELF64_R_SYM(rel->r_info)];
		uintptr_t *at = (uintptr_t *)(of->object.dlpi_addr + rel->r_offset);
		const void *has, *ours, *theirs;

		if ((type != SLOT && type != DATUM && (type != WORD || rel->r_addend)) || sym->st_shndx != SHN_UNDEF ||
		    !sym->st_name)
			continue;
		has = (const void *)__atomic_load_n(at, __ATOMIC_RELAXED);
		ours = dlsym(RTLD_DEFAULT, of->strings + sym->st_name);
		if (!has || !ours || base_of(ours) != base_of(&here))
			continue;
		theirs = dlsym(RTLD_NEXT, of->strings + sym->st_name);
		/* A slot that waits for its first call leads into the library itself. */
		if (has != theirs && type == SLOT && base_of(has) == base_of(at))
			has = dlsym(of->lib, of->strings + sym->st_name);
		if (has == theirs)
			set(of, at, (uintptr_t)ours);
	}
}

/* The dynamic section's addresses are the process's already. */
static void look_through(struct loaded *of)
{
	const ElfW(Dyn) *dyn = NULL;
	const ElfW(Rela) *slots = NULL, *rest = NULL;
	size_t slots_len = 0, rest_len = 0;

	for (size_t i = 0; i < of->object.dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &of->object.dlpi_phdr[i];

		if (p->p_type == PT_DYNAMIC)
			dyn = (const ElfW(Dyn) *)(of->object.dlpi_addr + p->p_vaddr);
		if (p->p_type == PT_GNU_RELRO) {
			of->fixed = of->object.dlpi_addr + p->p_vaddr;
			of->fixed_end = of->fixed + p->p_memsz;
		}
	}
	for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
		if (dyn->d_tag == DT_SYMTAB)
			of->names = (const ElfW(Sym) *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_STRTAB)
			of->strings = (const char *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_JMPREL)
			slots = (const ElfW(Rela) *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_PLTRELSZ)
			slots_len = dyn->d_un.d_val;
		else if (dyn->d_tag == DT_RELA)
			rest = (const ElfW(Rela) *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_RELASZ)
			rest_len = dyn->d_un.d_val;
	}
	if (!of->names || !of->strings)
		return;
	if (slots)
		put_right(of, slots, slots_len);
	if (rest)
		put_right(of, rest, rest_len);
}

/* One a call: whoever is called by dl_iterate_phdr has a lock of the linker's, behind which dlsym's comes for others. */
static int pick(struct dl_phdr_info *object, size_t size, void *arg)
{
	struct wanted *of = arg;

	(void)size;
	of->begun |= object->dlpi_addr == of->first;
	if (!of->begun || of->skip--)
		return 0;
	of->found = *object;
	return 1;
}

/* What was loaded for it comes behind it. Of other libraries behind it nothing is found that would have to be put right. */
static void deep(void *lib)
{
	struct link_map *map;

	if (dlinfo(lib, RTLD_DI_LINKMAP, &map))
		return;
	for (size_t n = 0;; n++) {
		struct wanted want = { .first = map->l_addr, .skip = n };
		struct loaded of = { .lib = lib };

		if (!dl_iterate_phdr(pick, &want))
			break;
		of.object = want.found;
		look_through(&of);
	}
	(void)dlerror();
}
#else
static void deep(void *lib)
{
	(void)lib;
}
#endif

/* A call at the end is a jump: in any build where the compiler can be told, else where it optimizes. */
#if defined(__has_attribute)
#if __has_attribute(musttail)
#define JUMP __attribute__((musttail))
#endif
#endif
#ifndef JUMP
#define JUMP
#endif

/* The linker looks from where it was called, for the caller's own paths and $ORIGIN: where these count it has to be the caller's call. */
PL_EXPORT void *dlopen(const char *file, int mode)
{
	void *lib;

	if (pv_likely(!(mode & RTLD_DEEPBIND)) || !file || !strchr(file, '/') || strchr(file, '$') || !pl_on())
		JUMP return PL_REAL(dlopen)(file, mode);
	lib = PL_REAL(dlopen)(file, mode);
	if (lib)
		deep(lib);
	return lib;
}
