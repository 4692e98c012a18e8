/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/error.h"

#include <stdio.h>
#include <string.h>

#include "pyvma.h"

#define KEPT_MAX 64

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

const char *pv_error_keep(const char *text)
{
	static char *known[KEPT_MAX];
	static uint32_t n;

	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(known[i], text))
			return known[i];
	if (n == KEPT_MAX || !(known[n] = strdup(text)))
		return "its ring cannot be opened";
	return known[n++];
}

const char *pyvma_last_error(void)
{
	return pv_error_buf;
}

const char *pyvma_version(void)
{
	return PYVMA_VERSION;
}
