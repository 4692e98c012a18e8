/* SPDX-License-Identifier: BSD-3-Clause */
/* The cases of a test program: each says "ok CASE", or what did not hold, with which the program ends. */
#ifndef PRELOAD_CHECK_H
#define PRELOAD_CHECK_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MS 10000 /* for what must come */

static const char *running = ""; /* the case */

#define CHECK(cond)                                                                                                                \
	do {                                                                                                                       \
		if (!(cond)) {                                                                                                     \
			printf("FAIL %s line %d: %s (errno %d, %s)\n", running, __LINE__, #cond, errno, strerror(errno));          \
			exit(1);                                                                                                   \
		}                                                                                                                  \
	} while (0)

struct check_case {
	const char *name;
	void (*run)(void);
};

/* Those named on the command line; all if none is. */
static inline bool check_wanted(const struct check_case *one, char **names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(one->name, names[i]))
			return true;
	return n == 0;
}

static inline void check_run(const struct check_case *cases, size_t count, char **names, int n)
{
	for (size_t i = 0; i < count; i++) {
		if (!check_wanted(&cases[i], names, n))
			continue;
		running = cases[i].name;
		cases[i].run();
		printf("ok %s\n", running);
	}
}

#endif
