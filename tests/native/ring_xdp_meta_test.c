/* SPDX-License-Identifier: BSD-3-Clause */
/* What an XDP driver tells: the kernel's answer about its features, and what stands in front of frames. */
#include "test.h"

#ifndef PV_HAVE_XDP
int main(void)
{
	puts("skip: built without libbpf or clang");
	return 77;
}
#else
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>

#include "base/cksum.h"
#include "ring/bpf/steer.h"
#include "ring/frame.h"
#include "ring/xdp_priv.h"

#define BUF 512u
#define FRAME_AT 256u

/* ---- in front of a frame ------------------------------------------------------------------------------------------------- */

struct front {
	uint8_t buf[BUF];
	struct pv_pkt pkt;
	struct pv_ring_stat stat;
	struct xdp_ring ring;
};

static void frame(struct front *f, const struct steer_meta *meta)
{
	memset(f, 0, sizeof(*f));
	for (uint32_t i = 0; i < BUF; i++)
		f->buf[i] = (uint8_t)i;
	f->ring.ring.stat = &f->stat;
	f->pkt = (struct pv_pkt){ .buf = f->buf, .data = f->buf + FRAME_AT, .len = 60, .total = 60 };
	memcpy(f->pkt.data - sizeof(*meta), meta, sizeof(*meta));
}

static const struct steer_meta whole = { .stamp_ns = 1234567890123,
					 .hash = 0xcafe,
					 .vlan_tci = 0x6005,
					 .vlan_proto = 0x0081,
					 .mark = STEER_META_MARK | STEER_META_STAMP | STEER_META_HASH | STEER_META_VLAN };

TEST(all_of_it)
{
	struct front f;

	frame(&f, &whole);
	f.ring.rx_stamps = true;
	pv_xdp_meta_take(&f.ring, &f.pkt);
	CHECK_EQ(f.pkt.flags, PV_PKT_TSTAMP | PV_PKT_HASH | PV_PKT_VLAN);
	CHECK_EQ(f.pkt.tstamp, 1234567890123);
	CHECK_EQ(f.pkt.rss_hash, 0xcafe);
	CHECK_EQ(f.pkt.vlan_tci, 0x6005);
	CHECK(f.pkt.data == f.buf + FRAME_AT && f.pkt.len == 60);
	CHECK_EQ(f.stat.c.rx_meta_stamps, 1);
	CHECK_EQ(f.stat.c.rx_meta_hashes, 1);
	CHECK_EQ(f.stat.c.rx_meta_vlans, 1);
	/* It is of one frame: the next in this buffer may come without. */
	f.pkt.flags = 0;
	pv_xdp_meta_take(&f.ring, &f.pkt);
	CHECK_EQ(f.pkt.flags, 0);
	CHECK_EQ(f.stat.c.rx_meta_hashes, 1);
}

TEST(stamps_only_when_asked_for)
{
	struct front f;

	frame(&f, &whole);
	pv_xdp_meta_take(&f.ring, &f.pkt);
	CHECK_EQ(f.pkt.flags, PV_PKT_HASH | PV_PKT_VLAN);
	CHECK_EQ(pv_xdp_set_stamps(&f.ring.ring, true, false), -EOPNOTSUPP);
	f.ring.metadata = XDP_META_STAMP;
	CHECK_EQ(pv_xdp_set_stamps(&f.ring.ring, true, true), -EOPNOTSUPP);
	CHECK_EQ(pv_xdp_set_stamps(&f.ring.ring, true, false), 0);
	CHECK(f.ring.rx_stamps);
}

TEST(another_tag_goes_back)
{
	struct steer_meta m = { .vlan_tci = 0x0123, .vlan_proto = 0xa888, .mark = STEER_META_MARK | STEER_META_VLAN };
	struct front f;

	frame(&f, &m);
	pv_xdp_meta_take(&f.ring, &f.pkt);
	CHECK_EQ(f.pkt.flags, 0);
	CHECK(f.pkt.data == f.buf + FRAME_AT - 4 && f.pkt.len == 64 && f.pkt.total == 64);
	for (uint32_t i = 0; i < 12; i++)
		CHECK_EQ(f.pkt.data[i], (uint8_t)(FRAME_AT + i));
	CHECK(!memcmp(f.pkt.data + 12, "\x88\xa8\x01\x23\x0c", 5));
}

TEST(what_is_none)
{
	struct steer_meta m = whole;
	struct front f;

	m.mark = (STEER_META_MARK ^ 0x100) | STEER_META_HASH;
	frame(&f, &m);
	pv_xdp_meta_take(&f.ring, &f.pkt);
	CHECK_EQ(f.pkt.flags, 0);
	/* No room for it in front, or no frame for a tag to go into. */
	frame(&f, &whole);
	f.pkt.buf = f.pkt.data - 8;
	pv_xdp_meta_take(&f.ring, &f.pkt);
	CHECK_EQ(f.pkt.flags, 0);
	frame(&f, &whole);
	f.pkt.len = f.pkt.total = 11;
	pv_xdp_meta_take(&f.ring, &f.pkt);
	CHECK_EQ(f.pkt.flags, 0);
}

/* ---- checksums of what is sent ------------------------------------------------------------------------------------------- */

/* A datagram of 8 bytes over IPv4, or behind a tag over IPv6. */
static uint32_t datagram(uint8_t *at, bool v6)
{
	static const uint8_t eth[] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2 };
	static const uint8_t tag[] = { 0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 17, 64 };
	static const uint8_t ip4[] = { 8, 0, 0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2 };
	static const uint8_t udp[] = { 0, 7, 0, 9, 0, 16, 0, 0, 'c', 'h', 'e', 'c', 'k', 's', 'u', 'm' };
	uint8_t *p = at;

	memcpy(p, eth, sizeof(eth));
	p += sizeof(eth);
	if (v6) {
		memcpy(p, tag, sizeof(tag));
		p += sizeof(tag);
		for (uint8_t i = 0; i < 32; i++)
			*p++ = (uint8_t)(0xfd - i);
	} else {
		memcpy(p, ip4, sizeof(ip4));
		p += sizeof(ip4);
	}
	memcpy(p, udp, sizeof(udp));
	return (uint32_t)(p - at) + sizeof(udp);
}

/* What Linux reads in front of the frame (include/uapi/linux/if_xdp.h), and what it then does (skb_checksum_help). */
TEST(what_is_asked_for_a_checksum)
{
	for (int v6 = 0; v6 < 2; v6++) {
		uint8_t buf[BUF], whole_frame[BUF];
		struct pv_pkt p = { .buf = buf, .data = buf + 101 };
		uint16_t start, offset, sum;
		uint64_t flags;

		memset(buf, 0xee, sizeof(buf));
		p.len = datagram(p.data, v6);
		memcpy(whole_frame, p.data, p.len);
		pv_frame_fill_csum(whole_frame, p.len, PV_PKT_TX_L4_CSUM);
		CHECK_EQ(pv_xdp_csum_ask(&p), 2);
		memcpy(&flags, p.data - 24, sizeof(flags));
		memcpy(&start, p.data - 16, sizeof(start));
		memcpy(&offset, p.data - 14, sizeof(offset));
		CHECK_EQ(flags, 2);
		CHECK_EQ(start, v6 ? 14 + 4 + 40 : 14 + 20);
		CHECK_EQ(offset, 6);
		for (const uint8_t *at = p.data - 12; at < p.data; at++)
			CHECK_EQ(*at, 0);
		CHECK_EQ(buf[101 - 25], 0xee);
		sum = pv_cksum_finish_udp(pv_cksum_add(p.data + start, p.len - start, 0));
		pv_cksum_put(p.data + start + offset, sum);
		CHECK(!memcmp(p.data, whole_frame, p.len));
	}
}

/* Headers that nobody could point into are summed up here. */
TEST(a_frame_that_nobody_else_can)
{
	uint8_t buf[BUF], before[24];
	struct pv_pkt p = { .buf = buf, .data = buf + 100 };

	memset(buf, 0xee, sizeof(buf));
	p.len = datagram(p.data, false);
	p.data[14 + 6] = 0x20; /* more fragments */
	memcpy(before, p.data - 24, sizeof(before));
	CHECK_EQ(pv_xdp_csum_ask(&p), 0);
	CHECK(!memcmp(before, p.data - 24, sizeof(before)));
}

TEST(who_computes)
{
	static const struct {
		enum pv_xdp_csum want;
		bool room, zero_copy, device;
		const char *by, *why;
	} rows[] = {
		{ PV_XDP_CSUM_STACK, false, false, true, NULL, "" },
		{ PV_XDP_CSUM_AUTO, true, false, true, "kernel", "" },
		{ PV_XDP_CSUM_AUTO, true, false, false, NULL, "no tx_csum: the device computes none" },
		{ PV_XDP_CSUM_KERNEL, true, false, false, "kernel", "" },
		{ PV_XDP_CSUM_SOFTWARE, true, false, false, "software", "" },
		{ PV_XDP_CSUM_AUTO, true, true, true, NULL, "no tx_csum: the driver computes none with zero copy" },
		{ PV_XDP_CSUM_KERNEL, true, true, true, NULL, "no tx_csum: the driver computes none with zero copy" },
		{ PV_XDP_CSUM_AUTO, false, false, true, NULL, "no tx_csum: an old kernel" },
	};

	for (size_t i = 0; i < pv_array_size(rows); i++) {
		/* The loopback device offers nothing. */
		struct xdp_ring r = { .ifindex = 1, .tx_front = rows[i].room ? XDP_TX_FRONT : 0, .csum_why = "an old kernel" };
		const char *by = pv_xdp_csum_decide(&r, rows[i].want, rows[i].zero_copy, rows[i].device);

		CHECK(by == rows[i].by || (by && rows[i].by && !strcmp(by, rows[i].by)));
		CHECK(!strcmp(r.ring.caps.note, rows[i].why));
		CHECK_EQ(r.ring.caps.tx_csum, by ? PV_CSUM_UDP | PV_CSUM_TCP : 0);
		CHECK_EQ(r.ring.caps.headroom, r.tx_front);
	}
}

/* ---- the kernel's answer --------------------------------------------------------------------------------------------------- */

struct answer {
	struct nlmsghdr nh;
	struct genlmsghdr gh;
	uint8_t attrs[64];
};

static void put(struct answer *a, uint16_t type, const void *value, uint16_t len)
{
	struct nlattr attr = { .nla_len = (uint16_t)(sizeof(attr) + len), .nla_type = type };
	uint8_t *at = (uint8_t *)a + a->nh.nlmsg_len;

	memcpy(at, &attr, sizeof(attr));
	memcpy(at + sizeof(attr), value, len);
	a->nh.nlmsg_len += NLA_ALIGN(sizeof(attr) + len);
}

TEST(features)
{
	uint64_t rx = XDP_META_HASH | XDP_META_VLAN, xsk = XDP_TX_CSUM;
	struct answer a = { .nh.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN) };
	struct pv_xdp_features f = { 0 };
	uint32_t ifindex = 3;

	put(&a, 1, &ifindex, sizeof(ifindex));
	CHECK_EQ(pv_xdp_features_parse(&a, a.nh.nlmsg_len, &f), -EOPNOTSUPP); /* before Linux 6.8 */
	put(&a, 5, &rx, sizeof(rx));
	put(&a, 6, &xsk, sizeof(xsk));
	CHECK_EQ(pv_xdp_features_parse(&a, a.nh.nlmsg_len, &f), 0);
	CHECK_EQ(f.rx_metadata, rx);
	CHECK_EQ(f.xsk, xsk);
	for (size_t len = 0; len < a.nh.nlmsg_len; len++)
		CHECK(pv_xdp_features_parse(&a, len, &f) < 0);
}

TEST(a_refusal)
{
	struct {
		struct nlmsghdr nh;
		struct nlmsgerr err;
	} a = { .nh = { .nlmsg_len = sizeof(a), .nlmsg_type = NLMSG_ERROR }, .err.error = -ENODEV };
	struct pv_xdp_features f;

	CHECK_EQ(pv_xdp_features_parse(&a, sizeof(a), &f), -ENODEV);
	a.err.error = 0; /* an acknowledgement that nobody asked for */
	CHECK_EQ(pv_xdp_features_parse(&a, sizeof(a), &f), -EPROTO);
	a.nh.nlmsg_len = sizeof(a.nh) + 2;
	CHECK_EQ(pv_xdp_features_parse(&a, sizeof(a), &f), -EPROTO);
}

/* This machine's own, whatever it is: the loopback device is in every namespace. */
TEST(the_kernel_is_asked)
{
	struct pv_xdp_features f = { 0 };
	int rc = pv_xdp_features(1, &f);

	CHECK(rc == 0 || rc == -EOPNOTSUPP);
	CHECK_EQ(f.rx_metadata, 0);
	rc = pv_xdp_features(0x7ffffff0, &f);
	CHECK(rc == -ENODEV || rc == -EOPNOTSUPP);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
#endif
