/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/real.h"

#include <dlfcn.h>
#include <stdlib.h>

struct pl_real pl_real;

/* A call that this C library does not have stays NULL: nobody can call it but by us, who do not define it then. */
static void *find(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

void pl_real_find(void)
{
#define FIND(type, name, params) *(void **)(void *)&pl_real.name = find(#name);
	PL_REAL_CALLS(FIND)
#undef FIND
	/* Without the C library behind us nothing can go on. */
	if (!pl_real.close)
		abort();
}

__attribute__((constructor(101))) static void at_load(void)
{
	pl_real_find();
}
