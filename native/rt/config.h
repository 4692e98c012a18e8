/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings: the values of config_table.h. Filled once before the engine starts and read-only from then on, so the engine's threads
 * read the structure without a lock; but those of PV_CONFIG_LIVE, which change and are read with the engine's lock.
 */
#ifndef PV_RT_CONFIG_H
#define PV_RT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rt/config_table.h"

#define PV_CONFIG_TEXT_MAX 4096

/* By what sockets get queues of their own: values of ring_logic_rx, VMA's. */
enum pv_ring_logic {
	PV_RING_LOGIC_INTERFACE = 0, /* by nothing */
	PV_RING_LOGIC_ADDRESS = 1,
	PV_RING_LOGIC_SOCKET = 10,
	PV_RING_LOGIC_USER = 11, /* the program says which */
	PV_RING_LOGIC_THREAD = 20,
	PV_RING_LOGIC_CORE = 30,
	PV_RING_LOGIC_ATTACHED = 31, /* by core, to which the thread is bound */
};

struct pv_config {
#define PV_CONFIG_FIELD_BOOL(name) bool name;
#define PV_CONFIG_FIELD_INT(name) int64_t name;
#define PV_CONFIG_FIELD_LEVEL(name) int64_t name;
#define PV_CONFIG_FIELD_CHOICE(name) int64_t name;
#define PV_CONFIG_FIELD_TEXT(name) char *name;
#define PV_CONFIG_FIELD(kind, name, def, min, max, unit, alias, div, help) PV_CONFIG_FIELD_##kind(name)
	PV_CONFIG_TABLE(PV_CONFIG_FIELD)
	uint64_t given; /* a bit a row: set by its name, so that no preset changes it */
};

/* The process's settings, with file and variables read in (once). 0, or -errno of the first bad one with a text in the thread's
 * last error. *out is valid in both cases. */
int pv_config_load(const struct pv_config **out);
/* No setting may change after this. */
void pv_config_freeze(void);
void pv_config_thaw(void);

/* One value of the process's settings while the engine runs; its lock is held. 0, -ENOENT (name), -EPERM (not of PV_CONFIG_LIVE), -EINVAL
 * (value), with a text that `where` begins. The engine has it after pv_tune_apply. */
int pv_config_tune(const char *name, const char *value, const char *where);
struct pv_config_live {
	const char *name, *type, *unit; /* `type` as pyvma_config_row has it; strings of the table */
	int64_t min, max; /* of an int */
	char value[64];
};
/* Number `i` of those that may change, from 0; -ENOENT past the end. */
int pv_config_live(uint32_t i, struct pv_config_live *out);

/* One value into `cfg`; `where` begins the error text ("PYVMA_RX_POLL", "line 3 of FILE"). 0, -EINVAL (value), -ENOENT (name). */
int pv_config_apply(struct pv_config *cfg, const char *name, const char *value, const char *where);
/*
 * Settings from a file's text: a strict subset of TOML. Comments, `name = value` with integers, booleans, basic and literal strings
 * on one line, arrays of strings (joined by ';'), and the table header [pyvma]. 0, -EINVAL or -ENOENT with a text naming file and
 * line. `size` bytes of `text`, which need not end in 0.
 */
int pv_config_parse(struct pv_config *cfg, const char *text, size_t size, const char *file);

/* What cfg->preset means, for all that is not given. 0, or -errno with a text. */
int pv_config_preset(struct pv_config *cfg);

/* Row of a setting in the table, below 64; -1: there is none. */
int pv_config_index(const char *name);

void pv_config_init(struct pv_config *cfg); /* the defaults */
void pv_config_fini(struct pv_config *cfg);

#endif
