/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets of tests/data/wire.txt by name, in heap blocks of exactly their length, so that AddressSanitizer sees a read past the end. */
#ifndef VECTORS_H
#define VECTORS_H

#include "test.h"

struct vec {
	uint8_t *p;
	uint32_t len;
};

static inline struct vec vec_cut(struct vec v, uint32_t from, uint32_t len)
{
	struct vec out = { malloc(len ? len : 1), len };

	CHECK(out.p && from + len <= v.len);
	memcpy(out.p, v.p + from, len);
	return out;
}

static inline void vec_free(struct vec *v)
{
	free(v->p);
	v->p = NULL;
}

/* The packet from byte `from` on. */
static inline struct vec vec_get(const char *name, uint32_t from)
{
	static char line[16384];
	struct vec whole = { NULL, 0 }, out;
	FILE *f = fopen(TEST_DATA "/wire.txt", "r");

	CHECK(f != NULL);
	while (!whole.p && fgets(line, sizeof(line), f)) {
		char *hex = strchr(line, ' ');

		CHECK(hex != NULL);
		*hex++ = 0;
		if (strcmp(line, name))
			continue;
		whole.len = (uint32_t)strspn(hex, "0123456789abcdef") / 2;
		whole.p = malloc(whole.len);
		CHECK(whole.p != NULL);
		for (uint32_t i = 0; i < whole.len; i++) {
			unsigned int byte;

			CHECK_EQ(sscanf(hex + 2 * (size_t)i, "%2x", &byte), 1);
			whole.p[i] = (uint8_t)byte;
		}
	}
	fclose(f);
	if (!whole.p) {
		fprintf(stderr, "no packet %s in wire.txt\n", name);
		exit(1);
	}
	out = vec_cut(whole, from, whole.len - from);
	vec_free(&whole);
	return out;
}

#endif
