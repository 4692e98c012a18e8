/* SPDX-License-Identifier: BSD-3-Clause */
/* pcap: draft-ietf-opsawg-pcap, in the byte order of the writer; pcapng is ring/pcapng.h's. */
#include "ring/pcap.h"

#include <errno.h>

#define CLASSIC_NS 0xa1b23c4du
#define CLASSIC_HLEN 24u
#define CLASSIC_RECORD 16u
#define LINKTYPE_ETHERNET 1u
/* Beside the IP packet: Ethernet and VLAN tags. */
#define L2_MAX 22u

struct pcap {
	struct pv_tap tap;
	struct pv_pcap_cfg cfg;
	const struct pv_mem *mem;
	uint32_t snaplen;
	size_t bufsize;
	uint8_t *buf;
};

static uint32_t classic_header(const struct pcap *p)
{
	const uint32_t words[] = { CLASSIC_NS, 2 | 4 << 16, 0, 0, p->snaplen, LINKTYPE_ETHERNET };

	_Static_assert(sizeof(words) == CLASSIC_HLEN, "the header's six words");
	memcpy(p->buf, words, sizeof(words));
	return sizeof(words);
}

static void header(const struct pcap *p)
{
	const struct pv_pcapng_iface iface = { .name = p->tap.ring->caps.name, .snaplen = p->snaplen };
	uint32_t len;

	if (p->cfg.format == PV_PCAP_CLASSIC) {
		len = classic_header(p);
	} else {
		len = pv_pcapng_section(p->buf, NULL);
		len += pv_pcapng_iface(p->buf + len, &iface);
	}
	p->cfg.sink(p->cfg.ctx, p->buf, len);
}

static uint32_t classic(const struct pcap *p, const struct pv_pkt *pkt, uint64_t ns)
{
	uint32_t len = pv_pcapng_len(pkt), kept = PV_MIN(len, p->snaplen);
	const uint32_t words[] = { (uint32_t)(ns / PV_NS_PER_S), (uint32_t)(ns % PV_NS_PER_S), kept, len };

	_Static_assert(sizeof(words) == CLASSIC_RECORD, "the record's four words");
	memcpy(p->buf, words, sizeof(words));
	return (uint32_t)(pv_pcapng_copy(p->buf + sizeof(words), pkt, kept) - p->buf);
}

static void frames(struct pv_tap *t, struct pv_pkt *const *pkts, uint32_t n, enum pv_dir dir)
{
	const struct pcap *p = pv_container_of(t, struct pcap, tap);

	for (uint32_t i = 0; i < n; i++) {
		const struct pv_pcapng_frame meta = { .snaplen = p->snaplen,
						      .stamp_ns = (uint64_t)p->cfg.now_ns(p->cfg.ctx),
						      .dir = dir };
		uint32_t len =
		    p->cfg.format == PV_PCAP_CLASSIC ? classic(p, pkts[i], meta.stamp_ns) : pv_pcapng_frame(p->buf, pkts[i], &meta);

		p->cfg.sink(p->cfg.ctx, p->buf, len);
	}
}

static void gone(struct pv_tap *t, struct pv_ring *ring)
{
	struct pcap *p = pv_container_of(t, struct pcap, tap);
	const struct pv_mem *mem = p->mem;

	(void)ring;
	mem->free(mem->ctx, p->buf, p->bufsize);
	mem->free(mem->ctx, p, sizeof(*p));
}

int pv_pcap_add(struct pv_ring *r, const struct pv_mem *mem, const struct pv_pcap_cfg *cfg)
{
	uint32_t longest = PV_MAX(r->caps.mtu, r->caps.tso_max) + L2_MAX;
	struct pcap *p;

	if (!cfg->sink || !cfg->now_ns)
		return -EINVAL;
	p = mem->alloc(mem->ctx, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->mem = mem;
	p->cfg = *cfg;
	p->snaplen = cfg->snaplen ? PV_MIN(cfg->snaplen, longest) : longest;
	p->bufsize = PV_MAX(p->snaplen + PV_PCAPNG_FRAME_EXTRA, 2 * PV_PCAPNG_HEAD_MAX);
	p->buf = mem->alloc(mem->ctx, p->bufsize);
	p->tap.frames = frames;
	p->tap.gone = gone;
	if (!p->buf || pv_tap_add(&p->tap, r, mem)) {
		if (p->buf)
			mem->free(mem->ctx, p->buf, p->bufsize);
		mem->free(mem->ctx, p, sizeof(*p));
		return -ENOMEM;
	}
	header(p);
	return 0;
}
