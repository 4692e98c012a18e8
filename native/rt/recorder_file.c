/* SPDX-License-Identifier: BSD-3-Clause */
/* The file describes itself: names of events, of their numbers and of reasons are in it, so that a reader needs no part of pyvma. */
#include "rt/recorder_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/trace.h"

#define PAGE 4096u
#define SWEEP_MAX 4096 /* names looked at */

/* ---- schema ------------------------------------------------------------------------------------------------------------ */

static void put_list(FILE *f, const char *name, const char *values)
{
	fprintf(f, "%s\"%s\":[\"", *name == '!' ? "" : ",", *name == '!' ? name + 1 : name);
	for (; *values; values++)
		fputs(*values == ',' ? "\",\"" : (const char[]){ *values, '\0' }, f);
	fputs("\"]", f);
}

static void put_reasons(FILE *f, const char *layer, enum pv_trace_layer number, const char *const *names, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		fprintf(f, "%s\"%u\":\"%s.%s\"", number == PV_TRACE_NET && !i ? "" : ",", PV_TRACE_REASON(number, i), layer,
			names[i]);
}

static void put_schema(FILE *f)
{
	static const char *const net[] = { PV_NET_COUNTERS(PV_COUNTER_NAME) };
	static const char *const udp[] = { PV_UDP_COUNTERS(PV_COUNTER_NAME) };
	static const char *const tcp[] = { PV_TCP_COUNTERS(PV_COUNTER_NAME) };
	static const struct {
		const char *name, *a, *b, *help;
	} events[] = {
#define EVENT(name, a, b, text) { #name, a, b, text },
		PV_TRACE_EVENTS(EVENT)
	};
	static const struct {
		const char *name, *values;
	} lists[] = {
#define LIST(name, values) { #name, values },
		PV_TRACE_LISTS(LIST)
	};

	fputs("{\"events\":[", f);
	for (size_t i = 0; i < pv_array_size(events); i++)
		fprintf(f, "%s{\"name\":\"%s\",\"a\":\"%s\",\"b\":\"%s\",\"help\":\"%s\"}", i ? "," : "", events[i].name,
			events[i].a, events[i].b, events[i].help);
	fprintf(f, "],\"stations\":%u,\"lists\":{", (unsigned int)PV_TRACE_ring_in);
	for (size_t i = 0; i < pv_array_size(lists); i++) {
		char name[32];

		snprintf(name, sizeof(name), "%s%s", i ? "" : "!", lists[i].name);
		put_list(f, name, lists[i].values);
	}
	fputs("},\"reasons\":{", f);
	put_reasons(f, "net", PV_TRACE_NET, net, pv_array_size(net));
	put_reasons(f, "udp", PV_TRACE_UDP, udp, pv_array_size(udp));
	put_reasons(f, "tcp", PV_TRACE_TCP, tcp, pv_array_size(tcp));
	fputs("}}", f);
}

/* To be freed; NULL: no memory. */
static char *make_schema(size_t *size)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, size);

	if (!f)
		return NULL;
	put_schema(f);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- head -------------------------------------------------------------------------------------------------------------- */

static size_t read_text(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return strlen(out);
}

/* Field 22 of /proc/PID/stat; the second is in parentheses and may hold anything. 0: there is none. */
static uint64_t start_ticks(void)
{
	char text[1024];
	const char *p;

	read_text("/proc/self/stat", text, sizeof(text));
	p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p, NULL, 10) : 0;
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

static void fill_head(struct pv_recorder_head *h, uint64_t events, uint64_t events_at, uint64_t schema_size)
{
	memcpy(h->magic, PV_RECORDER_MAGIC, sizeof(h->magic));
	h->version = PV_RECORDER_VERSION;
	h->order = 0x01020304;
	h->event_size = sizeof(struct pv_trace_event);
	h->events = events;
	h->events_at = events_at;
	h->schema_at = PAGE;
	h->schema_size = schema_size;
	h->pid = (uint64_t)getpid();
	h->start_ticks = start_ticks();
	h->uid = geteuid();
	h->monotonic_ns = clock_ns(CLOCK_MONOTONIC);
	h->realtime_ns = clock_ns(CLOCK_REALTIME);
	read_text("/proc/self/comm", h->program, sizeof(h->program));
	snprintf(h->pyvma, sizeof(h->pyvma), "%s", PYVMA_VERSION);
	read_text("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof(h->boot_id));
	__atomic_store_n(&h->state, 1, __ATOMIC_RELEASE);
}

/* A file without its blocks would be a SIGBUS when the directory is full. */
static int map_file(const char *path, size_t size, struct pv_recorder_head **out)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600), rc;
	void *p = MAP_FAILED;

	if (fd < 0)
		return -errno;
	rc = -posix_fallocate(fd, 0, (off_t)size);
	if (!rc) {
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		rc = p == MAP_FAILED ? -errno : 0;
	}
	close(fd);
	if (rc) {
		unlink(path);
		return rc;
	}
	/* A child would write into its parent's. */
	madvise(p, size, MADV_DONTFORK);
	*out = p;
	return 0;
}

int pv_recorder_file_make(const char *dir, uint64_t events, struct pv_recorder_head **out, size_t *size, char *path)
{
	size_t schema_size, at;
	char *schema = make_schema(&schema_size);
	int rc;

	if (snprintf(path, PV_RECORDER_PATH_MAX, "%s/%s%d", dir, PV_RECORDER_PREFIX, getpid()) >= PV_RECORDER_PATH_MAX) {
		free(schema);
		return -ENAMETOOLONG;
	}
	if (!schema)
		return -ENOMEM;
	at = PAGE + ((schema_size + PAGE - 1) & ~(size_t)(PAGE - 1));
	*size = at + events * sizeof(struct pv_trace_event);
	unlink(path); /* of a dead process that had our number */
	rc = map_file(path, *size, out);
	if (!rc) {
		memcpy((uint8_t *)*out + PAGE, schema, schema_size);
		fill_head(*out, events, at, schema_size);
	}
	free(schema);
	return rc;
}

/* ---- what is left over ------------------------------------------------------------------------------------------------- */

struct leftover {
	struct timespec when;
	char name[32];
};

/* A process of this user's that is not there, nor visible from here. */
static bool is_leftover(int dirfd, const char *name, struct leftover *out)
{
	const char *digits = name + sizeof(PV_RECORDER_PREFIX) - 1;
	struct stat st;
	char *end;
	long pid;

	if (strncmp(name, PV_RECORDER_PREFIX, sizeof(PV_RECORDER_PREFIX) - 1) || *digits < '1' || *digits > '9')
		return false;
	pid = strtol(digits, &end, 10);
	if (*end || end - digits > 10 || !kill((pid_t)pid, 0) || errno != ESRCH)
		return false;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return false;
	out->when = st.st_mtim;
	memcpy(out->name, name, strlen(name) + 1); /* ten digits at most */
	return true;
}

static bool older(const struct leftover *a, const struct leftover *b)
{
	return a->when.tv_sec != b->when.tv_sec ? a->when.tv_sec < b->when.tv_sec : a->when.tv_nsec < b->when.tv_nsec;
}

void pv_recorder_sweep(const char *dir)
{
	struct leftover kept[PV_RECORDER_KEEP], one;
	uint32_t n = 0, oldest;
	DIR *d = opendir(dir);
	struct dirent *it;

	if (!d)
		return;
	for (int i = 0; i < SWEEP_MAX && (it = readdir(d)); i++) {
		if (!is_leftover(dirfd(d), it->d_name, &one))
			continue;
		if (n < PV_RECORDER_KEEP) {
			kept[n++] = one;
			continue;
		}
		oldest = 0;
		for (uint32_t k = 1; k < n; k++)
			if (older(&kept[k], &kept[oldest]))
				oldest = k;
		if (older(&kept[oldest], &one)) {
			struct leftover gone = kept[oldest];

			kept[oldest] = one;
			one = gone;
		}
		unlinkat(dirfd(d), one.name, 0);
	}
	closedir(d);
}
