/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transmit queues of the sim ring: what waits, and when the next frame of it may leave. The rate is kept as the generic cell rate
 * algorithm has it (ITU-T I.371): `tat_ns` is when the queue has earned all that it sent, and a frame may leave ahead of that by
 * what the burst allows. No clock of its own; all times are the wire's.
 */
#include <errno.h>

#include "ring/own.h"
#include "ring/sim_priv.h"

static int64_t cost_ns(const struct sim_txq *q, uint32_t bytes)
{
	return q->rate.kbps ? (int64_t)(((uint64_t)bytes * 8 * 1000000 + q->rate.kbps - 1) / q->rate.kbps) : 0;
}

/* Bytes of the next frame: of the first packet, or of the part of it that is to be cut off next. */
static uint32_t next_len(const struct sim_txq *q)
{
	const struct pv_pkt *p = q->wait.head;
	uint32_t total = 0;

	for (const struct pv_pkt *f = p; f; f = f->frag)
		total += f->len;
	if (!(p->flags & PV_PKT_TX_TSO) || !p->gso_size || total < p->gso_hdr + q->part * p->gso_size)
		return total;
	return p->gso_hdr + PV_MIN((uint32_t)p->gso_size, total - p->gso_hdr - q->part * p->gso_size);
}

/* When the next frame may leave; PV_NEVER: nothing waits. */
static int64_t due_ns(const struct sim_txq *q)
{
	uint32_t len;

	if (!q->wait.count)
		return PV_NEVER;
	if (!q->rate.kbps)
		return 0;
	len = next_len(q);
	return q->tat_ns - cost_ns(q, q->rate.burst_bytes > len ? q->rate.burst_bytes - len : 0);
}

/* The next frame leaves at that time. */
static void leave(struct sim_txq *q, int64_t now_ns)
{
	q->tat_ns = PV_MAX(q->tat_ns, now_ns) + cost_ns(q, next_len(q));
}

/* One frame of the queue, now. */
static void txq_transmit(struct sim_ring *s, struct sim_txq *q)
{
	struct pv_pkt *p = q->wait.head;
	uint32_t len, n = pv_sim_frames_of(s, p, &len);
	int64_t left_ns = -1;

	if (!q->part)
		pv_sim_count(s, p, n, len);
	if (q->part < n) {
		leave(q, s->wire->now_ns);
		left_ns = pv_sim_transmit(s, p, q->part++, len);
	}
	if (q->part < n)
		return;
	q->part = 0;
	pv_sim_transmitted(s, pv_pktq_pop(&q->wait), left_ns);
	s->wire->paced--;
	if (q->closing && !q->wait.count)
		q->open = q->closing = false;
}

/* The queue whose next frame is the first to leave; its time, or PV_NEVER. */
int64_t pv_sim_txq_next(const struct pv_sim_wire *w, struct sim_ring **ring, struct sim_txq **txq)
{
	int64_t first = PV_NEVER;

	if (!w->paced)
		return first;
	pv_list_for_each(it, &w->rings) {
		struct sim_ring *s = pv_list_entry(it, struct sim_ring, link);

		for (uint32_t i = 0; s->txq && i <= s->ring.caps.txqs; i++) {
			int64_t due = due_ns(&s->txq[i]);

			if (due < first) {
				first = due;
				*ring = s;
				*txq = &s->txq[i];
			}
		}
	}
	return first;
}

/* Lets leave and arrive what is due until then, in order of time. */
void pv_sim_run_until(struct pv_sim_wire *w, int64_t until_ns)
{
	struct sim_ring *s = NULL;
	struct sim_txq *q = NULL;
	int64_t due;

	while ((due = pv_sim_txq_next(w, &s, &q)) <= until_ns) {
		w->now_ns = PV_MAX(w->now_ns, due);
		pv_sim_run(w);
		txq_transmit(s, q);
	}
	w->now_ns = PV_MAX(w->now_ns, until_ns);
	pv_sim_run(w);
}

/* False: the queue is full. */
bool pv_sim_txq_post(struct sim_ring *s, struct pv_pkt *p)
{
	uint32_t number = pv_pkt_txq(p);
	struct sim_txq *q = s->txq && number <= s->ring.caps.txqs ? &s->txq[number] : NULL;

	if (q && q->wait.count >= s->ring.caps.tx_depth)
		return false;
	pv_ring_take(p);
	if (!q || !q->open || q->closing) {
		s->ring.stat->c.tx_errors++;
		pv_pktq_push(&s->tx_done, p);
	} else {
		pv_pktq_push(&q->wait, p);
		s->wire->paced++;
	}
	return true;
}

int pv_sim_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate)
{
	struct sim_ring *s = sim(r);
	uint32_t i = 1;

	if (!s->wire)
		return -ENODEV;
	while (i <= r->caps.txqs && s->txq[i].open)
		i++;
	if (i > r->caps.txqs)
		return -ENOSPC;
	s->txq[i].open = true;
	s->txq[i].rate = *rate;
	s->txq[i].tat_ns = 0;
	return (int)i;
}

static struct sim_txq *find_txq(struct sim_ring *s, uint32_t txq)
{
	return s->txq && txq <= s->ring.caps.txqs && s->txq[txq].open && !s->txq[txq].closing ? &s->txq[txq] : NULL;
}

int pv_sim_txq_close(struct pv_ring *r, uint32_t txq)
{
	struct sim_txq *q = txq ? find_txq(sim(r), txq) : NULL;

	if (!q)
		return -ENOENT;
	q->closing = q->wait.count != 0;
	q->open = q->closing;
	return 0;
}

int pv_sim_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate)
{
	struct sim_txq *q = find_txq(sim(r), txq);

	if (!sim(r)->wire)
		return -ENODEV;
	if (!q)
		return -ENOENT;
	q->rate = *rate;
	return 0;
}

uint32_t pv_sim_txq_pending(struct pv_ring *r, uint32_t txq)
{
	struct sim_ring *s = sim(r);

	return s->txq && txq <= r->caps.txqs ? s->txq[txq].wait.count : 0;
}
