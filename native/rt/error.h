/* SPDX-License-Identifier: BSD-3-Clause */
/* The text behind pyvma_last_error: one buffer a thread, written when a call that has a text fails. */
#ifndef PV_RT_ERROR_H
#define PV_RT_ERROR_H

#include <stdarg.h>

/* Sets this thread's text and returns `rc`, so that `return pv_error(-EINVAL, "...")` is one statement. */
int pv_error(int rc, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *pv_error_text(void);
/* The same text for ever, the same one for equal texts: for those who keep pointers to it. Engine lock. */
const char *pv_error_keep(const char *text);

#endif
