/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/ring.h"

#include <errno.h>
#include <string.h>

#define RING(name, member, kind, more, help) PV_STAT_FIELD(struct pv_ring_stat, name, member, kind, more, help)
#define COUNTER(name, kind, unit, help) PV_STAT_FIELD(struct pv_ring_stat, name, c.name, kind, unit, help)
#define DROP(name, kind, unit, help) PV_STAT_FIELD(struct pv_ring_stat, name, drops.name, kind, unit, help)
static const struct pv_stat_field stat_fields[] = { PV_STATS_RING(RING) PV_RING_COUNTERS(COUNTER) PV_NET_RX_DROPS(DROP) };

const struct pv_stat_type pv_ring_stat_type = PV_STAT_TYPE(RING, struct pv_ring_stat, stat_fields);

#define RXQ(name, member, kind, more, help) PV_STAT_FIELD(struct pv_rxq_stat, name, member, kind, more, help)
static const struct pv_stat_field rxq_fields[] = { PV_STATS_RXQ(RXQ) };

const struct pv_stat_type pv_rxq_stat_type = PV_STAT_TYPE(RXQ, struct pv_rxq_stat, rxq_fields);

int pv_ring_stat_open(struct pv_ring *r, const struct pv_mem *mem)
{
	r->stat = pv_mem_alloc_shown(mem, sizeof(*r->stat));
	if (!r->stat)
		return -ENOMEM;
	r->stat->shown = pv_mem_show(mem, &pv_ring_stat_type, r->stat);
	return 0;
}

void pv_ring_stat_close(struct pv_ring *r, const struct pv_mem *mem)
{
	pv_mem_hide(mem, r->stat->shown);
	pv_mem_free_shown(mem, r->stat, sizeof(*r->stat));
}

void pv_ring_close(struct pv_ring *r)
{
	if (r)
		r->ops->close(r);
}

void pv_ring_shut(struct pv_ring *r)
{
	if (r->ops->shut)
		r->ops->shut(r);
}

int pv_ring_arm(struct pv_ring *r)
{
	return r->ops->arm ? r->ops->arm(r) : -EOPNOTSUPP;
}

int pv_ring_notify_fd(struct pv_ring *r)
{
	return r->ops->notify_fd ? r->ops->notify_fd(r) : -EOPNOTSUPP;
}

#define FLOW_MATCH (PV_FLOW_BY_TOS | PV_FLOW_BY_LABEL | PV_FLOW_IN_VXLAN | PV_FLOW_SNIFFER)

static bool is_l4(uint8_t proto)
{
	return proto == 6 || proto == 17;
}

static bool inner_sound(const struct pv_flow_inner *in)
{
	if ((uint32_t)in->kind >= PV_FLOW_KINDS || (in->kind >= PV_FLOW_3TUPLE && !is_l4(in->l4_proto)))
		return false;
	return in->kind != PV_FLOW_5TUPLE || pv_addr_is4(&in->dst) == pv_addr_is4(&in->src);
}

static bool match_sound(const struct pv_flow *flow)
{
	uint32_t match = flow->match;

	if (match & ~FLOW_MATCH)
		return false;
	if (match & PV_FLOW_SNIFFER)
		return match == PV_FLOW_SNIFFER && flow->kind == PV_FLOW_ALL;
	if (match & (PV_FLOW_BY_TOS | PV_FLOW_BY_LABEL) && flow->kind < PV_FLOW_IP)
		return false;
	if (match & PV_FLOW_BY_LABEL && (pv_addr_is4(&flow->dst) || flow->flow_label >> 20))
		return false;
	return !(match & PV_FLOW_IN_VXLAN) || (flow->kind >= PV_FLOW_3TUPLE && flow->l4_proto == 17 &&
					       flow->dst_port == PV_VXLAN_PORT && !(flow->vni >> 24) && inner_sound(&flow->inner));
}

/* What no ring could make a rule of. */
static bool flow_sound(const struct pv_flow *flow)
{
	if ((uint32_t)flow->kind >= PV_FLOW_KINDS || flow->vlan > 4094)
		return false;
	if (flow->match && !match_sound(flow))
		return false;
	if (flow->kind >= PV_FLOW_3TUPLE && !is_l4(flow->l4_proto))
		return false;
	return flow->kind != PV_FLOW_5TUPLE || pv_addr_is4(&flow->dst) == pv_addr_is4(&flow->src);
}

int pv_ring_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle)
{
	if (!flow_sound(flow))
		return -EINVAL;
	if (!r->ops->flow_add || !(r->caps.flow_kinds & 1u << flow->kind) || flow->match & ~r->caps.flow_match ||
	    (flow->rxqs && !r->caps.rxqs))
		return -EOPNOTSUPP;
	return r->ops->flow_add(r, flow, handle);
}

int pv_ring_flow_del(struct pv_ring *r, uint64_t handle)
{
	return r->ops->flow_del ? r->ops->flow_del(r, handle) : -EOPNOTSUPP;
}

int pv_ring_flow_gate(struct pv_ring *r, uint64_t handle, bool gated)
{
	return r->ops->flow_gate ? r->ops->flow_gate(r, handle, gated) : -EOPNOTSUPP;
}

int pv_ring_gate(struct pv_ring *r, bool open)
{
	return r->ops->gate ? r->ops->gate(r, open) : -EOPNOTSUPP;
}

int pv_ring_rxq_open(struct pv_ring *r)
{
	return r->ops->rxq_open && r->caps.rxqs ? r->ops->rxq_open(r) : -EOPNOTSUPP;
}

int pv_ring_rxq_close(struct pv_ring *r, uint32_t rxq)
{
	return r->ops->rxq_close ? r->ops->rxq_close(r, rxq) : -EOPNOTSUPP;
}

int pv_ring_flow_move(struct pv_ring *r, uint64_t handle, uint64_t set)
{
	return r->ops->flow_move && r->caps.rxqs ? r->ops->flow_move(r, handle, set) : -EOPNOTSUPP;
}

static const struct pv_ring_rate unlimited;

static int rate_check(const struct pv_ring_caps *caps, const struct pv_ring_rate *rate)
{
	if (!rate || (!rate->kbps && !rate->burst_bytes))
		return 0;
	if (!caps->pacing_max_kbps)
		return -EOPNOTSUPP;
	if (rate->kbps < caps->pacing_min_kbps || rate->kbps > caps->pacing_max_kbps || (rate->burst_bytes && !caps->pacing_burst))
		return -EINVAL;
	return 0;
}

int pv_ring_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate)
{
	int rc = rate_check(&r->caps, rate);

	if (rc)
		return rc;
	return r->ops->txq_open && r->caps.txqs ? r->ops->txq_open(r, rate ? rate : &unlimited) : -EOPNOTSUPP;
}

int pv_ring_txq_close(struct pv_ring *r, uint32_t txq)
{
	return r->ops->txq_close ? r->ops->txq_close(r, txq) : -EOPNOTSUPP;
}

int pv_ring_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate)
{
	int rc = rate_check(&r->caps, rate);

	if (rc)
		return rc;
	return r->ops->set_rate ? r->ops->set_rate(r, txq, rate ? rate : &unlimited) : -EOPNOTSUPP;
}

uint32_t pv_ring_txq_pending(struct pv_ring *r, uint32_t txq)
{
	return r->ops->txq_pending ? r->ops->txq_pending(r, txq) : 0;
}

int pv_ring_set_stamps(struct pv_ring *r, bool rx, bool tx)
{
	if ((rx && r->caps.tstamp == PV_TSTAMP_NONE) || (tx && !r->caps.tx_tstamp))
		return -EOPNOTSUPP;
	return r->ops->set_stamps ? r->ops->set_stamps(r, rx, tx) : -EOPNOTSUPP;
}

int pv_ring_clock(struct pv_ring *r, uint64_t *now)
{
	return r->ops->clock ? r->ops->clock(r, now) : -EOPNOTSUPP;
}

int pv_ring_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out)
{
	return r->ops->clock_info ? r->ops->clock_info(r, out) : -EOPNOTSUPP;
}

void pv_ring_counters(struct pv_ring *r, struct pv_ring_counters *out)
{
	memset(out, 0, sizeof(*out));
	if (r->ops->counters)
		r->ops->counters(r, out);
	else if (r->stat)
		*out = r->stat->c;
}

enum pv_ring_event pv_ring_event(struct pv_ring *r)
{
	return r->ops->event ? r->ops->event(r) : PV_RING_EV_NONE;
}

void pv_ring_forget(struct pv_ring *r)
{
	if (r && r->ops->forget)
		r->ops->forget(r);
}
