/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/icmp6.h"
#include "wire/igmp.h"

#include "base/cksum.h"
#include "vectors.h"

static const uint8_t g4[4] = { 239, 1, 2, 3 };
static const uint8_t a6[16] = { 0xfd, 0, 0, 0x99, [15] = 1 }, g6[16] = { 0xff, 0x15, [13] = 1, [15] = 3 };
static const uint8_t ll6[16] = { 0xfe, 0x80, [15] = 1 }, mld2_routers[16] = { 0xff, 2, [15] = 0x16 };

static int igmp(const char *name, struct pv_wire_igmp *m)
{
	struct vec v = vec_get(name, 0);
	static uint8_t keep[256];
	int rc;

	CHECK(pv_cksum_ok(pv_cksum_add(v.p, v.len, 0)));
	for (uint32_t n = 0; n < v.len; n++) {
		struct vec cut = vec_cut(v, 0, n);

		rc = pv_wire_igmp_parse(cut.p, n, m);
		CHECK(rc == -EBADMSG || n >= 8);
		CHECK(rc || !m->sources || m->sources + 4 * (size_t)m->nsources <= cut.p + n);
		vec_free(&cut);
	}
	memcpy(keep, v.p, v.len);
	rc = pv_wire_igmp_parse(keep, v.len, m);
	vec_free(&v);
	return rc;
}

TEST(igmp_versions)
{
	struct pv_wire_igmp m;

	CHECK_EQ(igmp("igmp1_query", &m), 0);
	CHECK(m.type == PV_IGMP_QUERY && m.version == 1 && m.group == 0 && m.max_resp_ms == 10000);
	CHECK_EQ(igmp("igmp2_query", &m), 0);
	CHECK(m.version == 2 && !memcmp(&m.group, g4, 4) && m.max_resp_ms == 2000);
	CHECK_EQ(igmp("igmp2_report", &m), 0);
	CHECK(m.type == PV_IGMP_V2_REPORT && !memcmp(&m.group, g4, 4));
	CHECK_EQ(igmp("igmp2_leave", &m), 0);
	CHECK_EQ(m.type, PV_IGMP_V2_LEAVE);
	CHECK_EQ(igmp("igmp3_query", &m), 0);
	/* 0x9a: mantissa 10, exponent 1: (10 | 16) << 4 tenths of a second. */
	CHECK(m.version == 3 && m.nsources == 2 && m.max_resp_ms == 41600 && !memcmp(m.sources, "\x0a\x63\x00\x01", 4));
	CHECK_EQ(igmp("igmp3_report", &m), 0);
	CHECK(m.type == PV_IGMP_V3_REPORT && m.version == 3);
}

TEST(igmp_emits_what_scapy_builds)
{
	struct vec rep = vec_get("igmp2_report", 0), leave = vec_get("igmp2_leave", 0), r3 = vec_get("igmp3_report", 0);
	struct pv_addr src[2] = { pv_addr_from4("\x0a\x63\x00\x01"), pv_addr_from4("\x0a\x63\x00\x02") };
	struct pv_wire_grec rec[2] = { { PV_GREC_TO_EXCLUDE, pv_addr_from4(g4), NULL, 0 },
				       { PV_GREC_ALLOW, pv_addr_from4("\xef\x09\x09\x09"), src, 2 } };
	uint32_t group, done;
	uint8_t out[64];

	memcpy(&group, g4, 4);
	CHECK_EQ(pv_wire_igmp_emit(out, PV_IGMP_V2_REPORT, group), 8);
	CHECK(!memcmp(out, rep.p, 8));
	CHECK_EQ(pv_wire_igmp_emit(out, PV_IGMP_V2_LEAVE, group), 8);
	CHECK(!memcmp(out, leave.p, 8));
	CHECK_EQ(pv_wire_igmp3_emit(out, sizeof(out), rec, 2, &done), r3.len);
	CHECK_EQ(done, 2);
	CHECK(!memcmp(out, r3.p, r3.len));
	/* Room for the first only; for none. */
	CHECK_EQ(pv_wire_igmp3_emit(out, 16, rec, 2, &done), 16);
	CHECK_EQ(done, 1);
	CHECK_EQ(pv_wire_igmp3_emit(out, 31, rec, 2, &done), 16);
	CHECK_EQ(done, 1);
	CHECK_EQ(pv_wire_igmp3_emit(out, 15, rec, 2, &done), 0);
	CHECK_EQ(done, 0);
	CHECK_EQ(pv_wire_igmp3_emit(out, 0, rec, 2, &done), 0);
	/* Too many sources in the first record: cut. */
	CHECK_EQ(pv_wire_igmp3_emit(out, 20, rec + 1, 1, &done), 20);
	CHECK(done == 1 && pv_get16(out + 10) == 1);
	vec_free(&rep);
	vec_free(&leave);
	vec_free(&r3);
}

TEST(mld_versions)
{
	struct vec q1 = vec_get("mld1_query", 40), q2 = vec_get("mld2_query", 40), r = vec_get("mld1_report", 40);
	struct pv_wire_mld m;

	CHECK_EQ(pv_wire_mld_parse(q1.p, q1.len, &m), 0);
	CHECK(m.type == PV_ICMP6_MLD_QUERY && m.version == 1 && m.max_resp_ms == 1500 && !memcmp(m.group, g6, 16));
	CHECK_EQ(pv_wire_mld_parse(q2.p, q2.len, &m), 0);
	/* 0x9234: mantissa 0x234, exponent 1. */
	CHECK(m.version == 2 && m.max_resp_ms == (0x1234u << 4) && m.nsources == 2 && !memcmp(m.sources, a6, 16));
	for (uint32_t n = 0; n < q2.len; n++) {
		struct vec cut = vec_cut(q2, 0, n);
		int rc = pv_wire_mld_parse(cut.p, n, &m);

		CHECK(n == 24 ? !rc && m.version == 1 : rc == -EBADMSG);
		vec_free(&cut);
	}
	CHECK_EQ(pv_wire_mld_parse(r.p, r.len, &m), 0);
	CHECK(m.type == PV_ICMP6_MLD_REPORT && !memcmp(m.group, g6, 16));
	vec_free(&q1);
	vec_free(&q2);
	vec_free(&r);
}

TEST(mld_emits_what_scapy_builds)
{
	struct vec r1 = vec_get("mld1_report", 40), r2 = vec_get("mld2_report", 40);
	struct pv_addr src[2] = { pv_addr_from6(a6), pv_addr_from6(a6) };
	struct pv_wire_grec rec[2] = { { PV_GREC_TO_EXCLUDE, pv_addr_from6(g6), NULL, 0 },
				       { PV_GREC_ALLOW, { .b = { 0xff, 0x15, [15] = 9 } }, src, 2 } };
	uint8_t out[128];
	uint32_t done;

	src[1].b[15] = 2;
	CHECK_EQ(pv_wire_mld1_emit(out, PV_ICMP6_MLD_REPORT, g6), r1.len);
	pv_wire_icmp6_csum_fill(out, r1.len, ll6, g6);
	CHECK(!memcmp(out, r1.p, r1.len));
	CHECK_EQ(pv_wire_mld2_emit(out, sizeof(out), rec, 2, &done), r2.len);
	CHECK_EQ(done, 2);
	pv_wire_icmp6_csum_fill(out, r2.len, ll6, mld2_routers);
	CHECK(!memcmp(out, r2.p, r2.len));
	CHECK_EQ(pv_wire_mld2_emit(out, 79, rec, 2, &done), 28);
	CHECK_EQ(done, 1);
	CHECK_EQ(pv_wire_mld2_emit(out, 27, rec, 2, &done), 0);
	CHECK_EQ(pv_wire_mld2_emit(out, 44, rec + 1, 1, &done), 44);
	CHECK(done == 1 && pv_get16(out + 10) == 1);
	vec_free(&r1);
	vec_free(&r2);
}

TEST(codes)
{
	CHECK_EQ(pv_wire_group_code(127, 8), 127);
	CHECK_EQ(pv_wire_group_code(128, 8), 128);
	CHECK_EQ(pv_wire_group_code(255, 8), 31 << 10);
	CHECK_EQ(pv_wire_group_code(32767, 16), 32767);
	CHECK_EQ(pv_wire_group_code(32768, 16), 32768);
	CHECK_EQ(pv_wire_group_code(65535, 16), 8191 << 10);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
