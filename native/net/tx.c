/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transmit. pv_net_tx is the straight line for what nearly always happens: a valid path, a neighbour that answered, one buffer
 * that fits. Everything else is pv_tx_slow.
 */
#include "net/internal.h"
#include "net/txlane.h"

#define IP4_CSUM_OFF 10u
#define TX_DF_MODES (1u << PV_PMTU_WANT | 1u << PV_PMTU_DO | 1u << PV_PMTU_PROBE)

/* ---- ring ---------------------------------------------------------------------------------------------------------------- */

static pv_noinline int tx_post_full(struct pv_net *net, uint32_t iface, struct pv_ring *ring, struct pv_pkt *pkt)
{
	struct pv_pkt *done[PV_RING_BATCH_MAX];
	uint32_t n;
	int rc;

	/* Completed frames make room, but only once the device has seen them. */
	rc = pv_ring_tx_kick(ring);
	n = pv_ring_tx_reap(ring, done, PV_RING_BATCH_MAX);
	for (uint32_t i = 0; i < n; i++)
		pv_net_tx_done(net, done[i]);
	if (rc != -ENODEV && n && pv_ring_tx_post(ring, &pkt, 1) == 1) {
		PV_PROBE4(posted, iface, pkt, pkt->data, pkt->len);
		net->c.tx_packets++;
		net->head.dirty |= 1u << (iface - 1);
		return 0;
	}
	pv_net_lost(net, pkt, &net->c.tx_ring_full);
	pv_pkt_put(pkt);
	if (rc == -ENODEV)
		return rc;
	return ring->caps.link_up ? -ENOBUFS : -ENETDOWN;
}

pv_inline int tx_post(struct pv_net *net, uint32_t iface, struct pv_ring *ring, struct pv_pkt *pkt)
{
	if (pv_unlikely(pv_ring_tx_post(ring, &pkt, 1) != 1))
		return tx_post_full(net, iface, ring, pkt);
	PV_PROBE4(posted, iface, pkt, pkt->data, pkt->len);
	net->c.tx_packets++;
	net->head.dirty |= 1u << (iface - 1);
	return 0;
}

int pv_tx_post(struct pv_net *net, uint32_t iface, struct pv_ring *ring, struct pv_pkt *pkt)
{
	return pv_unlikely(pkt->flags & PV_PKT_TX_PACED) ? pv_txq_post(net, iface, ring, pkt) : tx_post(net, iface, ring, pkt);
}

/* ---- headers ------------------------------------------------------------------------------------------------------------- */

/* RFC 6864: only what may be fragmented needs an identification; a counter per pair of hosts and protocol, started at random, as
 * Linux (RFC 7739). */
uint16_t pv_tx_ip_id(struct pv_net *net, const struct pv_path *path, uint8_t proto)
{
	struct {
		uint32_t src, dst;
		uint64_t proto;
	} in = { path->src.w[3], path->dst.w[3], proto };

	return (uint16_t)net->ip_id[pv_siphash(&net->sip, &in, sizeof(in)) % PV_IP_ID_SLOTS]++;
}

pv_inline uint32_t csum_bit(uint8_t proto)
{
	return proto == PV_PROTO_UDP ? PV_CSUM_UDP : proto == PV_PROTO_TCP ? PV_CSUM_TCP : 0;
}

/* By software: over the chain whose first buffer starts with the L4 header. */
void pv_tx_l4_csum(const struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, uint32_t total)
{
	uint8_t *field = pkt->data + opts->l4_csum_off;
	uint64_t sum;

	pv_cksum_put(field, 0);
	sum = pv_cksum_pseudo(&path->src, &path->dst, opts->proto, total);
	sum = pv_unlikely(pkt->frag != NULL) ? pv_cksum_merge(pv_net_chain_sum(pkt), sum) : pv_cksum_add(pkt->data, pkt->len, sum);
	pv_cksum_put(field, opts->proto == PV_PROTO_UDP ? pv_cksum_finish_udp(sum) : pv_cksum_finish(sum));
}

/* Flags for the ring; fills what it does not fill. */
static uint32_t tx_l4(const struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, uint32_t total)
{
	if (opts->l4_csum_off == UINT32_MAX || path->is_local)
		return 0;
	if (pv_likely(path->tx_csum & csum_bit(opts->proto))) {
		pv_cksum_put(pkt->data + opts->l4_csum_off, 0);
		return PV_PKT_TX_L4_CSUM;
	}
	pv_tx_l4_csum(path, opts, pkt, total);
	return 0;
}

static bool tx_wants_df(const struct pv_path *path, const struct pv_tx_opts *opts)
{
	return (TX_DF_MODES >> opts->pmtudisc & 1) && !(path->mtu_locked && opts->pmtudisc == PV_PMTU_WANT);
}

/* IP header in front of a segment of `total` bytes that needs no fragments. */
static void tx_l3(struct pv_net *net, const struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, uint32_t total)
{
	uint32_t hlen = path->is4 ? PV_IP4_HLEN : PV_IP6_HLEN;

	pkt->data -= hlen;
	pkt->len += hlen;
	pkt->total = total + hlen;
	if (path->is4) {
		pv_tx_emit4(pkt->data, path, opts, pkt->total,
			    tx_wants_df(path, opts) ? PV_IP4_DF : (uint32_t)pv_tx_ip_id(net, path, opts->proto) << 16);
		if (path->tx_csum & PV_CSUM_IP4)
			pkt->flags |= PV_PKT_TX_L3_CSUM;
		else
			pv_wire_ip4_csum_fill(pkt->data, PV_IP4_HLEN);
	} else {
		pv_tx_emit6(pkt->data, path, opts, total, opts->proto);
	}
}

static void tx_l2(const struct pv_path *path, struct pv_pkt *pkt)
{
	pkt->data -= path->l2_len;
	pkt->len += path->l2_len;
	pkt->total += path->l2_len;
	memcpy(pkt->data, path->l2, path->l2_len);
}

/* ---- the long way -------------------------------------------------------------------------------------------------------- */

int pv_tx_loop(struct pv_net *net, const struct pv_iface *ifp, struct pv_pkt *pkt)
{
	uint16_t type = *pkt->data >> 4 == 4 ? PV_ETHERTYPE_IP4 : PV_ETHERTYPE_IP6;

	if (net->loop.count >= PV_LOOP_MAX) {
		pv_net_drop(net, pkt, &net->c.tx_ring_full);
		return -ENOBUFS;
	}
	pkt->data -= PV_ETH_HLEN;
	pkt->len += PV_ETH_HLEN;
	pkt->total += PV_ETH_HLEN;
	pv_wire_eth_emit(pkt->data, ifp->mac, ifp->mac, 0, type);
	/* It never was on a wire: nothing to check. */
	pkt->flags = PV_PKT_LOOPED | PV_PKT_L3_OK | PV_PKT_L4_OK;
	pkt->iface = (uint8_t)ifp->index;
	pv_pktq_push(&net->loop, pkt);
	net->head.looped = true;
	return 0;
}

int pv_tx_out(struct pv_net *net, struct pv_path *path, struct pv_pkt *pkt, int64_t now_ns)
{
	if (path->is_local)
		return pv_tx_loop(net, net->iface[path->iface], pkt);
	if (path->neigh)
		return pv_neigh_output(net, path->neigh, &path->src, pkt, now_ns);
	return pv_tx_post(net, path->iface, path->ring, pkt);
}

int pv_tx_frame(struct pv_net *net, struct pv_path *path, struct pv_pkt *pkt, int64_t now_ns)
{
	const struct pv_neigh *n = path->neigh;

	if (!path->is_local) {
		if (n && !path->l2_ready && n->state >= PV_NEIGH_STALE) {
			memcpy(path->l2, n->mac, PV_ETH_ALEN);
			path->l2_ready = true;
		}
		tx_l2(path, pkt);
	}
	return pv_unlikely(net->ask != NULL) ? pv_stamp_tx(net, path, pkt, now_ns) : pv_tx_out(net, path, pkt, now_ns);
}

static uint32_t chain_len(const struct pv_pkt *pkt, uint32_t *count)
{
	uint32_t len = 0;

	for (*count = 0; pkt; pkt = pkt->frag, ++*count)
		len += pkt->len;
	return len;
}

static int tx_refuse(struct pv_pkt *pkt, int rc)
{
	pv_pkt_put(pkt);
	return rc;
}

/* The tables moved under the path: the same question again. */
static int tx_path_again(struct pv_net *net, struct pv_path *path, const struct pv_pkt *pkt, int64_t now_ns)
{
	struct pv_path_query q = { .dst = path->dst, .src = path->src, .iface = path->bound, .tos = path->tos, .prio = path->prio };
	struct pv_path fresh;
	int rc = pv_net_path(net, &q, now_ns, &fresh);

	if (rc)
		return rc;
	/* A packet never changes pools. */
	if (fresh.ring->pool != pkt->pool)
		return -ENODEV;
	if (pv_unlikely(path->lane))
		pv_txlane_set(net, &fresh, path->lane);
	*path = fresh;
	return 0;
}

/* Keeps the headers of a frame that just went out whole, for those that follow. Not where each has an identification of its own. */
static void tx_keep_headers(struct pv_path *path, const struct pv_tx_opts *opts)
{
	static const uint8_t always = PV_NEIGH_PERMANENT;
	uint32_t l3 = path->is4 ? PV_IP4_HLEN : PV_IP6_HLEN;
	uint8_t *h = path->hdr + sizeof(path->hdr) - l3;

	path->hdr_limit = 0;
	if (path->is_local || !path->l2_ready || (path->is4 && !tx_wants_df(path, opts)))
		return;
	path->hdr_len = (uint8_t)(l3 + path->l2_len);
	path->hdr_len_off = path->is4 ? PV_IP4_HLEN - 2 : PV_IP6_HLEN - 4;
	path->hdr_len_add = path->is4 ? PV_IP4_HLEN : 0;
	path->hdr_flags = (uint32_t)path->txq << PV_PKT_TX_QUEUE_SHIFT;
	path->hdr_l3_soft = path->is4 && !(path->tx_csum & PV_CSUM_IP4);
	path->hdr_l4_soft = opts->l4_csum_off != UINT32_MAX && !(path->tx_csum & csum_bit(opts->proto));
	if (path->is4 && !path->hdr_l3_soft)
		path->hdr_flags |= PV_PKT_TX_L3_CSUM;
	if (opts->l4_csum_off != UINT32_MAX && !path->hdr_l4_soft)
		path->hdr_flags |= PV_PKT_TX_L4_CSUM;
	if (path->is4)
		pv_tx_emit4(h, path, opts, 0, PV_IP4_DF);
	else
		pv_tx_emit6(h, path, opts, 0, opts->proto);
	if (path->hdr_l3_soft)
		pv_cksum_put(h + IP4_CSUM_OFF, pv_cksum_fold(pv_cksum_ip4_header(h)));
	memcpy(h - path->l2_len, path->l2, path->l2_len);
	path->hdr_state = path->neigh ? &path->neigh->state : &always;
	path->hdr_opts = *opts;
	path->hdr_limit = path->mtu - l3 + 1;
}

pv_noinline int pv_tx_slow(struct pv_net *net, struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt,
			   int64_t now_ns)
{
	uint32_t count, total = chain_len(pkt, &count);
	uint32_t hlen, mtu;
	bool paced;
	int rc;

	net->now_ns = now_ns;
	if (!pv_path_valid(net, path)) {
		rc = tx_path_again(net, path, pkt, now_ns);
		if (rc)
			return tx_refuse(pkt, rc);
	}
	hlen = path->is4 ? PV_IP4_HLEN : PV_IP6_HLEN;
	if (total > UINT16_MAX - (path->is4 ? PV_IP4_HLEN : 0))
		return tx_refuse(pkt, -EMSGSIZE);
	/* As ip_sk_use_pmtu and ip_sk_ignore_df in Linux say. */
	mtu = opts->pmtudisc < PV_PMTU_PROBE ? path->mtu : path->iface_mtu;
	if (total + hlen > mtu && opts->pmtudisc >= PV_PMTU_DO && opts->pmtudisc != PV_PMTU_OMIT) {
		pv_net_lost(net, pkt, &net->c.tx_too_big);
		return tx_refuse(pkt, -EMSGSIZE);
	}
	if (total + hlen > mtu || (count > 1 && count > path->ring->caps.max_sge && !path->is_local))
		return pv_frag_tx(net, path, opts, pkt, mtu, now_ns);
	pkt->flags = tx_l4(path, opts, pkt, total) | (pkt->flags & PV_PKT_ASKED) | (uint32_t)path->txq << PV_PKT_TX_QUEUE_SHIFT;
	paced = pkt->flags & PV_PKT_TX_PACED;
	tx_l3(net, path, opts, pkt, total);
	rc = pv_tx_frame(net, path, pkt, now_ns);
	if (count == 1 && !paced)
		tx_keep_headers(path, opts);
	return rc;
}

int pv_tx_control(struct pv_net *net, const struct pv_path_query *q, const struct pv_tx_opts *opts, struct pv_pkt *pkt,
		  int64_t now_ns)
{
	struct pv_path path;
	int rc = pv_net_path(net, q, now_ns, &path);

	if (!rc && path.ring->pool != pkt->pool)
		rc = -ENODEV;
	if (rc)
		return tx_refuse(pkt, rc);
	return pv_net_tx(net, &path, opts, pkt, now_ns);
}

/* ---- the straight line ---------------------------------------------------------------------------------------------------- */

/* The kept headers have the sum of all but the length. To sum up what was just written in pieces would wait until it is in the cache, which
 * takes its time where the buffer was another CPU's. */
pv_inline void tx_l3_sum(const struct pv_path *path, uint8_t *l4, uint16_t len)
{
	uint32_t sum = pv_cksum_get(path->hdr + sizeof(path->hdr) - PV_IP4_HLEN + IP4_CSUM_OFF) + (uint32_t)__builtin_bswap16(len);

	pv_cksum_put(l4 - PV_IP4_HLEN + IP4_CSUM_OFF, (uint16_t) ~(sum + (sum >> 16)));
}

pv_inline int tx_line(struct pv_net *net, const struct pv_path *path, struct pv_pkt *pkt)
{
	uint8_t *l4 = pkt->data, *h;
	uint32_t total = pkt->len;

	/* All 64 bytes, whatever the headers have: what is in front of the frame is nobody's. */
	memcpy(l4 - sizeof(path->hdr), path->hdr, sizeof(path->hdr));
	pv_put16(l4 - path->hdr_len_off, (uint16_t)(total + path->hdr_len_add));
	if (pv_unlikely(path->hdr_l3_soft))
		tx_l3_sum(path, l4, (uint16_t)(total + path->hdr_len_add));
	h = l4 - path->hdr_len;
	total += path->hdr_len;
	pkt->data = h;
	pkt->len = total;
	pkt->total = total;
	pkt->flags = path->hdr_flags | (pkt->flags & PV_PKT_KEPT);
	return tx_post(net, path->iface, path->ring, pkt);
}

int pv_net_tx(struct pv_net *net, struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, int64_t now_ns)
{
	if (pv_unlikely(pkt->frag || !pv_net_tx_plain(net, path, opts, pkt->len)))
		return pv_tx_slow(net, path, opts, pkt, now_ns);
	if (pv_unlikely(path->hdr_l4_soft))
		pv_tx_l4_csum(path, opts, pkt, pkt->len);
	else if (opts->l4_csum_off != UINT32_MAX)
		pv_cksum_put(pkt->data + opts->l4_csum_off, 0);
	return tx_line(net, path, pkt);
}

int pv_net_tx_summed(struct pv_net *net, const struct pv_path *path, struct pv_pkt *pkt)
{
	return tx_line(net, path, pkt);
}

/* ---- segmentation by the ring ----------------------------------------------------------------------------------------------- */

/* Only behind headers that a segment before has left for us: a neighbour that is asked for, or an identification for each packet, is
 * nothing that a device could see to. */
uint32_t pv_net_tso_room(const struct pv_net *net, const struct pv_path *path, const struct pv_tx_opts *opts)
{
	uint32_t max = PV_MIN(path->ring->caps.tso_max, (uint32_t)UINT16_MAX);

	if (max <= path->hdr_len || !pv_net_tx_plain(net, path, opts, 0))
		return 0;
	return max - path->hdr_len;
}

/* The length field holds the whole: a device that cuts writes each part's own. */
int pv_net_tx_tso(struct pv_net *net, const struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt)
{
	uint8_t *l4 = pkt->data;

	pv_cksum_put(l4 + opts->l4_csum_off, 0);
	memcpy(l4 - sizeof(path->hdr), path->hdr, sizeof(path->hdr));
	pv_put16(l4 - path->hdr_len_off, (uint16_t)(pkt->total + path->hdr_len_add));
	if (path->hdr_l3_soft)
		pv_cksum_put(l4 - PV_IP4_HLEN + IP4_CSUM_OFF, 0);
	pkt->data = l4 - path->hdr_len;
	pkt->len += path->hdr_len;
	pkt->total += path->hdr_len;
	pkt->gso_hdr = (uint8_t)(pkt->gso_hdr + path->hdr_len);
	pkt->flags =
	    path->hdr_flags | PV_PKT_TX_TSO | PV_PKT_TX_L4_CSUM | (path->is4 ? PV_PKT_TX_L3_CSUM : 0u) | (pkt->flags & PV_PKT_KEPT);
	return tx_post(net, path->iface, path->ring, pkt);
}
