/* SPDX-License-Identifier: BSD-3-Clause */
/* One write(2) a line, so that lines of threads and of processes appending to one file stay whole. */
#include "rt/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/ownfd.h"

static _Atomic int log_level = PV_LOG_WARN;
static _Atomic int log_details;
static _Atomic int log_fd = STDERR_FILENO;

/* Only "%d" means something in the name; any other '%' stands for itself. */
void pv_log_expand_pid(const char *in, char *out, size_t size)
{
	size_t n = 0;

	while (*in && n + 1 < size) {
		if (in[0] == '%' && in[1] == 'd') {
			int k = snprintf(out + n, size - n, "%d", (int)getpid());

			n = (size_t)k < size - n ? n + (size_t)k : size - 1;
			in += 2;
		} else {
			out[n++] = *in++;
		}
	}
	out[n] = '\0';
}

void pv_log_close(void)
{
	int old = atomic_exchange(&log_fd, STDERR_FILENO);

	if (old != STDERR_FILENO)
		close(old);
}

void pv_log_open(enum pv_log_level level, const char *file)
{
	char path[4096];

	pv_log_close();
	atomic_store(&log_level, (int)level);
	if (!file || !*file)
		return;
	pv_log_expand_pid(file, path, sizeof(path));
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0) {
		int err = errno;

		pv_log(PV_LOG_ERROR, "log_file %s: %s", path, strerror(err));
		return;
	}
	atomic_store(&log_fd, pv_ownfd(fd));
}

void pv_log_forked(void)
{
	int fd = atomic_load(&log_fd);

	if (fd != STDERR_FILENO)
		(void)pv_ownfd(fd);
}

void pv_log_set(enum pv_log_level level, int details)
{
	atomic_store(&log_level, (int)level);
	atomic_store(&log_details, details);
}

bool pv_log_shows(enum pv_log_level level)
{
	return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

/* What a line begins with; its length. */
static int begin_line(char *line, size_t size, const char *level)
{
	int details = atomic_load_explicit(&log_details, memory_order_relaxed), n = 0;
	struct timespec now;
	struct tm tm;

	if (details >= 3 && !clock_gettime(CLOCK_REALTIME, &now) && localtime_r(&now.tv_sec, &tm))
		n = (int)strftime(line, size, "%F %T", &tm);
	if (n)
		n += snprintf(line + n, size - (size_t)n, ".%06ld ", now.tv_nsec / 1000);
	n += snprintf(line + n, size - (size_t)n, "pyvma[%d", (int)getpid());
	if (details >= 1)
		n += snprintf(line + n, size - (size_t)n, "/%d", (int)gettid());
	return n + snprintf(line + n, size - (size_t)n, "] %s: ", level);
}

void pv_log(enum pv_log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "", "error", "warning", "info", "debug" };
	char line[1200];
	va_list ap;

	if (!pv_log_shows(level))
		return;
	int saved = errno;
	int n = begin_line(line, sizeof(line), names[level]);

	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);

	va_end(ap);
	if (m > 0)
		n += m < (int)sizeof(line) - n - 1 ? m : (int)sizeof(line) - n - 2;
	line[n++] = '\n';
	if (write(atomic_load_explicit(&log_fd, memory_order_relaxed), line, (size_t)n) < 0)
		errno = saved; /* nowhere to say so */
	errno = saved;
}
