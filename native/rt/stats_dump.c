/* SPDX-License-Identifier: BSD-3-Clause */
/* By the descriptions that readers of the file have, so that a new field is here by itself. */
#include "rt/stats_dump.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "rt/clock.h"
#include "rt/stats.h"
#include "rt/stats_types.h"

/* A line of the log has room for it, with what stands before. */
#define LINE_BYTES 900

struct dump {
	int fd;
	enum pv_log_level level;
	uint32_t found;
	size_t begin, len; /* of what each line begins with, of the line */
	char line[LINE_BYTES];
};

static void flush(struct dump *d)
{
	if (d->len > d->begin)
		pv_log(d->level, "%s", d->line);
	d->len = d->begin;
}

/* A word more; a line that is full goes first. */
static __attribute__((format(printf, 2, 3))) void put(struct dump *d, const char *fmt, ...)
{
	char word[256];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(word, sizeof(word), fmt, ap);
	va_end(ap);
	n = strlen(word);
	if (d->len + n >= sizeof(d->line))
		flush(d);
	memcpy(d->line + d->len, word, n + 1);
	d->len += n;
}

/* As it is now: others may count meanwhile. */
static uint64_t number(const void *at, uint32_t size)
{
	switch (size) {
	case 1:
		return __atomic_load_n((const uint8_t *)at, __ATOMIC_RELAXED);
	case 2:
		return __atomic_load_n((const uint16_t *)at, __ATOMIC_RELAXED);
	case 4:
		return __atomic_load_n((const uint32_t *)at, __ATOMIC_RELAXED);
	default:
		return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
	}
}

static int64_t with_sign(uint64_t n, uint32_t size)
{
	return size == 4 ? (int32_t)n : size == 2 ? (int16_t)n : size == 1 ? (int8_t)n : (int64_t)n;
}

static void put_enum(struct dump *d, const struct pv_stat_field *f, uint64_t n)
{
	const char *name = f->names;

	for (uint64_t i = 0; name && i < n; i++) {
		name = strchr(name, ',');
		name = name ? name + 1 : NULL;
	}
	if (name)
		put(d, " %s=%.*s", f->name, (int)strcspn(name, ","), name);
	else
		put(d, " %s=%" PRIu64, f->name, n);
}

static void put_number(struct dump *d, const struct pv_stat_field *f, uint64_t n)
{
	switch (f->kind) {
	case PV_STAT_ENUM:
		put_enum(d, f, n);
		break;
	case PV_STAT_FLAG:
		if (n & f->mask)
			put(d, " %s", f->name);
		break;
	case PV_STAT_SIGNED:
		if (n)
			put(d, " %s=%" PRId64 "%s", f->name, with_sign(n, f->size), f->unit);
		break;
	case PV_STAT_ID: /* -1 is none, and all else is without a sign */
		if (with_sign(n, f->size) == -1)
			put(d, " %s=-1", f->name);
		else if (n)
			put(d, " %s=%" PRIu64, f->name, n);
		break;
	case PV_STAT_TIME:
		if (n)
			put(d, " %s=%.3fs-ago", f->name, (double)(pv_clock_kernel_ns() - (int64_t)n) / 1e9);
		break;
	default:
		if (n)
			put(d, " %s=%" PRIu64 "%s", f->name, n, f->unit);
	}
}

static void put_addr(struct dump *d, const char *name, const char *at)
{
	static const char mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\xff', '\xff' };
	char text[INET6_ADDRSTRLEN];

	if (memcmp(at, mapped, sizeof(mapped)))
		inet_ntop(AF_INET6, at, text, sizeof(text));
	else
		inet_ntop(AF_INET, at + sizeof(mapped), text, sizeof(text));
	put(d, " %s=%s", name, text);
}

static void put_object(struct dump *d, const struct pv_stat_type *t, const void *obj)
{
	for (uint32_t i = 0; i < t->nfields; i++) {
		const struct pv_stat_field *f = &t->fields[i];
		const char *at = (const char *)obj + f->offset;

		switch (f->kind) {
		case PV_STAT_ADDR:
			put_addr(d, f->name, at);
			break;
		case PV_STAT_TEXT:
			put(d, " %s=\"%.*s\"", f->name, (int)strnlen(at, f->size), at);
			break;
		case PV_STAT_MAC:
		case PV_STAT_LINK:
			break;
		default:
			put_number(d, f, number(at, f->size));
		}
	}
}

/* Its half in the stack is a udp or a tcp by the kind of socket. */
static void put_socket(void *ctx, const struct pv_stat_type *type, const void *obj)
{
	const struct pv_sock_stat *st = obj;
	const struct pv_stat_type *half = pv_stats_type(st->type == SOCK_STREAM ? PV_STAT_T_TCP : PV_STAT_T_UDP);
	struct dump *d = ctx;

	if (d->fd && st->fd != d->fd)
		return;
	d->found++;
	if (!pv_log_shows(d->level) || d->found > PV_STATS_DUMP_MAX)
		return;
	d->begin = (size_t)snprintf(d->line, sizeof(d->line), "socket fd %d:", (int)st->fd);
	d->len = d->begin;
	put_object(d, type, obj);
	flush(d);
	if (st->transport && half)
		put_object(d, half, st->transport);
	if (st->reason)
		put(d, " reason=\"%s\"", st->reason->text);
	flush(d);
}

uint32_t pv_stats_dump(int fd, enum pv_log_level level)
{
	struct dump d = { .fd = fd, .level = level };

	pv_stats_each(PV_STAT_T_SOCKET, put_socket, &d);
	if (d.found > PV_STATS_DUMP_MAX)
		pv_log(level, "%u sockets more", d.found - PV_STATS_DUMP_MAX);
	return d.found;
}
