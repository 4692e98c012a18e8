/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP header and its options: what was understood, written and read again, is the same; what is written fits.
 *
 *   cmake --preset fuzz && ninja -C build/fuzz fuzz_tcp_opts
 *   tools/run_fuzz.py --only fuzz_tcp_opts --seconds 600
 *
 * Seeds: the segments of tests/data/make_wire.py.
 */
#include "fuzz.h"
#include "wire/tcp.h"

static void same(const struct pv_wire_tcp_opts *a, const struct pv_wire_tcp_opts *b, uint32_t nsack)
{
	REQUIRE(a->has_ts == b->has_ts && a->has_wscale == b->has_wscale && a->sack_ok == b->sack_ok);
	REQUIRE(a->mss == b->mss && a->wscale == b->wscale && a->ts_val == b->ts_val && a->ts_ecr == b->ts_ecr);
	REQUIRE(b->nsack == nsack);
	for (uint32_t i = 0; i < nsack; i++)
		REQUIRE(a->sack[i].start == b->sack[i].start && a->sack[i].end == b->sack[i].end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pv_wire_tcp h;
	struct pv_wire_tcp_opts o, again;
	uint8_t out[PV_TCP_HLEN_MAX];
	uint32_t len, nsack;

	if (pv_wire_tcp_parse(data, (uint32_t)size, &h) < 0)
		return 0;
	REQUIRE(h.hlen >= PV_TCP_HLEN && h.hlen <= size && h.hlen <= PV_TCP_HLEN_MAX);
	(void)pv_wire_tcp_opts_parse(data, h.hlen, &o);
	REQUIRE(o.nsack <= PV_WIRE_SACK_MAX && o.wscale <= 14);
	REQUIRE((o.has_wscale || !o.wscale) && (o.has_ts || (!o.ts_val && !o.ts_ecr)));
	len = pv_wire_tcp_opts_len(&o);
	REQUIRE(len <= PV_TCP_OPT_MAX && len % 4 == 0);
	pv_wire_tcp_emit(out, &h);
	REQUIRE(pv_wire_tcp_opts_emit(out + PV_TCP_HLEN, &o) == len);
	REQUIRE(pv_wire_tcp_opts_parse(out, PV_TCP_HLEN + len, &again) == 0);
	/* A segment carries what does not fit together only when somebody made it up: blocks are left out then, and nothing else. */
	nsack = again.nsack;
	REQUIRE(nsack == o.nsack || (nsack < o.nsack && len + 8 > PV_TCP_OPT_MAX - (nsack ? 0 : 4)));
	same(&o, &again, nsack);
	return 0;
}
