/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/netlink_lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct pv_mnl table;
static const struct pv_mnl *loaded;
static char problem[160];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
	void *handle = dlopen("libmnl.so.0", RTLD_NOW | RTLD_LOCAL);
	void *found;

	if (!handle) {
		snprintf(problem, sizeof(problem), "libmnl is not installed (Debian: libmnl0): %s", dlerror());
		return;
	}
#define PV_MNL_FIND(type, name, parameters)                                                                                        \
	found = dlsym(handle, #name);                                                                                              \
	if (!found) {                                                                                                              \
		snprintf(problem, sizeof(problem), "this libmnl has no " #name);                                                   \
		return;                                                                                                            \
	}                                                                                                                          \
	memcpy(&table.name, &found, sizeof(found));
	PV_MNL_FUNCTIONS(PV_MNL_FIND)
	loaded = &table;
}

const struct pv_mnl *pv_mnl_load(char *err, size_t errsize)
{
	pthread_once(&once, load);
	if (!loaded)
		snprintf(err, errsize, "%s", problem);
	return loaded;
}
