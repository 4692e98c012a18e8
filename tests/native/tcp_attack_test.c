/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Others against a connection, and peers that hardly let it breathe: blind resets, SYNs and data (RFC 5961), a flood of SYNs with
 * legitimate connections in it, closed and tiny windows, half-closed connections.
 */
#include "base/rng.h"
#include "tcp_peer.h"

static const struct pv_tcp_counters *count(const struct peer *p)
{
	return pv_tcp_table_counters(p->w.host[0].tcp);
}

/* The connection does what it did before. */
static void still_alive(struct peer *p)
{
	uint32_t seq = p->read, from = p->written;

	peer_skip(p);
	CHECK_EQ(peer_state(p), PV_TCP_ESTABLISHED);
	peer_send(p, "P.", seq, from, 100);
	peer_read(p, 100);
	peer_run(p, 50 * PV_NS_PER_MS);
	peer_skip(p);
	peer_write(p, 100);
	peer_expect(p, "P.", from, seq + 100, 100);
	peer_ack(p, from + 100);
	peer_run(p, PV_NS_PER_MS);
}

/* ---- RFC 5961 ---------------------------------------------------------------------------------------------------------------- */

enum { BLIND = 20000 };

/* Somebody who knows addresses and ports and guesses numbers, evenly over the whole space: many fall into the window. */
static uint64_t blind(struct peer *p, const char *flags, uint32_t len, bool in_window)
{
	struct pv_rng rng;
	uint64_t before = p->seen;
	uint32_t max = p->seq_max;

	pv_rng_seed(&rng, 7);
	for (uint32_t i = 0; i < BLIND; i++) {
		uint32_t seq = in_window ? p->read + 1 + (uint32_t)pv_rng_below(&rng, 60000) : pv_rng_u32(&rng);

		if (seq == p->read && len == 0)
			seq++;
		peer_send_seg(p, &(struct peer_seg){ .flags = flags, .seq = seq, .ack = pv_rng_u32(&rng), .len = len });
		peer_skip(p);
		if (i % 20 == 0)
			peer_run(p, PV_NS_PER_MS);
	}
	p->seq_max = max;
	return p->seen - before;
}

TEST(blind_resets)
{
	for (int family = 4; family <= 6; family += 2) {
		static struct peer p;

		peer_open(&p, &(struct peer_cfg){ .family = family });
		peer_passive(&p);
		still_alive(&p);
		blind(&p, "R", 0, false);
		still_alive(&p);
		/* In the window, but not the next number: challenged, and the challenges are throttled (RFC 5961 5 and 7). */
		CHECK(blind(&p, "R", 0, true) <= 200);
		CHECK(count(&p)->rx_challenge > 0);
		CHECK_EQ(count(&p)->rx_resets, 0);
		still_alive(&p);
		/* A peer that really has gone answers the challenge with the right number. */
		peer_run(&p, 2 * PV_NS_PER_S);
		peer_skip(&p);
		peer_send(&p, "R", p.read, 0, 0);
		CHECK_EQ(pv_tcp_error(p.c), ECONNRESET);
		CHECK_EQ(count(&p)->rx_resets, 1);
		peer_close(&p);
	}
}

TEST(blind_syns)
{
	for (int family = 4; family <= 6; family += 2) {
		static struct peer p;

		peer_open(&p, &(struct peer_cfg){ .family = family });
		peer_passive(&p);
		still_alive(&p);
		blind(&p, "S", 0, false);
		CHECK(blind(&p, "S", 0, true) <= 200);
		still_alive(&p);
		CHECK_EQ(pv_tcp_count(p.w.host[0].tcp, PV_TCP_SYN_RCVD), 0);
		peer_close(&p);
	}
}

/* Data in the window whose acknowledgement is none of ours (RFC 5961 5) is not taken, however often it is tried. */
TEST(blind_data)
{
	for (int family = 4; family <= 6; family += 2) {
		static struct peer p;
		struct pv_rng rng;
		uint64_t before;

		peer_open(&p, &(struct peer_cfg){ .family = family, .no_ts = true });
		peer_passive(&p);
		still_alive(&p);
		pv_rng_seed(&rng, 9);
		before = p.seen;
		for (uint32_t i = 0; i < BLIND; i++) {
			/* Acknowledgements from 2^31 to 2^26 ahead of what was sent, or as far behind what the window ever was. */
			uint32_t off = (1u << 26) + (uint32_t)pv_rng_below(&rng, (1u << 31) - (1u << 27));

			peer_send_seg(
			    &p, &(struct peer_seg){
				    .flags = "P.", .seq = p.read, .ack = i & 1 ? p.written + off : p.written - off, .len = 20 });
			peer_skip(&p);
			if (i % 20 == 0)
				peer_run(&p, PV_NS_PER_MS);
		}
		CHECK(p.seen - before <= 200);
		CHECK_EQ(pv_tcp_inq(p.c), 0);
		CHECK_EQ(count(&p)->rx_old_ack, BLIND);
		p.seq_max = p.read;
		still_alive(&p);
		peer_close(&p);
	}
}

/* Two ends that each think the other is out of step do not answer each other for ever. */
TEST(no_storm_of_acknowledgements)
{
	static struct peer p;
	uint64_t before;

	peer_open(&p, &(struct peer_cfg){ 0 });
	peer_passive(&p);
	still_alive(&p);
	before = p.seen;
	for (uint32_t i = 0; i < 1000; i++) {
		peer_send(&p, ".", p.read - 20000, p.written, 0);
		peer_skip(&p);
	}
	CHECK(p.seen - before <= 2);
	peer_close(&p);
}

/* ---- a flood of SYNs ------------------------------------------------------------------------------------------------------------ */

enum { FLOOD = 100000 };

static void flood(struct peer *p, uint32_t from, uint32_t n)
{
	for (uint32_t i = from; i < from + n; i++) {
		struct peer_seg s = { .flags = "S",
				      .seq = i * 2654435761u,
				      .sport = (uint16_t)(10000 + i % 50000),
				      .src = host_addr(p->cfg.family, (uint8_t)(50 + i / 50000)),
				      .opt = peer_syn_opts(p),
				      .no_ts = true };

		peer_send_seg(p, &s);
		peer_skip(p);
		if (i % 10 == 0)
			peer_run(p, 100000);
	}
}

/* A client that knows nothing of all that: connects, sends, is accepted, answered and leaves. */
static void legitimate(struct peer *p, uint16_t port)
{
	struct pv_tcp *keep = p->c;
	struct pv_tcp_info info;
	char buf[64];

	p->port = port;
	p->seq_max = 0;
	peer_skip(p);
	peer_syn(p);
	peer_agree(p, peer_expect(p, "S.", 0, 1, 0));
	peer_send(p, ".", 1, 1, 0);
	peer_send(p, "P.", 1, 1, 40);
	CHECK_EQ(pv_tcp_accept(p->l, &p->c), 0);
	CHECK_EQ(pv_tcp_recv(p->c, &(struct pv_iov){ buf, sizeof(buf) }, 1, 0, p->w.now), 40);
	for (uint32_t i = 0; i < 40; i++)
		CHECK_EQ((uint8_t)buf[i], peer_byte(1 + i));
	/* Cookies carry the options in timestamps, as Linux's do. */
	pv_tcp_get_info(p->c, &info, p->w.now);
	CHECK(info.snd_mss >= 1400);
	CHECK_EQ(info.snd_wscale, p->cfg.wscale);
	peer_run(p, 50 * PV_NS_PER_MS);
	peer_skip(p);
	pv_tcp_close(p->c, p->w.now);
	peer_run(p, 0);
	peer_expect(p, "F.", 1, 41, 0);
	peer_send(p, "F.", 41, 2, 0);
	peer_run(p, 50 * PV_NS_PER_MS);
	peer_skip(p);
	p->c = keep;
}

TEST(a_flood_of_syns)
{
	for (int family = 4; family <= 6; family += 2) {
		static struct peer p;
		static const uint8_t mac[6] = { 2, 0, 0, 0, 0, 2 };
		size_t before;

		peer_open(&p, &(struct peer_cfg){ .family = family, .pool = 2048 });
		for (uint8_t i = 50; i < 54; i++) {
			struct pv_addr a = host_addr(family, i);

			CHECK_EQ(pv_net_neigh_add(p.w.host[0].net, p.w.host[0].iface, &a, mac), 0);
		}
		peer_listen(&p, 128);
		peer_passive(&p);
		still_alive(&p);
		before = p.w.mem.bytes;
		for (uint32_t i = 0; i < 10; i++) {
			uint16_t first = p.port;
			uint32_t irs = p.irs, seq = p.seq_max, ts = p.ts_recent;

			flood(&p, i * FLOOD / 10, FLOOD / 10);
			legitimate(&p, (uint16_t)(5000 + i));
			p.port = first;
			p.irs = irs;
			p.seq_max = seq;
			p.ts_recent = ts;
			/* One that was there before does not feel it. */
			still_alive(&p);
		}
		CHECK(count(&p)->cookies_sent > FLOOD / 2);
		CHECK(count(&p)->cookies_ok >= 5);
		/* What it costs does not grow with it. */
		CHECK(p.w.mem.bytes - before < 1u << 20);
		peer_close(&p);
	}
}

/* Without cookies the queue stays bounded and old connections go on. */
TEST(a_flood_of_syns_without_cookies)
{
	static struct peer p;

	peer_open(&p, &(struct peer_cfg){ .pool = 2048, .tcp = { .no_syn_cookies = true } });
	peer_listen(&p, 64);
	peer_passive(&p);
	for (uint32_t i = 0; i < 5000; i++) {
		peer_send_seg(
		    &p, &(struct peer_seg){
			    .flags = "S", .seq = i, .sport = (uint16_t)(10000 + i), .opt = peer_syn_opts(&p), .no_ts = true });
		peer_skip(&p);
		CHECK(pv_tcp_count(p.w.host[0].tcp, PV_TCP_SYN_RCVD) <= 65);
	}
	CHECK(count(&p)->syn_overflow >= 4900);
	CHECK_EQ(count(&p)->cookies_sent, 0);
	still_alive(&p);
	peer_close(&p);
}

/* A guessed cookie opens nothing. */
TEST(guessed_cookies)
{
	static struct peer p;
	struct pv_tcp *c;

	peer_open(&p, &(struct peer_cfg){ .pool = 2048 });
	peer_listen(&p, 4);
	for (uint32_t i = 0; i < 64; i++) {
		peer_send_seg(
		    &p, &(struct peer_seg){
			    .flags = "S", .seq = i, .sport = (uint16_t)(10000 + i), .opt = peer_syn_opts(&p), .no_ts = true });
		peer_skip(&p);
	}
	CHECK(count(&p)->cookies_sent > 0);
	for (uint32_t i = 0; i < 20000; i++) {
		peer_send_seg(&p,
			      &(struct peer_seg){
				  .flags = ".", .seq = 1, .ack = i * 2654435761u, .sport = (uint16_t)(20000 + i), .no_ts = true });
		peer_skip(&p);
	}
	CHECK_EQ(pv_tcp_accept(p.l, &c), -EAGAIN);
	CHECK_EQ(count(&p)->cookies_ok, 0);
	CHECK_EQ(count(&p)->cookies_bad, 20000);
	peer_close(&p);
}

/* ---- closed and tiny windows ----------------------------------------------------------------------------------------------------- */

/* The receiver's application sleeps for ten minutes: probes keep asking, ever more rarely; nothing times out, nothing is lost. */
TEST(a_window_that_stays_closed)
{
	for (int family = 4; family <= 6; family += 2) {
		static uint8_t data[300000], got[300000];
		struct world w;
		struct pv_tcp *pair[2];
		uint32_t sent = 0, read = 0;
		uint64_t probes;
		int64_t rc;

		tcp_world_open(&w, &(struct world_cfg){ .seed = 3 });
		tcp_pair(&w, family, 7000, pair);
		for (uint32_t i = 0; i < sizeof(data); i++)
			data[i] = peer_byte(i);
		for (uint32_t i = 0; i < 600; i++) {
			while (sent < sizeof(data) && (rc = tcp_write(&w, pair[0], data + sent, sizeof(data) - sent)) > 0)
				sent += (uint32_t)rc;
			world_run(&w, PV_NS_PER_S);
		}
		CHECK_EQ(pv_tcp_state(pair[0]), PV_TCP_ESTABLISHED);
		probes = pv_tcp_table_counters(w.host[0].tcp)->tx_probes;
		/* 0.2 s, doubled up to two minutes. */
		CHECK(probes >= 5 && probes <= 30);
		for (uint32_t i = 0; i < 20000 && read < sizeof(data); i++) {
			while ((rc = tcp_read(&w, pair[1], got + read, sizeof(got) - read)) > 0)
				read += (uint32_t)rc;
			CHECK_EQ(rc, -EAGAIN);
			if (sent < sizeof(data) && (rc = tcp_write(&w, pair[0], data + sent, sizeof(data) - sent)) > 0)
				sent += (uint32_t)rc;
			world_run(&w, 10 * PV_NS_PER_MS);
		}
		CHECK_EQ(read, sizeof(data));
		CHECK(!memcmp(data, got, sizeof(data)));
		pv_tcp_close(pair[0], w.now);
		pv_tcp_close(pair[1], w.now);
		tcp_fade(&w);
		world_close(&w);
	}
}

/* The update that opens the window is lost: the probe finds out (RFC 9293 3.8.6.1). */
TEST(a_window_update_that_is_lost)
{
	static uint8_t data[400000], got[400000];
	struct world w;
	struct pv_tcp *pair[2];
	struct pv_sim_impair dead = { .loss_ppm = 1000000 }, good = { 0 };
	uint32_t read = 0;
	int64_t rc, sent = 0;

	tcp_world_open(&w, &(struct world_cfg){ .seed = 4, .tcp = { .rcvbuf = 20000, .rcvbuf_max = 20000 } });
	tcp_pair(&w, 4, 7000, pair);
	for (uint32_t i = 0; i < 20; i++) {
		rc = tcp_write(&w, pair[0], data, 20000);
		sent += PV_MAX(rc, INT64_C(0));
		world_run(&w, 100 * PV_NS_PER_MS);
	}
	pv_sim_wire_impair(w.wire, &dead);
	while ((rc = tcp_read(&w, pair[1], got, sizeof(got))) > 0)
		read += (uint32_t)rc;
	world_run(&w, 10 * PV_NS_PER_MS);
	pv_sim_wire_impair(w.wire, &good);
	for (uint32_t i = 0; i < 100 && read < sent; i++) {
		world_run(&w, 100 * PV_NS_PER_MS);
		while ((rc = tcp_read(&w, pair[1], got, sizeof(got))) > 0)
			read += (uint32_t)rc;
	}
	CHECK_EQ(read, sent);
	pv_tcp_close(pair[0], w.now);
	pv_tcp_close(pair[1], w.now);
	tcp_fade(&w);
	world_close(&w);
}

/* A peer that offers one byte at a time gets one byte at a time, and all of them. */
TEST(a_window_of_one_byte)
{
	for (int family = 4; family <= 6; family += 2) {
		static struct peer p;
		uint32_t got = 1;
		int64_t start;

		peer_open(&p, &(struct peer_cfg){ .family = family, .no_wscale = true, .no_ts = true, .wnd = 1 });
		peer_passive(&p);
		start = p.w.now;
		peer_write(&p, 100);
		while (got < 101) {
			const struct peer_seg *s;

			peer_run_until(&p, p.w.now + 10 * PV_NS_PER_S, 0);
			s = peer_next(&p);
			CHECK(s);
			/* Never more than was offered. A probe of an open window has nothing that is new. */
			CHECK(s->seq + s->len <= got + 1);
			if (s->len && s->seq == got) {
				CHECK_EQ(s->data[s->off], peer_byte(got));
				got++;
			}
			peer_send_seg(&p, &(struct peer_seg){ .flags = ".", .seq = 1, .ack = got, .wnd = 1 });
		}
		CHECK(p.w.now - start < 100 * PV_NS_PER_S);
		peer_close(&p);
	}
}

/* RFC 9293 3.8.6.2.2: an application that reads byte by byte makes no stream of tiny windows. */
TEST(a_reader_of_single_bytes)
{
	static struct peer p;
	uint32_t sent = 1, updates = 0;
	uint16_t wnd;

	peer_open(&p, &(struct peer_cfg){ .no_wscale = true, .no_ts = true, .tcp = { .rcvbuf = 16384, .rcvbuf_max = 16384 } });
	peer_passive(&p);
	for (;;) {
		const struct peer_seg *s;

		peer_send(&p, "P.", sent, 1, 1000);
		sent += 1000;
		peer_run(&p, 50 * PV_NS_PER_MS);
		s = peer_next(&p);
		CHECK(s && s->ack == sent);
		wnd = s->wnd;
		if (wnd < 1000)
			break;
	}
	/* To the very end of the window. */
	if (wnd) {
		peer_send(&p, "P.", sent, 1, wnd);
		sent += wnd;
		peer_run(&p, 50 * PV_NS_PER_MS);
		CHECK(peer_next(&p));
	}
	for (uint32_t i = 1; i < sent; i++) {
		const struct peer_seg *s;

		peer_read(&p, 1);
		while ((s = peer_next(&p))) {
			CHECK_EQ(s->len, 0);
			CHECK_EQ(s->ack, sent);
			CHECK(s->wnd >= 1000);
			updates++;
		}
	}
	CHECK(updates >= 1 && updates <= 16);
	peer_close(&p);
}

/* ---- half a connection --------------------------------------------------------------------------------------------------------------- */

/* One side says that it is done; the other sends a megabyte after that (RFC 9293 3.6). */
TEST(half_closed)
{
	static uint8_t data[1 << 20], got[1 << 20];

	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = peer_byte(i);
	for (int family = 4; family <= 6; family += 2) {
		for (uint32_t closer = 0; closer < 2; closer++) {
			struct world w;
			struct pv_tcp *pair[2], *a, *b;
			uint32_t sent = 0, read = 0;
			int64_t rc;

			tcp_world_open(&w, &(struct world_cfg){ .seed = 5 });
			pv_sim_wire_impair(w.wire, &(struct pv_sim_impair){ .latency_ns = 5 * PV_NS_PER_MS });
			tcp_pair(&w, family, 7000, pair);
			a = pair[closer];
			b = pair[!closer];
			CHECK_EQ(tcp_write(&w, a, "the last", 8), 8);
			CHECK_EQ(pv_tcp_shutdown(a, 2, w.now), 0);
			CHECK_EQ(tcp_write(&w, a, "x", 1), -EPIPE);
			world_run(&w, 100 * PV_NS_PER_MS);
			CHECK_EQ(pv_tcp_state(a), PV_TCP_FIN_WAIT_2);
			CHECK_EQ(pv_tcp_state(b), PV_TCP_CLOSE_WAIT);
			CHECK_EQ(tcp_read(&w, b, got, 100), 8);
			CHECK_EQ(tcp_read(&w, b, got, 100), 0);
			for (uint32_t i = 0; i < 10000 && read < sizeof(data); i++) {
				while (sent < sizeof(data) && (rc = tcp_write(&w, b, data + sent, sizeof(data) - sent)) > 0)
					sent += (uint32_t)rc;
				world_run(&w, 5 * PV_NS_PER_MS);
				while ((rc = tcp_read(&w, a, got + read, sizeof(got) - read)) > 0)
					read += (uint32_t)rc;
			}
			CHECK_EQ(read, sizeof(data));
			CHECK(!memcmp(data, got, sizeof(data)));
			CHECK_EQ(tcp_read(&w, a, got, 1), -EAGAIN);
			CHECK_EQ(pv_tcp_shutdown(b, 2, w.now), 0);
			world_run(&w, 100 * PV_NS_PER_MS);
			CHECK_EQ(tcp_read(&w, a, got, 1), 0);
			CHECK_EQ(pv_tcp_state(b), PV_TCP_CLOSED);
			CHECK_EQ(pv_tcp_count(w.host[closer].tcp, PV_TCP_TIME_WAIT), 1);
			pv_tcp_close(a, w.now);
			pv_tcp_close(b, w.now);
			tcp_fade(&w);
			world_close(&w);
		}
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
