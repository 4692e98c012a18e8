/* SPDX-License-Identifier: BSD-3-Clause */
/* libibverbs is found when a ring is opened, not when the program is linked: the package runs without it. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ring/verbs_priv.h"

static const struct symbol {
	const char *name;
	size_t offset;
	bool optional;
} symbols[] = {
#define SYMBOL(field)                                                                                                              \
	{                                                                                                                          \
		"ibv_" #field, offsetof(struct pv_verbs_lib, field), false                                                         \
	}
	SYMBOL(get_device_list),
	SYMBOL(free_device_list),
	SYMBOL(get_device_name),
	SYMBOL(open_device),
	SYMBOL(close_device),
	SYMBOL(query_device),
	SYMBOL(query_port),
	SYMBOL(query_gid),
	SYMBOL(alloc_pd),
	SYMBOL(dealloc_pd),
	SYMBOL(reg_mr),
	SYMBOL(dereg_mr),
	SYMBOL(create_comp_channel),
	SYMBOL(destroy_comp_channel),
	SYMBOL(create_cq),
	SYMBOL(destroy_cq),
	SYMBOL(get_cq_event),
	SYMBOL(ack_cq_events),
	SYMBOL(create_qp),
	SYMBOL(modify_qp),
	SYMBOL(destroy_qp),
	SYMBOL(get_async_event),
	SYMBOL(ack_async_event),
#undef SYMBOL
	{ "ibv_qp_to_qp_ex", offsetof(struct pv_verbs_lib, qp_to_qp_ex), true },
	{ "softnic_open_error", offsetof(struct pv_verbs_lib, softnic_open_error), true },
};

int pv_verbs_lib_open(struct pv_verbs_lib *lib, const char *path, char *err, size_t errsize)
{
	memset(lib, 0, sizeof(*lib));
	if (!path)
		path = "libibverbs.so.1";
	/* Stays mapped: providers keep threads and exit handlers of their own. */
	lib->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib->handle) {
		snprintf(err, errsize, "%s", dlerror());
		return -ENOENT;
	}
	for (size_t i = 0; i < pv_array_size(symbols); i++) {
		void *sym = dlsym(lib->handle, symbols[i].name);

		if (!sym && !symbols[i].optional) {
			snprintf(err, errsize, "%s is no libibverbs: it lacks %s", path, symbols[i].name);
			pv_verbs_lib_close(lib);
			return -ENOENT;
		}
		memcpy((char *)lib + symbols[i].offset, &sym, sizeof(sym));
	}
	return 0;
}

void pv_verbs_lib_close(struct pv_verbs_lib *lib)
{
	if (lib->handle)
		dlclose(lib->handle);
	lib->handle = NULL;
}
