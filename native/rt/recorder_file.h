/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder's file: making it, and removing what dead processes left. See rt/recorder.h. */
#ifndef PV_RT_RECORDER_FILE_H
#define PV_RT_RECORDER_FILE_H

#include <sys/types.h>

#include "rt/recorder.h"

#define PV_RECORDER_PATH_MAX 512

struct pv_recorder_file {
	int fd; /* keeps the lock; not for the program, which may close it all the same */
	dev_t dev;
	ino_t ino;
	char path[PV_RECORDER_PATH_MAX];
};

/*
 * Made, locked and mapped (not in forked children), with head and schema. A file of that name that a dead process left is renamed. 0 or
 * -errno: no file is left; -EEXIST: a process of another namespace has it.
 */
int pv_recorder_file_make(struct pv_recorder_file *f, const char *dir, uint64_t events, struct pv_recorder_head **out,
			  size_t *size);
/* The file goes, if it is still there; what is mapped stays. */
void pv_recorder_file_close(struct pv_recorder_file *f);
/* In a forked child: it is the parent's. */
void pv_recorder_file_forget(struct pv_recorder_file *f);
/* Removes files of this user's that no process has, but the newest PV_RECORDER_KEEP. */
void pv_recorder_sweep(const char *dir);

#endif
