/* SPDX-License-Identifier: BSD-3-Clause */
/* Sections 4.1 (section header), 4.2 (interface description), 4.3 (enhanced packet) and 4.6 (interface statistics) of the draft. */
#include "ring/pcapng.h"

#include "base/bytes.h"

#define BLOCK_SECTION 0x0a0d0d0au
#define BLOCK_IFACE 1u
#define BLOCK_STATS 5u
#define BLOCK_FRAME 6u
#define BYTE_ORDER_MAGIC 0x1a2b3c4du
#define LINKTYPE_ETHERNET 1u

#define SHB_USERAPPL 4u
#define IF_NAME 2u
#define IF_DESCRIPTION 3u
#define IF_MAC 6u
#define IF_TSRESOL 9u
#define IF_FILTER 11u
#define IF_HARDWARE 15u
#define EPB_FLAGS 2u
#define EPB_DROPCOUNT 4u
#define ISB_STARTTIME 2u
#define ISB_ENDTIME 3u
#define ISB_IFRECV 4u
#define ISB_IFDROP 5u
#define ISB_FILTERACCEPT 6u
#define ISB_OSDROP 7u
#define ISB_USRDELIV 8u

#define ETHERTYPE_VLAN 0x8100u
#define MACS 12u
#define VLAN_HLEN 4u

struct writer {
	uint8_t *at, *block;
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

/* Stamps are two words, the upper first, whatever the byte order. */
static void put_stamp(struct writer *w, uint64_t ns)
{
	put32(w, (uint32_t)(ns >> 32));
	put32(w, (uint32_t)ns);
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

static void option_text(struct writer *w, uint32_t code, const char *text)
{
	if (text && *text)
		option(w, code, text, (uint32_t)strnlen(text, PV_PCAPNG_TEXT_MAX));
}

static void option_count(struct writer *w, uint32_t code, uint64_t count)
{
	option(w, code, &count, sizeof(count));
}

static void option_stamp(struct writer *w, uint32_t code, uint64_t ns)
{
	uint32_t words[2] = { (uint32_t)(ns >> 32), (uint32_t)ns };

	option(w, code, words, sizeof(words));
}

static struct writer begin(uint8_t *at, uint32_t type)
{
	struct writer w = { at, at };

	put32(&w, type);
	put32(&w, 0);
	return w;
}

/* Ends the options and the block, whose length stands behind it and in its second word. */
static uint32_t end(struct writer *w)
{
	uint32_t len;

	put32(w, 0);
	len = (uint32_t)(w->at - w->block) + 4;
	put32(w, len);
	memcpy(w->block + 4, &len, sizeof(len));
	return len;
}

uint32_t pv_pcapng_section(uint8_t *at, const char *application)
{
	struct writer w = begin(at, BLOCK_SECTION);

	put32(&w, BYTE_ORDER_MAGIC);
	put16(&w, 1);
	put16(&w, 0);
	put32(&w, UINT32_MAX); /* length of the section: not told */
	put32(&w, UINT32_MAX);
	option_text(&w, SHB_USERAPPL, application);
	return end(&w);
}

uint32_t pv_pcapng_iface(uint8_t *at, const struct pv_pcapng_iface *iface)
{
	struct writer w = begin(at, BLOCK_IFACE);
	uint8_t nano = 9;

	put16(&w, LINKTYPE_ETHERNET);
	put16(&w, 0);
	put32(&w, iface->snaplen);
	option_text(&w, IF_NAME, iface->name);
	option_text(&w, IF_DESCRIPTION, iface->description);
	if (iface->mac)
		option(&w, IF_MAC, iface->mac, 6);
	option(&w, IF_TSRESOL, &nano, 1);
	if (iface->filter && *iface->filter) {
		uint8_t text[1 + PV_PCAPNG_TEXT_MAX] = { 0 }; /* first its kind: a text */
		uint32_t len = (uint32_t)strnlen(iface->filter, PV_PCAPNG_TEXT_MAX);

		memcpy(text + 1, iface->filter, len);
		option(&w, IF_FILTER, text, len + 1);
	}
	option_text(&w, IF_HARDWARE, iface->hardware);
	return end(&w);
}

uint32_t pv_pcapng_stats(uint8_t *at, uint32_t iface, const struct pv_pcapng_stats *stats)
{
	struct writer w = begin(at, BLOCK_STATS);

	put32(&w, iface);
	put_stamp(&w, stats->now_ns);
	option_stamp(&w, ISB_STARTTIME, stats->start_ns);
	option_stamp(&w, ISB_ENDTIME, stats->end_ns);
	option_count(&w, ISB_IFRECV, stats->received);
	option_count(&w, ISB_IFDROP, stats->missed);
	option_count(&w, ISB_FILTERACCEPT, stats->accepted);
	option_count(&w, ISB_OSDROP, stats->dropped);
	option_count(&w, ISB_USRDELIV, stats->delivered);
	return end(&w);
}

static bool has_tag(const struct pv_pkt *pkt)
{
	return pkt->flags & PV_PKT_VLAN && pkt->len >= MACS;
}

uint32_t pv_pcapng_len(const struct pv_pkt *pkt)
{
	uint32_t len = has_tag(pkt) ? VLAN_HLEN : 0;

	for (const struct pv_pkt *f = pkt; f; f = f->frag)
		len += f->len;
	return len;
}

static uint8_t *copy(uint8_t *at, const uint8_t *from, uint32_t len, uint32_t *left)
{
	uint32_t n = PV_MIN(len, *left);

	memcpy(at, from, n);
	*left -= n;
	return at + n;
}

uint8_t *pv_pcapng_copy(uint8_t *at, const struct pv_pkt *pkt, uint32_t kept)
{
	uint32_t done = 0;

	if (has_tag(pkt)) {
		uint8_t tag[VLAN_HLEN];

		pv_put16(tag, ETHERTYPE_VLAN);
		pv_put16(tag + 2, pkt->vlan_tci);
		done = MACS;
		at = copy(at, pkt->data, MACS, &kept);
		at = copy(at, tag, VLAN_HLEN, &kept);
	}
	at = copy(at, pkt->data + done, pkt->len - done, &kept);
	for (const struct pv_pkt *f = pkt->frag; f && kept; f = f->frag)
		at = copy(at, f->data, f->len, &kept);
	return at;
}

uint32_t pv_pcapng_frame(uint8_t *at, const struct pv_pkt *pkt, const struct pv_pcapng_frame *meta)
{
	struct writer w = begin(at, BLOCK_FRAME);
	uint32_t len = pv_pcapng_len(pkt), kept = PV_MIN(len, meta->snaplen), flags = meta->dir;

	put32(&w, meta->iface);
	put_stamp(&w, meta->stamp_ns);
	put32(&w, kept);
	put32(&w, len);
	w.at = pv_pcapng_copy(w.at, pkt, kept);
	pad4(&w, kept);
	option(&w, EPB_FLAGS, &flags, sizeof(flags));
	if (meta->dropped)
		option_count(&w, EPB_DROPCOUNT, meta->dropped);
	return end(&w);
}
