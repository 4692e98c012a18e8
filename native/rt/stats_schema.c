/* SPDX-License-Identifier: BSD-3-Clause */
/* The types that there are, and what the file says of them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "net/net.h"
#include "pkt/pkt.h"
#include "pyvma.h"
#include "ring/ring.h"
#include "rt/stats.h"
#include "rt/stats_types.h"
#include "tcp/tcp.h"
#include "udp/udp.h"

static const struct {
	const char *name, *help;
} texts[PV_STAT_T_COUNT] = {
#define TEXT(id, name, help) [PV_STAT_T_##id] = { #name, help },
	PV_STAT_TYPES(TEXT)
};

static const struct pv_stat_type *const types[PV_STAT_T_COUNT] = {
	[PV_STAT_T_ENGINE] = &pv_engine_stat_type,
	[PV_STAT_T_NET] = &pv_net_stat_type,
	[PV_STAT_T_UDP_TABLE] = &pv_udp_table_stat_type,
	[PV_STAT_T_TCP_TABLE] = &pv_tcp_table_stat_type,
	[PV_STAT_T_RING] = &pv_ring_stat_type,
	[PV_STAT_T_POOL] = &pv_pool_stat_type,
	[PV_STAT_T_SOCKET] = &pv_sock_stat_type,
	[PV_STAT_T_UDP] = &pv_udp_stat_type,
	[PV_STAT_T_TCP] = &pv_tcp_stat_type,
	[PV_STAT_T_MEMBERSHIP] = &pv_udp_member_stat_type,
	[PV_STAT_T_EPOLL] = &pv_epoll_stat_type,
	[PV_STAT_T_REASON] = &pv_reason_stat_type,
	[PV_STAT_T_LISTENER] = &pv_tcp_listener_stat_type,
	[PV_STAT_T_KERNEL] = &pv_kernel_stat_type,
	[PV_STAT_T_RXQ] = &pv_rxq_stat_type,
};

static const char *const kinds[] = {
	[PV_STAT_COUNTER] = "counter", [PV_STAT_GAUGE] = "gauge", [PV_STAT_MAX] = "max",   [PV_STAT_SIGNED] = "signed",
	[PV_STAT_ENUM] = "enum",       [PV_STAT_FLAG] = "flag",   [PV_STAT_TIME] = "time", [PV_STAT_ADDR] = "addr",
	[PV_STAT_PORT] = "port",       [PV_STAT_MAC] = "mac",     [PV_STAT_TEXT] = "text", [PV_STAT_ID] = "id",
	[PV_STAT_LINK] = "link",
};

const struct pv_stat_type *pv_stats_type(uint32_t id)
{
	return id < PV_STAT_T_COUNT ? types[id] : NULL;
}

const char *pv_stats_type_name(uint32_t id)
{
	return id < PV_STAT_T_COUNT ? texts[id].name : NULL;
}

const char *pv_stats_type_help(uint32_t id)
{
	return id < PV_STAT_T_COUNT ? texts[id].help : NULL;
}

struct writer {
	char *buf;
	size_t size, len;
};

static void put(struct writer *w, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++, w->len++)
		if (w->len < w->size)
			w->buf[w->len] = text[i];
}

__attribute__((format(printf, 2, 3))) static void say(struct writer *w, const char *format, ...)
{
	char text[256];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	put(w, text, n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

/* Our own texts: no control characters. */
static void string(struct writer *w, const char *text, size_t n)
{
	put(w, "\"", 1);
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '"' || text[i] == '\\')
			put(w, "\\", 1);
		put(w, &text[i], 1);
	}
	put(w, "\"", 1);
}

static void member(struct writer *w, const char *name, const char *text)
{
	say(w, ",\"%s\":", name);
	string(w, text, strlen(text));
}

static void names(struct writer *w, const char *list)
{
	say(w, ",\"names\":[");
	for (const char *p = list;; p++) {
		size_t n = strcspn(p, ",");

		string(w, p, n);
		p += n;
		if (!*p)
			break;
		put(w, ",", 1);
	}
	put(w, "]", 1);
}

static void field(struct writer *w, const struct pv_stat_field *f)
{
	say(w, "{\"name\":\"%s\",\"kind\":\"%s\",\"offset\":%u,\"size\":%u", f->name, kinds[f->kind], f->offset, f->size);
	member(w, "unit", f->unit);
	member(w, "help", f->help);
	if (f->names)
		names(w, f->names);
	if (f->mask)
		say(w, ",\"mask\":%u", f->mask);
	put(w, "}", 1);
}

size_t pyvma_stats_schema(char *buf, size_t size)
{
	struct writer w = { .buf = buf, .size = size };

	say(&w, "{\"types\":[");
	for (uint32_t id = 1; id < PV_STAT_T_COUNT; id++) {
		const struct pv_stat_type *t = types[id];

		say(&w, "%s{\"name\":\"%s\"", id > 1 ? "," : "", texts[id].name);
		member(&w, "help", texts[id].help);
		say(&w, ",\"size\":%u,\"fields\":[", t->size);
		for (uint32_t i = 0; i < t->nfields; i++) {
			if (i)
				put(&w, ",", 1);
			field(&w, &t->fields[i]);
		}
		say(&w, "]}");
	}
	say(&w, "]}\n");
	return w.len;
}
