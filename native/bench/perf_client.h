/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client's run. Messages are numbered from 1 through all its sockets; every `reply_every`-th asks for a reply: that is request
 * number / reply_every. What was sent when is kept for the last PERF_REQUESTS of them.
 *
 * One thread sends and receives, but where receives sleep and messages leave by the clock: there a second one sends, as in sockperf.
 */
#ifndef BENCH_PERF_CLIENT_H
#define BENCH_PERF_CLIENT_H

#include "bench/perf.h"

#define PERF_REQUESTS (UINT64_C(1) << 18)

struct perf_request {
	uint64_t id; /* 0: none */
	uint64_t tx, intended; /* ticks: before the call that sent it; when it was due */
};

struct perf_times {
	uint64_t tx, rx;
};

struct perf_client {
	const struct perf_opts *o;
	const struct perf_ops *ops;
	struct perf_sock *sock;
	uint32_t n;
	double tick_ns;
	/* Ticks: of the whole run; of messages that are in the figures. */
	uint64_t start, stop, ended, valid_from, valid_to;
	/* Who sends. */
	uint64_t seq, requested, valid_sent, valid_requested, refused;
	uint64_t due; /* ticks of the next message, if there is a rate */
	double due_part, cycle; /* the fraction of it; ticks between two bursts, 0: none */
	uint64_t random;
	uint8_t *out;
	bool two_threads, sent_all;
	int failed; /* -errno of the sender */
	/* Who receives. */
	struct perf_request *request;
	struct seen seen;
	struct hist rtt, from_due;
	uint64_t received, valid_received, bad, corrupt, timeouts, acks;
	uint8_t *in;
	struct perf_times *log;
	uint64_t logged, log_size;
};

/* Sends the messages of the mode; 0 or -errno. */
int perf_run_mode(struct perf_client *c);
/* Takes what is there, or waits for something: how many replies, 0, -errno. */
int perf_take(struct perf_client *c, bool wait);
/* Message c->seq + 1 by socket `k`, due then. 0 or -errno. */
int perf_send(struct perf_client *c, uint32_t k, uint32_t size, uint64_t due);
/* A message beside those: with that number and those flags. */
int perf_send_plain(struct perf_client *c, uint32_t k, uint64_t seq, uint16_t flags);
/* Ticks that so many nanoseconds have. */
uint64_t perf_ticks(const struct perf_client *c, double ns);

/* Prints the result, writes the log; 0 or 1. */
int perf_report(const struct perf_client *c);

#endif
