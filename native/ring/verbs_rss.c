/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several receive queues. The device hashes each flow onto one of them (Toeplitz) by way of an indirection table; all complete into
 * one completion queue, for one thread serves them.
 *
 * A queue pair that spreads has one set of fields: addresses of one family, ports of one protocol. So there is one for each kind of
 * packets, made when the first rule needs it, and a rule leads to that of its own kind. What goes to a group is spread by the
 * addresses alone, so that rules which overlap agree on the queue; what has no addresses goes to the first queue.
 * Such queue pairs only receive: the ring sends by its own, which then has no receive queue.
 */
#include <errno.h>

#include "ring/frame.h"
#include "ring/verbs_priv.h"

/* The key of Microsoft's documentation, which most drivers have: hashes can be compared. */
static uint8_t hash_key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

#define IP4 (IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4)
#define IP6 (IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6)
#define UDP (IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP)
#define TCP (IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP)

static const uint64_t fields_of[VERBS_SPREADS] = {
	[VERBS_SPREAD_NONE] = 0,         [VERBS_SPREAD_IP4] = IP4,        [VERBS_SPREAD_IP6] = IP6,
	[VERBS_SPREAD_UDP4] = IP4 | UDP, [VERBS_SPREAD_UDP6] = IP6 | UDP, [VERBS_SPREAD_TCP4] = IP4 | TCP,
	[VERBS_SPREAD_TCP6] = IP6 | TCP,
};

/* ---- open and close ----------------------------------------------------------------------------------------------------------- */

static uint32_t clamp_queues(uint32_t asked, const struct ibv_device_attr_ex *attr)
{
	const struct ibv_rss_caps *rss = &attr->rss_caps;
	uint32_t limit = PV_MIN(rss->max_rwq_indirection_table_size, VERBS_RXQ_MAX), n = 1;

	if (!(rss->supported_qpts & 1u << IBV_QPT_RAW_PACKET) || !(rss->rx_hash_function & IBV_RX_HASH_FUNC_TOEPLITZ) ||
	    attr->max_wq_type_rq < 2)
		return 1;
	limit = PV_MIN(limit, attr->max_wq_type_rq);
	while (n * 2 <= PV_MIN(asked, limit))
		n *= 2;
	return n;
}

struct ibv_wq *pv_verbs_wq_open(struct verbs_ring *v, uint32_t depth)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = depth, .max_sge = 1, .pd = v->pd, .cq = v->rx_cq };
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_wq *wq = ibv_create_wq(v->ctx, &init);
	int rc;

	if (!wq)
		return NULL;
	rc = ibv_modify_wq(wq, &ready);
	if (rc) {
		ibv_destroy_wq(wq);
		errno = rc;
		return NULL;
	}
	return wq;
}

static struct ibv_rwq_ind_table *open_table(struct verbs_ring *v, uint32_t n)
{
	struct ibv_wq *list[VERBS_RXQ_MAX];
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = (uint32_t)__builtin_ctz(n), .ind_tbl = list };

	for (uint32_t i = 0; i < n; i++)
		list[i] = v->rss->q[i].wq;
	return ibv_create_rwq_ind_table(v->ctx, &init);
}

int pv_verbs_rss_open(struct verbs_ring *v, const struct ibv_device_attr_ex *attr, uint32_t asked)
{
	uint32_t n = clamp_queues(asked, attr), depth;
	struct verbs_rss *rss;

	if (n < 2)
		return 0;
	rss = v->mem->alloc(v->mem->ctx, sizeof(*rss));
	if (!rss)
		return -ENOMEM;
	memset(rss, 0, sizeof(*rss));
	v->rss = rss;
	depth = PV_MAX(v->ring.caps.rx_depth / n, 1u);
	v->ring.caps.rx_depth = depth * n;
	rss->depth = depth;
	errno = 0;
	for (; rss->n < n; rss->n++) {
		rss->q[rss->n].wq = pv_verbs_wq_open(v, depth);
		if (!rss->q[rss->n].wq)
			return errno ? -errno : -EOPNOTSUPP;
	}
	rss->table = open_table(v, n);
	rss->first = rss->table ? open_table(v, 1) : NULL;
	if (!rss->first)
		return errno ? -errno : -EOPNOTSUPP;
	return 0;
}

void pv_verbs_rss_close(struct verbs_ring *v)
{
	struct verbs_rss *rss = v->rss;

	if (!rss)
		return;
	if (!v->forgotten) {
		for (uint32_t i = 0; i < VERBS_SPREADS; i++)
			if (rss->qp[i])
				v->lib.destroy_qp(rss->qp[i]);
		if (rss->first)
			ibv_destroy_rwq_ind_table(rss->first);
		if (rss->table)
			ibv_destroy_rwq_ind_table(rss->table);
		for (uint32_t i = 0; i < rss->n; i++)
			ibv_destroy_wq(rss->q[i].wq);
	}
	v->rss = NULL;
	v->mem->free(v->mem->ctx, rss, sizeof(*rss));
}

/* ---- rules ---------------------------------------------------------------------------------------------------------------------- */

static enum verbs_spread spread_of(const struct verbs_ring *v, const struct pv_flow *flow, uint8_t proto)
{
	uint8_t mac[PV_ETH_ALEN];
	bool ip4 = pv_addr_is4(&flow->dst);

	if (flow->kind == PV_FLOW_ALL)
		return VERBS_SPREAD_NONE;
	if (flow->kind == PV_FLOW_ETHER) {
		if (flow->ethertype != 0x0800 && flow->ethertype != 0x86dd)
			return VERBS_SPREAD_NONE;
		return flow->ethertype == 0x0800 ? VERBS_SPREAD_IP4 : VERBS_SPREAD_IP6;
	}
	pv_frame_flow_mac(flow, v->ring.caps.mac, mac);
	proto = flow->kind >= PV_FLOW_3TUPLE ? flow->l4_proto : proto;
	if (mac[0] & 1)
		proto = 0;
	if (proto == 17)
		return ip4 ? VERBS_SPREAD_UDP4 : VERBS_SPREAD_UDP6;
	if (proto == 6)
		return ip4 ? VERBS_SPREAD_TCP4 : VERBS_SPREAD_TCP6;
	return ip4 ? VERBS_SPREAD_IP4 : VERBS_SPREAD_IP6;
}

/* An address of ours alone: its UDP and TCP are spread by ports as well. */
bool pv_verbs_rss_splits(const struct verbs_ring *v, const struct pv_flow *flow)
{
	uint8_t mac[PV_ETH_ALEN];

	if (!v->rss || flow->kind != PV_FLOW_IP)
		return false;
	pv_frame_flow_mac(flow, v->ring.caps.mac, mac);
	return !(mac[0] & 1);
}

static struct ibv_qp *create_qp(struct verbs_ring *v, struct ibv_rwq_ind_table *table, uint64_t fields)
{
	struct verbs_context *vctx = verbs_get_ctx_op(v->ctx, create_qp_ex);
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = v,
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = v->pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = {
			.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
			.rx_hash_key_len = sizeof(hash_key),
			.rx_hash_key = hash_key,
			.rx_hash_fields_mask = fields,
		},
	};

	errno = 0;
	if (!vctx)
		errno = EOPNOTSUPP;
	return vctx ? vctx->create_qp_ex(v->ctx, &attr) : NULL;
}

struct ibv_qp *pv_verbs_rss_over(struct verbs_ring *v, struct ibv_rwq_ind_table *table, const struct pv_flow *flow, bool spread)
{
	return create_qp(v, table, spread ? fields_of[spread_of(v, flow, flow->l4_proto)] : 0);
}

int pv_verbs_rss_qp(struct verbs_ring *v, const struct pv_flow *flow, uint8_t proto, struct ibv_qp **out)
{
	enum verbs_spread spread = spread_of(v, flow, proto);
	struct ibv_qp **qp = &v->rss->qp[spread];

	if (!*qp) {
		/* Devices refuse a hash of nothing over several queues. */
		*qp = create_qp(v, spread == VERBS_SPREAD_NONE ? v->rss->first : v->rss->table, fields_of[spread]);
		if (!*qp)
			return errno ? -errno : -EOPNOTSUPP;
	}
	*out = *qp;
	return 0;
}

/* ---- data path -------------------------------------------------------------------------------------------------------------------- */

static uint32_t post_to(struct verbs_ring *v, uint32_t no, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_rxq *q = &v->rss->q[no];
	uint32_t k = PV_MIN(n, v->rss->depth - q->out), took;

	if (!k)
		return 0;
	for (uint32_t i = 0; i < k; i++)
		pkts[i]->txq = (uint8_t)no;
	took = pv_verbs_rx_post_by(v, q->wq, pkts, k);
	q->out += took;
	return took;
}

/* Buffers go where they are missed, a different queue first each time: none is left out when buffers are short. */
uint32_t pv_verbs_rss_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	struct verbs_rss *rss = v->rss;
	uint32_t done = 0;

	n = PV_MIN(n, r->caps.batch);
	if (pv_unlikely(v->gone))
		return 0;
	for (uint32_t i = 0; i < rss->n && done < n; i++)
		done += post_to(v, (rss->next + i) & (rss->n - 1), pkts + done, n - done);
	rss->next++;
	return done;
}

uint32_t pv_verbs_rss_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct verbs_ring *v = verbs_ring(r);
	/* What arming found was counted then. */
	uint32_t first = v->stash && n ? 1 : 0, got = v->rss->rx_poll(r, pkts, n);

	for (uint32_t i = first; i < got; i++) {
		v->rss->q[pkts[i]->txq].out--;
		pkts[i]->flags |= PV_PKT_QUEUE;
	}
	return got;
}
