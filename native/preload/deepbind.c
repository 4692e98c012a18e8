/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Libraries that are opened with RTLD_DEEPBIND, as PHP's extensions are, are bound to themselves and to what they need, and so to the C
 * library, before what is preloaded. Once such a one is loaded, what it and the libraries behind it have taken from there and we have, too,
 * is put right.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
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

/* A library behind the one that was opened. */
struct behind {
	struct dl_phdr_info object;
	char *name;
};

struct list {
	uintptr_t first;
	struct behind *at;
	size_t n, room;
	bool begun;
};

static const char here;
/* Two threads may put the same library right. Nothing of the linker's is called within: whoever has its lock may come here. */
static pthread_mutex_t fixing = PTHREAD_MUTEX_INITIALIZER;

void pl_deepbind_forked(void)
{
	pthread_mutex_init(&fixing, NULL);
}

static const void *base_of(const void *at)
{
	Dl_info info;

	return dladdr(at, &info) ? info.dli_fbase : NULL;
}

static uintptr_t page_of(uintptr_t at)
{
	return at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
}

static void set(const struct loaded *of, uintptr_t *at, uintptr_t value)
{
	uintptr_t page = page_of((uintptr_t)at);
	size_t len = (uintptr_t)(at + 1) - page;
	bool fixed = (uintptr_t)at >= of->fixed && (uintptr_t)at < of->fixed_end;

	pthread_mutex_lock(&fixing);
	if (!fixed || !mprotect((void *)page, len, PROT_READ | PROT_WRITE)) {
		__atomic_store_n(at, value, __ATOMIC_RELAXED);
		if (fixed)
			(void)mprotect((void *)page, len, PROT_READ);
	}
	pthread_mutex_unlock(&fixing);
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
			/* Whole pages of it, as the linker has them. */
			of->fixed = page_of(of->object.dlpi_addr + p->p_vaddr);
			of->fixed_end = page_of(of->object.dlpi_addr + p->p_vaddr + p->p_memsz);
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

static int collect(struct dl_phdr_info *object, size_t size, void *arg)
{
	struct list *of = arg;
	struct behind *grown;

	(void)size;
	of->begun |= object->dlpi_addr == of->first;
	if (!of->begun || !object->dlpi_name[0])
		return 0;
	if (of->n == of->room) {
		grown = realloc(of->at, (of->room + 16) * sizeof(*grown));
		if (!grown)
			return 1;
		of->at = grown;
		of->room += 16;
	}
	of->at[of->n] = (struct behind){ .object = *object, .name = strdup(object->dlpi_name) };
	of->n += of->at[of->n].name != NULL;
	return 0;
}

/* Another thread may close it meanwhile: it is looked through while this one has it open. */
static void look_at(void *lib, const struct behind *b)
{
	void *again = PL_REAL(dlopen)(b->name, RTLD_LAZY | RTLD_NOLOAD);
	struct loaded of = { .object = b->object, .lib = lib };
	struct link_map *map;

	if (!again)
		return;
	if (!dlinfo(again, RTLD_DI_LINKMAP, &map) && map->l_addr == b->object.dlpi_addr)
		look_through(&of);
	dlclose(again);
}

/* What was loaded for it comes behind it. Of other libraries behind it nothing is found that would have to be put right. */
static void deep(void *lib)
{
	struct list list = { 0 };
	struct link_map *map;

	if (dlinfo(lib, RTLD_DI_LINKMAP, &map))
		return;
	list.first = map->l_addr;
	(void)dl_iterate_phdr(collect, &list);
	for (size_t i = 0; i < list.n; i++) {
		look_at(lib, &list.at[i]);
		free(list.at[i].name);
	}
	free(list.at);
	(void)dlerror();
}
#else
static void deep(void *lib)
{
	(void)lib;
}

void pl_deepbind_forked(void)
{
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
