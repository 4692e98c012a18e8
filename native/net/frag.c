/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fragments on transmit (RFC 791 3.2, RFC 8200 4.5). A chain whose buffers hold what fragments would hold becomes them as
 * it stands: each gets its headers in front and goes. Any other is copied. Checksums are computed here: no NIC sums up what it
 * gets in pieces.
 */
#include "net/internal.h"

struct frag_tx {
	struct pv_net *net;
	struct pv_path *path;
	const struct pv_tx_opts *opts;
	bool v4;
	uint32_t hlen; /* of the headers in front of each piece */
	uint32_t step; /* payload of all pieces but the last, at most */
	uint32_t total;
	uint32_t id;
	uint32_t asked; /* PV_PKT_TX_PACED or 0, and the transmit queue */
	uint64_t txq;
};

/* Headers for the piece at `off`, then away with it. */
static int frag_send(const struct frag_tx *f, struct pv_pkt *piece, uint32_t off, int64_t now_ns)
{
	uint32_t len = piece->len;
	bool more = off + len < f->total;
	uint8_t *h;

	piece->frag = NULL;
	piece->flags = f->asked;
	piece->priv[0] = f->txq;
	piece->data -= f->hlen;
	piece->len += f->hlen;
	piece->total = piece->len;
	h = piece->data;
	if (f->v4) {
		pv_tx_emit4(h, f->path, f->opts, piece->len, f->id << 16 | (more ? PV_IP4_MF : 0) | off / 8);
		pv_cksum_put(h + 10, pv_cksum_finish(pv_cksum_ip4_header(h)));
	} else {
		pv_tx_emit6(h, f->path, f->opts, len + PV_IP6_FRAG_HLEN, PV_IP6_NEXT_FRAG);
		pv_wire_ip6_frag_emit(h + PV_IP6_HLEN, f->opts->proto, off, more, f->id);
	}
	f->net->c.tx_fragments++;
	return pv_tx_frame(f->net, f->path, piece, now_ns);
}

static bool frag_in_place(const struct frag_tx *f, const struct pv_pkt *pkt)
{
	uint32_t room = f->hlen + PV_ETH_HLEN + PV_VLAN_HLEN + f->path->ring->caps.headroom;

	for (; pkt; pkt = pkt->frag)
		if ((pkt->frag ? pkt->len != f->step : pkt->len > f->step) || pv_pkt_headroom(pkt) < room)
			return false;
	return true;
}

static int frag_cut(const struct frag_tx *f, struct pv_pkt *pkt, int64_t now_ns)
{
	uint32_t off = 0;
	int rc = 0;

	while (pkt && !rc) {
		struct pv_pkt *next = pkt->frag;
		uint32_t len = pkt->len;

		rc = frag_send(f, pkt, off, now_ns);
		off += len;
		pkt = next;
	}
	if (pkt)
		pv_pkt_put(pkt);
	return rc;
}

/* Where reading stands in a chain. */
struct cursor {
	const struct pv_pkt *pkt;
	uint32_t off;
};

static void cursor_read(struct cursor *c, uint8_t *to, uint32_t len)
{
	while (len) {
		uint32_t n = PV_MIN(len, c->pkt->len - c->off);

		memcpy(to, c->pkt->data + c->off, n);
		to += n;
		len -= n;
		c->off += n;
		if (c->off == c->pkt->len) {
			c->pkt = c->pkt->frag;
			c->off = 0;
		}
	}
}

/* All pieces are there before the first one leaves: half a datagram is of no use to anybody. */
static int frag_copy(const struct frag_tx *f, struct pv_pkt *pkt, int64_t now_ns)
{
	uint32_t n = (f->total + f->step - 1) / f->step, off = 0;
	struct pv_pkt *list = pv_pkt_get_bulk(f->path->ring->pool, n), *next;
	struct cursor c = { .pkt = pkt };
	int rc = 0;

	if (!list) {
		pv_net_drop(f->net, pkt, &f->net->c.tx_no_buf);
		return -ENOBUFS;
	}
	for (struct pv_pkt *p = list; p; p = next) {
		next = p->next;
		p->next = NULL;
		if (rc) {
			pv_pkt_put(p);
			continue;
		}
		p->data = p->buf + PV_MAX(pv_pkt_headroom(p), PV_NET_HEADROOM);
		p->len = PV_MIN(f->step, f->total - off);
		cursor_read(&c, p->data, p->len);
		off += p->len;
		rc = frag_send(f, p, off - p->len, now_ns);
	}
	pv_pkt_put(pkt);
	return rc;
}

int pv_frag_tx(struct pv_net *net, struct pv_path *path, const struct pv_tx_opts *opts, struct pv_pkt *pkt, uint32_t mtu,
	       int64_t now_ns)
{
	const struct pv_pool_cfg *pool = pv_pool_config(path->ring->pool);
	struct frag_tx f = { .net = net, .path = path, .opts = opts, .v4 = path->is4 };
	uint32_t room = pool->buf_size - PV_MAX(pool->headroom, PV_NET_HEADROOM);

	for (const struct pv_pkt *p = pkt; p; p = p->frag)
		f.total += p->len;
	f.asked = (pkt->flags & PV_PKT_TX_PACED) | (uint32_t)path->txq << PV_PKT_TX_QUEUE_SHIFT;
	f.txq = pkt->priv[0];
	f.hlen = f.v4 ? PV_IP4_HLEN : PV_IP6_HLEN + PV_IP6_FRAG_HLEN;
	f.step = (mtu - f.hlen) & ~7u;
	f.id = f.v4 ? pv_tx_ip_id(net, path, opts->proto) : pv_rng_u32(&net->rng);
	if (opts->l4_csum_off != UINT32_MAX)
		pv_tx_l4_csum(path, opts, pkt, f.total);
	if (frag_in_place(&f, pkt))
		return frag_cut(&f, pkt, now_ns);
	f.step = PV_MIN(f.step, room & ~7u);
	return frag_copy(&f, pkt, now_ns);
}
