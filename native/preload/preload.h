/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the preload library's files share. See doc/preload.md for the rules.
 *
 * Every interposer has the same form: a table look-up, and either the real call or pyvma_sock_* with its result made -1 and errno. Errno is
 * untouched by a call that succeeds.
 */
#ifndef PV_PRELOAD_PRELOAD_H
#define PV_PRELOAD_PRELOAD_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "pyvma.h"

/* ---- table.c: any thread, no lock to read ------------------------------------------------------------------------------ */

struct pl_file; /* of one fd that is ours: a socket, or an epoll set; freed memory is never given back, only reused */

struct pl_file *pl_get(int fd); /* NULL: not ours */

/* A result of the engine's as libc has it. */
pv_inline int64_t pl_result(int64_t rc)
{
	if (pv_likely(rc >= 0))
		return rc;
	errno = (int)-rc;
	return -1;
}

#endif
