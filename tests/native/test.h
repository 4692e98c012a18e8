/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A test program is a list of cases:  TEST(name) { CHECK(...); }  and  int main(int c, char **v) { return test_main(c, v); }
 * Every case runs in turn; `prog NAME` runs one; a failed check says where and ends the program with 1. test_skip(reason) ends a
 * case as skipped; a program whose cases all skip exits 77.
 */
#ifndef TEST_H
#define TEST_H

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_case {
	const char *name;
	void (*fn)(void);
	struct test_case *next;
};

static struct test_case *test_cases, **test_tail = &test_cases;
static const char *test_current;
static jmp_buf test_skip_jmp;
static const char *test_skip_reason = "";
static int test_ran, test_skipped;

#define TEST(id)                                                                                                                   \
	static void test_fn_##id(void);                                                                                            \
	static struct test_case test_case_##id = { #id, test_fn_##id, NULL };                                                      \
	__attribute__((constructor)) static void test_add_##id(void)                                                               \
	{                                                                                                                          \
		*test_tail = &test_case_##id;                                                                                      \
		test_tail = &test_case_##id.next;                                                                                  \
	}                                                                                                                          \
	static void test_fn_##id(void)

#define CHECK(cond)                                                                                                                \
	do {                                                                                                                       \
		if (!(cond)) {                                                                                                     \
			fprintf(stderr, "%s:%d: %s: CHECK(%s) failed\n", __FILE__, __LINE__, test_current, #cond);                 \
			exit(1);                                                                                                   \
		}                                                                                                                  \
	} while (0)

#define CHECK_EQ(a, b)                                                                                                             \
	do {                                                                                                                       \
		long long test_a = (long long)(a), test_b = (long long)(b);                                                        \
		if (test_a != test_b) {                                                                                            \
			fprintf(stderr, "%s:%d: %s: %s == %s failed: %lld and %lld\n", __FILE__, __LINE__, test_current, #a, #b,   \
				test_a, test_b);                                                                                   \
			exit(1);                                                                                                   \
		}                                                                                                                  \
	} while (0)

static inline void __attribute__((noreturn, unused)) test_skip(const char *reason)
{
	test_skip_reason = reason;
	longjmp(test_skip_jmp, 1);
}

/* False when the case skipped itself. */
static inline bool test_run(struct test_case *t)
{
	test_current = t->name;
	if (setjmp(test_skip_jmp))
		return false;
	t->fn();
	return true;
}

static inline int test_main(int argc, char **argv)
{
	for (struct test_case *t = test_cases; t; t = t->next) {
		if (argc > 1 && strcmp(argv[1], t->name))
			continue;
		if (test_run(t)) {
			printf("ok %s\n", t->name);
			test_ran++;
		} else {
			printf("skip %s: %s\n", t->name, test_skip_reason);
			test_skipped++;
		}
	}
	if (!test_ran && !test_skipped) {
		fprintf(stderr, "no such case\n");
		return 1;
	}
	return test_ran ? 0 : 77;
}

#endif
