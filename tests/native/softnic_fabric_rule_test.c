/* SPDX-License-Identifier: BSD-3-Clause */
/* Which rule takes a frame; RSS; and that a remembered path never leads where the rules would not. */
#include "softnic/fab.h"
#include "softnic_fabric_util.h"

static struct fab_net net;
static struct sn_port *tx, *rx;
static uint8_t frame[2048];

static void setup(uint32_t queues)
{
	fab_make(&net);
	tx = fab_port(&net, 0);
	rx = fab_port(&net, 1);
	for (uint32_t i = 0; i < queues; i++)
		fab_queue(rx, 64);
}

/* Sends twice, by lookup and by remembered path: which queues got it each time, as bits. */
static uint32_t receivers(uint32_t len)
{
	uint32_t got[2] = { 0, 0 };

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(fab_send(tx, frame, len), 0);
		for (uint32_t q = 0; q < net.nqueues; q++) {
			uint32_t n = fab_drain(net.queue[q]);

			CHECK(n <= 1);
			got[i] |= n << q;
		}
	}
	CHECK_EQ(got[0], got[1]);
	return got[0];
}

static uint64_t port_rule(uint32_t q, uint16_t dport, uint32_t priority)
{
	struct sn_rule r = { .priority = priority };

	r.value.dst_port = __builtin_bswap16(dport);
	r.mask.dst_port = 0xffff;
	r.value.ip_proto = 17;
	r.mask.ip_proto = 0xff;
	return fab_rule(rx, &r, net.queue[q]);
}

/* Every pair of priorities in both orders of creation. */
TEST(precedence)
{
	for (uint32_t a = 0; a < 3; a++) {
		for (uint32_t b = 0; b < 3; b++) {
			setup(2);
			uint32_t len = fab_udp4(frame, 0, 1, 1, 53, 10);

			port_rule(0, 53, a);
			port_rule(1, 53, b);
			/* The lower number; rules that say the same at one priority are one entry with two receivers. */
			CHECK_EQ(receivers(len), a < b ? 1 : a > b ? 2 : 3);
			/* A group's frame goes to both. */
			frame[0] = 1;
			CHECK_EQ(receivers(len), 3);
			fab_done(&net);
		}
	}
}

TEST(deleted_rules_do_not_match)
{
	uint32_t len = fab_udp4(frame, 0, 1, 1, 53, 10);
	uint64_t first, second;

	setup(2);
	first = port_rule(0, 53, 0);
	second = port_rule(1, 53, 0);
	CHECK(first != second);
	CHECK_EQ(receivers(len), 3);
	CHECK_EQ(sn_rule_del(rx, first), 0);
	CHECK_EQ(receivers(len), 2);
	CHECK_EQ(sn_rule_del(rx, second), 0);
	CHECK_EQ(receivers(len), 0);
	CHECK_EQ(fab_counters(rx).rx_no_rule, 2);
	/* The entry is used again, by a later rule. */
	first = port_rule(1, 53, 0);
	CHECK_EQ(receivers(len), 2);
	CHECK_EQ(sn_rule_del(rx, first), 0);
	CHECK_EQ(sn_rule_del(rx, first), -ENOENT);
	CHECK_EQ(sn_rule_del(rx, 0), -ENOENT);
	fab_done(&net);
}

TEST(default_rules_come_last)
{
	struct sn_rule all = { .all_default = true }, mc = { .mc_default = true };
	uint32_t len = fab_udp4(frame, 0, 1, 1, 53, 10);

	setup(4);
	all.priority = 0;
	fab_rule(rx, &all, net.queue[0]);
	fab_rule(rx, &all, net.queue[1]);
	fab_rule(rx, &mc, net.queue[2]);
	CHECK_EQ(receivers(len), 3);
	frame[0] |= 1;
	CHECK_EQ(receivers(len), 7);
	/* A normal rule of whatever priority takes it from them. */
	port_rule(3, 53, 1000);
	CHECK_EQ(receivers(len), 8);
	frame[0] &= 0xfe;
	CHECK_EQ(receivers(len), 8);
	pv_put16(frame + 36, 54);
	CHECK_EQ(receivers(len), 3);
	fab_done(&net);
}

TEST(sniffers_see_both_directions)
{
	struct sn_rule sniff = { .sniffer = true };
	uint32_t len = fab_udp4(frame, 0, 1, 1, 53, 10);
	struct sn_port *other;

	setup(2);
	port_rule(0, 53, 0);
	fab_rule(rx, &sniff, net.queue[1]);
	CHECK_EQ(receivers(len), 3);
	/* What no rule takes is sniffed, and not taken by that. */
	pv_put16(frame + 36, 54);
	CHECK_EQ(receivers(len), 2);
	CHECK_EQ(fab_counters(rx).rx_no_rule, 2);
	/* What another queue pair of the port sends. */
	other = fab_port(&net, 1);
	fab_udp4(frame, 1, 0, 1, 53, 10);
	CHECK_EQ(fab_send(other, frame, len), 0);
	CHECK_EQ(fab_drain(net.queue[1]), 1);
	CHECK_EQ(fab_drain(net.queue[0]), 0);
	fab_done(&net);
}

/* One rule a field: it matches the frame, and not when the field differs in any bit of the mask. */
TEST(each_field)
{
	static const struct {
		uint32_t at, len; /* in struct sn_match */
		uint32_t frame_at; /* of IPv4 with a VLAN tag; 0: another test's */
	} fields[] = {
		{ offsetof(struct sn_match, dst_mac), 6, 0 },   { offsetof(struct sn_match, src_mac), 6, 6 },
		{ offsetof(struct sn_match, vlan_tci), 2, 14 }, { offsetof(struct sn_match, ethertype), 2, 16 },
		{ offsetof(struct sn_match, tos), 1, 19 },      { offsetof(struct sn_match, ttl), 1, 26 },
		{ offsetof(struct sn_match, ip_proto), 1, 27 }, { offsetof(struct sn_match, src_ip), 4, 30 },
		{ offsetof(struct sn_match, dst_ip), 4, 34 },   { offsetof(struct sn_match, src_port), 2, 38 },
		{ offsetof(struct sn_match, dst_port), 2, 40 },
	};
	uint8_t plain[128];
	uint32_t len = fab_udp4(plain, 0, 1, 1000, 53, 20);

	for (size_t i = 0; i < pv_array_size(fields); i++) {
		struct sn_rule r = { 0 };

		memcpy(frame, plain, 12);
		pv_put16(frame + 12, 0x8100);
		pv_put16(frame + 14, 0x2064);
		memcpy(frame + 16, plain + 12, len - 12);
		setup(1);
		memset((uint8_t *)&r.mask + fields[i].at, 0xff, fields[i].len);
		memcpy((uint8_t *)&r.value + fields[i].at, frame + fields[i].frame_at, fields[i].len);
		fab_rule(rx, &r, net.queue[0]);
		CHECK_EQ(receivers(len + 4), 1);
		for (uint32_t bit = 0; bit < fields[i].len * 8; bit++) {
			if (fields[i].at == 0 && bit == 0)
				continue; /* a group's address */
			frame[fields[i].frame_at + bit / 8] ^= (uint8_t)(1u << bit % 8);
			CHECK_EQ(receivers(len + 4), 0);
			frame[fields[i].frame_at + bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		CHECK_EQ(receivers(len + 4), 1);
		fab_done(&net);
	}
}

/* A field that the frame has not is not a field of zeros. */
TEST(absent_fields_do_not_match)
{
	struct sn_rule r = { 0 };
	uint32_t len = fab_udp4(frame, 0, 1, 0, 0, 10);

	setup(3);
	r.mask.vlan_tci = 0xffff;
	fab_rule(rx, &r, net.queue[0]);
	CHECK_EQ(receivers(len), 0);
	memset(&r.mask, 0, sizeof(r.mask));
	r.mask.dst_port = 0xffff;
	fab_rule(rx, &r, net.queue[1]);
	CHECK_EQ(receivers(len), 2);
	frame[23] = 47; /* no UDP */
	CHECK_EQ(receivers(len), 0);
	frame[23] = 17;
	for (uint32_t frag = 1; frag < 0x4000; frag <<= 1) {
		pv_put16(frame + 20, (uint16_t)frag);
		CHECK_EQ(receivers(len), 0);
	}
	pv_put16(frame + 20, 0);
	CHECK_EQ(receivers(34 + 3), 0); /* cut off in the ports */
	CHECK_EQ(receivers(34 + 4), 2);
	fab_eth(frame, 0, 1, 0x0806);
	CHECK_EQ(receivers(len), 0);
	memset(&r.mask, 0, sizeof(r.mask));
	r.mask.ip_version = 0xff;
	fab_rule(rx, &r, net.queue[2]);
	CHECK_EQ(receivers(len), 0);
	fab_done(&net);
}

TEST(ip6_fields)
{
	struct sn_rule r = { 0 };
	uint32_t len = fab_udp6(frame, 0, 1, 7, 53, 10);

	setup(2);
	frame[14] = 0x6a; /* class 0xab, label 0xcdef1 */
	frame[15] = 0xbc;
	pv_put16(frame + 16, 0xdef1);
	r.value.flow_label = __builtin_bswap32(0xcdef1);
	r.mask.flow_label = __builtin_bswap32(0xfffff);
	r.value.tos = 0xab;
	r.mask.tos = 0xff;
	memcpy(r.value.dst_ip, frame + 38, 16);
	memset(r.mask.dst_ip, 0xff, 16);
	r.value.ip_version = 6;
	r.mask.ip_version = 0xff;
	fab_rule(rx, &r, net.queue[0]);
	port_rule(1, 53, 5);
	CHECK_EQ(receivers(len), 1);
	for (uint32_t bit = 0; bit < 28; bit++) {
		uint32_t at = 14 * 8 + 4 + bit;

		frame[at / 8] ^= (uint8_t)(0x80u >> at % 8);
		CHECK_EQ(receivers(len), 2);
		frame[at / 8] ^= (uint8_t)(0x80u >> at % 8);
	}
	frame[53] ^= 4;
	CHECK_EQ(receivers(len), 2);
	fab_done(&net);
}

/* UDP over IPv4, and behind its VXLAN header another such frame: where the inner one begins, and how long all is. */
static uint32_t vxlan_frame(uint32_t vni, uint32_t *inner)
{
	uint32_t len = fab_udp4(frame, 0, 1, 1000, 4789, 150);

	frame[42] = 0x08;
	pv_put32(frame + 46, vni << 8);
	*inner = 50;
	fab_udp4(frame + 50, 4, 5, 2000, 80, 50);
	return len;
}

/* One rule a field of the inner frame, and one of the network's number: they match it, and not when any bit of the field differs. */
TEST(fields_inside_a_tunnel)
{
	static const struct {
		uint32_t at, len; /* in struct sn_inner */
		uint32_t frame_at; /* from the inner frame */
	} fields[] = {
		{ offsetof(struct sn_inner, match.dst_mac), 6, 0 },    { offsetof(struct sn_inner, match.src_mac), 6, 6 },
		{ offsetof(struct sn_inner, match.ethertype), 2, 12 }, { offsetof(struct sn_inner, match.tos), 1, 15 },
		{ offsetof(struct sn_inner, match.ttl), 1, 22 },       { offsetof(struct sn_inner, match.ip_proto), 1, 23 },
		{ offsetof(struct sn_inner, match.src_ip), 4, 26 },    { offsetof(struct sn_inner, match.dst_ip), 4, 30 },
		{ offsetof(struct sn_inner, match.src_port), 2, 34 },  { offsetof(struct sn_inner, match.dst_port), 2, 36 },
		{ offsetof(struct sn_inner, vni), 3, (uint32_t)-4 },
	};

	for (size_t i = 0; i < pv_array_size(fields); i++) {
		uint32_t inner, len = vxlan_frame(0x123456, &inner);
		uint8_t *at = frame + inner + (int32_t)fields[i].frame_at;
		struct sn_rule r = { .vxlan = true };

		setup(1);
		memset((uint8_t *)&r.inner_mask + fields[i].at, 0xff, fields[i].len);
		memcpy((uint8_t *)&r.inner_value + fields[i].at, at, fields[i].len);
		fab_rule(rx, &r, net.queue[0]);
		CHECK_EQ(receivers(len), 1);
		for (uint32_t bit = 0; bit < fields[i].len * 8; bit++) {
			at[bit / 8] ^= (uint8_t)(1u << bit % 8);
			CHECK_EQ(receivers(len), 0);
			at[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		CHECK_EQ(receivers(len), 1);
		fab_done(&net);
	}
}

/* What is not there inside does not match, and without a valid header, or to another port, there is no inside. */
TEST(what_is_no_tunnel)
{
	uint32_t inner, len = vxlan_frame(7, &inner);
	struct sn_rule any = { .vxlan = true }, port = { .vxlan = true };

	setup(2);
	fab_rule(rx, &any, net.queue[0]);
	port.mask.ip_version = 0xff;
	port.value.ip_version = 4;
	port.priority = 0;
	port.inner_mask.match.dst_port = 0xffff;
	port.inner_value.match.dst_port = __builtin_bswap16(80);
	any.priority = 1;
	fab_rule(rx, &port, net.queue[1]);
	/* The first was there earlier; to tell them apart its priority is worse. */
	CHECK_EQ(receivers(len), 1);
	frame[42] = 0xf7; /* every flag but that of the number */
	CHECK_EQ(receivers(len), 0);
	frame[42] = 0x08;
	pv_put16(frame + 36, 4790);
	CHECK_EQ(receivers(len), 0);
	pv_put16(frame + 36, 4789);
	frame[23] = 6;
	CHECK_EQ(receivers(len), 0);
	frame[23] = 17;
	pv_put16(frame + 20, 0x2000); /* a fragment */
	CHECK_EQ(receivers(len), 0);
	pv_put16(frame + 20, 0);
	for (uint32_t cut = 16; cut < inner; cut++)
		CHECK_EQ(receivers(cut), 0);
	fab_done(&net);

	setup(1);
	len = vxlan_frame(7, &inner);
	fab_rule(rx, &port, net.queue[0]);
	CHECK_EQ(receivers(len), 1);
	for (uint32_t cut = 16; cut < inner + 38; cut++)
		CHECK_EQ(receivers(cut), 0);
	CHECK_EQ(receivers(inner + 38), 1);
	for (uint32_t frag = 1; frag < 0x4000; frag <<= 1) {
		pv_put16(frame + inner + 20, (uint16_t)frag);
		CHECK_EQ(receivers(len), 0);
	}
	pv_put16(frame + inner + 20, 0);
	CHECK_EQ(receivers(len), 1);
	fab_done(&net);
}

TEST(tags_and_drops)
{
	struct sn_rule r = { .tagged = true, .tag = 0xabcdef }, drop = { .drop = true }, all = { .all_default = true };
	uint32_t len = fab_udp4(frame, 0, 1, 1, 53, 10);
	struct sn_frame f;
	uint64_t handle;

	setup(2);
	r.value.dst_port = drop.value.dst_port = __builtin_bswap16(53);
	r.mask.dst_port = drop.mask.dst_port = 0xffff;
	r.priority = 5;
	fab_rule(rx, &r, net.queue[0]);
	fab_rule(rx, &all, net.queue[1]);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(fab_send(tx, frame, len), 0);
		CHECK(sn_rxq_peek(net.queue[0], &f));
		CHECK_EQ(f.flags & SN_RX_TAG, SN_RX_TAG);
		CHECK_EQ(f.rss_hash, 0xabcdef);
		sn_rxq_pop(net.queue[0]);
	}
	/* A better rule that drops: not even the catch-all has it. */
	handle = fab_rule(rx, &drop, net.queue[0]);
	CHECK_EQ(receivers(len), 0);
	CHECK_EQ(fab_counters(rx).rx_rule_drop, 2);
	pv_put16(frame + 36, 54);
	CHECK_EQ(fab_send(tx, frame, len), 0);
	CHECK(sn_rxq_peek(net.queue[1], &f));
	CHECK_EQ(f.flags & SN_RX_TAG, 0);
	sn_rxq_pop(net.queue[1]);
	pv_put16(frame + 36, 53);
	CHECK_EQ(sn_rule_del(rx, handle), 0);
	CHECK_EQ(receivers(len), 1);
	CHECK_EQ(fab_counters(rx).rx_rule_drop, 2);
	fab_done(&net);
}

/* "Verifying the RSS Hash Calculation", Microsoft's documentation of receive-side scaling. */
static const uint8_t ms_key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

TEST(toeplitz_vectors)
{
	static const struct {
		uint8_t src[4], dst[4];
		uint16_t sport, dport;
		uint32_t with_ports, without;
	} v4[] = {
		{ { 66, 9, 149, 187 }, { 161, 142, 100, 80 }, 2794, 1766, 0x51ccc178, 0x323e8fc2 },
		{ { 199, 92, 111, 2 }, { 65, 69, 140, 83 }, 14230, 4739, 0xc626b0ea, 0xd718262a },
		{ { 24, 19, 198, 95 }, { 12, 22, 207, 184 }, 12898, 38024, 0x5c2b394a, 0xd2d0a5de },
		{ { 38, 27, 205, 30 }, { 209, 142, 163, 6 }, 48228, 2217, 0xafc7327f, 0x82989176 },
		{ { 153, 39, 163, 191 }, { 202, 188, 127, 2 }, 44251, 1303, 0x10e828a2, 0x5d1809c5 },
	};
	static const struct {
		uint8_t src[16], dst[16];
		uint16_t sport, dport;
		uint32_t with_ports, without;
	} v6[] = {
		{ { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7 },
		  { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 1 },
		  2794,
		  1766,
		  0x40207d3d,
		  0x2cc18cd5 },
		{ { 0x3f, 0xfe, 0x05, 0x01, 0x00, 0x08, 0, 0, 0x02, 0x60, 0x97, 0xff, 0xfe, 0x40, 0xef, 0xab },
		  { 0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 },
		  14230,
		  4739,
		  0xdde51bbf,
		  0x0f0c461c },
	};
	uint8_t d[36];

	for (size_t i = 0; i < pv_array_size(v4); i++) {
		memcpy(d, v4[i].src, 4);
		memcpy(d + 4, v4[i].dst, 4);
		pv_put16(d + 8, v4[i].sport);
		pv_put16(d + 10, v4[i].dport);
		CHECK_EQ(sn_toeplitz(ms_key, d, 8), v4[i].without);
		CHECK_EQ(sn_toeplitz(ms_key, d, 12), v4[i].with_ports);
	}
	for (size_t i = 0; i < pv_array_size(v6); i++) {
		memcpy(d, v6[i].src, 16);
		memcpy(d + 16, v6[i].dst, 16);
		pv_put16(d + 32, v6[i].sport);
		pv_put16(d + 34, v6[i].dport);
		CHECK_EQ(sn_toeplitz(ms_key, d, 32), v6[i].without);
		CHECK_EQ(sn_toeplitz(ms_key, d, 36), v6[i].with_ports);
	}
}

TEST(rss_spreads)
{
	struct sn_rule r = { .nqueues = 4, .queues = net.queue, .rss_fields = 0x1 | 0x2 | 0x40 | 0x80 };
	uint32_t count[4] = { 0 };
	uint64_t handle;

	setup(4);
	memcpy(r.rss_key, ms_key, 40);
	CHECK_EQ(sn_rule_add(rx, &r, &handle), 0);
	for (uint16_t port = 1000; port < 3000; port++) {
		uint32_t len = fab_udp4(frame, 0, 1, port, 53, 10), q;
		struct sn_frame f;
		uint8_t d[12];

		memcpy(d, frame + 26, 12);
		for (int twice = 0; twice < 2; twice++) {
			CHECK_EQ(fab_send(tx, frame, len), 0);
			q = sn_toeplitz(ms_key, d, 12) & 3;
			CHECK(sn_rxq_peek(net.queue[q], &f));
			CHECK_EQ(f.rss_hash, sn_toeplitz(ms_key, d, 12));
			sn_rxq_pop(net.queue[q]);
		}
		count[q]++;
	}
	for (int q = 0; q < 4; q++)
		CHECK(count[q] > 350 && count[q] < 650);
	/* A frame with none of the fields has no hash. */
	fab_eth(frame, 0, 1, 0x0806);
	CHECK_EQ(receivers(60), 1);
	r.nqueues = 3;
	CHECK_EQ(sn_rule_add(rx, &r, &handle), -EINVAL);
	r.nqueues = 256;
	CHECK_EQ(sn_rule_add(rx, &r, &handle), -EINVAL);
	fab_done(&net);
}

/* ---- remembered paths ---- */

static void random_rule(struct pv_rng *rng, const uint8_t *like)
{
	struct sn_rule r = { .priority = pv_rng_u32(rng) % 3 };
	struct sn_parse parse;
	struct sn_match m;
	uint32_t fields = pv_rng_u32(rng) & pv_rng_u32(rng);

	sn_parse(like, 200, &parse);
	memcpy(&m, parse.key, sizeof(m));
#define FIELD(bit, name)                                                                                                           \
	do {                                                                                                                       \
		if (fields >> (bit)&1) {                                                                                           \
			memcpy(&r.value.name, &m.name, sizeof(m.name));                                                            \
			memset(&r.mask.name, 0xff, sizeof(m.name));                                                                \
		}                                                                                                                  \
	} while (0)
	FIELD(0, dst_mac);
	FIELD(1, src_mac);
	FIELD(2, ethertype);
	FIELD(3, src_ip);
	FIELD(4, dst_ip);
	FIELD(5, ip_version);
	FIELD(6, ip_proto);
	FIELD(7, tos);
	FIELD(8, ttl);
	FIELD(9, src_port);
	FIELD(10, dst_port);
	if (fields >> 11 & 1)
		FIELD(11, vlan_tci);
	if (fields >> 24 & 1 && parse.has & SN_FIELD_VNI) {
		struct sn_inner in;

		memcpy(&in, parse.key + SN_KEY_WORDS, sizeof(in));
		r.vxlan = true;
		r.inner_value = in;
		r.inner_mask.vni = fields >> 25 & 1 ? UINT32_MAX : 0;
		memset(&r.inner_mask.match.dst_port, fields >> 26 & 1 ? 0xff : 0, 2);
		memset(&r.inner_mask.match.dst_ip[0], fields >> 27 & 1 ? 0xff : 0, 4);
	}
	r.drop = !(pv_rng_u32(rng) % 8);
	r.tagged = !(pv_rng_u32(rng) % 4);
	r.tag = pv_rng_u32(rng) & 0xffffff;
	r.sniffer = fields >> 12 & 1;
	r.all_default = !r.sniffer && (fields >> 13 & 1);
	if (fields >> 14 & 1)
		r.mask.dst_port &= 0xf0f0;
	r.nqueues = 1;
	if (fields >> 15 & 1) {
		r.rss_fields = fields >> 16 & 0xff;
		r.nqueues = 4;
		memcpy(r.rss_key, ms_key, 40);
	}
	r.queues = &net.queue[r.nqueues == 4 ? 0 : pv_rng_u32(rng) % net.nqueues];
	CHECK_EQ(sn_rule_add(rx, &r, &(uint64_t){ 0 }), 0);
}

/* Every queue's frame, as queue bits and a hash over flags and RSS hash. */
static uint64_t outcome(uint32_t len)
{
	uint64_t h = 0;

	CHECK_EQ(fab_send(tx, frame, len), 0);
	for (uint32_t q = 0; q < net.nqueues; q++) {
		struct sn_frame f;

		while (sn_rxq_peek(net.queue[q], &f)) {
			h = (h ^ (q + 1) ^ (uint64_t)f.flags << 8 ^ (uint64_t)f.rss_hash << 24) * UINT64_C(0x9e3779b97f4a7c15);
			sn_rxq_pop(net.queue[q]);
		}
	}
	return h;
}

static void forget_paths(void)
{
	for (uint32_t i = 0; i < SN_PATHS; i++)
		tx->path[i].hlen = 0;
}

/* Paths to all slots of the cache: whatever slot the flipped frame looks into, the unflipped one's path is there. */
static void remember_everywhere(void)
{
	struct sn_path known = { .hlen = 0 };

	for (uint32_t i = 0; i < SN_PATHS; i++) {
		if (tx->path[i].hlen)
			known = tx->path[i];
	}
	for (uint32_t i = 0; i < SN_PATHS; i++)
		tx->path[i] = known;
}

static uint32_t base_frame(int kind)
{
	uint8_t plain[256];
	uint32_t len = kind % 2 ? fab_udp6(plain, 0, 1, 1000, 53, 90) : fab_udp4(plain, 0, 1, 1000, 53, 120);

	memcpy(frame, plain, len);
	if (kind / 2 == 1) {
		pv_put16(frame + 12, 0x8100);
		pv_put16(frame + 14, 5);
		memcpy(frame + 16, plain + 12, len - 12);
		len += 4;
	}
	if (kind / 2 == 2)
		frame[kind % 2 ? 20 : 23] = 6;
	if (kind / 2 == 3)
		pv_put16(frame + 12, 0x0806);
	if (kind / 2 == 4)
		frame[0] = 0x01;
	if (kind / 2 == 5) {
		uint32_t at = kind % 2 ? 54 : 34;

		pv_put16(frame + at + 2, 4789);
		memcpy(frame + at + 8, "\x08\0\0\0\0\0\x07", 8);
		fab_udp4(frame + at + 16, 4, 5, 2000, 80, 20);
	}
	return len;
}

TEST(remembered_paths_follow_the_rules)
{
	struct pv_rng rng;
	uint32_t hits = 0;

	pv_rng_seed(&rng, 42);
	for (int round = 0; round < 60; round++) {
		uint32_t len;

		setup(6);
		len = base_frame(round % 12);
		for (uint32_t n = pv_rng_u32(&rng) % 6 + 1; n; n--)
			random_rule(&rng, frame);
		for (uint32_t bit = 0; bit < 70 * 8; bit++) {
			uint64_t cached, looked_up;

			forget_paths();
			outcome(len);
			remember_everywhere();
			frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
			cached = outcome(len);
			forget_paths();
			looked_up = outcome(len);
			CHECK_EQ(cached, looked_up);
			/* And by the path that this one has just left. */
			CHECK_EQ(outcome(len), looked_up);
			for (uint32_t i = 0; i < SN_PATHS; i++)
				hits += tx->path[i].hlen != 0;
			frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		/* Cut off at every length. */
		for (uint32_t cut = 16; cut < 90; cut++) {
			uint64_t cached, looked_up;

			forget_paths();
			outcome(len);
			remember_everywhere();
			cached = outcome(cut);
			forget_paths();
			looked_up = outcome(cut);
			CHECK_EQ(cached, looked_up);
		}
		fab_done(&net);
	}
	CHECK(hits > 10000);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
