/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/error.h"

#include <stdio.h>

#include "pyvma.h"

static _Thread_local char pv_error_buf[1024];

int pv_error(int rc, const char *fmt, ...)
{
	/* Formatted apart: an argument may be the present text. */
	char text[sizeof(pv_error_buf)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	__builtin_memcpy(pv_error_buf, text, sizeof(text));
	return rc;
}

const char *pv_error_text(void)
{
	return pv_error_buf;
}

const char *pyvma_last_error(void)
{
	return pv_error_buf;
}

const char *pyvma_version(void)
{
	return PYVMA_VERSION;
}
