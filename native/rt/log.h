/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines: for starting, stopping and trouble, never on the data path. Any thread; lines of threads do not mix. */
#ifndef PV_RT_LOG_H
#define PV_RT_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum pv_log_level { PV_LOG_NONE, PV_LOG_ERROR, PV_LOG_WARN, PV_LOG_INFO, PV_LOG_DEBUG };

/* `file` empty: stderr; %d in it is the process id. A file that cannot be opened is said on stderr, which is used instead. */
void pv_log_open(enum pv_log_level level, const char *file);
void pv_log_close(void);
/* In a forked child, which writes to the same file: its number stays the engine's. */
void pv_log_forked(void);
/* Any thread, also while lines are written. `details` as the setting log_details has it. */
void pv_log_set(enum pv_log_level level, int details);
bool pv_log_shows(enum pv_log_level level);
/* A file name with "%d" replaced by the process id. */
void pv_log_expand_pid(const char *in, char *out, size_t size);
void pv_log(enum pv_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
