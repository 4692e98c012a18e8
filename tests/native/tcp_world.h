/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts with TCP on one simulated wire in virtual time: world.h's, with the invariants of tcp_check.h looked at after every turn.
 *
 *   tcp_world_open(&w, &cfg)   world_close(&w)     world_run checks from now on; cfg.tcp configures the tables; sockets are the test's to close
 *   tcp_sock(&w, host, family)                     a fresh socket
 *   tcp_listener(&w, host, family, port, backlog)  one that listens on every address
 *   tcp_dial(&w, host, family, to, port)           one that connects to host `to`
 *   tcp_pair(&w, family, port, pair)               pair[0] of host 0 connected to pair[1] of host 1; no listener is left
 *   tcp_world_dump(&w)                             counters and connections, to stderr
 *   tcp_write  tcp_read  tcp_fade                  send, receive; close both and wait until nothing of them is left
 */
#ifndef TCP_WORLD_H
#define TCP_WORLD_H

#include "tcp_check.h"
#include "world.h"

static inline void tcp_world_open(struct world *w, const struct world_cfg *c)
{
	world_open(w, c);
	for (uint32_t i = 0; i < w->nhosts; i++)
		w->host[i].tcp = pv_stack_tcp(w->host[i].stack);
	w->check = tcp_check_host;
}

/* For whoever looks at a failed test. */
static inline void tcp_world_dump(const struct world *w)
{
	for (uint32_t i = 0; i < w->nhosts; i++) {
		const struct pv_tcp_counters *n = pv_tcp_table_counters(w->host[i].tcp);

		fprintf(stderr, "host %u:", i);
#define TCP_WORLD_SAY(name, kind, unit, help)                                                                                      \
	if (n->name)                                                                                                               \
		fprintf(stderr, " " #name "=%" PRIu64, n->name);
		PV_TCP_COUNTERS(TCP_WORLD_SAY)
		fprintf(stderr, "\n");
		pv_list_for_each(it, &w->host[i].tcp->all)
			tcp_say(pv_list_entry(it, struct pv_tcp, all));
	}
}

static inline struct pv_tcp *tcp_sock(struct world *w, uint32_t host, int family)
{
	struct pv_tcp *c;

	CHECK_EQ(pv_tcp_open(w->host[host].tcp, family == 4 ? PV_AF_INET : PV_AF_INET6, NULL, &c), 0);
	return c;
}

static inline struct pv_tcp *tcp_listener(struct world *w, uint32_t host, int family, uint16_t port, int backlog)
{
	struct pv_tcp *l = tcp_sock(w, host, family);
	struct pv_endpoint e = ep(family == 4 ? any4() : any6(), port);

	CHECK_EQ(pv_tcp_bind(l, &e), 0);
	CHECK_EQ(pv_tcp_listen(l, backlog), 0);
	return l;
}

static inline struct pv_tcp *tcp_dial(struct world *w, uint32_t host, int family, uint32_t to, uint16_t port)
{
	struct pv_tcp *c = tcp_sock(w, host, family);
	struct pv_endpoint e = ep(host_addr(family, (uint8_t)(to + 1)), port);

	CHECK_EQ(pv_tcp_connect(c, &e, w->now), -EINPROGRESS);
	return c;
}

static inline void tcp_pair(struct world *w, int family, uint16_t port, struct pv_tcp *pair[2])
{
	struct pv_tcp *l = tcp_listener(w, 1, family, port, 4);

	pair[0] = tcp_dial(w, 0, family, 1, port);
	for (int i = 0; pv_tcp_accept(l, &pair[1]); i++) {
		CHECK(i < 1000);
		world_run(w, 10 * PV_NS_PER_MS);
	}
	CHECK_EQ(pv_tcp_state(pair[0]), PV_TCP_ESTABLISHED);
	CHECK_EQ(pv_tcp_state(pair[1]), PV_TCP_ESTABLISHED);
	pv_tcp_close(l, w->now);
}

static inline int64_t tcp_write(struct world *w, struct pv_tcp *c, const void *data, size_t len)
{
	struct pv_iov iov = { data, len };

	return pv_tcp_send(c, &iov, 1, 0, w->now);
}

static inline int64_t tcp_read(struct world *w, struct pv_tcp *c, void *data, size_t len)
{
	struct pv_iov iov = { data, len };

	return pv_tcp_recv(c, &iov, 1, 0, w->now);
}

/* Whatever is left of connections ends by itself: orphans, TIME_WAIT. */
static inline void tcp_fade(struct world *w)
{
	for (int i = 0; i < 100; i++) {
		bool left = false;

		world_run(w, 10 * PV_NS_PER_S);
		for (uint32_t h = 0; h < w->nhosts; h++)
			for (uint32_t s = PV_TCP_ESTABLISHED; s <= PV_TCP_CLOSING; s++)
				left |= pv_tcp_count(w->host[h].tcp, (enum pv_tcp_state)s) != 0;
		if (!left)
			return;
	}
	CHECK(!"nothing is left after 1000 s");
}

#endif
