/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Headers as a NIC's steering looks at them: by the bytes that are there. Lengths inside the headers decide about the verdict
 * flags only, so that whether a rule matches depends on nothing but the fields and the bytes that led the parser to them.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/cksum.h"
#include "softnic/fab_parse.h"

#define TYPE_IP4 0x0800u
#define TYPE_IP6 0x86ddu
#define TYPE_VLAN 0x8100u
#define TYPE_QINQ 0x88a8u
#define PORT_VXLAN 4789u
#define VXLAN_HLEN 8u
#define VXLAN_VALID 0x08u /* RFC 7348 5: the flag that there is a VNI */
#define PROTO_TCP 6u
#define PROTO_UDP 17u

/* Ports, when the transport header is there. */
static void parse_l4(const uint8_t *head, uint32_t avail, struct sn_parse *out, struct sn_match *key, uint32_t l4, bool verifiable)
{
	uint32_t flag = out->proto == PROTO_UDP ? SN_RX_UDP : SN_RX_TCP;

	if (out->proto != PROTO_UDP && out->proto != PROTO_TCP) {
		out->hlen = l4;
		return;
	}
	if (l4 + 4 > avail)
		return;
	memcpy(&key->src_port, head + l4, 2);
	memcpy(&key->dst_port, head + l4 + 2, 2);
	out->has |= SN_FIELDS_PORTS;
	out->layers.flags |= (uint16_t)flag;
	out->ports = (uint16_t)l4;
	out->vxlan = out->proto == PROTO_UDP && pv_get16(head + l4 + 2) == PORT_VXLAN;
	if (verifiable)
		out->layers.l4 = (uint16_t)l4;
	out->hlen = l4 + 4;
}

static void parse_ip4(const uint8_t *head, uint32_t avail, struct sn_parse *out, struct sn_match *key)
{
	uint32_t l3 = out->layers.l3;
	const uint8_t *ip = head + l3;
	uint32_t ihl = (ip[0] & 0xfu) * 4;

	if (ip[0] >> 4 != 4 || ihl < 20) {
		out->hlen = l3 + 1;
		return;
	}
	if (l3 + ihl > avail)
		return;
	out->layers.flags |= SN_RX_IP4;
	out->has |= SN_FIELDS_IP;
	key->ip_version = 4;
	key->tos = ip[1];
	key->ttl = ip[8];
	out->proto = key->ip_proto = ip[9];
	memcpy(&key->src_ip[0], ip + 12, 4);
	memcpy(&key->dst_ip[0], ip + 16, 4);
	if (pv_get16(ip + 6) & 0x3fff) {
		out->layers.flags |= SN_RX_FRAG;
		return;
	}
	parse_l4(head, avail, out, key, l3 + ihl, true);
}

static bool is_extension(uint8_t next)
{
	return next == 0 || next == 43 || next == 44 || next == 51 || next == 60;
}

/* Extension headers (RFC 8200 4): to the upper layer, or to where they end or hide it. */
static void parse_ip6(const uint8_t *head, uint32_t avail, struct sn_parse *out, struct sn_match *key)
{
	uint32_t l3 = out->layers.l3, at = l3 + 40;
	const uint8_t *ip = head + l3;
	uint32_t word;
	uint8_t next;
	bool routed = false, plain;

	if (ip[0] >> 4 != 6) {
		out->hlen = l3 + 1;
		return;
	}
	if (at > avail)
		return;
	word = pv_get32(ip);
	out->layers.flags |= SN_RX_IP6;
	out->has |= SN_FIELDS_IP | SN_FIELD_FLOW_LABEL;
	key->ip_version = 6;
	key->tos = (uint8_t)(word >> 20);
	key->flow_label = __builtin_bswap32(word & 0xfffff);
	key->ttl = ip[7];
	memcpy(key->src_ip, ip + 8, 16);
	memcpy(key->dst_ip, ip + 24, 16);
	next = ip[6];
	plain = !is_extension(next);
	while (is_extension(next) && next != 44 && at + 8 <= avail) {
		uint8_t kind = next;

		routed |= kind == 43;
		next = head[at];
		at += kind == 51 ? (head[at + 1] + 2u) * 4 : (head[at + 1] + 1u) * 8;
	}
	out->proto = key->ip_proto = next;
	if (next == 44) {
		if (at + 8 <= avail)
			out->proto = key->ip_proto = head[at];
		out->layers.flags |= SN_RX_FRAG;
		return;
	}
	if (at <= avail)
		parse_l4(head, avail, out, key, at, !routed);
	if (!plain)
		out->hlen = 0;
}

/* One frame, up to its ports. */
static void parse_frame(const uint8_t *head, uint32_t avail, struct sn_parse *out)
{
	struct sn_match key;
	uint32_t l3 = 14;
	uint16_t type;

	memset(out, 0, sizeof(*out));
	memset(&key, 0, sizeof(key));
	if (avail < 16)
		return;
	memcpy(key.dst_mac, head, 6);
	memcpy(key.src_mac, head + 6, 6);
	out->has = SN_FIELD_DST_MAC | SN_FIELD_SRC_MAC | SN_FIELD_ETHERTYPE;
	type = pv_get16(head + 12);
	for (int tags = 0; tags < 2 && (type == TYPE_VLAN || type == TYPE_QINQ) && l3 + 4 <= avail; tags++) {
		if (!tags)
			memcpy(&key.vlan_tci, head + l3, 2);
		type = pv_get16(head + l3 + 2);
		out->has |= SN_FIELD_VLAN;
		out->layers.tagged = true;
		l3 += 4;
	}
	key.ethertype = __builtin_bswap16(type);
	out->layers.l3 = (uint16_t)l3;
	if (type == TYPE_IP4 && l3 + 20 <= avail)
		parse_ip4(head, avail, out, &key);
	else if (type == TYPE_IP6 && l3 + 40 <= avail)
		parse_ip6(head, avail, out, &key);
	else if (type != TYPE_IP4 && type != TYPE_IP6 && type != TYPE_VLAN && type != TYPE_QINQ)
		out->hlen = l3;
	memcpy(out->key, &key, sizeof(key));
	if (out->hlen && out->hlen < 16)
		out->hlen = 16;
	if (out->hlen > SN_HEAD || out->hlen > avail)
		out->hlen = 0;
}

void sn_parse(const uint8_t *head, uint32_t avail, struct sn_parse *out)
{
	struct sn_parse inside;
	struct sn_inner key;
	uint32_t at;

	parse_frame(head, avail, out);
	at = out->ports + 8u;
	if (pv_likely(!out->vxlan) || at + VXLAN_HLEN > avail || !(head[at] & VXLAN_VALID))
		return;
	parse_frame(head + at + VXLAN_HLEN, avail - at - VXLAN_HLEN, &inside);
	memset(&key, 0, sizeof(key));
	memcpy(&key.match, inside.key, sizeof(key.match));
	memcpy(&key.vni, head + at + 4, 4);
	memcpy(out->key + SN_KEY_WORDS, &key, sizeof(key));
	out->has |= SN_FIELD_VNI | inside.has << SN_INNER_SHIFT;
}

void sn_parse_mask(const struct sn_parse *parse, uint32_t fields, uint8_t mask[SN_HEAD])
{
	uint32_t l3 = parse->layers.l3;
	bool ip4 = parse->layers.flags & SN_RX_IP4, ip6 = parse->layers.flags & SN_RX_IP6;
	uint16_t type;

	memset(mask, 0, SN_HEAD);
	memset(mask, 0xff, 6);
	if (fields & SN_FIELD_SRC_MAC)
		memset(mask + 6, 0xff, 6);
	memset(mask + 12, 0xff, 2);
	for (uint32_t at = 14; at < l3; at += 4) {
		memset(mask + at + 2, 0xff, 2);
		if (at == 14 && (fields & SN_FIELD_VLAN))
			memset(mask + at, 0xff, 2);
	}
	memcpy(&type, (const uint8_t *)parse->key + offsetof(struct sn_match, ethertype), 2);
	type = __builtin_bswap16(type);
	if (type == TYPE_IP4 || type == TYPE_IP6)
		mask[l3] = 0xff;
	if (ip4) {
		memset(mask + l3 + 6, 0xff, 2);
		mask[l3 + 9] = 0xff;
		mask[l3 + 1] = fields & SN_FIELD_TOS ? 0xff : 0;
		mask[l3 + 8] = fields & SN_FIELD_TTL ? 0xff : 0;
		if (fields & SN_FIELD_SRC_IP)
			memset(mask + l3 + 12, 0xff, 4);
		if (fields & SN_FIELD_DST_IP)
			memset(mask + l3 + 16, 0xff, 4);
	} else if (ip6) {
		mask[l3 + 6] = 0xff;
		mask[l3 + 7] = fields & SN_FIELD_TTL ? 0xff : 0;
		if (fields & (SN_FIELD_TOS | SN_FIELD_FLOW_LABEL))
			memset(mask + l3, 0xff, 4);
		if (fields & SN_FIELD_SRC_IP)
			memset(mask + l3 + 8, 0xff, 16);
		if (fields & SN_FIELD_DST_IP)
			memset(mask + l3 + 24, 0xff, 16);
	}
	if (parse->has & SN_FIELDS_PORTS) {
		if (fields & SN_FIELD_SRC_PORT)
			memset(mask + parse->hlen - 4, 0xff, 2);
		if (fields & SN_FIELD_DST_PORT)
			memset(mask + parse->hlen - 2, 0xff, 2);
	}
}

static uint32_t match_fields(const struct sn_match *m)
{
	uint32_t f = 0;

	for (int i = 0; i < 6; i++) {
		f |= m->dst_mac[i] ? SN_FIELD_DST_MAC : 0;
		f |= m->src_mac[i] ? SN_FIELD_SRC_MAC : 0;
	}
	for (int i = 0; i < 4; i++) {
		f |= m->src_ip[i] ? SN_FIELD_SRC_IP : 0;
		f |= m->dst_ip[i] ? SN_FIELD_DST_IP : 0;
	}
	f |= m->ethertype ? SN_FIELD_ETHERTYPE : 0;
	f |= m->vlan_tci ? SN_FIELD_VLAN : 0;
	f |= m->ip_version ? SN_FIELD_IP_VERSION : 0;
	f |= m->ip_proto ? SN_FIELD_IP_PROTO : 0;
	f |= m->tos ? SN_FIELD_TOS : 0;
	f |= m->ttl ? SN_FIELD_TTL : 0;
	f |= m->flow_label ? SN_FIELD_FLOW_LABEL : 0;
	f |= m->src_port ? SN_FIELD_SRC_PORT : 0;
	f |= m->dst_port ? SN_FIELD_DST_PORT : 0;
	return f;
}

uint32_t sn_rule_fields(const struct sn_rule *rule)
{
	return match_fields(&rule->mask) | match_fields(&rule->inner_mask.match) << SN_INNER_SHIFT |
	       (rule->vxlan || rule->inner_mask.vni ? SN_FIELD_VNI : 0);
}

/* The transport checksum over `len` bytes at `l4` with the pseudo-header's sum; true when verified or filled. */
static bool verdict_l4(uint8_t *l4, uint32_t len, uint64_t pseudo, bool tcp, bool fill)
{
	uint8_t *field = l4 + (tcp ? 16 : 6);

	if (fill) {
		pv_cksum_put(field, 0);
		pseudo = pv_cksum_add(l4, len, pseudo);
		pv_cksum_put(field, tcp ? pv_cksum_finish(pseudo) : pv_cksum_finish_udp(pseudo));
		return true;
	}
	if (!tcp && pv_cksum_get(field) == 0)
		return false;
	return pv_cksum_ok(pv_cksum_add(l4, len, pseudo));
}

uint32_t sn_verdict(uint8_t *frame, uint32_t len, const struct sn_layers *layers, uint32_t tx_flags)
{
	uint32_t flags = layers->flags, l3 = layers->l3, l4 = layers->l4, total, l4_len, used;
	uint8_t *ip = frame + l3;
	bool tcp = flags & SN_RX_TCP;
	uint32_t w[2];

	if (!(flags & (SN_RX_IP4 | SN_RX_IP6)))
		return flags;
	if (tx_flags & SN_TX_SUMMED)
		return flags | SN_RX_L3_OK | (l4 ? SN_RX_L4_OK : 0);
	if (pv_likely(flags & SN_RX_IP4)) {
		uint32_t ihl = (ip[0] & 0xfu) * 4;

		total = pv_get16(ip + 2);
		if (total < ihl || l3 + total > len)
			return flags;
		if (tx_flags & SN_TX_L3_CSUM) {
			pv_cksum_put(ip + 10, 0);
			pv_cksum_put(ip + 10, pv_cksum_finish(pv_cksum_add(ip, ihl, 0)));
			flags |= SN_RX_L3_OK;
		} else if (pv_cksum_ok(pv_likely(ihl == 20) ? pv_cksum_ip4_header(ip) : pv_cksum_add(ip, ihl, 0))) {
			flags |= SN_RX_L3_OK;
		}
	} else {
		total = 40u + pv_get16(ip + 4);
		if (l3 + total > len)
			return flags;
		flags |= SN_RX_L3_OK;
	}
	used = l4 - l3;
	if (!l4 || total < used + (tcp ? 20 : 8))
		return flags;
	l4_len = total - used;
	if (!tcp) {
		uint32_t ulen = pv_get16(frame + l4 + 4);

		if (ulen < 8 || ulen > l4_len)
			return flags;
		l4_len = ulen;
	}
	memcpy(w, ip + 12, 8);
	if (verdict_l4(frame + l4, l4_len,
		       flags & SN_RX_IP4 ? pv_cksum_pseudo4(w[0], w[1], tcp ? PROTO_TCP : PROTO_UDP, l4_len)
					 : pv_cksum_pseudo6(ip + 8, ip + 24, tcp ? PROTO_TCP : PROTO_UDP, l4_len),
		       tcp, tx_flags & SN_TX_L4_CSUM))
		flags |= SN_RX_L4_OK;
	return flags;
}

/* IBV_RX_HASH_*; written out, for this file does without verbs. */
#define RSS_SRC_IP4 0x1u
#define RSS_DST_IP4 0x2u
#define RSS_SRC_IP6 0x4u
#define RSS_DST_IP6 0x8u
#define RSS_SRC_TCP 0x10u
#define RSS_DST_TCP 0x20u
#define RSS_SRC_UDP 0x40u
#define RSS_DST_UDP 0x80u

uint32_t sn_toeplitz(const uint8_t key[40], const uint8_t *data, uint32_t len)
{
	uint32_t hash = 0, window = pv_get32(key);

	for (uint32_t i = 0; i < len; i++) {
		for (int bit = 7; bit >= 0; bit--) {
			if (data[i] >> bit & 1)
				hash ^= window;
			window = window << 1 | (key[(i + 4) % 40] >> bit & 1u);
		}
	}
	return hash;
}

uint32_t sn_rss_field_bits(uint32_t rss)
{
	uint32_t f = 0;

	f |= rss & (RSS_SRC_IP4 | RSS_SRC_IP6) ? SN_FIELD_SRC_IP : 0;
	f |= rss & (RSS_DST_IP4 | RSS_DST_IP6) ? SN_FIELD_DST_IP : 0;
	f |= rss & (RSS_SRC_TCP | RSS_SRC_UDP) ? SN_FIELD_SRC_PORT : 0;
	f |= rss & (RSS_DST_TCP | RSS_DST_UDP) ? SN_FIELD_DST_PORT : 0;
	return f;
}

bool sn_rss_hash(const struct sn_parse *parse, uint32_t rss, const uint8_t key[40], uint32_t *hash)
{
	uint32_t flags = parse->layers.flags, alen = flags & SN_RX_IP6 ? 16 : 4, n = 0;
	uint32_t src_ip = flags & SN_RX_IP6 ? RSS_SRC_IP6 : RSS_SRC_IP4, dst_ip = flags & SN_RX_IP6 ? RSS_DST_IP6 : RSS_DST_IP4;
	uint32_t src_port = flags & SN_RX_UDP ? RSS_SRC_UDP : RSS_SRC_TCP, dst_port = flags & SN_RX_UDP ? RSS_DST_UDP : RSS_DST_TCP;
	struct sn_match m;
	uint8_t data[36];

	memcpy(&m, parse->key, sizeof(m));
	if (flags & (SN_RX_IP4 | SN_RX_IP6)) {
		if (rss & src_ip) {
			memcpy(data, m.src_ip, alen);
			n = alen;
		}
		if (rss & dst_ip) {
			memcpy(data + n, m.dst_ip, alen);
			n += alen;
		}
	}
	if (parse->has & SN_FIELDS_PORTS) {
		if (rss & src_port) {
			memcpy(data + n, &m.src_port, 2);
			n += 2;
		}
		if (rss & dst_port) {
			memcpy(data + n, &m.dst_port, 2);
			n += 2;
		}
	}
	*hash = n ? sn_toeplitz(key, data, n) : 0;
	return n != 0;
}
