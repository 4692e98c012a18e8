/* SPDX-License-Identifier: BSD-3-Clause */
/* ARP and ND: the states of RFC 4861 over both, failure, eviction, and what strangers may not do. */
#include "net_util.h"

/* One family's names, so that every case runs for both. */
struct family {
	const char *peer, *ask, *probe, *answer, *udp;
	size_t counter; /* of questions and answers sent */
};

static const struct family families[2] = {
	{ "10.0.0.2", "tx_arp_request", "tx_arp_probe_known", "rx_arp_reply", "tx_udp4", offsetof(struct pv_net_counters, tx_arp) },
	{ "fd00::2", "tx_ns", "tx_ns_probe", "rx_na", "tx_udp6", offsetof(struct pv_net_counters, tx_nd) },
};

static struct pv_neigh *neigh(struct bench *b, const char *addr)
{
	struct pv_addr a = ip(addr);

	return pv_neigh_find(b->net, b->iface[0], &a);
}

TEST(neigh_resolves_and_sends_what_waited)
{
	for (int f = 0; f < 2; f++) {
		struct bench *b = bench_open(NULL);
		struct pv_path p = path_to(b, families[f].peer);

		CHECK(!p.l2_ready);
		for (int i = 0; i < 3; i++)
			CHECK_EQ(send_text(b, &p), 0);
		CHECK_EQ(sent_count(b), 1);
		check_sent(b, families[f].ask);
		CHECK_EQ(rx(b, families[f].answer), PV_RX_CONSUMED);
		CHECK_EQ(sent_count(b), 3);
		for (int i = 0; i < 3; i++)
			check_sent(b, families[f].udp);
		/* The path needs no lookup to learn that. */
		CHECK(pv_path_valid(b->net, &p));
		CHECK_EQ(send_text(b, &p), 0);
		check_sent(b, families[f].udp);
		CHECK(p.l2_ready);
		bench_close(b);
	}
}

TEST(neigh_fails_after_three_questions)
{
	for (int f = 0; f < 2; f++) {
		struct bench *b = bench_open(NULL);
		struct pv_path p = path_to(b, families[f].peer);
		const struct pv_net_error *e;
		struct pv_pkt *pkt;
		uint32_t iface;

		CHECK_EQ(send_text(b, &p), 0);
		bench_timers(b, 3 * SEC - 1);
		CHECK_EQ(sent_count(b), 3);
		for (int i = 0; i < 3; i++)
			check_sent(b, families[f].ask);
		CHECK(pv_net_loop_get(b->net, &iface) == NULL);
		bench_timers(b, 1);
		CHECK_EQ(ctr(b)->tx_no_neigh, 1);
		/* The sender hears of it, as from the kernel: an ICMP error from ourselves. */
		pkt = pv_net_loop_get(b->net, &iface);
		CHECK(pkt != NULL);
		CHECK_EQ(pv_net_rx(b->net, iface, &pkt, b->now), PV_RX_ERROR);
		e = pv_net_rx_error(b->net);
		CHECK_EQ(e->err, EHOSTUNREACH);
		CHECK(!e->hard);
		CHECK_EQ(e->local_port, 9000);
		CHECK_EQ(e->remote_port, 7000);
		CHECK(pv_addr_eq(&e->remote, &p.dst) && pv_addr_eq(&e->local, &p.src) && pv_addr_eq(&e->offender, &p.src));
		pv_pkt_put(pkt);
		/* For a second nobody is asked again. */
		CHECK_EQ(send_text(b, &p), -EHOSTUNREACH);
		CHECK_EQ(sent_count(b), 0);
		b->now += SEC;
		CHECK_EQ(send_text(b, &p), 0);
		check_sent(b, families[f].ask);
		CHECK_EQ(rx(b, families[f].answer), PV_RX_CONSUMED);
		check_sent(b, families[f].udp);
		bench_close(b);
	}
}

TEST(neigh_queue_is_bounded_and_keeps_the_newest)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .net = { .neigh_queue = 4 } });
	struct pv_path p = path_to(b, "10.0.0.2");

	for (uint8_t i = 0; i < 10; i++)
		CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, segment(b, &i, 1, 0), b->now), 0);
	CHECK_EQ(ctr(b)->tx_neigh_queue, 6);
	check_sent(b, "tx_arp_request");
	CHECK_EQ(rx(b, "rx_arp_reply"), PV_RX_CONSUMED);
	for (int i = 6; i < 10; i++)
		CHECK_EQ(sent(b)->p[42], i);
	CHECK_EQ(sent_count(b), 0);
	bench_close(b);
}

/* Packets for many that do not answer, our own or answers to what claimed to come from them, never take the ring's last ones. */
TEST(neigh_queues_leave_the_pool_some_packets)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .pool = 128 });
	struct pv_pool_stats st;

	for (uint32_t host = 10; host < 40; host++) {
		char dst[32];
		struct pv_path p;

		snprintf(dst, sizeof(dst), "10.0.0.%u", host);
		p = path_to(b, dst);
		for (uint8_t i = 0; i < 10; i++)
			CHECK_EQ(pv_net_tx(b->net, &p, &udp_opts, segment(b, &i, 1, 0), b->now), 0);
		reap_all(b->fake[0]);
	}
	pv_pool_get_stats(b->pool[0], &st);
	CHECK(st.free >= 128 / 16);
	CHECK(ctr(b)->tx_neigh_queue >= 300 - 128);
	bench_close(b);
}

TEST(neigh_goes_stale_and_is_checked_when_used)
{
	for (int f = 0; f < 2; f++) {
		struct bench *b = bench_open(NULL);
		struct pv_path p = path_to(b, families[f].peer);

		CHECK_EQ(send_text(b, &p), 0);
		CHECK_EQ(rx(b, families[f].answer), PV_RX_CONSUMED);
		CHECK_EQ(neigh(b, families[f].peer)->state, PV_NEIGH_REACHABLE);
		bench_timers(b, 45 * SEC + 1);
		CHECK_EQ(neigh(b, families[f].peer)->state, PV_NEIGH_STALE);
		bench_forget(b);
		bench_timers(b, 600 * SEC);
		CHECK_EQ(sent_count(b), 0); /* nobody uses it: nobody asks */
		CHECK_EQ(send_text(b, &p), 0);
		check_sent(b, families[f].udp);
		CHECK_EQ(neigh(b, families[f].peer)->state, PV_NEIGH_DELAY);
		bench_timers(b, 5 * SEC);
		CHECK_EQ(neigh(b, families[f].peer)->state, PV_NEIGH_PROBE);
		check_sent(b, families[f].probe);
		CHECK_EQ(rx(b, families[f].answer), PV_RX_CONSUMED);
		CHECK_EQ(neigh(b, families[f].peer)->state, PV_NEIGH_REACHABLE);
		/* The next time nobody answers: three probes, then everybody is asked. */
		bench_timers(b, 60 * SEC);
		CHECK_EQ(send_text(b, &p), 0);
		bench_forget(b);
		bench_timers(b, 5 * SEC + 2 * SEC);
		CHECK_EQ(sent_count(b), 3);
		bench_timers(b, SEC);
		CHECK_EQ(neigh(b, families[f].peer)->state, PV_NEIGH_NONE);
		bench_forget(b);
		CHECK_EQ(send_text(b, &p), 0);
		CHECK_EQ(sent_count(b), 1);
		check_sent(b, families[f].ask);
		bench_close(b);
	}
}

TEST(arp_answers_and_learns_who_asked)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p;

	CHECK_EQ(rx(b, "rx_arp_request"), PV_RX_CONSUMED);
	check_sent(b, "tx_arp_reply");
	CHECK_EQ(ctr(b)->rx_arp, 1);
	CHECK_EQ(neigh(b, "10.0.0.2")->state, PV_NEIGH_STALE);
	/* No question needed in that direction. */
	p = path_to(b, "10.0.0.2");
	CHECK_EQ(send_text(b, &p), 0);
	check_sent(b, "tx_udp4");
	CHECK_EQ(neigh(b, "10.0.0.2")->state, PV_NEIGH_DELAY);
	/* A probe is answered too: that is how its sender learns that the address is taken (RFC 5227). */
	CHECK_EQ(rx(b, "rx_arp_probe"), PV_RX_CONSUMED);
	check_sent(b, "tx_arp_probe_reply");
	CHECK_EQ(rx(b, "rx_arp_other"), PV_RX_CONSUMED);
	CHECK_EQ(sent_count(b), 0);
	bench_close(b);
}

TEST(arp_strangers)
{
	struct bench *b = bench_open(NULL);

	/* An answer to a question nobody asked makes no entry. */
	CHECK_EQ(rx(b, "rx_arp_reply"), PV_RX_CONSUMED);
	CHECK(neigh(b, "10.0.0.2") == NULL);
	/* A host outside our subnets gets its answer, but no entry. */
	CHECK_EQ(rx(b, "rx_arp_offlink"), PV_RX_CONSUMED);
	CHECK_EQ(sent_count(b), 1);
	CHECK(neigh(b, "172.16.0.9") == NULL);
	bench_close(b);
}

TEST(arp_conflict_is_defended_now_and_then)
{
	struct bench *b = bench_open(NULL);

	CHECK_EQ(rx(b, "rx_arp_conflict"), PV_RX_CONSUMED);
	check_sent(b, "tx_arp_announce");
	CHECK_EQ(rx(b, "rx_arp_conflict"), PV_RX_CONSUMED);
	CHECK_EQ(sent_count(b), 0);
	b->now += 10 * SEC;
	CHECK_EQ(rx(b, "rx_arp_conflict"), PV_RX_CONSUMED);
	check_sent(b, "tx_arp_announce");
	CHECK(neigh(b, "10.0.0.1") == NULL);
	bench_close(b);
}

TEST(arp_new_mac_needs_a_second)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p = path_to(b, "10.0.0.2");
	static const uint8_t moved[6] = { 2, 0, 0, 0, 0, 0x22 };

	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(rx(b, "rx_arp_reply"), PV_RX_CONSUMED);
	CHECK_EQ(rx(b, "rx_arp_reply_new_mac"), PV_RX_CONSUMED);
	CHECK(pv_mac_eq(neigh(b, "10.0.0.2")->mac, peer_mac));
	b->now += SEC;
	CHECK(pv_path_valid(b->net, &p));
	CHECK_EQ(rx(b, "rx_arp_reply_new_mac"), PV_RX_CONSUMED);
	CHECK(pv_mac_eq(neigh(b, "10.0.0.2")->mac, moved));
	CHECK(!pv_path_valid(b->net, &p));
	bench_forget(b);
	CHECK_EQ(send_text(b, &p), 0);
	CHECK(pv_mac_eq(sent(b)->p, moved));
	bench_close(b);
}

/* Gone for a while, back with another MAC: paths made before must not go on with the old one. */
TEST(arp_new_mac_after_silence)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p = path_to(b, "10.0.0.2");
	static const uint8_t moved[6] = { 2, 0, 0, 0, 0, 0x22 };

	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(rx(b, "rx_arp_reply"), PV_RX_CONSUMED);
	bench_timers(b, 60 * SEC);
	CHECK_EQ(send_text(b, &p), 0);
	bench_timers(b, 20 * SEC);
	CHECK_EQ(neigh(b, "10.0.0.2")->state, PV_NEIGH_NONE);
	CHECK(p.l2_ready && pv_path_valid(b->net, &p));
	bench_forget(b);
	CHECK_EQ(send_text(b, &p), 0);
	check_sent(b, "tx_arp_request");
	CHECK_EQ(rx(b, "rx_arp_reply_new_mac"), PV_RX_CONSUMED);
	CHECK(pv_mac_eq(sent(b)->p, moved));
	CHECK_EQ(send_text(b, &p), 0);
	CHECK(pv_mac_eq(sent(b)->p, moved));
	bench_close(b);
}

TEST(nd_conflict_and_answers_without_a_mac)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p = path_to(b, "fd00::2");

	CHECK_EQ(rx(b, "rx_na_of_ours"), PV_RX_CONSUMED);
	check_sent(b, "tx_na_dad");
	CHECK_EQ(rx(b, "rx_na_of_ours"), PV_RX_CONSUMED);
	CHECK_EQ(sent_count(b), 0);
	/* Nothing to learn from while the MAC is not known; confirms it later (RFC 4861 7.2.5). */
	CHECK_EQ(rx(b, "rx_na_bare"), PV_RX_CONSUMED);
	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(rx(b, "rx_na_bare"), PV_RX_CONSUMED);
	CHECK_EQ(neigh(b, "fd00::2")->state, PV_NEIGH_INCOMPLETE);
	CHECK_EQ(rx(b, "rx_na"), PV_RX_CONSUMED);
	bench_timers(b, 46 * SEC);
	CHECK_EQ(neigh(b, "fd00::2")->state, PV_NEIGH_STALE);
	CHECK_EQ(rx(b, "rx_na_bare"), PV_RX_CONSUMED);
	CHECK_EQ(neigh(b, "fd00::2")->state, PV_NEIGH_REACHABLE);
	CHECK_EQ(rx(b, "rx_ns_other"), PV_RX_CONSUMED);
	bench_close(b);
}

TEST(nd_answers_and_learns)
{
	struct bench *b = bench_open(NULL);

	CHECK_EQ(rx(b, "rx_ns"), PV_RX_CONSUMED);
	check_sent(b, "tx_na");
	CHECK_EQ(neigh(b, "fd00::2")->state, PV_NEIGH_DELAY); /* STALE, and our answer used it */
	CHECK_EQ(rx(b, "rx_ns_dad"), PV_RX_CONSUMED);
	check_sent(b, "tx_na_dad");
	CHECK_EQ(rx(b, "rx_ra"), PV_RX_CONSUMED);
	CHECK_EQ(sent_count(b), 0);
	bench_close(b);
}

TEST(nd_override_flag)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p = path_to(b, "fd00::2");
	static const uint8_t moved[6] = { 2, 0, 0, 0, 0, 0x22 };

	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(rx(b, "rx_na"), PV_RX_CONSUMED);
	CHECK_EQ(neigh(b, "fd00::2")->state, PV_NEIGH_REACHABLE);
	/* RFC 4861 7.2.5: another MAC without the flag makes us doubt only. */
	CHECK_EQ(rx(b, "rx_na_no_override"), PV_RX_CONSUMED);
	CHECK_EQ(neigh(b, "fd00::2")->state, PV_NEIGH_STALE);
	CHECK(pv_mac_eq(neigh(b, "fd00::2")->mac, peer_mac));
	CHECK_EQ(rx(b, "rx_na_override"), PV_RX_CONSUMED);
	CHECK_EQ(neigh(b, "fd00::2")->state, PV_NEIGH_STALE);
	CHECK(pv_mac_eq(neigh(b, "fd00::2")->mac, moved));
	bench_close(b);
}

TEST(neigh_interface_announces_itself)
{
	struct bench *b = bench_open(NULL);
	struct fake *f = b->fake[0];
	uint32_t arp = 0, na = 0;

	/* bench_open let the timers run: all that was sent since the interface was added is in the log. */
	for (uint32_t i = 0; i < f->tail; i++) {
		if (pv_get16(f->log[i].p + 12) == 0x0806) {
			check_frame("tx_arp_announce", &f->log[i]);
			arp++;
		} else if (f->log[i].p[20] == 58 && f->log[i].p[54] == PV_ICMP6_NA) {
			CHECK_EQ(f->log[i].p[21], 255);
			na++;
		}
	}
	CHECK_EQ(arp, 2);
	CHECK_EQ(na, 4); /* the configured and the link-local address, twice */
	bench_close(b);
}

TEST(neigh_table_full_of_strangers_keeps_ours)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .net = { .neigh_max = 8 } });
	struct frame f = vec_frame("rx_arp_request");
	struct pv_path p = path_to(b, "10.0.0.2");

	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(rx(b, "rx_arp_reply"), PV_RX_CONSUMED);
	for (uint8_t i = 10; i < 200; i++) {
		f.p[31] = i; /* sender's address */
		CHECK_EQ(rx_raw(b, 0, f.p, f.len, 0), PV_RX_CONSUMED);
	}
	CHECK(neigh(b, "10.0.0.2") != NULL);
	CHECK_EQ(neigh(b, "10.0.0.2")->state, PV_NEIGH_REACHABLE);
	/* Destinations of our own push each other out, and what waited is dropped and counted. */
	for (uint32_t i = 0; i < 20; i++) {
		char dst[16];
		struct pv_path q;

		snprintf(dst, sizeof(dst), "10.0.0.%u", 20 + i);
		q = path_to(b, dst);
		CHECK_EQ(send_text(b, &q), 0);
	}
	CHECK_EQ(ctr(b)->tx_no_neigh, 13);
	CHECK(!pv_path_valid(b->net, &p));
	/* But not the one that answers. */
	CHECK_EQ(neigh(b, "10.0.0.2")->state, PV_NEIGH_REACHABLE);
	free(f.p);
	bench_close(b);
}

/* Nor does answering them make them ours: they ask for our MAC and for an echo. */
TEST(neigh_answers_to_strangers_keep_ours)
{
	static const char *const ask[] = { "rx_arp_request", "rx_ns" }, *const echo[] = { "rx_echo4", "rx_echo6" };

	for (int f = 0; f < 2; f++) {
		struct bench *b = bench_open(&(struct bench_cfg){ .net = { .neigh_max = 8 } });
		struct frame q = vec_frame(ask[f]), e = vec_frame(echo[f]);
		struct pv_path p = path_to(b, families[f].peer);

		CHECK_EQ(send_text(b, &p), 0);
		CHECK_EQ(rx(b, families[f].answer), PV_RX_CONSUMED);
		for (uint8_t i = 10; i < 60; i++) {
			if (f) {
				q.p[37] = e.p[37] = i;
				pv_wire_icmp6_csum_fill(q.p + 54, q.len - 54, q.p + 22, q.p + 38);
				pv_wire_icmp6_csum_fill(e.p + 54, e.len - 54, e.p + 22, e.p + 38);
			} else {
				q.p[31] = e.p[29] = i;
			}
			bench_forget(b);
			CHECK_EQ(rx_raw(b, 0, q.p, q.len, 0), PV_RX_CONSUMED);
			CHECK_EQ(sent_count(b), 1);
			CHECK_EQ(rx_raw(b, 0, e.p, e.len, PV_PKT_L3_OK), PV_RX_CONSUMED);
			CHECK_EQ(sent_count(b), 2);
			reap_all(b->fake[0]);
		}
		CHECK(neigh(b, families[f].peer) != NULL);
		CHECK_EQ(neigh(b, families[f].peer)->state, PV_NEIGH_REACHABLE);
		free(q.p);
		free(e.p);
		bench_close(b);
	}
}

TEST(neigh_permanent)
{
	struct bench *b = bench_open(NULL);
	struct pv_addr a = ip("10.0.0.2"), g = ip("239.1.2.3");
	struct pv_path p = path_to(b, "10.0.0.2");
	static const uint8_t group[6] = { 1, 0, 0, 0, 0, 1 };

	CHECK_EQ(send_text(b, &p), 0);
	bench_forget(b);
	CHECK_EQ(pv_net_neigh_add(b->net, b->iface[0], &a, peer_mac), 0);
	check_sent(b, "tx_udp4");
	bench_timers(b, 1000 * SEC);
	CHECK_EQ(rx(b, "rx_arp_reply_new_mac"), PV_RX_CONSUMED);
	CHECK_EQ(neigh(b, "10.0.0.2")->state, PV_NEIGH_PERMANENT);
	CHECK(pv_mac_eq(neigh(b, "10.0.0.2")->mac, peer_mac));
	CHECK_EQ(pv_net_neigh_add(b->net, 9, &a, peer_mac), -ENODEV);
	CHECK_EQ(pv_net_neigh_add(b->net, b->iface[0], &g, peer_mac), -EINVAL);
	CHECK_EQ(pv_net_neigh_add(b->net, b->iface[0], &a, group), -EINVAL);
	CHECK_EQ(pv_net_neigh_del(b->net, b->iface[0], &a), 0);
	CHECK_EQ(pv_net_neigh_del(b->net, b->iface[0], &a), -ESRCH);
	bench_close(b);
}

TEST(neigh_of_a_kernel_interface_is_told_not_asked)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .steer = PV_STEER_SOCKET });
	struct pv_addr a = ip("10.0.0.2");
	struct pv_path p = path_to(b, "10.0.0.2");

	CHECK_EQ(send_text(b, &p), 0);
	CHECK_EQ(rx(b, "rx_arp_request"), PV_RX_CONSUMED);
	CHECK_EQ(rx(b, "rx_ns"), PV_RX_CONSUMED);
	CHECK_EQ(b->fake[0]->tail, 0);
	CHECK_EQ(pv_net_neigh_add(b->net, b->iface[0], &a, peer_mac), 0);
	check_sent(b, "tx_udp4");
	bench_close(b);
}

TEST(neigh_interface_goes_with_packets_waiting)
{
	struct bench *b = bench_open(NULL);
	struct pv_path p4 = path_to(b, "10.0.0.2"), p6 = path_to(b, "fd00::2");

	CHECK_EQ(send_text(b, &p4), 0);
	CHECK_EQ(send_text(b, &p6), 0);
	CHECK_EQ(bench_out(b, 0), 2);
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[0]), 0);
	CHECK_EQ(bench_out(b, 0), 0);
	CHECK_EQ(ctr(b)->tx_no_neigh, 2);
	bench_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
