/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segmentation: one request with headers and a stream of bytes becomes frames of at most `mss` bytes of it each, as an adapter cuts them. Each
 * has the headers with its own lengths, IPv4 identification (counted up), sequence number and checksums; FIN and PSH (RFC 9293 3.1) stay
 * on the last frame, CWR (RFC 3168 6.1.2) on the first; all else, options among them, is copied.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/cksum.h"
#include "softnic/vb.h"

#define TCP_FIN 0x01u
#define TCP_PSH 0x08u
#define TCP_CWR 0x80u
#define PROTO_TCP 6u

struct headers {
	uint32_t l3, l4, len;
	bool ip4;
};

/* Ethernet, at most two tags, IPv4 with options or IPv6 without extension headers, TCP, and nothing behind it. */
static bool parse(const uint8_t *h, uint32_t len, struct headers *out)
{
	uint32_t at = 12, type;

	for (int tags = 0;; tags++) {
		if (at + 2 > len)
			return false;
		type = pv_get16(h + at);
		at += 2;
		if ((type != 0x8100 && type != 0x88a8) || tags == 2)
			break;
		at += 2;
	}
	out->l3 = at;
	out->len = len;
	out->ip4 = type == 0x0800;
	if (out->ip4) {
		if (at + 20 > len || h[at] >> 4 != 4 || (h[at] & 0xf) < 5 || h[at + 9] != PROTO_TCP)
			return false;
		out->l4 = at + (h[at] & 0xfu) * 4;
	} else {
		if (type != 0x86dd || at + 40 > len || h[at] >> 4 != 6 || h[at + 6] != PROTO_TCP)
			return false;
		out->l4 = at + 40;
	}
	return out->l4 + 20 <= len && h[out->l4 + 12] >> 4 >= 5 && out->l4 + (h[out->l4 + 12] >> 4) * 4u == len;
}

/* The header of the frame that carries `part` bytes from `at` on. */
static void header_make(uint8_t *frame, const struct headers *h, uint32_t at, uint32_t part, uint32_t index)
{
	uint8_t *ip = frame + h->l3, *tcp = frame + h->l4;

	if (h->ip4) {
		pv_put16(ip + 2, (uint16_t)(h->len - h->l3 + part));
		pv_put16(ip + 4, (uint16_t)(pv_get16(ip + 4) + index));
	} else {
		pv_put16(ip + 4, (uint16_t)(h->len - h->l4 + part));
	}
	pv_put32(tcp + 4, pv_get32(tcp + 4) + at);
}

/* Both checksums, over the payload where it lies: in the receiver's slot it would be read back from lines that are still on their way. */
static void sums_make(uint8_t *frame, const struct headers *h, const struct sn_seg *payload, uint32_t n, uint32_t part)
{
	uint8_t *ip = frame + h->l3, *tcp = frame + h->l4;
	uint32_t off = h->len - h->l4, len = off + part, addr[2];
	uint64_t sum;

	if (h->ip4) {
		pv_cksum_put(ip + 10, 0);
		pv_cksum_put(ip + 10, pv_cksum_finish(pv_cksum_add(ip, h->l4 - h->l3, 0)));
		memcpy(addr, ip + 12, sizeof(addr));
		sum = pv_cksum_pseudo4(addr[0], addr[1], PROTO_TCP, len);
	} else {
		sum = pv_cksum_pseudo6(ip + 8, ip + 24, PROTO_TCP, len);
	}
	pv_cksum_put(tcp + 16, 0);
	sum = pv_cksum_add(tcp, off, sum);
	for (uint32_t i = 0; i < n; i++) {
		sum = pv_cksum_merge(sum, pv_cksum_at(pv_cksum_add(payload[i].base, payload[i].len, 0), off));
		off += payload[i].len;
	}
	pv_cksum_put(tcp + 16, pv_cksum_finish(sum));
}

/* Where the stream has been read to. */
struct cursor {
	const struct sn_seg *seg;
	uint32_t at;
};

/* The next `n` bytes as pieces; how many pieces. */
static uint32_t take(struct cursor *c, uint32_t n, struct sn_seg *out)
{
	uint32_t k = 0;

	while (n) {
		uint32_t part = PV_MIN(n, c->seg->len - c->at);

		if (part) {
			out[k].base = (const uint8_t *)c->seg->base + c->at;
			out[k++].len = part;
		}
		c->at += part;
		n -= part;
		if (c->at == c->seg->len) {
			c->seg++;
			c->at = 0;
		}
	}
	return k;
}

static int cut(struct vb_qp *qp, const struct vb_tso *tso, const struct headers *h, const struct vb_gather *g, bool tell)
{
	struct cursor from = { g->seg, 0 };
	struct sn_seg seg[VB_MAX_SGE + 1];
	uint8_t head[VB_MAX_TSO_HEADER];
	uint32_t at = 0, index = 0;
	int rc;

	do {
		uint32_t part = PV_MIN(g->len - at, (uint32_t)tso->mss), n;
		bool last = at + part == g->len;

		memcpy(head, tso->hdr, h->len);
		header_make(head, h, at, part, index);
		if (!last)
			head[h->l4 + 13] &= (uint8_t) ~(TCP_FIN | TCP_PSH);
		if (index)
			head[h->l4 + 13] &= (uint8_t)~TCP_CWR;
		seg[0].base = head;
		seg[0].len = h->len;
		n = 1 + take(&from, part, seg + 1);
		sums_make(head, h, seg + 1, n - 1, part);
		rc = vb_send_frame(qp, seg, n, SN_TX_SUMMED, last && tell);
		at += part;
		index++;
	} while (!rc && at < g->len);
	return rc;
}

int vb_send_tso(struct vb_qp *qp, uint64_t wr_id, const struct ibv_sge *list, uint32_t nsge, unsigned int flags,
		const struct vb_tso *tso)
{
	const uint32_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct headers h;
	struct vb_gather g;
	int rc;

	if (state != IBV_QPS_RTS)
		return vb_send_other_state(qp, wr_id, state);
	flags |= qp->force;
	if (flags & ~(VB_SEND_FLAGS | qp->force) || nsge > qp->max_send_sge || (flags & IBV_SEND_IP_CSUM && !qp->csum) ||
	    tso->hdr_len < VB_MIN_TSO_HEADER || tso->hdr_len > qp->max_tso_header || !tso->mss)
		return EINVAL;
	if (!vb_send_room(qp))
		return ENOMEM;
	rc = vb_send_gather(qp, list, nsge, flags, &g);
	if (rc > 0 || (!rc && g.len > VB_MAX_TSO))
		return EINVAL;
	if (rc)
		status = (enum ibv_wc_status) - rc;
	else if (!parse(tso->hdr, tso->hdr_len, &h))
		status = IBV_WC_LOC_QP_OP_ERR;
	else if (h.len + PV_MIN(g.len, (uint32_t)tso->mss) > sn_port_mtu(qp->port) + 18)
		status = IBV_WC_LOC_LEN_ERR;
	if (status != IBV_WC_SUCCESS)
		return vb_send_fail(qp, wr_id, status);
	vb_send_begin(qp);
	rc = cut(qp, tso, &h, &g, flags & IBV_SEND_SIGNALED);
	if (rc)
		return vb_send_fail(qp, wr_id, rc == -ENODEV ? IBV_WC_WR_FLUSH_ERR : IBV_WC_LOC_QP_OP_ERR);
	vb_send_end(qp, wr_id, h.len + g.len, flags);
	return 0;
}
