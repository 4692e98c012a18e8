/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What of an object other processes may see. Objects lie in memory that is shared (pv_mem.alloc_shown) and are described, not copied: a
 * type is a list of fields with their places, and a reader takes the bytes as they are. So counting costs what it costs without readers,
 * and a process that was killed leaves what it knew. The layout of the file is in native/doc/stats-abi.md.
 *
 * All names, units and texts come from base/stats_table.h; each layer expands the lists of its own structures.
 */
#ifndef PV_BASE_STATS_H
#define PV_BASE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a field's bytes mean. Integers are the machine's, of 1, 2, 4 or 8 bytes at a multiple of that. */
enum pv_stat_kind {
	PV_STAT_COUNTER, /* only grows, until it is zeroed */
	PV_STAT_GAUGE, /* as it is now */
	PV_STAT_MAX, /* the greatest since it was zeroed */
	PV_STAT_SIGNED, /* a gauge that may be negative */
	PV_STAT_ENUM, /* a number with a name: pv_stat_field.names */
	PV_STAT_FLAG, /* the bit pv_stat_field.mask, of an integer or a bool */
	PV_STAT_TIME, /* CLOCK_MONOTONIC in ns; 0: never */
	PV_STAT_ADDR, /* 16 bytes, an IPv6 address, IPv4 as ::ffff:a.b.c.d; :: is any */
	PV_STAT_PORT, /* host byte order */
	PV_STAT_MAC, /* 6 bytes */
	PV_STAT_TEXT, /* ends with a zero byte, or the field */
	PV_STAT_ID, /* a number without arithmetic: fd, inode, thread, index */
	PV_STAT_LINK, /* 8 bytes: a pointer to another object; NULL: none */
};

struct pv_stat_field {
	const char *name, *unit, *help; /* unit "": a plain number */
	const char *names; /* of an ENUM, separated by commas, from 0; else NULL */
	uint32_t offset, size, mask;
	enum pv_stat_kind kind;
};

struct pv_stat_type {
	const struct pv_stat_field *fields;
	uint32_t nfields;
	uint32_t size; /* of the whole object */
	uint16_t id; /* in the directory: enum pv_stat_type_id */
	bool kept; /* its counters are for the program to read as well: they are never zeroed */
};

/* A row of a list of base/stats_table.h, for an array of struct pv_stat_field; T: the structure. */
#define PV_STAT_FIELD(T, n, member, kind, more, text) PV_STAT_##kind##_FIELD(T, n, member, more, text)
#define PV_STAT_PLACE(T, n, member, text)                                                                                          \
	.name = #n, .help = text, .offset = (uint32_t)offsetof(T, member), .size = (uint32_t)sizeof(((T *)0)->member)
#define PV_STAT_UNIT_FIELD(T, n, member, more, text, k) { PV_STAT_PLACE(T, n, member, text), .unit = more, .kind = k },
#define PV_STAT_COUNTER_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_COUNTER)
#define PV_STAT_GAUGE_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_GAUGE)
#define PV_STAT_MAX_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_MAX)
#define PV_STAT_SIGNED_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_SIGNED)
#define PV_STAT_TIME_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_TIME)
#define PV_STAT_ADDR_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_ADDR)
#define PV_STAT_PORT_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_PORT)
#define PV_STAT_MAC_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_MAC)
#define PV_STAT_TEXT_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_TEXT)
#define PV_STAT_ID_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_ID)
#define PV_STAT_LINK_FIELD(T, n, m, more, text) PV_STAT_UNIT_FIELD(T, n, m, more, text, PV_STAT_LINK)
#define PV_STAT_ENUM_FIELD(T, n, m, more, text) { PV_STAT_PLACE(T, n, m, text), .unit = "", .names = more, .kind = PV_STAT_ENUM },
#define PV_STAT_FLAG_FIELD(T, n, m, more, text) { PV_STAT_PLACE(T, n, m, text), .unit = "", .mask = more, .kind = PV_STAT_FLAG },
/* The type of which `T` is the structure and `ID` the row of PV_STAT_TYPES, which has its name and text (base/stats_table.h). */
#define PV_STAT_TYPE(ID, T, list, ...)                                                                                             \
	{                                                                                                                          \
		.fields = (list), .nfields = (uint32_t)(sizeof(list) / sizeof((list)[0])), .size = (uint32_t)sizeof(T),            \
		.id = PV_STAT_T_##ID, __VA_ARGS__                                                                                  \
	}

#endif
