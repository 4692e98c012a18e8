/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: reports on change and when asked, old queriers, sources, flow rules, references. */
#include "net_util.h"

struct family {
	bool v4;
	const char *group, *source, *join, *leave, *include, *current;
	const char *query, *old_query, *old_join, *old_leave, *other;
};

static const struct family families[2] = {
	{ true, "239.1.2.3", "10.0.0.2", "tx_igmp3_join", "tx_igmp3_leave", "tx_igmp3_source", "tx_igmp3_current", "rx_igmp_query3",
	  "rx_igmp_query2", "tx_igmp2_join", "tx_igmp2_leave", "rx_igmp_report2" },
	{ false, "ff15::1:3", "fd00::2", "tx_mld2_join", "tx_mld2_leave", "tx_mld2_source", "tx_mld2_current", "rx_mld_query2",
	  "rx_mld_query1", "tx_mld1_join", "tx_mld1_leave", "rx_mld_report1" },
};

static int join(struct bench *b, const char *group, const char *source)
{
	struct pv_addr g = ip(group), s;

	if (source)
		s = ip(source);
	return pv_net_group_join(b->net, b->iface[0], &g, source ? &s : NULL, b->now);
}

static int leave(struct bench *b, const char *group, const char *source)
{
	struct pv_addr g = ip(group), s;

	if (source)
		s = ip(source);
	return pv_net_group_leave(b->net, b->iface[0], &g, source ? &s : NULL, b->now);
}

static uint32_t flows_for(struct bench *b, const char *group)
{
	struct pv_addr g = ip(group);
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->fake[0]->nflow; i++)
		n += b->fake[0]->flow_on[i] && pv_addr_eq(&b->fake[0]->flow[i].dst, &g);
	return n;
}

TEST(group_reports_changes_twice)
{
	for (int f = 0; f < 2; f++) {
		const struct family *fam = &families[f];
		struct bench *b = bench_open(NULL);

		CHECK_EQ(join(b, fam->group, NULL), 0);
		check_sent(b, fam->join);
		CHECK_EQ(flows_for(b, fam->group), 1);
		bench_timers(b, SEC);
		check_sent(b, fam->join);
		bench_timers(b, 100 * SEC);
		CHECK_EQ(sent_count(b), 0);
		/* Only the first and the last member are news. */
		CHECK_EQ(join(b, fam->group, NULL), 0);
		CHECK_EQ(leave(b, fam->group, NULL), 0);
		CHECK_EQ(sent_count(b), 0);
		CHECK_EQ(leave(b, fam->group, NULL), 0);
		check_sent(b, fam->leave);
		CHECK_EQ(flows_for(b, fam->group), 0);
		bench_timers(b, SEC);
		check_sent(b, fam->leave);
		CHECK_EQ(leave(b, fam->group, NULL), -EADDRNOTAVAIL);
		CHECK_EQ(b->net->ngroups, 3); /* all hosts, all nodes, one solicited-node group for both addresses */
		bench_close(b);
	}
}

TEST(group_sources)
{
	for (int f = 0; f < 2; f++) {
		const struct family *fam = &families[f];
		struct bench *b = bench_open(NULL);

		CHECK_EQ(join(b, fam->group, fam->source), 0);
		check_sent(b, fam->include);
		CHECK_EQ(join(b, fam->group, fam->source), 0);
		CHECK_EQ(sent_count(b), 0);
		/* Somebody wants any source: the sources do not matter until he leaves. */
		CHECK_EQ(join(b, fam->group, NULL), 0);
		check_sent(b, fam->join);
		CHECK_EQ(leave(b, fam->group, fam->source), 0);
		CHECK_EQ(sent_count(b), 0);
		CHECK_EQ(leave(b, fam->group, NULL), 0);
		check_sent(b, fam->include);
		CHECK_EQ(flows_for(b, fam->group), 1);
		CHECK_EQ(leave(b, fam->group, fam->source), 0);
		check_sent(b, fam->leave);
		CHECK_EQ(flows_for(b, fam->group), 0);
		bench_close(b);
	}
}

TEST(group_more_sources_than_a_report_names)
{
	struct bench *b = bench_open(NULL);
	char src[32];

	for (int i = 0; i <= (int)PV_GROUP_SOURCE_MAX; i++) {
		snprintf(src, sizeof(src), "10.2.%d.%d", i / 200, i % 200 + 1);
		CHECK_EQ(join(b, "239.1.2.3", src), 0);
		if (i < (int)PV_GROUP_SOURCE_MAX)
			CHECK_EQ(sent(b)->p[46], PV_GREC_TO_INCLUDE);
	}
	check_sent(b, "tx_igmp3_join");
	CHECK_EQ(leave(b, "239.1.2.3", src), 0);
	CHECK_EQ(sent(b)->p[46], PV_GREC_TO_INCLUDE);
	for (int i = 0; i < (int)PV_GROUP_SOURCE_MAX; i++) {
		snprintf(src, sizeof(src), "10.2.%d.%d", i / 200, i % 200 + 1);
		CHECK_EQ(leave(b, "239.1.2.3", src), 0);
	}
	CHECK_EQ(leave(b, "239.1.2.3", src), -EADDRNOTAVAIL);
	CHECK_EQ(flows_for(b, "239.1.2.3"), 0);
	bench_close(b);
}

TEST(group_queries_are_answered)
{
	for (int f = 0; f < 2; f++) {
		const struct family *fam = &families[f];
		struct bench *b = bench_open(NULL);

		CHECK_EQ(join(b, fam->group, NULL), 0);
		bench_timers(b, 10 * SEC);
		bench_forget(b);
		CHECK_EQ(rx(b, fam->query), PV_RX_CONSUMED);
		CHECK_EQ(ctr(b)->rx_igmp, 1);
		CHECK_EQ(sent_count(b), 0);
		bench_timers(b, 2 * SEC);
		/* One message; with IPv6 the solicited-node group is in it too. */
		CHECK_EQ(sent_count(b), 1);
		if (fam->v4)
			check_sent(b, fam->current);
		else
			CHECK_EQ(pv_get16(sent(b)->p + 68), 2);
		bench_timers(b, 100 * SEC);
		CHECK_EQ(sent_count(b), 0);
		bench_close(b);
	}
}

/* Where IPv4's header is, TTL `ttl` and no router alert. */
static struct frame plain_query(uint8_t ttl)
{
	struct frame f = vec_frame("rx_igmp_query3");
	uint8_t *h = f.p + PV_ETH_HLEN;
	uint32_t hlen = (h[0] & 15u) * 4;

	memmove(h + PV_IP4_HLEN, h + hlen, f.len - PV_ETH_HLEN - hlen);
	f.len -= hlen - PV_IP4_HLEN;
	h[0] = 0x45;
	pv_put16(h + 2, (uint16_t)(f.len - PV_ETH_HLEN));
	h[8] = ttl;
	pv_wire_ip4_csum_fill(h, PV_IP4_HLEN);
	return f;
}

/* IGMP as Linux has it, MLD as RFC 3810 6.2 wants it (and Linux has it). */
TEST(group_queries_from_afar)
{
	static const uint8_t ttls[] = { 1, 2, 64, 255 };
	struct bench *b = bench_open(NULL);

	CHECK_EQ(join(b, "239.1.2.3", NULL), 0);
	CHECK_EQ(join(b, "ff15::1:3", NULL), 0);
	bench_timers(b, 10 * SEC);
	bench_forget(b);
	for (uint32_t i = 0; i < pv_array_size(ttls); i++) {
		struct frame f = plain_query(ttls[i]);

		CHECK_EQ(rx_raw(b, 0, f.p, f.len, 0), PV_RX_CONSUMED);
		CHECK_EQ(ctr(b)->rx_igmp, i + 1);
		bench_timers(b, 3 * SEC);
		CHECK_EQ(sent_count(b), 1);
		check_sent(b, "tx_igmp3_current");
		free(f.p);
	}
	for (uint32_t i = 1; i < pv_array_size(ttls); i++) {
		struct frame f = vec_frame("rx_mld_query2");

		f.p[PV_ETH_HLEN + 7] = ttls[i];
		CHECK_EQ(rx_raw(b, 0, f.p, f.len, 0), PV_RX_CONSUMED);
		CHECK_EQ(ctr(b)->rx_icmp_bad, i);
		bench_timers(b, 3 * SEC);
		CHECK_EQ(sent_count(b), 0);
		free(f.p);
	}
	CHECK_EQ(ctr(b)->rx_igmp, pv_array_size(ttls));
	bench_close(b);
}

TEST(group_specific_query)
{
	struct bench *b = bench_open(NULL);

	CHECK_EQ(rx(b, "rx_igmp_query3_group"), PV_RX_CONSUMED);
	CHECK_EQ(ctr(b)->rx_not_ours, 1);
	CHECK_EQ(join(b, "239.1.2.3", NULL), 0);
	bench_timers(b, 10 * SEC);
	bench_forget(b);
	CHECK_EQ(rx(b, "rx_igmp_query3_group"), PV_RX_CONSUMED);
	bench_timers(b, SEC);
	check_sent(b, "tx_igmp3_current");
	/* Left before the answer was due. */
	CHECK_EQ(rx(b, "rx_igmp_query3_group"), PV_RX_CONSUMED);
	CHECK_EQ(leave(b, "239.1.2.3", NULL), 0);
	check_sent(b, "tx_igmp3_leave");
	bench_timers(b, 10 * SEC);
	check_sent(b, "tx_igmp3_leave");
	CHECK_EQ(sent_count(b), 0);
	bench_close(b);
}

TEST(group_old_queriers)
{
	for (int f = 0; f < 2; f++) {
		const struct family *fam = &families[f];
		struct bench *b = bench_open(NULL);

		CHECK_EQ(rx(b, fam->old_query), PV_RX_CONSUMED);
		bench_timers(b, 10 * SEC);
		bench_forget(b);
		CHECK_EQ(join(b, fam->group, NULL), 0);
		check_sent(b, fam->old_join);
		bench_timers(b, SEC);
		check_sent(b, fam->old_join);
		CHECK_EQ(leave(b, fam->group, NULL), 0);
		check_sent(b, fam->old_leave);
		bench_timers(b, 5 * SEC);
		bench_forget(b);
		/* Another member reported after us: our leave is nobody's business. */
		CHECK_EQ(join(b, fam->group, NULL), 0);
		bench_timers(b, 5 * SEC);
		bench_forget(b);
		CHECK_EQ(rx(b, fam->other), PV_RX_CONSUMED);
		CHECK_EQ(leave(b, fam->group, NULL), 0);
		CHECK_EQ(sent_count(b), 0);
		bench_timers(b, 5 * SEC);
		CHECK_EQ(sent_count(b), 0);
		/* An answer that another one gives is not repeated; ours comes otherwise. */
		CHECK_EQ(join(b, fam->group, NULL), 0);
		bench_timers(b, 5 * SEC);
		bench_forget(b);
		CHECK_EQ(rx(b, fam->old_query), PV_RX_CONSUMED);
		CHECK_EQ(rx(b, fam->other), PV_RX_CONSUMED);
		bench_timers(b, 5 * SEC);
		CHECK_EQ(sent_count(b), fam->v4 ? 0 : 1);
		bench_forget(b);
		CHECK_EQ(rx(b, fam->old_query), PV_RX_CONSUMED);
		bench_timers(b, 5 * SEC);
		CHECK_EQ(sent_count(b), fam->v4 ? 1 : 2);
		/* After a while without old queries the present version is back. */
		bench_timers(b, 260 * SEC);
		bench_forget(b);
		CHECK_EQ(leave(b, fam->group, NULL), 0);
		check_sent(b, fam->leave);
		bench_close(b);
	}
}

TEST(group_version_1_querier)
{
	struct bench *b = bench_open(NULL);

	CHECK_EQ(rx(b, "rx_igmp_query1"), PV_RX_CONSUMED);
	CHECK_EQ(join(b, "239.1.2.3", NULL), 0);
	check_sent(b, "tx_igmp1_join");
	CHECK_EQ(leave(b, "239.1.2.3", NULL), 0);
	CHECK_EQ(sent_count(b), 0); /* there was no leave then */
	bench_close(b);
}

TEST(group_not_reported)
{
	struct bench *b = bench_open(NULL);

	CHECK_EQ(join(b, "224.0.0.1", NULL), 0);
	CHECK_EQ(join(b, "ff02::1", NULL), 0);
	CHECK_EQ(join(b, "ff01::5", NULL), 0);
	bench_timers(b, 10 * SEC);
	CHECK_EQ(sent_count(b), 0);
	CHECK_EQ(leave(b, "ff01::5", NULL), 0);
	CHECK_EQ(leave(b, "ff02::1", NULL), 0);
	CHECK_EQ(sent_count(b), 0);
	CHECK_EQ(rx(b, "rx_echo6_mcast"), PV_RX_CONSUMED); /* the interface's own membership stays */
	CHECK_EQ(ctr(b)->rx_icmp, 1);
	bench_close(b);
}

TEST(group_many_in_one_answer)
{
	struct bench *b = bench_open(NULL);
	uint32_t records = 0;
	char g[32];

	for (int i = 0; i < 100; i++) {
		snprintf(g, sizeof(g), "239.2.0.%d", i);
		CHECK_EQ(join(b, g, NULL), 0);
	}
	bench_timers(b, 10 * SEC);
	bench_forget(b);
	CHECK_EQ(rx(b, "rx_igmp_query3"), PV_RX_CONSUMED);
	bench_timers(b, 3 * SEC);
	CHECK(sent_count(b) > 1);
	while (sent_count(b)) {
		struct frame *f = sent(b);

		CHECK(f->len <= 1514);
		CHECK(pv_cksum_ok(pv_cksum_add(f->p + 38, f->len - 38, 0)));
		records += pv_get16(f->p + 44);
	}
	CHECK_EQ(records, 100);
	bench_close(b);
}

TEST(group_bad_arguments)
{
	struct bench *b = bench_open(NULL);
	struct pv_addr g = ip("239.1.2.3"), u = ip("10.0.0.2"), six = ip("fd00::2");

	CHECK_EQ(pv_net_group_join(b->net, 9, &g, NULL, b->now), -ENODEV);
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &u, NULL, b->now), -EINVAL);
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g, &six, b->now), -EINVAL);
	CHECK_EQ(pv_net_group_leave(b->net, b->iface[0], &g, NULL, b->now), -EADDRNOTAVAIL);
	CHECK_EQ(pv_net_group_leave(b->net, 9, &g, NULL, b->now), -ENODEV);
	b->fake[0]->flow_rc = -ENOSPC;
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g, NULL, b->now), -ENOSPC);
	b->fake[0]->flow_rc = 0;
	b->mem.fail_in = 0;
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g, NULL, b->now), -ENOMEM);
	b->mem.fail_in = -1;
	CHECK(pv_group_find(b->net, b->iface[0], &g) == NULL);
	CHECK_EQ(sent_count(b), 0);
	CHECK_EQ(pv_net_group_join(b->net, b->iface[0], &g, NULL, b->now), 0);
	CHECK_EQ(pv_net_group_iface(b->net, &g), b->iface[0]);
	bench_close(b);
}

TEST(group_leaves_when_the_interface_goes)
{
	struct bench *b = bench_open(NULL);
	uint32_t kicks;

	CHECK_EQ(join(b, "239.1.2.3", NULL), 0);
	bench_timers(b, 10 * SEC);
	bench_forget(b);
	kicks = b->fake[0]->kicks;
	CHECK_EQ(pv_net_iface_del(b->net, b->iface[0]), 0);
	CHECK(b->fake[0]->kicks > kicks);
	CHECK_EQ(sent_count(b), 2); /* and the solicited-node group */
	CHECK_EQ(b->net->ngroups, 0);
	bench_close(b);
}

TEST(group_of_a_kernel_interface_is_reported_by_the_kernel)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .steer = PV_STEER_SOCKET });

	CHECK_EQ(join(b, "239.1.2.3", NULL), 0);
	bench_timers(b, 10 * SEC);
	CHECK_EQ(sent_count(b), 0);
	CHECK_EQ(rx(b, "rx_udp4_mcast"), PV_RX_UDP);
	CHECK_EQ(leave(b, "239.1.2.3", NULL), 0);
	CHECK_EQ(sent_count(b), 0);
	bench_close(b);
}

/* A ring that matches MACs only has one rule for two groups of one MAC (RFC 1112: 32 addresses share one). */
TEST(group_that_shares_a_mac)
{
	struct bench *b = bench_open(&(struct bench_cfg){ .flow_kinds = 1u << PV_FLOW_ETHER });
	struct fake *f = b->fake[0];
	uint32_t n = f->nflow;

	CHECK_EQ(join(b, "239.1.2.3", NULL), 0);
	CHECK_EQ(f->nflow, n + 1);
	f->flow_rc = -EEXIST;
	CHECK_EQ(join(b, "224.1.2.3", NULL), 0);
	f->flow_rc = 0;
	CHECK_EQ(f->nflow, n + 1);
	CHECK_EQ(leave(b, "239.1.2.3", NULL), 0);
	CHECK(!f->flow_on[n]);
	CHECK_EQ(f->nflow, n + 2);
	CHECK(f->flow_on[n + 1]);
	bench_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
