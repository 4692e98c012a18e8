/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of all sockets: configuration, keys, counters, and what the stack calls between segments. */
#include "tcp/conn.h"
#include "tcp/gro.h"

/* Connections a turn: what waits for long must not make each poll a long one. */
#define ROOM_BUDGET 64u

/* ---- table ------------------------------------------------------------------------------------------------------------------ */

static int fill_cfg(struct pv_tcp_cfg *c)
{
#define PV_TCP_DEFAULT(field, value) c->field = c->field ? c->field : (value)
	if (c->port_lo > c->port_hi || (c->port_hi && !c->port_lo))
		return -EINVAL;
	PV_TCP_DEFAULT(sockets_hint, 1024);
	PV_TCP_DEFAULT(port_lo, 32768);
	PV_TCP_DEFAULT(port_hi, 60999);
	PV_TCP_DEFAULT(rto_min_ns, 200 * PV_NS_PER_MS);
	PV_TCP_DEFAULT(rto_max_ns, 120 * PV_NS_PER_S);
	PV_TCP_DEFAULT(delack_max_ns, 40 * PV_NS_PER_MS);
	PV_TCP_DEFAULT(time_wait_ns, 60 * PV_NS_PER_S);
	PV_TCP_DEFAULT(fin_timeout_ns, 60 * PV_NS_PER_S);
	PV_TCP_DEFAULT(rcvbuf, 131072);
	PV_TCP_DEFAULT(rcvbuf_max, 6291456);
	PV_TCP_DEFAULT(sndbuf, 16384);
	PV_TCP_DEFAULT(sndbuf_max, 4194304);
	PV_TCP_DEFAULT(syn_retries, 6);
	PV_TCP_DEFAULT(synack_retries, 5);
	PV_TCP_DEFAULT(retries2, 15);
	PV_TCP_DEFAULT(orphan_retries, 8);
	PV_TCP_DEFAULT(somaxconn, 4096);
	PV_TCP_DEFAULT(quickack_segs, 16);
	PV_TCP_DEFAULT(gro_streams, 32);
#undef PV_TCP_DEFAULT
	c->ecn = c->ecn == 0 ? 2 : c->ecn == 3 ? 0 : c->ecn;
	if (!c->congestion[0])
		memcpy(c->congestion, "cubic", sizeof("cubic"));
	c->congestion[sizeof(c->congestion) - 1] = 0;
	return pv_cc_find(c->congestion) ? 0 : -ENOENT;
}

static void seed_keys(struct pv_tcp_table *t)
{
	uint64_t s = t->cfg.seed ^ UINT64_C(0x7463702d6b657973);

	pv_rng_seed(&t->rng, pv_splitmix64(&s));
	t->hash = pv_hash_key(pv_splitmix64(&s));
	t->isn_key = pv_siphash_key(pv_splitmix64(&s));
	t->ts_key = pv_siphash_key(pv_splitmix64(&s));
	t->port_key = pv_siphash_key(pv_splitmix64(&s));
	t->cookie_key[0] = pv_siphash_key(pv_splitmix64(&s));
	t->cookie_key[1] = pv_siphash_key(pv_splitmix64(&s));
	t->next_port = pv_rng_u32(&t->rng);
}

int pv_tcp_table_open(struct pv_tcp_table **out, struct pv_net *net, const struct pv_mem *mem, const struct pv_tcp_cfg *cfg)
{
	struct pv_tcp_cfg full = *cfg;
	struct pv_tcp_table *t;
	int rc = fill_cfg(&full);

	if (rc)
		return rc;
	t = pv_mem_alloc_shown(mem, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->net = net;
	t->mem = mem;
	t->cfg = full;
	seed_keys(t);
	pv_list_init(&t->head.ready);
	pv_list_init(&t->head.blocked);
	pv_list_init(&t->head.due);
	pv_list_init(&t->head.runs);
	pv_list_init(&t->all);
	pv_list_init(&t->slabs);
	pv_list_init(&t->time_waits_age);
	pv_list_init(&t->fin_waits_age);
	pv_list_init(&t->left_age);
	pv_list_init(&t->idle);
	t->head.deadline_ns = t->head.wake_ns = PV_NEVER;
	pv_wheel_init(&t->wheel, 0);
	pv_wheel_init(&t->syn_wheel, 0);
	if (pv_htab_init(&t->conns, mem, full.sockets_hint) || pv_htab_init(&t->listeners, mem, 64) ||
	    pv_htab_init(&t->ports, mem, 256) || pv_htab_init(&t->time_waits, mem, 256) || pv_htab_init(&t->embryos, mem, 256) ||
	    pv_htab_init(&t->left, mem, 16) || pv_tcp_gro_open(t)) {
		pv_tcp_table_close(t);
		return -ENOMEM;
	}
	t->shown = pv_mem_show(mem, &pv_tcp_table_stat_type, &t->c);
	*out = t;
	return 0;
}

void pv_tcp_table_close(struct pv_tcp_table *t)
{
	if (!t)
		return;
	t->cfg.reserve_max = 0;
	pv_tcp_reserve_flush(t);
	while (!pv_list_empty(&t->all))
		pv_tcp_free(pv_list_entry(t->all.next, struct pv_tcp, all));
	while (!pv_list_empty(&t->time_waits_age))
		pv_tcp_tw_drop(t, pv_list_entry(t->time_waits_age.next, struct pv_tcp_tw, age));
	while (!pv_list_empty(&t->fin_waits_age))
		pv_tcp_tw_drop(t, pv_list_entry(t->fin_waits_age.next, struct pv_tcp_tw, age));
	pv_tcp_left_close(t);
	pv_tcp_slabs_close(t);
	pv_tcp_gro_close(t);
	while (t->chunks) {
		struct pv_tcp_chunk *k = t->chunks;

		t->chunks = k->next;
		pv_tcp_dealloc(t, k, k->size);
	}
	pv_htab_fini(&t->conns);
	pv_htab_fini(&t->listeners);
	pv_htab_fini(&t->ports);
	pv_htab_fini(&t->time_waits);
	pv_htab_fini(&t->left);
	pv_htab_fini(&t->embryos);
	pv_mem_hide(t->mem, t->shown);
	pv_mem_free_shown(t->mem, t, sizeof(*t));
}

const struct pv_tcp_counters *pv_tcp_table_counters(const struct pv_tcp_table *t)
{
	return &t->c;
}

uint32_t pv_tcp_count(const struct pv_tcp_table *t, enum pv_tcp_state state)
{
	if (state == PV_TCP_TIME_WAIT)
		return t->time_waits.count - t->fin_waits;
	return t->by_state[state] + (state == PV_TCP_SYN_RCVD ? t->embryos.count : state == PV_TCP_FIN_WAIT_2 ? t->fin_waits : 0);
}

/* ---- from the stack ------------------------------------------------------------------------------------------------------------ */

/* What a connection may send or must acknowledge, it does now. */
static void pay(struct pv_tcp *c, int64_t now_ns)
{
	if (pv_tcp_may_send(c))
		pv_tcp_output(c, now_ns);
	if (c->flags & PV_TF_ACK_NOW)
		pv_tcp_send_ack(c, now_ns);
}

void pv_tcp_rx_done(struct pv_tcp_table *t, int64_t now_ns)
{
	t->head.now_ns = now_ns;
	while (!pv_list_empty(&t->head.due)) {
		struct pv_tcp *c = pv_list_entry(t->head.due.next, struct pv_tcp, due);

		pv_list_del(&c->due);
		if (c->state != PV_TCP_CLOSED)
			pay(c, now_ns);
	}
}

/* Those that meet the end of the room again wait again, behind the others. */
uint32_t pv_tcp_room(struct pv_tcp_table *t, int64_t now_ns)
{
	uint32_t n = 0;

	t->head.now_ns = now_ns;
	/* Whoever goes on waiting does so behind it. */
	pv_list_add(&t->head.blocked, &t->room_end);
	while (t->head.blocked.next != &t->room_end && n < ROOM_BUDGET) {
		struct pv_tcp *c = pv_list_entry(t->head.blocked.next, struct pv_tcp, blocked);

		pv_list_del(&c->blocked);
		c->flags &= ~PV_TF_BLOCKED;
		pay(c, now_ns);
		pv_tcp_space(c);
		n++;
	}
	pv_list_del(&t->room_end);
	return n;
}

static uint32_t conn_timers(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget)
{
	struct pv_wtimer *w;
	uint32_t n = 0;

	for (; n < budget && (w = pv_wheel_pop_due(&t->wheel, now_ns)); n++)
		pv_tcp_timer_fired(pv_container_of(w, struct pv_tcp, timer), now_ns);
	return n;
}

static int64_t first_to_end(const struct pv_list *records)
{
	return pv_list_empty(records) ? PV_NEVER : pv_list_entry(records->next, struct pv_tcp_tw, age)->deadline_ns;
}

static int64_t first_deadline(const struct pv_tcp_table *t)
{
	int64_t conns = PV_MIN(pv_wheel_deadline(&t->wheel), pv_wheel_deadline(&t->syn_wheel));

	conns = PV_MIN(conns, PV_MIN(pv_tcp_reserve_deadline(t), pv_tcp_left_deadline(t)));
	return PV_MIN(conns, PV_MIN(first_to_end(&t->time_waits_age), first_to_end(&t->fin_waits_age)));
}

uint32_t pv_tcp_timers(struct pv_tcp_table *t, int64_t now_ns, uint32_t budget)
{
	struct pv_wtimer *w;
	uint32_t n;

	t->head.now_ns = now_ns;
	n = conn_timers(t, now_ns, budget);
	for (; n < budget && (w = pv_wheel_pop_due(&t->syn_wheel, now_ns)); n++)
		pv_tcp_syn_timeout(t, w, now_ns);
	n += pv_tcp_tw_timeouts(t, now_ns, budget - n);
	n += pv_tcp_reserve_timeouts(t, now_ns, budget - n);
	n += pv_tcp_left_timeouts(t, now_ns, budget - n);
	if (pv_tcp_owes(t))
		pv_tcp_rx_done(t, now_ns);
	t->head.deadline_ns = first_deadline(t);
	return n;
}

/* Anything of that pool: received by another way than the path, or kept from before the path moved. */
static bool holds(const struct pv_tcp *c, const struct pv_pool *pool)
{
	for (const struct pv_pkt *p = c->rcvq.head; p; p = p->next)
		if (pv_pool_owns(pool, p))
			return true;
	for (const struct pv_pkt *r = c->ooo.head; r; r = pv_ooo_next(r))
		for (const struct pv_pkt *p = r; p; p = p->next)
			if (pv_pool_owns(pool, p))
				return true;
	pv_list_for_each(it, &c->sndq) {
		const struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, link);

		if (s->pkt && s->pkt->pool == pool)
			return true;
	}
	return false;
}

void pv_tcp_iface_gone(struct pv_tcp_table *t, uint32_t iface)
{
	struct pv_iface *ifp = pv_net_iface(t->net, iface);
	const struct pv_pool *pool = ifp ? pv_iface_ring(ifp)->pool : NULL;

	t->going = iface;
	pv_tcp_steer_gone(t, iface);
	pv_list_for_each_safe(it, next, &t->all) {
		struct pv_tcp *c = pv_list_entry(it, struct pv_tcp, all);

		/* Its route may lead elsewhere by now. */
		if (c->txq && pv_txq_iface(c->txq) == iface)
			pv_tcp_pace_end(c);
		if ((c->path.gen && c->path.iface == iface) || holds(c, pool)) {
			pv_tcp_rcvq_drop(c);
			pv_tcp_abort(c, ENETDOWN);
		}
	}
	t->going = 0;
}
