/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/sysctl.h"

#include <stdio.h>

int pv_sysctl(const char *name, int otherwise)
{
	char path[128];
	int value;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	f = fopen(path, "re");
	if (!f)
		return otherwise;
	if (fscanf(f, "%d", &value) != 1)
		value = otherwise;
	fclose(f);
	return value;
}
