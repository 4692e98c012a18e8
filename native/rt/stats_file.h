/* SPDX-License-Identifier: BSD-3-Clause */
/* The file behind rt/stats.c: its name, its owner, its growth. Not for others; the caller has a lock. */
#ifndef PV_RT_STATS_FILE_H
#define PV_RT_STATS_FILE_H

#include <stdbool.h>
#include <sys/types.h>

#include "rt/stats.h"

struct pv_stats_file {
	int fd; /* -1: none. Locked (flock) for the life of the process, by which others know that it lives */
	dev_t dev;
	ino_t ino;
	char path[512];
};

/* A new file of this process in `dir`, `size` bytes of zeros, mapped at *at. Removes what others of this user left. 0 or -errno. */
int pv_stats_file_open(struct pv_stats_file *f, const char *dir, size_t size, uint8_t **at);
/* Longer, and mapped up to `size` behind `base`. False: it cannot be. */
bool pv_stats_file_grow(struct pv_stats_file *f, uint8_t *base, size_t size);
/* Removes the name, unless it is another file's by now, and closes. The mapping is the caller's. */
void pv_stats_file_close(struct pv_stats_file *f);
/* In a forked child: closes this process's copy of the fd. */
void pv_stats_file_forget(struct pv_stats_file *f);
/* Is the fd still the file's? A program may have closed all that it did not open itself. */
bool pv_stats_file_same(const struct pv_stats_file *f);
/* Another fd of the file, for reading; -1: its name is not the file's any more. */
int pv_stats_file_reopen(const struct pv_stats_file *f);
/* What the head says of the process. */
void pv_stats_file_head(struct pv_stats_head *h);

#endif
