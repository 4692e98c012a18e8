/* SPDX-License-Identifier: BSD-3-Clause */
/* libbpf, loaded at run time: a machine without it runs all the rest. */
#include "ring/xdp_priv.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct xdp_libbpf lib;
static char problem[200];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
	static const char *const names[] = { "libbpf.so.1", "libbpf.so" };
	const struct {
		const char *name;
		void *slot;
	} symbols[] = {
		{ "bpf_object__open_mem", &lib.open_mem },
		{ "bpf_object__load", &lib.load },
		{ "bpf_object__close", &lib.close },
		{ "bpf_object__find_program_by_name", &lib.find_program },
		{ "bpf_program__fd", &lib.program_fd },
		{ "bpf_program__set_flags", &lib.program_flags },
		{ "bpf_program__set_ifindex", &lib.program_ifindex },
		{ "bpf_object__find_map_fd_by_name", &lib.find_map_fd },
		{ "bpf_object__btf_fd", &lib.btf_fd },
		{ "bpf_link_create", &lib.link_create },
		{ "bpf_map_update_elem", &lib.map_update },
		{ "bpf_map_lookup_elem", &lib.map_lookup },
		{ "bpf_map_delete_elem", &lib.map_delete },
		{ "bpf_xdp_query_id", &lib.query_id },
		{ "bpf_prog_get_fd_by_id", &lib.fd_by_id },
		{ "bpf_obj_get_info_by_fd", &lib.info },
		{ "libbpf_set_print", &lib.set_print },
	};
	void *handle = NULL;

	for (size_t i = 0; !handle && i < pv_array_size(names); i++)
		handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		snprintf(problem, sizeof(problem), "libbpf is not installed (Debian: libbpf1): %s", dlerror());
		return;
	}
	for (size_t i = 0; i < pv_array_size(symbols); i++) {
		void *found = dlsym(handle, symbols[i].name);

		if (!found) {
			snprintf(problem, sizeof(problem), "this libbpf has no %s: version 1.0 or later is needed",
				 symbols[i].name);
			dlclose(handle);
			return;
		}
		memcpy(symbols[i].slot, &found, sizeof(found));
	}
	/* Its messages go to stderr by default; ours say what went wrong. */
	lib.set_print(NULL);
	lib.handle = handle;
}

const struct xdp_libbpf *pv_xdp_libbpf(char *err, size_t errsize)
{
	pthread_once(&once, load);
	if (lib.handle)
		return &lib;
	snprintf(err, errsize, "%s", problem);
	return NULL;
}
