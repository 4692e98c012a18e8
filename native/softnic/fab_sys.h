/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls without the C library's wrappers: other preloaded libraries hook those, and errno is not ours to change.
 * Each returns what the kernel does: a value >= 0 or -errno.
 */
#ifndef SN_FAB_SYS_H
#define SN_FAB_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline long sn_sys_ret(long rc, int saved)
{
	if (rc < 0) {
		rc = -errno;
		errno = saved;
	}
	return rc;
}

#define sn_sys(nr, ...)                                                                                                            \
	({                                                                                                                         \
		int sn_saved = errno;                                                                                              \
		sn_sys_ret(syscall(nr, __VA_ARGS__), sn_saved);                                                                    \
	})

/* A lock on one byte, or a range, of an open file description: released by the kernel with its last descriptor. */
static inline int sn_file_lock(int fd, int cmd, int type, int64_t start, int64_t len, short *found)
{
	struct flock lk = { .l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };
	long rc;

	do {
		rc = sn_sys(SYS_fcntl, fd, cmd, &lk);
	} while (rc == -EINTR);
	if (found)
		*found = lk.l_type;
	return (int)rc;
}

#endif
