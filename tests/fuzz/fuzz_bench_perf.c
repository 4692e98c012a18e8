/* SPDX-License-Identifier: BSD-3-Clause */
/* What anybody can send to the measuring server, as datagrams and as a stream in any pieces; and files of endpoints and of traffic. */
#include "fuzz.h"

#include <errno.h>

#include "bench/perf.h"

/* A server's step, which writes into the message and nowhere else. */
static void serve(uint8_t *m, uint32_t len)
{
	uint16_t flags = pv_get16(m + 8);
	enum perf_verdict verdict = perf_judge(m);

	REQUIRE(len >= MSG_HLEN && len <= PERF_MSG_MAX);
	REQUIRE((verdict == PERF_ANSWER) == ((flags & 7) == (MSG_CLIENT | MSG_PONG)));
	REQUIRE(verdict == PERF_ANSWER || pv_get16(m + 8) == flags);
	REQUIRE(pv_get32(m + 10) == len);
	(void)perf_intact(m, msg_seq(m), len);
}

static void datagram(struct script *s)
{
	uint8_t m[512];
	uint32_t n = script_bytes(s, m, sizeof(m)), len = perf_datagram(m, n);

	REQUIRE(len == 0 || len == n);
	if (len)
		serve(m, len);
}

static void stream(struct script *s)
{
	struct perf_stream in = { 0 };
	uint64_t given = 0, taken = 0;
	int rc = 0;

	while (s->p < s->end && rc >= 0) {
		uint32_t room, len;
		uint8_t *to = perf_stream_room(&in, &room), *m;
		uint32_t n;

		REQUIRE(to && room && in.size <= 2u << 20);
		n = script_bytes(s, to, PV_MIN(room, 256u));
		in.tail += n;
		given += n;
		while ((rc = perf_stream_next(&in, &m, &len)) > 0) {
			REQUIRE(m >= in.buf && m + len <= in.buf + in.tail);
			taken += len;
			serve(m, len);
		}
		REQUIRE(rc == 0 || rc == -EBADMSG);
		REQUIRE(given - taken == in.tail - in.head);
	}
	perf_stream_fini(&in);
}

static void files(const uint8_t *data, size_t size)
{
	char *text = calloc(1, size + 1);
	struct perf_play *plays = NULL;
	struct perf_end *ends = NULL;
	uint32_t line;
	int n;

	REQUIRE(text);
	memcpy(text, data, size);
	n = perf_parse_ends(text, &ends, &line);
	REQUIRE(n == -EINVAL || n == -ENOMEM || (n >= 0 && n <= (int)PERF_SOCKS_MAX));
	for (int i = 0; i < n; i++)
		REQUIRE(ends[i].addr.ss_family == AF_INET || ends[i].addr.ss_family == AF_INET6);
	free(ends);
	n = perf_parse_plays(text, &plays, &line);
	for (int i = 0; i < n; i++)
		REQUIRE(plays[i].size >= MSG_HLEN && plays[i].size <= PERF_MSG_MAX && plays[i].at_s >= (i ? plays[i - 1].at_s : 0));
	free(plays);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = { data + 1, data + size };

	if (!size)
		return 0;
	if (data[0] % 3 == 0)
		stream(&s);
	else if (data[0] % 3 == 1)
		datagram(&s);
	else
		files(data + 1, size - 1);
	return 0;
}
