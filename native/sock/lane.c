/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where sockets are placed. Tables: the queues of each interface, with how many are led there; the keys in use, each with its queue; the
 * rules, each with the sockets that have a share in it. A rule leads to the queues of all of its shares. Those of an interface that was closed
 * are found out by its serial number, and forgotten without asking its ring.
 *
 * Placing first plans: shares, keys and queues for all that the socket receives. Then each rule is led there; when one cannot be, those
 * before it are led back. Only then the old shares go.
 */
#include "sock/lane.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/htab.h"
#include "rt/error.h"
#include "rt/mem.h"

/* Turns of the stack that a queue gets to have buffers again. */
#define TURNS 8
#define IDLE_NS (10 * PV_NS_PER_MS)

struct queues {
	uint32_t serial;
	uint64_t open; /* a bit each */
	uint32_t users[PV_RING_RXQ_MAX + 1];
	int64_t left_ns[PV_RING_RXQ_MAX + 1]; /* without users: since when */
};

struct key {
	struct pv_hnode node;
	uint64_t value;
	uint32_t logic, iface, serial, queue, refs;
};

struct rule {
	struct pv_hnode node;
	struct pv_list shares;
	struct pv_flow flow;
	uint64_t handle, set; /* where it leads to; 0: the ring has no such rule */
	uint32_t iface, serial, refs; /* refs: shares, planned ones among them */
};

struct share {
	struct pv_list on_rule, on_sock;
	struct pv_sock *so;
	struct rule *rule;
	struct key *key;
	struct share *old; /* whose place on the rule it has */
};

struct pv_lane {
	struct pv_list shares;
	uint64_t value;
	uint32_t logic; /* enum pv_ring_logic; PV_RING_LOGIC_INTERFACE: at the first queues, by the program's will */
	bool prefers; /* SO_INCOMING_CPU is ours */
	int err; /* why it is not placed; 0: it is, or has no name yet */
};

static struct queues ports[PV_IFACE_MAX];
static struct pv_htab keys, rules;
static struct pv_list owed = { &owed, &owed }; /* shares without a socket, for rules that the device has not led elsewhere yet */
static bool forgetting; /* in a forked child, whose rings are the parent's */
static struct pv_hash_key hash_key;

static bool tables(void)
{
	if (!keys.bucket && pv_htab_init(&keys, pv_mem_system(false), 64))
		return false;
	if (!rules.bucket && pv_htab_init(&rules, pv_mem_system(false), 64))
		return false;
	if (!hash_key.k0)
		hash_key = pv_hash_key((uint64_t)pv_engine.cfg->seed + 1);
	return true;
}

/* NULL: it was closed. */
static struct pv_port *port_of(uint32_t iface, uint32_t serial)
{
	for (uint32_t i = 0; i < pv_engine.nports && !forgetting; i++)
		if (pv_engine.ports[i].index == iface)
			return pv_engine.ports[i].serial == serial || !serial ? &pv_engine.ports[i] : NULL;
	return NULL;
}

/* ---- queues ------------------------------------------------------------------------------------------------------------ */

static void lead_owed(void);

static struct queues *queues_of(const struct pv_port *p)
{
	struct queues *q = &ports[p->index - 1];

	if (q->serial != p->serial)
		*q = (struct queues){ .serial = p->serial };
	return q;
}

int pv_lane_open(const struct pv_port *p)
{
	struct queues *q = queues_of(p);
	int n;

	lead_owed();
	for (uint64_t left = q->open; left; left &= left - 1)
		if (!q->users[__builtin_ctzll(left)])
			return __builtin_ctzll(left);
	n = pv_ring_rxq_open(p->ring);
	if (n > 0)
		q->open |= UINT64_C(1) << n;
	return n;
}

void pv_lane_use(const struct pv_port *p, uint32_t queue)
{
	queues_of(p)->users[queue]++;
}

/* A frame that the device had looked up as the rule changed may still be on its way: until then the queue waits for somebody else who wants
 * one, and is closed when another is left. The ring refuses while the device has not taken back a rule over it. */
static void close_idle(const struct pv_port *p, struct queues *q, int64_t now_ns)
{
	for (uint64_t left = q->open; left; left &= left - 1) {
		uint32_t n = (uint32_t)__builtin_ctzll(left);

		if (!q->users[n] && now_ns - q->left_ns[n] >= IDLE_NS && !pv_ring_rxq_close(p->ring, n))
			q->open &= ~(UINT64_C(1) << n);
	}
}

void pv_lane_leave(const struct pv_port *p, uint32_t queue)
{
	struct queues *q = queues_of(p);
	int64_t now_ns = pv_clock_now(&pv_engine.clock);

	q->users[queue]--;
	q->left_ns[queue] = now_ns;
	close_idle(p, q, now_ns);
}

/* The one with the fewest, for a key more; 0: there is none. */
static uint32_t fold(const struct pv_port *p)
{
	const struct queues *q = queues_of(p);
	uint32_t best = 0;

	for (uint64_t left = q->open; left; left &= left - 1) {
		uint32_t n = (uint32_t)__builtin_ctzll(left);

		if (!best || q->users[n] < q->users[best])
			best = n;
	}
	return best;
}

int pv_lane_none(const struct pv_port *p)
{
	const char *name = p->ring->caps.name;

	if (p->spec.ring >= PV_IFSPEC_XDP)
		return pv_error(-EOPNOTSUPP, "%s has no receive queues beside its first ones: verbs and softnic rings do", name);
	if (!pv_engine.cfg->ring_logic_rx)
		return pv_error(-EOPNOTSUPP,
				"%s has no receive queues beside its first ones: verbs and softnic do with any ring_logic_rx but 0",
				name);
	return pv_error(-EOPNOTSUPP, "%s has no receive queues beside its first ones: the device gives no work queues with a hash",
			name);
}

/* ---- the device's side of rules ---------------------------------------------------------------------------------------- */

/* Not by pv_engine_poll, which may close the ring. */
void pv_lane_turn(void)
{
	(void)pv_stack_poll(pv_engine.stack, pv_clock_now(&pv_engine.clock), pv_engine.rx_budget);
	pv_engine_route(&pv_engine);
}

int pv_lane_move(struct pv_ring *ring, uint64_t handle, uint64_t set)
{
	int rc = pv_ring_flow_move(ring, handle, set);

	for (int i = 0; rc == -EAGAIN && i < TURNS; i++) {
		pv_lane_turn();
		rc = pv_ring_flow_move(ring, handle, set);
	}
	return rc;
}

static int rule_add(struct pv_ring *ring, struct rule *r, uint64_t set, int turns)
{
	int rc;

	r->flow.rxqs = set;
	rc = pv_ring_flow_add(ring, &r->flow, &r->handle);
	for (; rc == -EAGAIN && turns; turns--) {
		pv_lane_turn();
		rc = pv_ring_flow_add(ring, &r->flow, &r->handle);
	}
	return rc;
}

/* What SO_INCOMING_CPU says of a member of a group, as long as the program said nothing; -1: no more. */
static void prefer(struct pv_sock *so, int queue)
{
	struct pv_lane *lane = so->lane;
	bool tcp = so->tc && pv_tcp_state(so->tc) == PV_TCP_LISTEN;
	struct pv_udp_opts *o = so->u ? pv_udp_options(so->u) : NULL;
	int has = o ? o->incoming_cpu : tcp ? pv_tcp_incoming_cpu(so->tc) : -1;

	if (queue < 0 ? !lane->prefers : has >= 0 && !lane->prefers)
		return;
	lane->prefers = queue >= 0;
	if (o)
		o->incoming_cpu = queue;
	else if (tcp)
		pv_tcp_set_incoming_cpu(so->tc, queue);
}

static void prefer_own(const struct share *s, const struct pv_ring *ring)
{
	bool several = s->rule->set & (s->rule->set - 1);

	prefer(s->so, several ? (int)(ring->caps.queues - 1 + s->key->queue) : -1);
}

static void share_out(const struct rule *r, const struct pv_ring *ring)
{
	pv_list_for_each(it, &r->shares)
		prefer_own(pv_list_entry(it, struct share, on_rule), ring);
}

void pv_lane_said_slow(struct pv_sock *so)
{
	so->lane->prefers = false;
	pv_list_for_each(it, &so->lane->shares) {
		const struct share *s = pv_list_entry(it, struct share, on_sock);
		const struct pv_port *p = port_of(s->rule->iface, s->rule->serial);

		if (p)
			prefer_own(s, p->ring);
	}
}

/* To the queues of its shares, or out of the device when it has none. */
static int rule_lead(struct rule *r, int turns)
{
	const struct pv_port *p = port_of(r->iface, r->serial);
	uint64_t set = 0;
	int rc = 0;

	pv_list_for_each(it, &r->shares)
		set |= UINT64_C(1) << pv_list_entry(it, struct share, on_rule)->key->queue;
	if (!p || set == r->set) {
		r->set = p ? set : 0;
		return 0;
	}
	if (!set)
		(void)pv_ring_flow_del(p->ring, r->handle); /* a ring whose device is gone has forgotten it already */
	else if (!r->set)
		rc = rule_add(p->ring, r, set, turns);
	else
		rc = turns ? pv_lane_move(p->ring, r->handle, set) : pv_ring_flow_move(p->ring, r->handle, set);
	if (rc)
		return rc;
	r->set = set;
	share_out(r, p->ring);
	return 0;
}

/* ---- rules and keys ---------------------------------------------------------------------------------------------------- */

static uint32_t rule_hash(uint32_t iface, const struct pv_flow *f)
{
	return pv_hash_flow(&hash_key, &f->dst, &f->src, f->dst_port, f->src_port, (uint8_t)(iface + f->l4_proto));
}

static bool rule_is(const struct rule *r, const struct pv_port *p, const struct pv_flow *f)
{
	const struct pv_flow *g = &r->flow;

	return r->iface == p->index && r->serial == p->serial && g->kind == f->kind && g->l4_proto == f->l4_proto &&
	       g->dst_port == f->dst_port && g->src_port == f->src_port && pv_addr_eq(&g->dst, &f->dst) &&
	       pv_addr_eq(&g->src, &f->src);
}

static struct rule *rule_get(const struct pv_port *p, const struct pv_flow *f)
{
	uint32_t hash = rule_hash(p->index, f);
	struct rule *r;

	pv_htab_for_each(it, &rules, hash)
	{
		r = pv_htab_entry(it, struct rule, node);
		if (rule_is(r, p, f)) {
			r->refs++;
			return r;
		}
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	*r = (struct rule){ .flow = *f, .iface = p->index, .serial = p->serial, .refs = 1 };
	r->flow.vlan = pv_iface_config(pv_net_iface(pv_engine.net, p->index))->vlan;
	pv_list_init(&r->shares);
	pv_htab_add(&rules, &r->node, hash);
	return r;
}

static void rule_put(struct rule *r)
{
	if (--r->refs)
		return;
	pv_htab_del(&rules, &r->node);
	free(r);
}

static int key_new(const struct pv_port *p, struct key *k)
{
	int n = pv_lane_open(p);

	if (n == -ENOSPC)
		n = fold(p) ? (int)fold(p) : n;
	if (n < 0)
		return n;
	k->queue = (uint32_t)n;
	pv_lane_use(p, k->queue);
	return 0;
}

static int key_get(const struct pv_port *p, uint32_t logic, uint64_t value, struct key **out)
{
	uint32_t hash = pv_hash_u128(&hash_key, value, (uint64_t)p->index << 32 | logic);
	struct key *k;
	int rc;

	pv_htab_for_each(it, &keys, hash)
	{
		k = pv_htab_entry(it, struct key, node);
		if (k->value == value && k->logic == logic && k->iface == p->index && k->serial == p->serial) {
			k->refs++;
			*out = k;
			return 0;
		}
	}
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	*k = (struct key){ .value = value, .logic = logic, .iface = p->index, .serial = p->serial, .refs = 1 };
	rc = key_new(p, k);
	if (rc) {
		free(k);
		return rc;
	}
	pv_htab_add(&keys, &k->node, hash);
	*out = k;
	return 0;
}

static void key_put(struct key *k)
{
	const struct pv_port *p = port_of(k->iface, k->serial);

	if (--k->refs)
		return;
	if (p)
		pv_lane_leave(p, k->queue);
	pv_htab_del(&keys, &k->node);
	free(k);
}

/* ---- placing ----------------------------------------------------------------------------------------------------------- */

struct plan {
	struct pv_sock *so;
	struct pv_list shares;
	uint64_t value;
	uint32_t logic;
	const struct pv_port *without; /* an interface that has no such queues */
	int rc;
};

static bool has_share(const struct pv_list *shares, const struct rule *r)
{
	pv_list_for_each(it, shares)
		if (pv_list_entry(it, struct share, on_sock)->rule == r)
			return true;
	return false;
}

static int plan_share(struct plan *plan, const struct pv_port *p, const struct pv_flow *f)
{
	uint64_t value = plan->logic == PV_RING_LOGIC_ADDRESS ? pv_lane_of_address(&f->dst) : plan->value;
	struct rule *r = rule_get(p, f);
	struct share *s;
	int rc;

	if (!r)
		return -ENOMEM;
	if (has_share(&plan->shares, r)) {
		rule_put(r);
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		rule_put(r);
		return -ENOMEM;
	}
	*s = (struct share){ .so = plan->so, .rule = r };
	pv_list_init(&s->on_rule);
	rc = key_get(p, plan->logic, value, &s->key);
	if (rc) {
		rule_put(r);
		free(s);
		return rc;
	}
	pv_list_add(&plan->shares, &s->on_sock);
	return 0;
}

static void plan_flow(void *ctx, uint32_t iface, const struct pv_flow *f)
{
	const struct pv_port *p = port_of(iface, 0);
	struct plan *plan = ctx;

	if (!p || plan->rc)
		return;
	if (!p->ring->caps.rxqs)
		plan->without = p;
	else
		plan->rc = plan_share(plan, p, f);
}

static void share_end(struct share *s)
{
	pv_list_del(&s->on_sock);
	rule_put(s->rule);
	key_put(s->key);
	free(s);
}

/* Off its rule, which may lead elsewhere then. As long as the device does not follow, the queue gets what is others': it has its key still. */
static void share_drop(struct share *s)
{
	bool led = !pv_list_empty(&s->on_rule);

	pv_list_del(&s->on_rule);
	if (!led || !rule_lead(s->rule, 0)) {
		share_end(s);
		return;
	}
	s->so = NULL;
	pv_list_del(&s->on_sock);
	pv_list_add(&owed, &s->on_sock);
}

static void shares_drop(struct pv_list *shares)
{
	pv_list_for_each_safe(it, tmp, shares)
		share_drop(pv_list_entry(it, struct share, on_sock));
}

/* Before anybody gets a queue, or leaves one. */
static void lead_owed(void)
{
	pv_list_for_each_safe(it, tmp, &owed) {
		struct share *s = pv_list_entry(it, struct share, on_sock);

		if (!rule_lead(s->rule, 0))
			share_end(s);
	}
}

static struct share *share_of(const struct rule *r, const struct pv_sock *so)
{
	pv_list_for_each(it, &r->shares) {
		struct share *s = pv_list_entry(it, struct share, on_rule);

		if (s->so == so)
			return s;
	}
	return NULL;
}

static void swap(struct rule *r, struct share *out, struct share *in)
{
	if (out)
		pv_list_del(&out->on_rule);
	if (in)
		pv_list_add(&r->shares, &in->on_rule);
}

/* All of the plan, or nothing of it; -EIO: the device did not take back what was done before. */
static int carry_out(struct plan *plan, int turns)
{
	struct pv_list *it;
	int rc = 0;

	for (it = plan->shares.next; it != &plan->shares && !rc; it = it->next) {
		struct share *s = pv_list_entry(it, struct share, on_sock);

		s->old = share_of(s->rule, s->so);
		swap(s->rule, s->old, s);
		rc = rule_lead(s->rule, turns);
	}
	if (!rc)
		return 0;
	while ((it = it->prev) != &plan->shares) {
		struct share *s = pv_list_entry(it, struct share, on_sock);

		swap(s->rule, s, s->old);
		if (rule_lead(s->rule, turns))
			rc = -EIO;
	}
	return rc;
}

static void each_flow(const struct pv_sock *so, struct plan *plan)
{
	if (so->u && so->core_leg && pv_sock_mode(so) == PV_SOCK_CORE)
		pv_udp_each_flow(so->u, plan_flow, plan);
	else if (so->tc && pv_sock_mode(so) == PV_SOCK_STREAM)
		pv_tcp_each_flow(so->tc, plan_flow, plan);
}

/* 1: it receives nothing yet. */
static int place(struct pv_sock *so, uint32_t logic, uint64_t value, int turns)
{
	struct plan plan = { .so = so, .logic = logic, .value = value };
	struct pv_list *was = &so->lane->shares;
	int rc;

	pv_list_init(&plan.shares);
	if (!tables())
		return -ENOMEM;
	lead_owed();
	if (logic != PV_RING_LOGIC_INTERFACE)
		each_flow(so, &plan);
	rc = plan.rc ? plan.rc : carry_out(&plan, turns);
	if (rc) {
		shares_drop(&plan.shares);
		return pv_error(rc, "the socket stays where it is: %s", strerror(-rc));
	}
	if (pv_list_empty(&plan.shares))
		rc = plan.without ? pv_lane_none(plan.without) : 1;
	/* Whatever the answer: where it receives by then none of the old ones is. */
	shares_drop(was);
	pv_list_for_each_safe(it, tmp, &plan.shares) {
		pv_list_del(it);
		pv_list_add(was, it);
	}
	if (rc)
		prefer(so, -1);
	return rc;
}

/* ---- by the setting ---------------------------------------------------------------------------------------------------- */

/* The core that this thread stays on from now on: of those that it may run on the one to which the fewest were attached. */
static uint32_t attach(void)
{
	static _Thread_local uint32_t mine; /* plus 1 */
	static uint16_t used[CPU_SETSIZE];
	uint32_t best = CPU_SETSIZE;
	cpu_set_t set;

	if (mine || sched_getaffinity(0, sizeof(set), &set) < 0)
		return mine ? mine - 1 : 0;
	for (uint32_t i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set) && (best == CPU_SETSIZE || used[i] < used[best]))
			best = i;
	if (best == CPU_SETSIZE)
		return 0;
	CPU_ZERO(&set);
	CPU_SET(best, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		return best;
	used[best]++;
	mine = best + 1;
	return best;
}

/* Nobody is bound to a core for queues that there are not. */
static bool any_queues(void)
{
	for (uint32_t i = 0; i < pv_engine.nports; i++) {
		const struct pv_ring_caps *caps = &pv_engine.ports[i].ring->caps;

		if (caps->rxqs || (caps->txqs && pv_engine.cfg->ring_logic_tx))
			return true;
	}
	return false;
}

uint64_t pv_lane_value(uint32_t logic, const struct pv_sock *so)
{
	switch (logic) {
	case PV_RING_LOGIC_SOCKET:
		return so->serial;
	case PV_RING_LOGIC_THREAD:
		return (uint64_t)gettid();
	case PV_RING_LOGIC_CORE:
	case PV_RING_LOGIC_ATTACHED:
		return logic == PV_RING_LOGIC_ATTACHED && any_queues() ? attach() : (uint64_t)PV_MAX(sched_getcpu(), 0);
	default:
		return 0;
	}
}

static struct pv_lane *lane_get(struct pv_sock *so)
{
	if (so->lane)
		return so->lane;
	so->lane = calloc(1, sizeof(*so->lane));
	if (so->lane)
		pv_list_init(&so->lane->shares);
	return so->lane;
}

static bool receives(const struct pv_sock *so)
{
	struct pv_endpoint local;

	if (!so->u)
		return so->tc && pv_tcp_state(so->tc) != PV_TCP_CLOSED;
	pv_udp_local(so->u, &local);
	return local.port != 0;
}

void pv_lane_update_slow(struct pv_sock *so)
{
	uint32_t logic = (uint32_t)pv_engine.cfg->ring_logic_rx;
	struct pv_lane *lane = so->lane;
	int rc;

	if (!lane) {
		if (logic == PV_RING_LOGIC_INTERFACE || logic == PV_RING_LOGIC_USER || !receives(so) || !(lane = lane_get(so)))
			return;
		lane->logic = logic;
		lane->value = pv_lane_value(logic, so);
	}
	if (lane->logic == PV_RING_LOGIC_INTERFACE)
		return;
	rc = place(so, lane->logic, lane->value, 0);
	lane->err = PV_MIN(rc, 0);
}

void pv_lane_end_slow(struct pv_sock *so)
{
	shares_drop(&so->lane->shares);
	lead_owed();
	so->lane->prefers = false;
}

void pv_lane_free(struct pv_sock *so)
{
	free(so->lane);
	so->lane = NULL;
}

void pv_lane_forget_slow(struct pv_sock *so)
{
	forgetting = true;
	pv_lane_end_slow(so);
	pv_lane_free(so);
	forgetting = false;
}

/* ---- by the program ---------------------------------------------------------------------------------------------------- */

/* The socket keeps what it had when the answer is an error. */
static int place_locked(struct pv_sock *so, uint64_t value, unsigned int how)
{
	uint32_t logic = how & PYVMA_PLACE_NONE ? PV_RING_LOGIC_INTERFACE : PV_RING_LOGIC_USER;
	struct pv_lane *lane = lane_get(so);
	int rc;

	if (!lane)
		return pv_error(-ENOMEM, "no memory for a place");
	if (!(how & PYVMA_PLACE_MOVE) && !pv_list_empty(&lane->shares) && (lane->logic != logic || lane->value != value))
		return pv_error(-EBUSY, "the socket has a place already, which only a move changes");
	rc = place(so, logic, value, TURNS);
	if (rc < 0)
		return rc;
	lane->logic = logic;
	lane->value = value;
	lane->err = 0;
	return 0;
}

int pyvma_sock_place(pyvma_sock *h, uint64_t key, unsigned int how)
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc;

	if (!so)
		return -EBADF;
	if (how & ~(PYVMA_PLACE_MOVE | PYVMA_PLACE_NONE | PYVMA_PLACE_SEND))
		return pv_error(-EINVAL, "no such way to place a socket");
	if (!so->candidate || pv_sock_mode(so) == PV_SOCK_KERNEL || pv_engine_state() != PV_ENGINE_RUNNING)
		return pv_error(-EOPNOTSUPP, "the socket is the kernel's");
	pv_lock_get(&pv_engine.lock);
	if (pv_handle_sock(h) != so || so->dead)
		return pv_sock_lock_failed(h, so);
	rc = how & PYVMA_PLACE_SEND ? pv_lane_place_sender(so, key, how) : place_locked(so, key, how);
	pv_sock_unlock();
	return rc;
}

static void show(const struct share *s, struct pyvma_place *out)
{
	const struct pv_port *p = port_of(s->key->iface, s->key->serial);

	out->queue = s->key->queue;
	out->set = s->rule->set;
	out->key = s->key->value;
	if (!p)
		return;
	snprintf(out->interface, sizeof(out->interface), "%s", p->spec.name);
	out->cpu = p->ring->caps.queues - 1 + s->key->queue;
	out->users = queues_of(p)->users[s->key->queue];
}

static int placed_locked(const struct pv_sock *so, unsigned int i, struct pyvma_place *out)
{
	const struct pv_lane *lane = so->lane;

	if (!lane)
		return -ENOENT;
	out->logic = lane->logic;
	out->key = lane->value;
	pv_list_for_each(it, &lane->shares) {
		if (i-- == 0) {
			show(pv_list_entry(it, struct share, on_sock), out);
			return 0;
		}
	}
	if (pv_list_empty(&lane->shares) && i == 0 && lane->logic != PV_RING_LOGIC_INTERFACE) {
		snprintf(out->reason, sizeof(out->reason), "%s", lane->err ? strerror(-lane->err) : "it receives nothing yet");
		return 0;
	}
	return -ENOENT;
}

static int placed(pyvma_sock *h, unsigned int i, struct pyvma_place *out,
		  int (*ask)(const struct pv_sock *so, unsigned int i, struct pyvma_place *out))
{
	struct pv_sock *so = pv_handle_sock(h);
	int rc = -ENOENT;

	memset(out, 0, sizeof(*out));
	if (!so)
		return -EBADF;
	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return rc;
	pv_lock_get(&pv_engine.lock);
	if (pv_handle_sock(h) == so)
		rc = ask(so, i, out);
	pv_lock_put(&pv_engine.lock);
	return rc;
}

int pyvma_sock_placed(pyvma_sock *h, unsigned int i, struct pyvma_place *out)
{
	return placed(h, i, out, placed_locked);
}

int pyvma_sock_sends_by(pyvma_sock *h, unsigned int i, struct pyvma_place *out)
{
	return placed(h, i, out, pv_lane_sender);
}
