/* SPDX-License-Identifier: BSD-3-Clause */
/* Active open, and what every new connection needs: initial numbers, path, options of its packets, what was negotiated. */
#include "net/txlane.h"
#include "tcp/conn.h"
#include "tcp/output.h"
#include "tcp/recovery.h"

#define TTL_DEFAULT 64u
#define WSCALE_MAX 14u /* RFC 7323 2.3 */

/* ---- numbers ----------------------------------------------------------------------------------------------------------------- */

struct flow_key {
	struct pv_addr local, remote;
	uint64_t ports;
};

/* RFC 6528: a hash of the flow and a clock that, as Linux's, counts 64 ns. */
pv_seq pv_tcp_isn(struct pv_tcp_table *t, const struct pv_tcp_in *flow, int64_t now_ns)
{
	struct flow_key key = { flow->dst, flow->src, (uint64_t)flow->dport << 16 | flow->sport };

	return pv_seq_of((uint32_t)pv_siphash(&t->isn_key, &key, sizeof(key)) + (uint32_t)((uint64_t)now_ns >> 6));
}

/* The same for all connections of two hosts: a new connection's timestamps follow the old one's (RFC 6191, RFC 7323 5.4). */
uint32_t pv_tcp_ts_offset(const struct pv_tcp_table *t, const struct pv_addr *local, const struct pv_addr *remote)
{
	struct flow_key key = { *local, *remote, 0 };

	return (uint32_t)pv_siphash(&t->ts_key, &key, sizeof(key));
}

void pv_tcp_set_iss(struct pv_tcp *c, pv_seq iss)
{
	c->iss = c->snd_una = c->snd_up = iss;
	c->snd_nxt = c->snd_max = c->write_seq = c->snd_sml = pv_seq_add(iss, 1);
	c->high_seq = c->recover = c->snd_una;
}

/* ---- path -------------------------------------------------------------------------------------------------------------------- */

void pv_tcp_txo(struct pv_tcp *c)
{
	bool is4 = pv_addr_is4(&c->raddr);
	int16_t ttl = is4 ? c->opts.ttl : c->opts.hops;

	c->txo = (struct pv_tx_opts){ .proto = PV_PROTO_TCP,
				      .ttl = (uint8_t)(ttl < 0 ? TTL_DEFAULT : (uint32_t)ttl),
				      /* The lowest two bits are ECN's. */
				      .tos = (is4 ? c->opts.tos : c->opts.tclass) & 0xfc,
				      .pmtudisc = c->opts.pmtudisc,
				      .flow_label = is4 ? 0 : c->opts.flow_label,
				      .l4_csum_off = PV_TCP_CSUM_OFF };
}

/* By laddr, if there is one, to raddr. */
int pv_tcp_path_find(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_path_query q = { .dst = c->raddr,
				   .src = c->laddr,
				   .iface = c->opts.bound_iface,
				   .recent = true,
				   .src_port = c->port ? c->lport : 0,
				   .dst_port = c->rport,
				   .proto = PV_PROTO_TCP,
				   .tos = (pv_addr_is4(&c->raddr) ? c->opts.tos : c->opts.tclass) & 0xfc,
				   .prio = c->opts.priority };
	uint8_t lane = c->path.lane;
	int rc = pv_net_path(c->t->net, &q, now_ns, &c->path);

	if (!rc && (c->path.is_mcast || c->path.is_bcast)) {
		memset(&c->path, 0, sizeof(c->path));
		rc = -ENETUNREACH;
	}
	c->path.lane = lane;
	if (pv_unlikely(pv_txlanes_on(c->t->net)) && !rc)
		(void)pv_txlane_follow(c->t->net, &c->path, lane, c->tell.user);
	return rc;
}

void pv_tcp_lane_ask(struct pv_tcp *c)
{
	if (pv_likely(!pv_txlanes_on(c->t->net)) || !c->path.gen)
		return;
	(void)pv_txlane_follow(c->t->net, &c->path, c->path.lane, c->tell.user);
	if (pv_likely(!c->txq))
		return;
	/* By the paced queue that it has already nothing went yet: another one begins behind the lane's. */
	pv_tcp_pace_end(c);
	pv_tcp_pace_changed(c, c->t->head.now_ns);
}

uint32_t pv_tcp_lane(const struct pv_tcp *c)
{
	return c->path.lane;
}

int pv_tcp_set_lane(struct pv_tcp *c, uint32_t lane, bool hurry)
{
	struct pv_net *net = c->t->net;

	if (c->txq)
		return -EBUSY;
	if (c->path.lane && !hurry && !pv_txlane_settled(net, c->path.lane))
		return -EAGAIN;
	pv_txlane_put(net, c->path.lane);
	c->path.lane = (uint8_t)lane;
	if (c->path.gen)
		pv_txlane_set(net, &c->path, lane);
	return 0;
}

/* RFC 9293 3.7.1: of a peer that says nothing (MUST-15). */
static uint16_t mss_default_of(const struct pv_tcp *c)
{
	return c->path.is4 ? PV_TCP_MSS_DEFAULT : PV_TCP_MSS_DEFAULT6;
}

int pv_tcp_setup(struct pv_tcp *c, int64_t now_ns)
{
	uint32_t headers = pv_addr_is4(&c->raddr) ? 40u : 60u, mss;
	int rc = pv_path_valid(c->t->net, &c->path) ? 0 : pv_tcp_path_find(c, now_ns);

	if (rc)
		return rc;
	pv_tcp_txo(c);
	c->pseudo = pv_cksum_pseudo(&c->laddr, &c->raddr, PV_PROTO_TCP, 0);
	c->ts_offset = pv_tcp_ts_offset(c->t, &c->laddr, &c->raddr);
	c->opened_ns = now_ns;
	mss = PV_MIN(PV_MAX(c->path.iface_mtu, headers + 8) - headers, UINT16_MAX - headers);
	if (c->opts.maxseg && c->opts.maxseg < mss)
		mss = c->opts.maxseg;
	c->advmss = (uint16_t)mss;
	c->mss_peer = c->opts.maxseg ? c->opts.maxseg : mss_default_of(c); /* until it says its own */
	pv_tcp_mss_sync(c, c->path.mtu);
	pv_tcp_rcv_init(c);
	pv_tcp_recovery_init(c);
	c->rto_ns = PV_TCP_SYN_TIMEOUT_NS;
	return 0;
}

void pv_tcp_negotiate(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	const struct pv_tcp_cfg *cfg = &c->t->cfg;
	const struct pv_wire_tcp_opts *o = &in->opt;

	c->flags &= ~(PV_TF_WS | PV_TF_TS | PV_TF_SACK);
	c->mss_peer = o->mss ? o->mss : mss_default_of(c);
	if (c->opts.maxseg && c->opts.maxseg < c->mss_peer)
		c->mss_peer = c->opts.maxseg;
	if (o->has_wscale && !cfg->no_window_scaling) {
		c->flags |= PV_TF_WS;
		c->snd_wscale = PV_MIN(o->wscale, WSCALE_MAX);
	} else {
		c->snd_wscale = c->rcv_wscale = 0;
		c->window_clamp = PV_MIN(c->window_clamp, UINT16_MAX);
		c->rcv_ssthresh = PV_MIN(c->rcv_ssthresh, c->window_clamp);
	}
	if (o->has_ts && !cfg->no_timestamps) {
		c->flags |= PV_TF_TS;
		c->ts_recent = o->ts_val;
		c->ts_recent_ns = in->now_ns;
	}
	if (o->sack_ok && !cfg->no_sack)
		c->flags |= PV_TF_SACK;
	c->irs = in->seq;
	pv_tcp_rcv_start(c, c->irs, in->now_ns);
	c->rcv_wup = c->rcv_nxt;
	pv_tcp_mss_sync(c, c->path.mtu);
}

/* The SYN's round trip (RFC 6298 2): its time if it went out once only (Karn), else by the timestamp that came back. */
static void first_sample(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	if (!c->opened_ns)
		c->opened_ns = in->now_ns; /* a cookie: no time is known */
	else if (!c->retransmits)
		pv_tcp_rtt_sample(c, PV_MAX(in->now_ns - c->opened_ns, 1));
	else if ((c->flags & PV_TF_TS) && in->opt.has_ts && in->opt.ts_ecr)
		pv_tcp_rtt_sample(c, (int64_t)(pv_tcp_ts_now(c, in->now_ns) - in->opt.ts_ecr) * PV_NS_PER_MS);
}

void pv_tcp_established(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	uint32_t lost = c->retransmits;

	/* Linux counts a SYN that was sent first, not one that answered. */
	c->bytes_acked += !c->parent;
	c->snd_una = in->ack;
	c->snd_wl1 = in->seq;
	c->snd_wl2 = in->ack;
	c->snd_wnd = in->flags & PV_TH_SYN ? in->wnd : in->wnd << c->snd_wscale;
	c->max_window = c->snd_wnd;
	pv_tcp_mss_sync(c, c->path.mtu);
	c->opts.sndbuf = pv_tcp_sndbuf_room(c); /* what ten segments need, if that is more */
	first_sample(c, in);
	/* RFC 6298 5.7: a SYN that was lost leaves nothing to go by. RFC 5681 3.1: more than one, and the network is in trouble. */
	if (lost && !c->srtt_ns)
		c->rto_ns = PV_MAX(c->rto_ns, 3 * PV_NS_PER_S);
	if (lost > 1)
		c->cwnd = 1;
	pv_tcp_rto_over(c, in->now_ns);
	c->retransmits = c->backoff = 0;
	c->first_rtx_ns = 0;
	c->last_data_sent_ns = c->last_data_rcvd_ns = c->last_ack_rcvd_ns = in->now_ns;
	pv_tcp_set_state(c, PV_TCP_ESTABLISHED);
	if (pv_unlikely(c->port && c->port->reserve))
		pv_tcp_reserve_used(c);
	pv_tcp_timer_set(c, PV_TT_RTO, PV_NEVER);
	pv_tcp_keep_arm(c, in->now_ns);
	pv_tcp_pace_changed(c, in->now_ns);
	pv_tcp_tell(c, PV_EV_OUT);
}

/* ---- connect ----------------------------------------------------------------------------------------------------------------- */

/* Somebody asks how the connect that is under way went. */
static int connect_end(struct pv_tcp *c)
{
	int err;

	if (c->state == PV_TCP_SYN_SENT || c->state == PV_TCP_SYN_RCVD)
		return -EALREADY;
	c->sock &= (uint8_t)~PV_SK_CONNECTING;
	if (c->state != PV_TCP_CLOSED || !(c->flags & PV_TF_CLOSED_BY_ERR)) {
		c->sock |= PV_SK_CONNECTED;
		return 0;
	}
	err = pv_tcp_error(c);
	(void)pv_tcp_disconnect(c, c->t->head.now_ns);
	return err ? -err : -ECONNABORTED;
}

static int check_remote(struct pv_tcp *c, const struct pv_endpoint *remote)
{
	const struct pv_addr *a = &remote->addr;
	bool is4 = pv_addr_is4(a);

	if (c->family == PV_AF_INET && !is4)
		return -EAFNOSUPPORT;
	if (pv_addr_is_mcast(a))
		return -ENETUNREACH;
	if (c->family == PV_AF_INET)
		return 0;
	if (is4)
		return c->opts.v6only ? -ENETUNREACH : 0;
	if (!pv_addr_is_linklocal6(a))
		return 0;
	/* Connecting to a link-local address ties the socket to its interface. */
	if (remote->iface && c->opts.bound_iface && remote->iface != c->opts.bound_iface)
		return -EINVAL;
	if (remote->iface)
		c->opts.bound_iface = remote->iface;
	return c->opts.bound_iface ? 0 : -EINVAL;
}

/* Path, source address, port: tcp_v4_connect up to inet_hash_connect. */
static int take_flow(struct pv_tcp *c, const struct pv_endpoint *remote, int64_t now_ns)
{
	int rc;

	c->raddr = remote->addr;
	c->rport = remote->port;
	rc = pv_tcp_path_find(c, now_ns);
	if (rc)
		return rc;
	c->laddr = c->path.src;
	c->raddr = c->path.dst;
	c->accept = pv_addr_is4(&c->laddr) ? PV_ACCEPT4 : PV_ACCEPT6;
	return c->port ? pv_tcp_hash(c) : pv_tcp_port_connect(c);
}

static void leave_flow(struct pv_tcp *c)
{
	pv_tcp_unhash(c);
	if (!(c->sock & PV_SK_BIND_PORT))
		pv_tcp_port_put(c);
	if (!(c->sock & PV_SK_BIND_ADDR)) {
		c->laddr = (struct pv_addr){ 0 };
		c->accept = pv_tcp_accept_any(c);
	}
	c->raddr = (struct pv_addr){ 0 };
	c->rport = 0;
	c->path.gen = 0;
}

static int start(struct pv_tcp *c, int64_t now_ns)
{
	struct pv_tcp_in flow = { .src = c->raddr, .dst = c->laddr, .sport = c->rport, .dport = c->lport };
	int rc;

	c->tell.err = 0;
	pv_tcp_set_iss(c, pv_tcp_isn(c->t, &flow, now_ns));
	pv_tcp_set_state(c, PV_TCP_SYN_SENT);
	if (c->port->reserve)
		pv_tcp_reserve_used(c);
	rc = pv_tcp_setup(c, now_ns);
	if (rc)
		return rc;
	/* What the SYN offers counts until the answer is there (tcp_connect_init). */
	c->mss = (uint16_t)(c->mss - (c->t->cfg.no_timestamps ? 0u : PV_TCP_TS_LEN));
	rc = pv_tcp_steer(c);
	if (rc)
		return rc;
	if (c->t->cfg.ecn == 1)
		c->flags |= PV_TF_ECN;
	/* What did not go out now is sent again by the timer, as if it had been lost: but where there is no way at all. */
	rc = pv_tcp_send_syn(c, now_ns);
	if (rc == -EHOSTUNREACH || rc == -ENETUNREACH || rc == -ENETDOWN || rc == -ENODEV || rc == -EADDRNOTAVAIL)
		return rc;
	pv_tcp_syn_arm(c, now_ns);
	return 0;
}

int pv_tcp_connect(struct pv_tcp *c, const struct pv_endpoint *remote, int64_t now_ns)
{
	struct pv_tcp_table *t = c->t;
	int rc;

	t->head.now_ns = now_ns;
	if (c->sock & PV_SK_CONNECTED)
		return -EISCONN;
	if (c->sock & PV_SK_CONNECTING)
		return connect_end(c);
	if (c->state != PV_TCP_CLOSED)
		return -EISCONN;
	if (!remote)
		return -EINVAL;
	rc = check_remote(c, remote);
	if (rc)
		return rc;
	pv_tcp_wipe(c);
	rc = take_flow(c, remote, now_ns);
	if (!rc)
		rc = start(c, now_ns);
	if (rc) {
		if (c->state != PV_TCP_CLOSED)
			pv_tcp_set_state(c, PV_TCP_CLOSED);
		leave_flow(c);
		pv_tcp_wipe(c);
		return rc;
	}
	t->c.opened_active++;
	c->sock |= PV_SK_CONNECTING;
	pv_tcp_kick(t);
	return -EINPROGRESS;
}
