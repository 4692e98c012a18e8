/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets that are held to a rate (SO_MAX_PACING_RATE): a paced queue (net/txq.h) for each interface they send by, made when the first
 * datagram goes there. What waits for its time is charged to SO_SNDBUF as Linux charges it (sock_alloc_send_pskb, sock_def_write_space):
 * a send finds room while less than that is queued, and who waits hears of it when half of it is free.
 */
#include "udp/udp_int.h"

struct pv_udp_pace {
	struct pv_pacing pacing;
	struct pv_list queues; /* struct pv_txq, one an interface */
	bool full; /* less than half of the send buffer is free: PV_EV_OUT is owed */
};

/* An eighth of the pool is for those who have nothing queued; the ring's receive buffers leave a quarter of it, or more. */
static bool starved(const struct pv_pool *pool)
{
	return pool->nfree <= pool->total >> 3;
}

struct charge {
	uint64_t bytes;
	bool starved;
};

static struct charge charge(const struct pv_udp *u, bool look)
{
	struct charge c = { 0 };

	pv_list_for_each(it, &u->pace->queues) {
		struct pv_txq *q = pv_txq_of_link(it);
		struct pv_iface *ifp = pv_net_iface(u->t->net, pv_txq_iface(q));
		struct pv_txq_load load;

		if (look)
			pv_txq_look(q);
		pv_txq_load(q, &load);
		c.bytes += load.bytes + (uint64_t)load.frames * PV_UDP_OVERHEAD;
		c.starved |= load.frames && starved(pv_iface_ring(ifp)->pool);
	}
	return c;
}

static void set_full(struct pv_udp *u, bool full, int64_t now_ns)
{
	if (full == u->pace->full)
		return;
	u->pace->full = full;
	pv_list_for_each(it, &u->pace->queues)
		pv_txq_want_room(pv_txq_of_link(it), full, now_ns);
}

/* Some of what was queued has left. */
static void room(void *user)
{
	struct pv_udp *u = user;
	struct charge c = charge(u, false);

	if (c.starved || c.bytes * 2 > u->opts.sndbuf)
		return;
	set_full(u, false, u->t->head.now_ns);
	pv_udp_wake(u, PV_EV_OUT);
}

bool pv_udp_held(const struct pv_udp *u)
{
	return u->pace && u->pace->full;
}

uint32_t pv_udp_peer_iface(const struct pv_udp *u)
{
	return u->connected ? u->path_iface : 0;
}

static int queue_open(struct pv_udp *u, const struct pv_path *path, int64_t now_ns, struct pv_txq **out)
{
	struct pv_txq_cfg cfg = { .iface = path->iface, .from = path->txq, .room = room, .user = u };
	struct pv_udp_pace *p = u->pace;
	int rc = pv_txq_open(u->t->net, &cfg, out);

	if (rc)
		return rc == -ENOMEM ? -ENOBUFS : rc;
	pv_list_add(&p->queues, pv_txq_link(*out));
	pv_txq_set(*out, &p->pacing, now_ns);
	if (p->full)
		pv_txq_want_room(*out, true, now_ns);
	return 0;
}

/* Not paced any more, and nothing waits: back to the straight line. */
static void end_if_settled(struct pv_udp *u, int64_t now_ns)
{
	pv_list_for_each_safe(it, next, &u->pace->queues) {
		struct pv_txq *q = pv_txq_of_link(it);

		if (pv_txq_settled(q))
			pv_txq_close(q, now_ns);
	}
	if (pv_list_empty(&u->pace->queues))
		pv_udp_pace_end(u, now_ns);
}

int pv_udp_pace_begin(struct pv_udp *u, const struct pv_udp_dst *d, int64_t now_ns, struct pv_txq **out)
{
	struct charge c;
	int rc;

	*out = NULL;
	if (!pv_pacing_on(&u->pace->pacing)) {
		end_if_settled(u, now_ns);
		if (!u->pace)
			return 0;
	}
	/* What does not leave the host has no queue, as on Linux's loopback. */
	if (d->path.is_local)
		return 0;
	*out = pv_txq_find(&u->pace->queues, d->path.iface);
	if (!*out && pv_pacing_on(&u->pace->pacing)) {
		rc = queue_open(u, &d->path, now_ns, out);
		if (rc)
			return rc;
	}
	c = charge(u, false);
	if (c.starved || c.bytes >= u->opts.sndbuf)
		c = charge(u, true);
	if (!c.starved && c.bytes < u->opts.sndbuf)
		return 0;
	set_full(u, true, now_ns);
	return -EAGAIN;
}

void pv_udp_pace_sent(struct pv_udp *u, int64_t now_ns)
{
	struct charge c = charge(u, false);

	if (c.bytes * 2 <= u->opts.sndbuf)
		return;
	c = charge(u, true);
	if (c.bytes * 2 > u->opts.sndbuf)
		set_full(u, true, now_ns);
}

void pv_udp_pace_end(struct pv_udp *u, int64_t now_ns)
{
	struct pv_udp_pace *p = u->pace;

	if (!p)
		return;
	pv_list_for_each_safe(it, next, &p->queues)
		pv_txq_close(pv_txq_of_link(it), now_ns);
	u->pace = NULL;
	u->pacing_rate = 0;
	if (p->full)
		pv_udp_wake(u, PV_EV_OUT);
	pv_udp_free(u->t, p, sizeof(*p));
	u->conn.path.gen = u->to.path.gen = 0;
}

void pv_udp_pace_gone(struct pv_udp *u, uint32_t iface, int64_t now_ns)
{
	struct pv_txq *q = u->pace ? pv_txq_find(&u->pace->queues, iface) : NULL;

	if (!q)
		return;
	pv_txq_close(q, now_ns);
	room(u);
}

int pv_udp_set_pacing(struct pv_udp *u, const struct pv_pacing *pacing, int64_t now_ns)
{
	if (!u->pace) {
		if (!pv_pacing_on(pacing))
			return 0;
		u->pace = pv_udp_alloc(u->t, sizeof(*u->pace));
		if (!u->pace)
			return -ENOMEM;
		pv_list_init(&u->pace->queues);
	}
	u->pace->pacing = *pacing;
	u->pacing_rate = pv_pacing_on(pacing) ? pacing->rate : 0;
	u->conn.path.gen = u->to.path.gen = 0;
	pv_list_for_each(it, &u->pace->queues)
		pv_txq_set(pv_txq_of_link(it), pacing, now_ns);
	return 0;
}

bool pv_udp_pacing_info(const struct pv_udp *u, uint32_t i, struct pv_txq_info *out)
{
	if (!u->pace)
		return false;
	pv_list_for_each(it, &u->pace->queues) {
		if (i-- == 0) {
			pv_txq_info(pv_txq_of_link(it), out);
			return true;
		}
	}
	return false;
}
