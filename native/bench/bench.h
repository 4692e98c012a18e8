/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measuring program behind `pyvma bench`: one process is the server, another the client, both pinned, over one of three
 * transports (a raw ring: verbs or AF_XDP; pyvma.h; kernel sockets). Messages have sockperf's format, so that sockperf may be the peer over sockets.
 *
 * Every process prints one JSON object at its end; a server also prints one line when it is ready.
 */
#ifndef BENCH_H
#define BENCH_H

#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/compiler.h"

enum bench_role { ROLE_SERVER, ROLE_PING_PONG, ROLE_THROUGHPUT, ROLE_PACED, ROLE_MIXED };

#define BENCH_BATCH_MAX 64u
#define BENCH_SIZE_MAX 65536u
/* A reply that has not come by then is lost. Long, because a busy host may not run a process for a tenth of that. */
#define BENCH_LOST_NS PV_NS_PER_S

struct bench_opts {
	enum bench_role role;
	double seconds;
	uint32_t size; /* message, header included */
	uint32_t batch; /* messages sent or taken in one call; 1: the calls for one message */
	uint32_t window; /* throughput: messages under way at most; 0: send blindly, as sockperf */
	uint32_t reply_every; /* throughput: every so many messages one asks for a reply, which moves the window */
	uint32_t gap_us; /* paced: between two messages; mixed: between two requests, 0: none */
	uint32_t chunk; /* mixed: bytes of the bulk stream in one call, 0: no such stream */
	uint32_t rules; /* how many at once */
	uint32_t connections; /* load */
	bool http; /* load: HTTP requests instead of messages */
	bool mixed; /* requests beside a bulk stream, each on a connection of its own */
	bool tcp; /* one connection instead of datagrams */
	bool block; /* wait in the kernel or engine instead of polling from here */
	bool histogram; /* the report has all of the latencies, too */
	struct sockaddr_storage local, remote; /* family 0: not given. A server with a remote is connected to it */
	const char *interfaces, *preset; /* pyvma: the settings */
	/* raw */
	const char *library,
	    *device; /* device: "FABRIC/PORT" of the software NIC, an RDMA device's name; libraries "xdp" and "tap": an interface */
	uint8_t peer_mac[6];
};

pv_inline socklen_t bench_addr_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* ---- time -------------------------------------------------------------------------------------------------------------- */

int64_t bench_now_ns(void);

/* Cheap counter of constant rate; its unit is only known once the program has run a while (bench_tick_ns). */
pv_inline uint64_t bench_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
	return v;
#else
	return (uint64_t)bench_now_ns();
#endif
}

void bench_clock_start(void);
/* Nanoseconds a tick, measured from bench_clock_start on; waits until 10 ms have passed since. */
double bench_tick_ns(void);

/* ---- histogram --------------------------------------------------------------------------------------------------------- */

/* Log-linear: 256 steps an octave, so a value is off by 0.4 % at most; values below 512 are exact. */
#define HIST_BITS 8u
#define HIST_OCTAVES 34u
#define HIST_SLOTS ((HIST_OCTAVES + 1) << HIST_BITS)

struct hist {
	uint64_t slot[HIST_SLOTS];
	uint64_t count, min, max;
	double sum, sum_sq;
};

void hist_init(struct hist *h);
/* The middle of a slot. */
double hist_value(uint32_t slot);
/* Value below which a part `q` (0..1) of the observations lies: the middle of its slot; 0 when there are none. */
double hist_quantile(const struct hist *h, double q);

pv_inline uint32_t hist_slot(uint64_t v)
{
	uint32_t top, slot;

	if (v < 2u << HIST_BITS)
		return (uint32_t)v;
	top = 63u - (uint32_t)__builtin_clzll(v);
	slot = ((top - HIST_BITS + 1) << HIST_BITS) + (uint32_t)((v >> (top - HIST_BITS)) & ((1u << HIST_BITS) - 1));
	return PV_MIN(slot, HIST_SLOTS - 1);
}

pv_inline void hist_add(struct hist *h, uint64_t v)
{
	h->slot[hist_slot(v)]++;
	h->count++;
	h->min = PV_MIN(h->min, v);
	h->max = PV_MAX(h->max, v);
	h->sum += (double)v;
	h->sum_sq += (double)v * (double)v;
}

/* ---- messages ---------------------------------------------------------------------------------------------------------- */

/* sockperf's header: sequence number (64 bits), flags (16), length of the whole message (32), big-endian. */
#define MSG_HLEN 14u
#define MSG_CLIENT 1u
#define MSG_PONG 2u /* a reply is asked for; the server answers with CLIENT cleared */
#define MSG_WARMUP 4u /* not counted */
#define MSG_STAMP 8u /* ours: bench_now_ns() of the sender follows the header */
#define MSG_STAMP_LEN (MSG_HLEN + 8u)

pv_inline uint64_t msg_seq(const uint8_t *m)
{
	uint64_t v;

	memcpy(&v, m, sizeof(v));
	return __builtin_bswap64(v);
}

pv_inline void msg_put(uint8_t *m, uint64_t seq, uint16_t flags, uint32_t len)
{
	seq = __builtin_bswap64(seq);
	memcpy(m, &seq, sizeof(seq));
	pv_put16(m + 8, flags);
	pv_put32(m + 10, len);
}

/* What became of a sequence of messages: each position of a window remembers whether it came. */
#define SEEN_WINDOW 65536u

struct seen {
	uint64_t next; /* one past the highest so far */
	uint64_t first;
	uint64_t unique, duplicated, reordered;
	uint64_t old_lost; /* of earlier clients of the same server */
	uint8_t here[SEEN_WINDOW];
};

void seen_init(struct seen *s);
void seen_restart(struct seen *s); /* the next client begins with 1 */
void seen_other(struct seen *s, uint64_t seq); /* anything but the next number */
void seen_late(struct seen *s, uint64_t seq); /* the same at a server: 1 may be a new client's */

pv_inline void seen_add(struct seen *s, uint64_t seq)
{
	if (pv_unlikely(seq != s->next)) {
		seen_late(s, seq);
		return;
	}
	s->here[seq % SEEN_WINDOW] = 1;
	s->next = seq + 1;
	s->unique++;
}

uint64_t seen_lost(const struct seen *s); /* holes up to the highest */

/* ---- runs -------------------------------------------------------------------------------------------------------------- */

struct bench_result {
	uint64_t sent, received; /* messages; received: replies at a client, messages at a server */
	uint64_t lost; /* client: replies that never came */
	uint64_t timeouts;
	uint64_t bytes; /* mixed: of the bulk stream */
	uint64_t start, end; /* ticks of the first and the last message */
	struct seen seen;
	struct hist rtt; /* round trips, ticks */
	struct hist wake; /* server: from a stamp to here, ns */
};

/* Set by SIGINT and SIGTERM. */
extern volatile sig_atomic_t bench_stop;
/* From now on a call that sleeps ends with EINTR twenty times a second, to see whether it has waited long enough. A time-out of the call's own
 * would have its timer in every measurement. */
void bench_tick(void);

/* A server's line when it is up. `mac`: raw only, else NULL. */
void bench_ready(const struct bench_opts *o, const uint8_t *mac);

/* Each runs the role to its end; 0 or 1 with a line on stderr. */
int bench_run_raw(const struct bench_opts *o, struct bench_result *r);
int bench_run_xdp(const struct bench_opts *o, struct bench_result *r);
int bench_run_tap(const struct bench_opts *o, struct bench_result *r);
int bench_run_engine(const struct bench_opts *o, struct bench_result *r);
int bench_run_kernel(const struct bench_opts *o, struct bench_result *r);
int bench_run_engine_tcp(const struct bench_opts *o, struct bench_result *r);
int bench_run_kernel_tcp(const struct bench_opts *o, struct bench_result *r);

/* One cache line between two CPUs: half round trips in nanoseconds to stdout. */
int bench_line(int cpu_a, int cpu_b, double seconds);
/* What an engine with a socket that nobody talks to costs: resident memory and CPU time. */
int bench_idle(const struct bench_opts *o);
/* How many steering rules an AF_XDP ring adds and deletes in a second. */
int bench_rules(const struct bench_opts *o);

void bench_report(const struct bench_opts *o, const struct bench_result *r);
/* Members of a JSON object, each after a comma, their names after `prefix`: what a message took, of a histogram with so many us a unit. */
void bench_print_latency(const char *prefix, const struct hist *h, double us);
/* Pairs of nanoseconds, the middle of a slot, and how many there were; the shortest first. `ns`: those of a unit. */
void bench_print_histogram(const char *prefix, const struct hist *h, double ns);
int bench_fail(const char *what, int rc); /* prints, returns 1 */
/* The engine with the interfaces asked for; it never sleeps unless `block`. 0, or 1 and it was printed why not. */
int bench_engine_start(const struct bench_opts *o, bool block);
int bench_pin(int cpu);

/* Values of a command line: 0, or -1. "ADDR:PORT", an IPv6 address in brackets; a whole number of lo..hi; a time above 0. */
int bench_parse_addr(const char *text, struct sockaddr_storage *out);
int bench_parse_num(const char *text, unsigned long lo, unsigned long hi, uint32_t *out);
int bench_parse_seconds(const char *text, double *out);

#endif
