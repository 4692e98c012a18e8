/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection has one timer in the wheel and several deadlines of its own, most of which move with every segment and hardly ever come.
 * The wheel's timer is moved only when a deadline comes before it; when it fires too early, it goes to the first deadline that is left.
 */
#include "tcp/recovery.h"

#define RETRY_NS (PV_NS_PER_S / 2) /* TCP_RESOURCE_PROBE_INTERVAL of Linux: no packet, no room */
#define SYN_LINEAR 4u /* tcp_syn_linear_timeouts of Linux: these waits for the answer to a SYN are not doubled */
#define PROBE_CLAMP_MIN_NS (2 * PV_NS_PER_MS)

void pv_tcp_timer_set(struct pv_tcp *c, enum pv_tcp_timer which, int64_t deadline_ns)
{
	c->deadline_ns[which] = deadline_ns;
	if (deadline_ns < c->timer.deadline_ns)
		pv_tcp_arm(c, deadline_ns);
}

static void give_up(struct pv_tcp *c)
{
	pv_tcp_abort(c, c->soft_err ? c->soft_err : ETIMEDOUT);
}

pv_inline int64_t user_timeout_ns(const struct pv_tcp *c)
{
	return (int64_t)c->opts.user_timeout_ms * PV_NS_PER_MS;
}

/* A deadline `wait_ns` from now that does not lead past the user timeout (RFC 5482), which runs from `since_ns`. */
static int64_t clamp(const struct pv_tcp *c, int64_t wait_ns, int64_t since_ns, int64_t now_ns)
{
	int64_t left;

	if (pv_likely(!c->opts.user_timeout_ms))
		return now_ns + wait_ns;
	left = since_ns + user_timeout_ns(c) - now_ns;
	return now_ns + PV_MIN(wait_ns, PV_MAX(left, PROBE_CLAMP_MIN_NS));
}

static bool user_timed_out(const struct pv_tcp *c, int64_t since_ns, int64_t now_ns)
{
	return c->opts.user_timeout_ms && now_ns - since_ns >= user_timeout_ns(c);
}

/* ---- retransmission and window probes ----------------------------------------------------------------------------------------- */

static int64_t probe_wait_ns(const struct pv_tcp *c)
{
	const struct pv_tcp_cfg *cfg = &c->t->cfg;
	int64_t base = PV_MAX(c->rto_ns, cfg->rto_min_ns);

	return c->backoff >= 20 ? cfg->rto_max_ns : PV_MIN(base << c->backoff, cfg->rto_max_ns);
}

static void persist_end(struct pv_tcp *c)
{
	if (!(c->flags & PV_TF_PERSIST))
		return;
	c->flags &= ~PV_TF_PERSIST;
	c->backoff = 0;
	c->probes_out = 0;
	c->stall_ns = 0;
}

static void persist_arm(struct pv_tcp *c, int64_t now_ns)
{
	if (!(c->flags & PV_TF_PERSIST)) {
		c->flags |= PV_TF_PERSIST;
		c->backoff = 0;
		c->probes_out = 0;
		c->stall_ns = now_ns;
	}
	pv_tcp_timer_set(c, PV_TT_RTO, clamp(c, probe_wait_ns(c), c->stall_ns, now_ns));
}

void pv_tcp_rto_after(struct pv_tcp *c, int64_t wait_ns, int64_t now_ns)
{
	pv_tcp_timer_set(c, PV_TT_RTO, c->retransmits && c->stall_ns ? clamp(c, wait_ns, c->stall_ns, now_ns) : now_ns + wait_ns);
}

void pv_tcp_rearm_rto(struct pv_tcp *c, int64_t now_ns)
{
	if (pv_likely(c->in_flight)) {
		persist_end(c);
		pv_tcp_rto_after(c, pv_tcp_rto_ns(c, c->t->cfg.rto_max_ns), now_ns);
	} else if (c->unsent && c->deadline_ns[PV_TT_PACE] == PV_NEVER) {
		/* Nothing would tell us that the window has opened, should that segment be lost. */
		persist_arm(c, now_ns);
	} else {
		persist_end(c);
		pv_tcp_timer_set(c, PV_TT_RTO, PV_NEVER);
	}
}

/* Probes that are answered go on for ever (RFC 9293 3.8.6.1): every acknowledgement zeroes probes_out. */
static bool probe_gives_up(struct pv_tcp *c, int64_t now_ns)
{
	const struct pv_tcp_cfg *cfg = &c->t->cfg;
	uint32_t max = cfg->retries2;

	if (user_timed_out(c, c->stall_ns, now_ns))
		return true;
	if (c->flags & PV_TF_ORPHAN) {
		bool alive = probe_wait_ns(c) < cfg->rto_max_ns;

		max = c->soft_err && !alive ? 0 : cfg->orphan_retries;
		if (!alive && c->backoff >= max)
			return true;
	}
	return c->probes_out >= max;
}

static void probe_fired(struct pv_tcp *c, int64_t now_ns)
{
	int rc;

	if (c->in_flight || !c->unsent) {
		pv_tcp_rearm_rto(c, now_ns);
		return;
	}
	if (probe_gives_up(c, now_ns)) {
		give_up(c);
		return;
	}
	rc = pv_tcp_wakeup(c, now_ns);
	if (c->in_flight) {
		pv_tcp_rack_sent(c, now_ns);
		return;
	}
	c->probes_out++;
	if (rc) {
		/* Not sent for want of our own resources: that says nothing about the peer. */
		pv_tcp_timer_set(c, PV_TT_RTO, clamp(c, RETRY_NS, c->stall_ns, now_ns));
		return;
	}
	if (c->backoff < c->t->cfg.retries2)
		c->backoff++;
	persist_arm(c, now_ns);
}

/* ---- SYN ------------------------------------------------------------------------------------------------------------------------ */

/* The user timeout cuts no first wait short, as with Linux. */
void pv_tcp_syn_arm(struct pv_tcp *c, int64_t now_ns)
{
	int64_t wait = pv_tcp_rto_ns(c, c->t->cfg.rto_max_ns);

	pv_tcp_timer_set(c, PV_TT_RTO, c->retransmits ? clamp(c, wait, c->opened_ns, now_ns) : now_ns + wait);
}

/* `retries` bound the time as well: what they would take if every wait were twice the last one (retransmits_timed_out). */
static bool syn_timed_out(const struct pv_tcp *c, uint32_t retries, int64_t now_ns)
{
	int64_t wait = c->rto_ns, left = now_ns - c->opened_ns;

	if (!c->retransmits)
		return false;
	if (c->opts.user_timeout_ms)
		return user_timed_out(c, c->opened_ns, now_ns);
	for (uint32_t i = 0; i <= retries && left >= 0; i++) {
		left -= wait;
		wait = PV_MIN(wait * 2, c->t->cfg.rto_max_ns);
	}
	return left >= 0;
}

static void syn_fired(struct pv_tcp *c, int64_t now_ns)
{
	const struct pv_tcp_cfg *cfg = &c->t->cfg;
	bool active = c->state == PV_TCP_SYN_SENT;
	uint32_t max = active ? cfg->syn_retries : cfg->synack_retries;
	int rc;

	if (c->opts.syncnt)
		max = c->opts.syncnt;
	if (c->retransmits >= max + (active ? SYN_LINEAR : 0) || syn_timed_out(c, max, now_ns)) {
		give_up(c);
		return;
	}
	c->retransmits++;
	rc = pv_tcp_send_syn(c, now_ns);
	if (rc == -EHOSTUNREACH && active) {
		/* Nobody answered for the address since the last one: Linux hears of that from its own ICMP and ends the connect. */
		pv_tcp_abort(c, EHOSTUNREACH);
		return;
	}
	if (rc == -ENOBUFS) {
		c->retransmits--;
		pv_tcp_timer_set(c, PV_TT_RTO, clamp(c, RETRY_NS, c->opened_ns, now_ns));
		return;
	}
	pv_tcp_rto_count(c, now_ns);
	c->total_retrans++;
	c->t->c.tx_retransmits++;
	c->path.ring->stat->retransmits++;
	PV_PROBE3(retransmit, c, c->iss.v, 0);
	pv_tcp_traced(c, PV_TRACE_retransmit, c->iss.v, 0);
	if (!active || c->total_rto > SYN_LINEAR)
		c->backoff++;
	pv_tcp_syn_arm(c, now_ns);
}

/* ---- keepalive ------------------------------------------------------------------------------------------------------------------- */

#define KEEP_STATES ~(1u << PV_TCP_CLOSED | 1u << PV_TCP_LISTEN | 1u << PV_TCP_SYN_SENT)

pv_inline int64_t keep_idle_ns(const struct pv_tcp *c)
{
	return (int64_t)c->opts.keepidle_s * PV_NS_PER_S;
}

pv_inline int64_t silence_ns(const struct pv_tcp *c, int64_t now_ns)
{
	return now_ns - PV_MAX(c->last_data_rcvd_ns, c->last_ack_rcvd_ns);
}

void pv_tcp_keep_arm(struct pv_tcp *c, int64_t now_ns)
{
	int64_t wait;

	/* The same timer ends FIN_WAIT_2 of orphans. */
	if (c->state == PV_TCP_FIN_WAIT_2 && (c->flags & PV_TF_ORPHAN))
		return;
	if (!c->opts.keepalive || !(KEEP_STATES >> c->state & 1)) {
		pv_tcp_timer_set(c, PV_TT_KEEP, PV_NEVER);
		return;
	}
	wait = keep_idle_ns(c) - silence_ns(c, now_ns);
	pv_tcp_timer_set(c, PV_TT_KEEP, now_ns + PV_MAX(wait, 0));
}

static bool keep_gives_up(const struct pv_tcp *c, int64_t silence)
{
	if (c->opts.user_timeout_ms)
		return silence >= user_timeout_ns(c) && c->keep_probes;
	return c->keep_probes >= c->opts.keepcnt;
}

/* RFC 9293 3.8.4. */
static void keep_fired(struct pv_tcp *c, int64_t now_ns)
{
	int64_t silence = silence_ns(c, now_ns), idle = keep_idle_ns(c);

	if (c->state == PV_TCP_FIN_WAIT_2 && (c->flags & PV_TF_ORPHAN)) {
		pv_tcp_abort(c, 0);
		return;
	}
	if (!c->opts.keepalive || !(KEEP_STATES >> c->state & 1))
		return;
	if (!pv_list_empty(&c->sndq)) {
		/* Retransmissions and window probes ask for us. */
		c->keep_probes = 0;
		pv_tcp_timer_set(c, PV_TT_KEEP, now_ns + idle);
		return;
	}
	if (silence < idle) {
		c->keep_probes = 0;
		pv_tcp_timer_set(c, PV_TT_KEEP, now_ns + idle - silence);
		return;
	}
	if (keep_gives_up(c, silence)) {
		pv_tcp_reset_send(c, now_ns);
		give_up(c);
		return;
	}
	if (pv_tcp_send_probe(c, now_ns) == -ENOBUFS) {
		pv_tcp_timer_set(c, PV_TT_KEEP, now_ns + RETRY_NS);
		return;
	}
	c->keep_probes++;
	pv_tcp_timer_set(c, PV_TT_KEEP, now_ns + (int64_t)c->opts.keepintvl_s * PV_NS_PER_S);
}

/* ---- dispatch -------------------------------------------------------------------------------------------------------------------- */

static void rto_due(struct pv_tcp *c, int64_t now_ns)
{
	if (c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD)
		syn_fired(c, now_ns);
	else if (c->flags & PV_TF_PERSIST)
		probe_fired(c, now_ns);
	else
		pv_tcp_rto_fired(c, now_ns);
}

void pv_tcp_timer_fired(struct pv_tcp *c, int64_t now_ns)
{
	int64_t first = PV_NEVER, second = PV_NEVER;
	uint32_t which = 0;

	for (uint32_t i = 0; i < PV_TT_COUNT; i++) {
		int64_t d = c->deadline_ns[i];

		if (d < first) {
			second = first;
			first = d;
			which = i;
		} else {
			second = PV_MIN(second, d);
		}
	}
	if (first > now_ns) {
		pv_tcp_arm(c, first);
		return;
	}
	/* One at a time: what it does may end the connection, or move the others. */
	c->deadline_ns[which] = PV_NEVER;
	pv_tcp_arm(c, second);
	switch ((enum pv_tcp_timer)which) {
	case PV_TT_RTO:
		rto_due(c, now_ns);
		break;
	case PV_TT_RACK:
		pv_tcp_rack_fired(c, now_ns);
		break;
	case PV_TT_DELACK:
		pv_tcp_delack_fired(c, now_ns);
		break;
	case PV_TT_KEEP:
		keep_fired(c, now_ns);
		break;
	case PV_TT_PACE:
		pv_tcp_pace_fired(c, now_ns);
		break;
	case PV_TT_COUNT:
		break;
	}
}
