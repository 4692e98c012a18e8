/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder's file: making it, and removing what dead processes left. See rt/recorder.h. */
#ifndef PV_RT_RECORDER_FILE_H
#define PV_RT_RECORDER_FILE_H

#include "rt/recorder.h"

#define PV_RECORDER_PATH_MAX 512

/* Made and mapped (not in forked children), with head and schema; `path` has PV_RECORDER_PATH_MAX bytes. 0 or -errno: no file is left. */
int pv_recorder_file_make(const char *dir, uint64_t events, struct pv_recorder_head **out, size_t *size, char *path);
/* Removes files of this user's dead processes, but the newest PV_RECORDER_KEEP. */
void pv_recorder_sweep(const char *dir);

#endif
