/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arbitrary frames into the network layer, with time passing, datagrams sent and groups joined in between. The input is a list of
 * steps; afterwards every packet must be back in its pool and every byte given back.
 *
 *   cmake --preset fuzz && ninja -C build/fuzz fuzz_net_rx
 *   tools/run_fuzz.py --only fuzz_net_rx --seconds 600
 *
 * Seeds: the frames of tests/data/make_net.py as steps.
 */
#define TEST_DATA ""
#include "net_util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p;
	size_t left;
};

static uint32_t take8(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->p++;
}

static uint32_t take16(struct input *in)
{
	uint32_t hi = take8(in);

	return hi << 8 | take8(in);
}

static void log_clear(struct fake *f)
{
	while (f->tail)
		free(f->log[--f->tail].p);
	f->head = 0;
	reap_all(f);
}

/* Good checksums where a frame has some: without them little would get past the first check. */
static void mend(uint8_t *f, uint32_t len)
{
	uint32_t l3 = len > 18 && pv_get16(f + 12) == PV_ETHERTYPE_VLAN ? 18 : 14;
	uint64_t sum;

	pv_frame_fill_csum(f, len, PV_PKT_TX_L3_CSUM | PV_PKT_TX_L4_CSUM);
	if (len >= l3 + 20 && f[l3] >> 4 == 4) {
		uint32_t hlen = (f[l3] & 15u) * 4, total = pv_get16(f + l3 + 2);

		if (hlen < 20 || total < hlen || total > len - l3)
			return;
		pv_wire_ip4_csum_fill(f + l3, hlen);
		if (f[l3 + 9] <= PV_PROTO_IGMP && total >= hlen + 4) {
			pv_put16(f + l3 + hlen + 2, 0);
			sum = pv_cksum_add(f + l3 + hlen, total - hlen, 0);
			pv_cksum_put(f + l3 + hlen + 2, pv_cksum_finish(sum));
		}
	} else if (len >= l3 + 48 && f[l3] >> 4 == 6) {
		uint32_t off = l3 + 40, end = PV_MIN(len, l3 + 40 + pv_get16(f + l3 + 4));

		if (f[l3 + 6] == 0 && f[off] == PV_PROTO_ICMP6 && off + (f[off + 1] + 1u) * 8 + 4 <= end)
			off += (f[off + 1] + 1u) * 8;
		else if (f[l3 + 6] != PV_PROTO_ICMP6)
			return;
		if (off + 4 > end)
			return;
		pv_put16(f + off + 2, 0);
		sum = pv_cksum_add(f + off, end - off, pv_cksum_pseudo6(f + l3 + 8, f + l3 + 24, PV_PROTO_ICMP6, end - off));
		pv_cksum_put(f + off + 2, pv_cksum_finish(sum));
	}
}

static void handed_up(struct bench *b, struct pv_pkt *pkt, enum pv_rx_verdict v, bool refuse)
{
	struct pv_rx_info info;
	uint32_t len = 0;

	if (v == PV_RX_CONSUMED)
		return;
	if (v == PV_RX_ERROR) {
		CHECK(pv_net_rx_error(b->net)->err > 0);
		CHECK(pv_net_addr_owner(b->net, &pv_net_rx_error(b->net)->local) != 0);
		pv_pkt_put(pkt);
		return;
	}
	pv_net_rx_info(b->net, pkt, &info);
	CHECK(pkt->buf + pkt->l4_off == pkt->data);
	for (struct pv_pkt *p = pkt; p; p = p->frag) {
		CHECK(p->data >= p->buf && p->data + p->len <= p->buf + p->size);
		len += p->len;
	}
	CHECK_EQ(len, pkt->total);
	pv_net_rx_l4_csum_ok(pkt, v == PV_RX_UDP ? PV_PROTO_UDP : PV_PROTO_TCP);
	if (refuse)
		pv_net_rx_unreachable(b->net, pkt, b->now);
	else
		pv_pkt_put(pkt);
}

static void step_frame(struct bench *b, struct input *in)
{
	static const uint32_t verdicts[] = { 0, PV_PKT_L3_OK, PV_PKT_L3_OK | PV_PKT_L4_OK, PV_PKT_L3_BAD, PV_PKT_VLAN };
	uint32_t how = take8(in), len = take16(in) % 1600;
	struct pv_pkt *pkt = pv_pkt_get(b->pool[0]);
	enum pv_rx_verdict v;

	if (!pkt)
		return;
	len = PV_MIN(len, (uint32_t)in->left);
	memcpy(pkt->data, in->p, len);
	in->p += len;
	in->left -= len;
	pkt->len = pkt->total = len;
	pkt->flags = verdicts[how % pv_array_size(verdicts)];
	if (how & 0x80)
		mend(pkt->data, len);
	v = pv_net_rx(b->net, b->iface[0], &pkt, b->now);
	handed_up(b, pkt, v, how & 0x40);
}

static void step_send(struct bench *b, struct input *in)
{
	static const char *const to[] = { "10.0.0.2",  "fd00::2",   "192.0.2.9",  "2001:db8::9", "10.0.0.1", "fd00::1",
					  "239.1.2.3", "ff15::1:3", "10.0.0.255", "fe80::2",     "10.0.0.3" };
	static uint8_t text[4096];
	struct pv_path_query q = { .dst = ip(to[take8(in) % pv_array_size(to)]), .iface = b->iface[0] };
	struct pv_tx_opts o = udp_opts;
	struct pv_pool_stats st;
	struct pv_path p;
	uint32_t len = take16(in) % 4096;

	o.pmtudisc = (uint8_t)(take8(in) % 6);
	pv_pool_get_stats(b->pool[0], &st);
	if (st.free < 8 || pv_net_path(b->net, &q, b->now, &p))
		return;
	pv_net_tx(b->net, &p, &o, segment(b, text, len, len & 1 ? pv_path_frag_len(&p) & 0x7f8 : 0), b->now);
}

static void step_group(struct bench *b, struct input *in, bool members[4])
{
	static const char *const groups[] = { "239.1.2.3", "ff15::1:3", "224.0.0.7", "ff02::7" };
	uint32_t i = take8(in) % 4;
	struct pv_addr g = ip(groups[i]);

	if (members[i])
		CHECK_EQ(pv_net_group_leave(b->net, b->iface[0], &g, NULL, b->now), 0);
	else
		CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g, NULL, b->now), 0);
	members[i] = !members[i];
}

static void step_time(struct bench *b, int64_t ns)
{
	b->now += ns;
	for (int i = 0; i < 64 && pv_net_timers(b->net, b->now, 16); i++)
		;
}

static void step_loop(struct bench *b)
{
	struct pv_pkt *pkt;
	uint32_t iface;

	while ((pkt = pv_net_loop_get(b->net, &iface))) {
		enum pv_rx_verdict v = pv_net_rx(b->net, iface, &pkt, b->now);

		handed_up(b, pkt, v, false);
	}
	pv_net_kick(b->net);
	log_clear(b->fake[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	bool members[4] = { false };
	uint32_t flags = take8(&in);
	struct bench *b =
	    bench_open(&(struct bench_cfg){ .net = { .neigh_max = 8, .neigh_queue = 4, .reass_max = 4, .reass_bytes = 65536 },
					    .pool = 64,
					    .tx_csum = flags & 7u,
					    .vlan = flags & 8 ? 100 : 0 });

	if (flags & 16)
		bench_neighbours(b);
	log_clear(b->fake[0]);
	while (in.left) {
		switch (take8(&in) % 8) {
		case 0:
			step_time(b, (int64_t)take16(&in) * 10 * MS);
			break;
		case 1:
			step_send(b, &in);
			break;
		case 2:
			step_group(b, &in, members);
			break;
		default:
			step_frame(b, &in);
			break;
		}
		step_loop(b);
	}
	bench_timers(b, 100 * SEC);
	step_loop(b);
	CHECK_EQ(bench_out(b, 0), 0);
	bench_close(b);
	return 0;
}
