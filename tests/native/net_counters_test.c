/* SPDX-License-Identifier: BSD-3-Clause */
/* Every counter of PV_NET_COUNTERS has something here that makes it move: a counter without one does not compile. */
#include "net/txq.h"
#include "net_util.h"

static void frames(struct bench *b, const char *name)
{
	rx(b, name);
}

static void move_rx_frames(struct bench *b)
{
	frames(b, "rx_udp4");
}

static void move_rx_delivered(struct bench *b)
{
	frames(b, "rx_udp6");
}

static void move_rx_short(struct bench *b)
{
	struct frame f = vec_frame("rx_udp4");

	rx_raw(b, 0, f.p, f.len - 1, 0);
	free(f.p);
}

static void move_rx_not_ours(struct bench *b)
{
	frames(b, "rx_not_ours_ip");
}

static void move_rx_vlan(struct bench *b)
{
	frames(b, "rx_udp4_vlan");
}

static void move_rx_ethertype(struct bench *b)
{
	frames(b, "rx_ethertype");
}

static void move_rx_ip_header(struct bench *b)
{
	frames(b, "rx_version4");
}

static void move_rx_ip_csum(struct bench *b)
{
	frames(b, "rx_csum4");
}

static void move_rx_ip_src(struct bench *b)
{
	frames(b, "rx_src_loop6");
}

static void move_rx_ip_options(struct bench *b)
{
	frames(b, "rx_lsrr");
}

static void move_rx_proto(struct bench *b)
{
	frames(b, "rx_proto4");
}

static void move_rx_icmp(struct bench *b)
{
	frames(b, "rx_echo4");
}

static void move_rx_icmp_bad(struct bench *b)
{
	frames(b, "rx_echo6_badcsum");
}

static void move_rx_icmp_error(struct bench *b)
{
	frames(b, "rx_unreach4_3");
}

static void move_rx_arp(struct bench *b)
{
	frames(b, "rx_arp_request");
}

static void move_rx_arp_bad(struct bench *b)
{
	frames(b, "rx_arp_bad_op");
}

static void move_rx_nd_bad(struct bench *b)
{
	frames(b, "rx_ns_hops");
}

static void move_rx_igmp(struct bench *b)
{
	frames(b, "rx_igmp_query3");
}

static void move_reass_fragments(struct bench *b)
{
	frames(b, "rx_frag4_0");
}

static void move_reass_done(struct bench *b)
{
	frames(b, "rx_frag6_0");
	frames(b, "rx_frag6_1");
	frames(b, "rx_frag6_2");
}

static void move_reass_timeout(struct bench *b)
{
	frames(b, "rx_frag4_0");
	bench_timers(b, 31 * SEC);
}

static void move_reass_bad(struct bench *b)
{
	struct frame f = vec_frame("rx_frag4_0");

	/* The second goes on where the first is in the middle. */
	rx_raw(b, 0, f.p, f.len, 0);
	pv_put16(f.p + 20, PV_IP4_MF | 8);
	pv_wire_ip4_csum_fill(f.p + 14, 20);
	rx_raw(b, 0, f.p, f.len, 0);
	free(f.p);
}

static void move_reass_full(struct bench *b)
{
	struct frame f = vec_frame("rx_frag4_0");

	for (uint16_t id = 0; id < 5; id++) {
		pv_put16(f.p + 18, id);
		pv_wire_ip4_csum_fill(f.p + 14, 20);
		rx_raw(b, 0, f.p, f.len, 0);
	}
	free(f.p);
}

static void say(struct bench *b, const char *dst, int rc)
{
	struct pv_path p = path_to(b, dst);

	CHECK_EQ(send_text(b, &p), rc);
}

static void move_tx_packets(struct bench *b)
{
	say(b, "10.0.0.2", 0);
}

static int say_long(struct bench *b, uint8_t mode)
{
	static const uint8_t data[3000];
	struct pv_path p = path_to(b, "10.0.0.2");
	struct pv_tx_opts o = udp_opts;

	o.pmtudisc = mode;
	return pv_net_tx(b->net, &p, &o, segment(b, data, sizeof(data), 0), b->now);
}

static void move_tx_fragments(struct bench *b)
{
	CHECK_EQ(say_long(b, PV_PMTU_WANT), 0);
}

static void move_tx_too_big(struct bench *b)
{
	CHECK_EQ(say_long(b, PV_PMTU_DO), -EMSGSIZE);
}

static void move_tx_ring_full(struct bench *b)
{
	b->fake[0]->depth = 0;
	b->fake[0]->stuck = true;
	say(b, "10.0.0.2", -ENOBUFS);
}

static void move_tx_no_buf(struct bench *b)
{
	static const uint8_t payload[3000];
	struct pv_path p = path_to(b, "10.0.0.77");
	struct pv_pkt *pkt = segment(b, payload, sizeof(payload), 0), *hold = NULL, *one;

	while ((one = pv_pkt_get(b->pool[0]))) {
		one->next = hold;
		hold = one;
	}
	/* Its buffers do not hold what fragments would: they are copied, into none. */
	CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, pkt, b->now), -ENOBUFS);
	while (hold) {
		one = hold->next;
		pv_pkt_put(hold);
		hold = one;
	}
}

static void move_tx_no_neigh(struct bench *b)
{
	say(b, "10.0.0.77", 0);
	bench_timers(b, 4 * SEC);
}

static void paced(struct bench *b)
{
	struct pv_txq_cfg cfg = { .iface = b->iface[0] };
	struct pv_path path;
	struct pv_txq *q;

	CHECK_EQ(pv_txq_open(b->net, &cfg, &q), 0);
	pv_txq_set(q, &(struct pv_pacing){ .rate = 1000 }, b->now);
	path = path_to(b, "10.0.0.2");
	for (int i = 0; i < 2; i++) {
		struct pv_pkt *p = segment(b, "paced", 5, 0);

		pv_txq_mark(q, &path, p);
		CHECK_EQ(pv_net_tx(b->net, &path, &udp_opts, p, b->now), 0);
	}
	pv_txq_close(q, b->now);
}

static void move_tx_paced(struct bench *b)
{
	paced(b);
}

static void move_tx_pace_dropped(struct bench *b)
{
	paced(b);
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[0]), 0);
}

static void move_tx_neigh_queue(struct bench *b)
{
	for (int i = 0; i < 65; i++)
		say(b, "10.0.0.77", 0);
}

static void move_tx_arp(struct bench *b)
{
	say(b, "10.0.0.77", 0);
}

static void move_tx_nd(struct bench *b)
{
	say(b, "fd00::77", 0);
}

static void told(void *owner)
{
	++*(int *)owner;
}

/* A datagram whose sender wants to know when it left; `limit`: what its receive buffer holds. */
static void say_stamped(struct bench *b, uint32_t limit)
{
	static const uint8_t data[10];
	struct pv_path p = path_to(b, "10.0.0.2");
	uint32_t used = 0;
	int tells = 0;
	struct pv_stampq q = { .net = b->net, .used = &used, .limit = &limit, .tell = told, .owner = &tells };
	struct pv_stamp_ask ask = { .q = &q, .what = PV_STAMP_TX_SW | PV_STAMP_TX_SCHED };

	CHECK_EQ(pv_stampq_open(&q), 0);
	CHECK_EQ(pv_net_tx_stamp(b->net, &p, &udp_opts, segment(b, data, sizeof(data), 0), &ask, b->now), 0);
	CHECK_EQ(tells, (int)q.count);
	pv_stampq_close(&q);
	CHECK_EQ(used, 0);
}

static void move_tx_stamps(struct bench *b)
{
	say_stamped(b, 10000);
}

static void move_tx_stamps_lost(struct bench *b)
{
	say_stamped(b, 1000);
}

static void move_tx_icmp(struct bench *b)
{
	frames(b, "rx_echo4");
}

static void move_tx_icmp_limited(struct bench *b)
{
	for (int i = 0; i < 51; i++)
		frames(b, "rx_proto4");
}

static void move_tx_igmp(struct bench *b)
{
	struct pv_addr g = ip("239.9.9.9");

	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g, NULL, b->now), 0);
}

static const char *const drops[] = { PV_NET_RX_DROPS(PV_COUNTER_NAME) };

/* Of what came by a ring and was dropped for this reason the rings' own counts; 0: no such reason. */
static uint64_t on_rings(struct bench *b, const char *name, bool *drop)
{
	uint64_t sum = 0;

	*drop = false;
	for (size_t n = 0; n < pv_array_size(drops); n++) {
		if (strcmp(drops[n], name) != 0)
			continue;
		*drop = true;
		for (uint32_t i = 0; i < RINGS && b->fake[i]; i++)
			sum += ((const uint64_t *)(const void *)&b->fake[i]->ring.stat->drops)[n];
	}
	return sum;
}

TEST(counters_all_move)
{
	static const struct {
		const char *name;
		size_t at;
		void (*move)(struct bench *b);
	} all[] = {
#define CASE(name, kind, unit, help) { #name, offsetof(struct pv_net_counters, name), move_##name },
		PV_NET_COUNTERS(CASE)
	};
	size_t seen = 0;

	for (uint32_t i = 0; i < pv_array_size(all); i++) {
		struct bench *b = bench_open(&(struct bench_cfg){ .net = { .reass_max = 4 } });
		const uint64_t *c = (const uint64_t *)(const void *)((const char *)ctr(b) + all[i].at);
		uint64_t before, on;
		bool drop;

		bench_neighbours(b);
		before = *c;
		all[i].move(b);
		if (*c <= before) {
			fprintf(stderr, "%s: %s does not move\n", test_current, all[i].name);
			exit(1);
		}
		on = on_rings(b, all[i].name, &drop);
		CHECK_EQ(on, drop ? *c : 0);
		seen += drop;
		bench_close(b);
	}
	CHECK_EQ(seen, pv_array_size(drops));
	CHECK_EQ(sizeof(struct pv_net_counters), pv_array_size(all) * sizeof(uint64_t));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
