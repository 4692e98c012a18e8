/* SPDX-License-Identifier: BSD-3-Clause */
/* pcapng: draft-ietf-opsawg-pcapng, sections 4.1 to 4.3; pcap: draft-ietf-opsawg-pcap. Both in the byte order of the writer. */
#include "ring/pcap.h"

#include <errno.h>

#define NG_SHB 0x0a0d0d0au
#define NG_IDB 1u
#define NG_EPB 6u
#define NG_BYTE_ORDER 0x1a2b3c4du
#define NG_IF_NAME 2u
#define NG_IF_TSRESOL 9u
#define NG_EPB_FLAGS 2u
#define CLASSIC_NS 0xa1b23c4du
#define LINKTYPE_ETHERNET 1u

enum direction { INBOUND = 1, OUTBOUND = 2 }; /* as in epb_flags */

#define RECORD_EXTRA 64u /* what a record has beside the frame, at most */

struct pcap_ring {
	struct pv_ring ring;
	struct pv_ring *lower;
	struct pv_pcap_cfg cfg;
	const struct pv_mem *mem;
	uint32_t snaplen;
	size_t bufsize;
	uint8_t *buf;
};

static struct pcap_ring *pcap(struct pv_ring *r)
{
	return pv_container_of(r, struct pcap_ring, ring);
}

struct writer {
	uint8_t *at;
};

static void put32(struct writer *w, uint32_t v)
{
	memcpy(w->at, &v, sizeof(v));
	w->at += sizeof(v);
}

static void put16(struct writer *w, uint32_t v)
{
	uint16_t half = (uint16_t)v;

	memcpy(w->at, &half, sizeof(half));
	w->at += sizeof(half);
}

static void pad4(struct writer *w, size_t len)
{
	while (len++ & 3)
		*w->at++ = 0;
}

static void option(struct writer *w, uint32_t code, const void *value, uint32_t len)
{
	put16(w, code);
	put16(w, len);
	memcpy(w->at, value, len);
	w->at += len;
	pad4(w, len);
}

/* Ends a pcapng block: its length stands behind it and at its second word. */
static void block_end(struct writer *w, uint8_t *start)
{
	uint32_t len = (uint32_t)(w->at - start) + 4;

	put32(w, len);
	memcpy(start + 4, &len, sizeof(len));
}

static void write_header(struct pcap_ring *p)
{
	struct writer w = { p->buf };
	uint8_t *block = p->buf, nano = 9;

	if (p->cfg.format == PV_PCAP_CLASSIC) {
		put32(&w, CLASSIC_NS);
		put16(&w, 2);
		put16(&w, 4);
		put32(&w, 0);
		put32(&w, 0);
		put32(&w, p->snaplen);
		put32(&w, LINKTYPE_ETHERNET);
	} else {
		put32(&w, NG_SHB);
		put32(&w, 0);
		put32(&w, NG_BYTE_ORDER);
		put16(&w, 1);
		put16(&w, 0);
		put32(&w, UINT32_MAX); /* length of the section: not told */
		put32(&w, UINT32_MAX);
		block_end(&w, block);
		block = w.at;
		put32(&w, NG_IDB);
		put32(&w, 0);
		put16(&w, LINKTYPE_ETHERNET);
		put16(&w, 0);
		put32(&w, p->snaplen);
		option(&w, NG_IF_NAME, p->ring.caps.name, (uint32_t)strlen(p->ring.caps.name));
		option(&w, NG_IF_TSRESOL, &nano, 1);
		put32(&w, 0); /* end of options */
		block_end(&w, block);
	}
	p->cfg.sink(p->cfg.ctx, p->buf, (size_t)(w.at - p->buf));
}

static void record(struct pcap_ring *p, const struct pv_pkt *pkt, enum direction dir)
{
	uint64_t now = (uint64_t)p->cfg.now_ns(p->cfg.ctx);
	struct writer w = { p->buf };
	uint32_t len = 0, kept, flags = dir, left;

	for (const struct pv_pkt *f = pkt; f; f = f->frag)
		len += f->len;
	kept = left = PV_MIN(len, p->snaplen);
	if (p->cfg.format == PV_PCAP_CLASSIC) {
		put32(&w, (uint32_t)(now / PV_NS_PER_S));
		put32(&w, (uint32_t)(now % PV_NS_PER_S));
	} else {
		put32(&w, NG_EPB);
		put32(&w, 0);
		put32(&w, 0); /* interface */
		put32(&w, (uint32_t)(now >> 32));
		put32(&w, (uint32_t)now);
	}
	put32(&w, kept);
	put32(&w, len);
	for (const struct pv_pkt *f = pkt; f && left; f = f->frag) {
		uint32_t n = PV_MIN(f->len, left);

		memcpy(w.at, f->data, n);
		w.at += n;
		left -= n;
	}
	if (p->cfg.format == PV_PCAP_NG) {
		pad4(&w, kept);
		option(&w, NG_EPB_FLAGS, &flags, sizeof(flags));
		put32(&w, 0);
		block_end(&w, p->buf);
	}
	p->cfg.sink(p->cfg.ctx, p->buf, (size_t)(w.at - p->buf));
}

static uint32_t pcap_rx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	return pv_ring_rx_post(pcap(r)->lower, pkts, n);
}

static uint32_t pcap_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t got = pv_ring_rx_poll(pcap(r)->lower, pkts, n);

	r->rx_more += pcap(r)->lower->rx_more;
	pcap(r)->lower->rx_more = 0;
	for (uint32_t i = 0; i < got; i++)
		record(pcap(r), pkts[i], INBOUND);
	return got;
}

/* What the ring beneath refuses is offered again, and must not be in the file twice: so it is asked first, and a packet that it
 * took may still be read, for nobody writes to a frame that is on its way. */
static uint32_t pcap_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t took = pv_ring_tx_post(pcap(r)->lower, pkts, n);

	for (uint32_t i = 0; i < took; i++)
		record(pcap(r), pkts[i], OUTBOUND);
	return took;
}

static int pcap_tx_kick(struct pv_ring *r)
{
	return pv_ring_tx_kick(pcap(r)->lower);
}

static uint32_t pcap_tx_reap(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	return pv_ring_tx_reap(pcap(r)->lower, pkts, n);
}

static int pcap_arm(struct pv_ring *r)
{
	return pv_ring_arm(pcap(r)->lower);
}

static int pcap_notify_fd(struct pv_ring *r)
{
	return pv_ring_notify_fd(pcap(r)->lower);
}

static int pcap_flow_add(struct pv_ring *r, const struct pv_flow *flow, uint64_t *handle)
{
	return pv_ring_flow_add(pcap(r)->lower, flow, handle);
}

static int pcap_flow_del(struct pv_ring *r, uint64_t handle)
{
	return pv_ring_flow_del(pcap(r)->lower, handle);
}

static int pcap_txq_open(struct pv_ring *r, const struct pv_ring_rate *rate)
{
	return pv_ring_txq_open(pcap(r)->lower, rate);
}

static int pcap_txq_close(struct pv_ring *r, uint32_t txq)
{
	return pv_ring_txq_close(pcap(r)->lower, txq);
}

static int pcap_set_rate(struct pv_ring *r, uint32_t txq, const struct pv_ring_rate *rate)
{
	return pv_ring_set_rate(pcap(r)->lower, txq, rate);
}

static uint32_t pcap_txq_pending(struct pv_ring *r, uint32_t txq)
{
	return pv_ring_txq_pending(pcap(r)->lower, txq);
}

static int pcap_set_stamps(struct pv_ring *r, bool rx, bool tx)
{
	return pv_ring_set_stamps(pcap(r)->lower, rx, tx);
}

static int pcap_clock(struct pv_ring *r, uint64_t *now)
{
	return pv_ring_clock(pcap(r)->lower, now);
}

static int pcap_clock_info(struct pv_ring *r, struct pv_ring_clock_info *out)
{
	return pv_ring_clock_info(pcap(r)->lower, out);
}

static void pcap_counters(struct pv_ring *r, struct pv_ring_counters *out)
{
	pv_ring_counters(pcap(r)->lower, out);
}

static enum pv_ring_event pcap_event(struct pv_ring *r)
{
	enum pv_ring_event ev = pv_ring_event(pcap(r)->lower);

	if (ev != PV_RING_EV_NONE)
		r->caps.link_up = pcap(r)->lower->caps.link_up;
	return ev;
}

static void pcap_free(struct pcap_ring *p)
{
	const struct pv_mem *mem = p->mem;

	mem->free(mem->ctx, p->buf, p->bufsize);
	mem->free(mem->ctx, p, sizeof(*p));
}

static void pcap_close(struct pv_ring *r)
{
	pv_ring_close(pcap(r)->lower);
	pcap_free(pcap(r));
}

static void pcap_forget(struct pv_ring *r)
{
	pv_ring_forget(pcap(r)->lower);
	pcap_free(pcap(r));
}

static const struct pv_ring_ops pcap_ops = {
	.kind = "pcap",
	.close = pcap_close,
	.rx_post = pcap_rx_post,
	.rx_poll = pcap_rx_poll,
	.tx_post = pcap_tx_post,
	.tx_kick = pcap_tx_kick,
	.tx_reap = pcap_tx_reap,
	.arm = pcap_arm,
	.notify_fd = pcap_notify_fd,
	.flow_add = pcap_flow_add,
	.flow_del = pcap_flow_del,
	.txq_open = pcap_txq_open,
	.txq_close = pcap_txq_close,
	.set_rate = pcap_set_rate,
	.txq_pending = pcap_txq_pending,
	.set_stamps = pcap_set_stamps,
	.clock = pcap_clock,
	.clock_info = pcap_clock_info,
	.counters = pcap_counters,
	.event = pcap_event,
	.forget = pcap_forget,
};

int pv_pcap_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_ring *lower, const struct pv_pcap_cfg *cfg)
{
	uint32_t longest = lower->caps.mtu + 18;
	struct pcap_ring *p;

	if (!cfg->sink || !cfg->now_ns)
		return -EINVAL;
	p = mem->alloc(mem->ctx, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->mem = mem;
	p->cfg = *cfg;
	p->lower = lower;
	p->snaplen = cfg->snaplen ? PV_MIN(cfg->snaplen, longest) : longest;
	p->bufsize = PV_MAX(p->snaplen + RECORD_EXTRA, 256u);
	p->buf = mem->alloc(mem->ctx, p->bufsize);
	if (!p->buf) {
		mem->free(mem->ctx, p, sizeof(*p));
		return -ENOMEM;
	}
	p->ring.ops = &pcap_ops;
	p->ring.pool = lower->pool;
	p->ring.caps = lower->caps;
	write_header(p);
	*out = &p->ring;
	return 0;
}
