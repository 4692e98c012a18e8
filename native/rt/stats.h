/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The statistics file (native/doc/stats-abi.md): memory of the process in which objects lie that readers may see, and the directory of
 * them. It is one piece of address space for the life of the process. While an engine runs it is a file's, mapped shared; before and
 * after, and where no file can be had, it is private memory at the same addresses, so that objects may outlive the engine.
 *
 * Any thread may call what is here; a lock of its own, the innermost, protects it. None of it is for the data path: what lies in the
 * memory is written by its owners without anything in between.
 *
 * A forked child has a private copy as far as it reads what is left there; it frees nothing of it and gets other memory.
 */
#ifndef PV_RT_STATS_H
#define PV_RT_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/stats_table.h"

#define PV_STATS_FILE "pyvma-stats."
#define PV_STATS_VERSION 1u
#define PV_STATS_HEAD 4096u

enum pv_stats_state { PV_STATS_MAKING, PV_STATS_LIVE, PV_STATS_FINAL };

/* At offset 0. */
struct pv_stats_head {
	char magic[8]; /* PYVMASTT */
	uint32_t version, order, state, page;
	uint64_t size, schema, schema_size, directory;
	uint64_t pid, start_time, uid;
	int64_t started_realtime_ns, started_ns;
	uint64_t not_shown, zero[3];
	char program[64], pyvma[32], boot_id[40];
	uint64_t base;
};

struct pv_stats_entry {
	uint32_t seq;
	uint16_t type; /* enum pv_stat_type_id */
	uint16_t zero;
	uint64_t offset; /* of a free one: the next free entry's, 0: none */
};

/* As struct pv_mem wants them. Zeroed memory, from the heap when there is no other; NULL. */
void *pv_stats_alloc(void *ctx, size_t size);
void pv_stats_free(void *ctx, void *p, size_t size);
/* An id for hide, also when there was no place for it. 0: nothing can be shown at all, and hide does nothing. */
uint32_t pv_stats_show(void *ctx, const struct pv_stat_type *type, const void *obj);
void pv_stats_hide(void *ctx, uint32_t id);

/* The engine starts: a file in `dir` from now on; "" or "none": none. When it cannot be made a line in the log says so. Files of the same user that
 * nobody has any more are removed. The engine stops: the file is final, and gone from its directory. */
void pv_stats_open(const char *dir);
void pv_stats_close(void);

/* A descriptor of its own of the file, for reading and without the lock by which others know that this process lives; -1: there is none. */
int pv_stats_reopen(void);

/* Every counter and maximum that there is begins at 0 again, but those that programs read as well. The engine's lock is held. */
void pv_stats_zero(void);

/* Calls `fn` for each object of a type, with the lock of the statistics held: it may look and log, nothing else. The engine's lock is held. */
typedef void (*pv_stats_each_fn)(void *ctx, const struct pv_stat_type *type, const void *obj);
void pv_stats_each(uint32_t type, pv_stats_each_fn fn, void *ctx);

/* Of the types, by id; NULL: no such. Name and text as in PV_STAT_TYPES. */
const struct pv_stat_type *pv_stats_type(uint32_t id);
const char *pv_stats_type_name(uint32_t id);
const char *pv_stats_type_help(uint32_t id);

/* Bytes that objects have at the moment, entries included. */
size_t pv_stats_used(void);

/* rt/fork.c: around fork(2), with the engine's lock: lock, then unlock in the parent; in the child `forked` before anything else. */
void pv_stats_fork_lock(void);
void pv_stats_fork_unlock(void);
void pv_stats_forked(void);

#endif
