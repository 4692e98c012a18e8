/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/tcp.h"

#include "vectors.h"

/* Options of a packet by scapy; every cut of it is parsed too, from a block that ends where it is cut. */
static struct pv_wire_tcp_opts options_of(const char *name, struct pv_wire_tcp *h)
{
	struct vec v = vec_get(name, 0);
	struct pv_wire_tcp_opts o;

	CHECK_EQ(pv_wire_tcp_parse(v.p, v.len, h), h->hlen);
	for (uint32_t n = 0; n < h->hlen; n++) {
		struct vec cut = vec_cut(v, 0, n);
		struct pv_wire_tcp partly;

		CHECK_EQ(pv_wire_tcp_parse(cut.p, n, &partly), -EMSGSIZE);
		if (n >= PV_TCP_HLEN)
			(void)pv_wire_tcp_opts_parse(cut.p, n, &o);
		vec_free(&cut);
	}
	CHECK_EQ(pv_wire_tcp_opts_parse(v.p, h->hlen, &o), 0);
	vec_free(&v);
	return o;
}

/* What we write for the same contents is the same bytes. */
static void emits_the_same(const char *name, const struct pv_wire_tcp *h, const struct pv_wire_tcp_opts *o)
{
	struct vec v = vec_get(name, 0);
	uint8_t out[PV_TCP_HLEN_MAX];

	CHECK_EQ(pv_wire_tcp_opts_len(o), h->hlen - PV_TCP_HLEN);
	pv_wire_tcp_emit(out, h);
	CHECK_EQ(pv_wire_tcp_opts_emit(out + PV_TCP_HLEN, o), h->hlen - PV_TCP_HLEN);
	memcpy(out + PV_TCP_CSUM_OFF, v.p + PV_TCP_CSUM_OFF, 2);
	CHECK(!memcmp(out, v.p, h->hlen));
	vec_free(&v);
}

TEST(header)
{
	struct vec v = vec_get("tcp_plain", 0);
	struct pv_wire_tcp h;

	CHECK_EQ(pv_wire_tcp_parse(v.p, v.len, &h), 20);
	CHECK(h.src_port == 40000 && h.dst_port == 80 && h.seq == 0x11223344 && h.ack == 0x55667788);
	CHECK(h.flags == (PV_TH_PSH | PV_TH_ACK) && h.wnd == 501 && h.urp == 7 && h.hlen == 20);
	v.p[12] = 0x40;
	CHECK_EQ(pv_wire_tcp_parse(v.p, v.len, &h), -EBADMSG);
	v.p[12] = 0x70; /* 28 bytes, and only 24 are there */
	CHECK_EQ(pv_wire_tcp_parse(v.p, v.len, &h), -EMSGSIZE);
	vec_free(&v);
}

TEST(options_of_a_syn)
{
	struct pv_wire_tcp h;
	struct pv_wire_tcp_opts o = options_of("tcp_syn", &h);

	CHECK(o.mss == 1460 && o.sack_ok && o.has_ts && o.has_wscale && o.wscale == 7 && !o.nsack);
	CHECK(o.ts_val == 0x01020304 && o.ts_ecr == 0xf0e0d0c0);
	CHECK_EQ(h.flags, PV_TH_SYN);
	emits_the_same("tcp_syn", &h, &o);
	o = options_of("tcp_syn_no_ts", &h);
	CHECK(o.mss == 1440 && o.sack_ok && !o.has_ts && o.has_wscale);
	CHECK_EQ(o.wscale, 14); /* 20 was asked for: RFC 7323 2.3 */
	CHECK_EQ(h.flags, PV_TH_SYN | PV_TH_ECE | PV_TH_CWR);
	o.wscale = 20;
	emits_the_same("tcp_syn_no_ts", &h, &o);
	o = options_of("tcp_unknown", &h);
	CHECK(!o.mss && !o.has_ts && !o.sack_ok && !o.nsack && !o.has_wscale);
}

TEST(options_of_a_connection)
{
	struct pv_wire_tcp h;
	struct pv_wire_tcp_opts o = options_of("tcp_ts", &h);

	CHECK(o.has_ts && o.ts_val == 0x01020304 && !o.nsack && !o.mss && !o.sack_ok);
	emits_the_same("tcp_ts", &h, &o);
	o = options_of("tcp_sack", &h);
	CHECK(o.has_ts && o.nsack == 3 && o.sack[0].start == 1000 && o.sack[0].end == 2000 && o.sack[2].start == 0xfffffff0u &&
	      o.sack[2].end == 16);
	emits_the_same("tcp_sack", &h, &o);
	/* No room for a fourth beside timestamps. */
	o.nsack = 4;
	CHECK_EQ(pv_wire_tcp_opts_len(&o), 40);
	emits_the_same("tcp_sack", &h, &o);
	o = options_of("tcp_sack4", &h);
	CHECK(!o.has_ts && o.nsack == 4 && o.sack[3].end == 8);
	emits_the_same("tcp_sack4", &h, &o);
}

TEST(no_options)
{
	struct pv_wire_tcp h;
	struct pv_wire_tcp_opts o = options_of("tcp_plain", &h);
	uint8_t out[1];

	CHECK_EQ(pv_wire_tcp_opts_len(&o), 0);
	CHECK_EQ(pv_wire_tcp_opts_emit(out, &o), 0);
}

/* Lengths that cannot be, or that the kind never has. */
TEST(odd_lengths)
{
	static const struct {
		uint8_t opt[8];
		int rc;
	} row[] = {
		{ { 2, 4, 5, 0xb4, 1, 1, 1, 8 }, -EBADMSG }, /* a kind without its length */
		{ { 2, 4, 5, 0xb4, 8, 10, 0, 0 }, -EBADMSG }, /* more than is there */
		{ { 2, 4, 5, 0xb4, 3, 1, 1, 1 }, -EBADMSG }, /* shorter than itself */
		{ { 2, 4, 5, 0xb4, 3, 0, 1, 1 }, -EBADMSG },  { { 2, 4, 5, 0xb4, 3, 4, 7, 1 }, 0 }, /* skipped */
		{ { 2, 4, 5, 0xb4, 5, 4, 7, 1 }, 0 },         { { 2, 4, 5, 0xb4, 5, 2, 2, 2 }, 0 },
		{ { 2, 4, 5, 0xb4, 4, 3, 0, 0 }, 0 },         { { 2, 4, 5, 0xb4, 0, 8, 10, 0 }, 0 }, /* behind the end */
	};

	for (size_t i = 0; i < pv_array_size(row); i++) {
		struct pv_wire_tcp_opts o;
		uint8_t *p = calloc(1, PV_TCP_HLEN + sizeof(row[i].opt));

		CHECK(p != NULL);
		memcpy(p + PV_TCP_HLEN, row[i].opt, sizeof(row[i].opt));
		CHECK_EQ(pv_wire_tcp_opts_parse(p, PV_TCP_HLEN + sizeof(row[i].opt), &o), row[i].rc);
		CHECK(o.mss == 1460 && !o.has_ts && !o.sack_ok && !o.nsack && !o.has_wscale);
		free(p);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
