/* SPDX-License-Identifier: BSD-3-Clause */
/* A socket of host 0 that is held to a rate, and who gets what it sends. */
#ifndef PACE_LINE_H
#define PACE_LINE_H

#include "world.h"

#define MS PV_NS_PER_MS
#define SEC PV_NS_PER_S
#define WIRE 42 /* Ethernet, IPv4 and UDP headers */

struct line {
	struct world w;
	struct pv_udp *a, *b;
	struct pv_endpoint to;
	uint32_t sent, got, frames;
	uint64_t bytes; /* on the wire, of those that came */
	int64_t first, last;
};

static inline void line_open(struct line *l, const struct world_cfg *cfg)
{
	struct pv_udp_recv msg;

	*l = (struct line){ .to = ep(ip4(10, 0, 0, 2), 7000) };
	world_open(&l->w, cfg);
	l->a = sock_open(&l->w, 0, PV_AF_INET);
	l->b = sock_bound(&l->w, 1, PV_AF_INET, any4(), 7000);
	pv_udp_options(l->b)->rcvbuf = 1 << 30;
	pv_udp_options_changed(l->b);
	/* Neighbours are known from here on. */
	CHECK_EQ(sock_send(&l->w, l->a, &l->to, "", 0), 0);
	world_run(&l->w, MS);
	CHECK_EQ(sock_recv(l->b, NULL, 0, &msg), 0);
}

static inline void line_close(struct line *l)
{
	if (l->a)
		pv_udp_close(l->a);
	pv_udp_close(l->b);
	world_close(&l->w);
}

static inline void pace(struct line *l, uint64_t rate, uint32_t burst)
{
	CHECK_EQ(pv_udp_set_pacing(l->a, &(struct pv_pacing){ .rate = rate, .burst = burst }, l->w.now), 0);
}

/* The datagram's number is its payload's beginning. */
static inline int64_t put(struct line *l, uint32_t len)
{
	static uint8_t buf[65535];
	int64_t n;

	memcpy(buf, &l->sent, sizeof(l->sent));
	n = sock_send(&l->w, l->a, &l->to, buf, len);
	l->sent += n >= 0;
	return n;
}

/* Takes what has come, in order. */
static inline void take(struct line *l)
{
	static uint8_t buf[65535];
	struct pv_udp_recv msg;
	int64_t n;

	while ((n = sock_recv(l->b, buf, sizeof(buf), &msg)) >= 0) {
		uint32_t number;

		memcpy(&number, buf, sizeof(number));
		CHECK_EQ(number, l->got);
		if (!l->got++)
			l->first = msg.arrival_ns;
		l->last = msg.arrival_ns;
		l->bytes += (uint64_t)n + WIRE;
	}
	CHECK_EQ(n, -EAGAIN);
}

static inline int64_t span(uint64_t bytes, uint64_t rate)
{
	return (int64_t)(bytes * (uint64_t)SEC / rate);
}

#endif
