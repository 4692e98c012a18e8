/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, streams of them, and files as the sockperf-style client and server read them. */
#include "bench/perf.h"

#include <arpa/inet.h>

#include "base/rng.h"
#include "test.h"

TEST(what_a_datagram_is)
{
	uint8_t m[64] = { 0 };

	msg_put(m, 7, MSG_CLIENT | MSG_PONG, 64);
	CHECK_EQ(perf_datagram(m, 64), 64);
	/* Cut off, and with something behind it. */
	CHECK_EQ(perf_datagram(m, 63), 0);
	msg_put(m, 7, MSG_CLIENT, 63);
	CHECK_EQ(perf_datagram(m, 64), 0);
	msg_put(m, 7, MSG_CLIENT, MSG_HLEN);
	CHECK_EQ(perf_datagram(m, MSG_HLEN), MSG_HLEN);
	for (size_t n = 0; n < MSG_HLEN; n++) {
		msg_put(m, 7, MSG_CLIENT, (uint32_t)n);
		CHECK_EQ(perf_datagram(m, n), 0);
	}
}

TEST(who_is_answered)
{
	/* By flags: client, pong, warm-up. */
	static const enum perf_verdict want[8] = { PERF_IGNORED, PERF_COUNTED, PERF_IGNORED, PERF_ANSWER,
						   PERF_IGNORED, PERF_WARMUP,  PERF_IGNORED, PERF_WARMUP };
	uint8_t m[MSG_HLEN];

	for (uint16_t flags = 0; flags < 8; flags++) {
		msg_put(m, 99, flags, MSG_HLEN);
		CHECK_EQ(perf_judge(m), want[flags]);
		/* An answer is the message without the client's flag. */
		CHECK_EQ(pv_get16(m + 8), want[flags] == PERF_ANSWER ? MSG_PONG : flags);
		CHECK_EQ(msg_seq(m), 99);
		CHECK_EQ(pv_get32(m + 10), MSG_HLEN);
	}
}

TEST(payloads_by_number)
{
	static uint8_t m[3000];

	for (uint32_t len = MSG_HLEN; len < 200; len++) {
		memset(m, 0xee, sizeof(m));
		perf_fill(m, len * 7u, len);
		CHECK_EQ(m[len], 0xee);
		CHECK(perf_intact(m, len * 7u, len));
		/* Of a header alone nothing can be wrong. */
		CHECK(len == MSG_HLEN || !perf_intact(m, len * 7u + 1, len));
		for (uint32_t i = MSG_HLEN; i < len; i++) {
			m[i] ^= 4;
			CHECK(!perf_intact(m, len * 7u, len));
			m[i] ^= 4;
		}
	}
}

/* Messages of all lengths, cut into pieces anywhere, come out whole and in order. */
TEST(streams_of_messages)
{
	enum { N = 400 };
	static uint8_t all[N * 40000u];
	struct perf_stream s = { 0 };
	size_t size = 0, at = 0;
	uint64_t next = 1;
	struct pv_rng r;

	pv_rng_seed(&r, 5);
	for (uint64_t seq = 1; seq <= N; seq++) {
		uint32_t len = MSG_HLEN + (uint32_t)pv_rng_below(&r, seq % 10 ? 100 : 39000);

		msg_put(all + size, seq, MSG_CLIENT, len);
		perf_fill(all + size, seq, len);
		size += len;
	}
	while (at < size) {
		uint32_t room, len;
		uint8_t *to = perf_stream_room(&s, &room), *m;
		size_t n = 1 + pv_rng_below(&r, pv_rng_below(&r, 4) ? 30 : 50000);

		CHECK(to && room > 0);
		n = PV_MIN(PV_MIN(n, room), size - at);
		memcpy(to, all + at, n);
		s.tail += (uint32_t)n;
		at += n;
		while (perf_stream_next(&s, &m, &len) > 0) {
			CHECK_EQ(msg_seq(m), next);
			CHECK(perf_intact(m, next, len));
			next++;
		}
	}
	CHECK_EQ(next, N + 1);
	perf_stream_fini(&s);
}

TEST(lengths_that_no_message_has)
{
	static const uint32_t lengths[] = { 0, 1, MSG_HLEN - 1, PERF_MSG_MAX + 1, 0x80000000, 0xffffffff };

	for (size_t i = 0; i < pv_array_size(lengths); i++) {
		struct perf_stream s = { 0 };
		uint32_t room, len;
		uint8_t *m;

		msg_put(perf_stream_room(&s, &room), 1, MSG_CLIENT, lengths[i]);
		s.tail = MSG_HLEN - 1;
		CHECK_EQ(perf_stream_next(&s, &m, &len), 0);
		s.tail = MSG_HLEN;
		CHECK_EQ(perf_stream_next(&s, &m, &len), -EBADMSG);
		/* Nobody asks for gigabytes by that. */
		CHECK(perf_stream_room(&s, &room) != NULL);
		CHECK(s.size <= 2u << 20);
		perf_stream_fini(&s);
	}
}

static bool same(const struct sockaddr_storage *a, const char *host, uint16_t port)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;
	char text[64];

	inet_ntop(a->ss_family, a->ss_family == AF_INET6 ? (const void *)&v6->sin6_addr : &v4->sin_addr, text, sizeof(text));
	return !strcmp(text, host) && v4->sin_port == htons(port);
}

TEST(endpoints)
{
	static const char *const wrong[] = { "",
					     "1.2.3.4",
					     "1.2.3.4:",
					     "1.2.3.4:0",
					     "1.2.3.4:65536",
					     "1.2.3.4:5x",
					     "1.2.3.4:-5",
					     "1.2.3:5",
					     "X:1.2.3.4:5",
					     "T:",
					     "U:host:5",
					     "::1:5",
					     "[::1]5",
					     "[::1:5",
					     "T:224.1.1.1:5",
					     "1.2.3.4:5:6.7.8.9",
					     "224.1.1.1:5:",
					     "224.1.1.1:5:x",
					     "[ff15::1]:5:1.2.3.4" };
	struct perf_end end;

	CHECK_EQ(perf_parse_end("10.1.2.3:11111", &end), 0);
	CHECK(!end.tcp && same(&end.addr, "10.1.2.3", 11111));
	CHECK_EQ(perf_parse_end("T:10.1.2.3:1", &end), 0);
	CHECK(end.tcp && same(&end.addr, "10.1.2.3", 1));
	CHECK_EQ(perf_parse_end("u:[fd00::7]:65535", &end), 0);
	CHECK(!end.tcp && end.addr.ss_family == AF_INET6 && same(&end.addr, "fd00::7", 65535));
	CHECK_EQ(perf_parse_end("U:239.1.1.1:5000:10.0.0.9", &end), 0);
	CHECK(perf_is_group(&end.addr) && end.source.ss_family == AF_INET && same(&end.source, "10.0.0.9", 0));
	CHECK_EQ(perf_parse_end("[ff15::1]:5000:[fd00::9]", &end), 0);
	CHECK(perf_is_group(&end.addr) && end.source.ss_family == AF_INET6);
	for (size_t i = 0; i < pv_array_size(wrong); i++)
		CHECK_EQ(perf_parse_end(wrong[i], &end), -EINVAL);
}

TEST(files_of_endpoints)
{
	struct perf_end *ends;
	char long_line[400];
	uint32_t line;

	CHECK_EQ(perf_parse_ends("# first\n\nT:1.2.3.4:5\r\n  U:1.2.3.4:6  \n1.2.3.4:7", &ends, &line), 3);
	CHECK(ends[0].tcp && !ends[1].tcp && !ends[2].tcp && same(&ends[2].addr, "1.2.3.4", 7));
	free(ends);
	CHECK_EQ(perf_parse_ends("#\n", &ends, &line), 0);
	free(ends);
	CHECK_EQ(perf_parse_ends("1.2.3.4:5\n\nnonsense\n", &ends, &line), -EINVAL);
	CHECK_EQ(line, 3);
	memset(long_line, '1', sizeof(long_line) - 1);
	long_line[sizeof(long_line) - 1] = '\0';
	CHECK_EQ(perf_parse_ends(long_line, &ends, &line), -EINVAL);
}

TEST(files_of_traffic)
{
	static const char *const wrong[] = { "0.1\n",     "0.1,\n",       ",64\n",      "x, 64\n",   "-1, 64\n",
					     "0, 13\n",   "0, 2000000\n", "0, 64 65\n", "nan, 64\n", "0.5, 64\n0.4, 64\n",
					     "1e9, 64\n", "0, -64\n" };
	struct perf_play *plays;
	uint32_t line;

	CHECK_EQ(perf_parse_plays("#time, size\n0.0, 64\n0.001,1472\n 0.001 , 14\n\n1.5, 65507\n", &plays, &line), 4);
	CHECK(plays[0].at_s == 0 && plays[0].size == 64 && plays[1].at_s == 0.001 && plays[1].size == 1472);
	CHECK(plays[2].size == 14 && plays[3].at_s == 1.5 && plays[3].size == 65507);
	free(plays);
	for (size_t i = 0; i < pv_array_size(wrong); i++)
		CHECK_EQ(perf_parse_plays(wrong[i], &plays, &line), -EINVAL);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
