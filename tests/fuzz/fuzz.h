/* SPDX-License-Identifier: BSD-3-Clause */
/* What fuzz targets have in common: an input read as a script, and a condition that must hold. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define REQUIRE(cond)                                                                                                              \
	do {                                                                                                                       \
		if (!(cond))                                                                                                       \
			abort();                                                                                                   \
	} while (0)

/* For a target that uses test.h: what its checks call the case. */
#define FUZZ_TARGET(name)                                                                                                          \
	int LLVMFuzzerInitialize(int *argc, char ***argv)                                                                          \
	{                                                                                                                          \
		(void)argc;                                                                                                        \
		(void)argv;                                                                                                        \
		(void)test_tail;                                                                                                   \
		(void)test_skip_jmp;                                                                                               \
		test_current = #name;                                                                                              \
		return 0;                                                                                                          \
	}

/* Zeros behind its end. */
struct script {
	const uint8_t *p, *end;
};

static inline uint8_t script_8(struct script *s)
{
	return s->p < s->end ? *s->p++ : 0;
}

static inline uint16_t script_16(struct script *s)
{
	uint16_t hi = script_8(s);

	return (uint16_t)(hi << 8 | script_8(s));
}

/* At most `max` bytes, length first. */
static inline uint32_t script_bytes(struct script *s, uint8_t *to, uint32_t max)
{
	uint32_t n = script_16(s) % (max + 1);

	n = PV_MIN(n, (uint32_t)(s->end - s->p));
	memcpy(to, s->p, n);
	s->p += n;
	return n;
}

#endif
