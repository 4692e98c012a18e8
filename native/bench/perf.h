/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client and a server that measure as sockperf does, with its messages, its options and its figures, so that either may be sockperf
 * itself: ping-pong, under-load, throughput, playback, over one or many sockets of the engine or of the kernel by the same code.
 *
 *   perf_options.c                the command line
 *   perf_file.c                   files of endpoints, and of traffic to be played
 *   perf_msg.c                    messages, streams of them, payloads that can be checked
 *   perf_socket.c                 sockets as the options want them
 *   perf_client.c, perf_modes.c   what came back; what is sent, and when
 *   perf_server.c                 who is answered
 *   perf_report.c                 figures and logs
 *   perf_kernel.c, perf_engine.c, perf_wait.c   the calls of a transport
 */
#ifndef BENCH_PERF_H
#define BENCH_PERF_H

#include <errno.h>
#include <sys/types.h>

#include "bench/bench.h"

#define PERF_SOCKS_MAX 1000u /* select(2) takes fds below 1024 */
#define PERF_UDP_MAX 65507u
#define PERF_MSG_MAX ((1u << 20) - 1) /* sockperf's limit over TCP */
#define PERF_BATCH 32u
/* A call that waits comes back after so long at the latest, to look whether it is time to stop. */
#define PERF_LOOK_NS (50 * PV_NS_PER_MS)

/* ---- options ----------------------------------------------------------------------------------------------------------- */

enum perf_mode { PERF_PING_PONG, PERF_UNDER_LOAD, PERF_THROUGHPUT, PERF_PLAYBACK, PERF_SERVER };
enum perf_style { PERF_RECVFROM, PERF_RECV_BATCH, PERF_SELECT, PERF_POLL, PERF_EPOLL };

/* Where a server listens and a client sends to. */
struct perf_end {
	struct sockaddr_storage addr;
	struct sockaddr_storage source; /* of a group: the only one wanted; family 0: any */
	bool tcp;
};

/* One message of a played file. */
struct perf_play {
	double at_s; /* after the first one's zero */
	uint32_t size;
};

/* All zeros: what the routes say. */
struct perf_interface {
	struct in_addr addr; /* IPv4 only */
	uint32_t index;
};

struct perf_opts {
	enum perf_mode mode;
	enum perf_style style;
	struct perf_end *ends;
	uint32_t n_ends;
	struct perf_play *plays;
	uint32_t n_plays;
	bool block; /* sleep in a receive; else poll */
	bool connect; /* UDP clients: connected sockets */
	bool integrity; /* replies are compared with what was sent */
	bool full_rtt; /* latencies are round trips; else half of them */
	bool nagle_switch; /* TCP_NODELAY the other way round */
	bool unicast_reply, dont_reply, group_loop, histogram;
	double seconds, mps; /* mps 0: as many as go */
	double warmup_s, cooldown_s; /* not in the figures: tx time from the start, to the end */
	uint32_t size, range, burst, reply_every;
	uint32_t rate_limit; /* bytes a second, 0: none */
	uint32_t buffer; /* bytes of SO_RCVBUF and SO_SNDBUF, 0: the system's */
	uint32_t group_ttl;
	struct perf_interface group_rx, group_tx; /* where a group is joined, where messages to it leave */
	uint32_t cpu, sender_cpu, receiver_cpu; /* UINT32_MAX: any */
	const char *transport, *interfaces, *full_log;
	struct sockaddr_storage local; /* of a client, family 0: any */
};

/* 0; 1 when it has said what is wrong; 2 for a command line that is none. The arrays in it stay until the program ends. */
int perf_parse(int argc, char **argv, struct perf_opts *o);
extern const char perf_usage[];

/* Files as text: how many entries, which are allocated, or -EINVAL with the line's number in *line, -ENOMEM. */
int perf_parse_ends(const char *text, struct perf_end **out, uint32_t *line);
int perf_parse_plays(const char *text, struct perf_play **out, uint32_t *line);
/* One line of such a file: "[T:|U:]ADDR:PORT[:SOURCE]", an IPv6 address in brackets. -EINVAL. */
int perf_parse_end(const char *text, struct perf_end *out);
bool perf_is_group(const struct sockaddr_storage *a);

/* ---- messages ---------------------------------------------------------------------------------------------------------- */

/* A stream of messages: bytes are read into [tail, size), whole messages taken from `head`. */
struct perf_stream {
	uint8_t *buf;
	uint32_t size, head, tail;
};

/* Room for the rest of the message at the head, and for some bytes at least: where and *n. NULL: no memory. */
uint8_t *perf_stream_room(struct perf_stream *s, uint32_t *n);
/* The next whole message: 1, 0 (not there yet), -EBADMSG: no length that a message has. */
int perf_stream_next(struct perf_stream *s, uint8_t **msg, uint32_t *len);
void perf_stream_fini(struct perf_stream *s);

/* Length of a message that is a datagram of `n` bytes; 0 when it is none. */
uint32_t perf_datagram(const uint8_t *m, size_t n);

enum perf_verdict {
	PERF_IGNORED, /* not from a client */
	PERF_WARMUP, /* neither counted nor answered */
	PERF_COUNTED,
	PERF_ANSWER /* counted, and turned into its answer in place */
};
enum perf_verdict perf_judge(uint8_t *m);

/* Bytes after the header that follow from the sequence number, and whether they do. */
void perf_fill(uint8_t *m, uint64_t seq, uint32_t len);
bool perf_intact(const uint8_t *m, uint64_t seq, uint32_t len);

/* ---- transports -------------------------------------------------------------------------------------------------------- */

/* An fd, or a handle's address. */
typedef intptr_t perf_t;

struct perf_in {
	uint8_t *base;
	uint32_t len;
	struct sockaddr_storage from;
};

/*
 * Results are >= 0 or -errno. `wait`: sleeps or polls as the options say, for PERF_LOOK_NS or until a signal, then -EAGAIN or -EINTR; a
 * kernel socket that is polled does not wait at all. `to`, `from` may be NULL.
 */
struct perf_ops {
	int (*start)(const struct perf_opts *o);
	int (*open)(int family, bool tcp, perf_t *out);
	void (*close)(perf_t s);
	int (*setopt)(perf_t s, int level, int name, const void *p, socklen_t len);
	int (*bind)(perf_t s, const struct sockaddr_storage *at);
	int (*connect)(perf_t s, const struct sockaddr_storage *to);
	int (*listen)(perf_t s);
	int (*accept)(perf_t s, bool wait, perf_t *out);
	ssize_t (*send)(perf_t s, const void *p, size_t n, const struct sockaddr_storage *to, bool wait);
	ssize_t (*recv)(perf_t s, void *p, size_t n, struct sockaddr_storage *from, bool wait);
	/* Up to PERF_BATCH datagrams, which are there until the next call. */
	int (*recv_batch)(perf_t s, struct perf_in *in, bool wait);
	/* Sockets under numbers below PERF_SOCKS_MAX, and those that have something to read, with the style of the options. */
	int (*watch)(perf_t s, uint32_t number);
	void (*unwatch)(perf_t s, uint32_t number);
	int (*ready)(uint32_t *numbers, bool wait);
	/* Whether it is the engine's; else why not. */
	bool (*offloaded)(perf_t s, char *why, size_t size);
};
extern const struct perf_ops perf_kernel, perf_engine;

/* The same for fds, whosever they are: select, poll or epoll of the kernel. */
int perf_wait_open(enum perf_style style);
int perf_wait_add(int fd, uint32_t number);
void perf_wait_del(int fd, uint32_t number);
int perf_wait(uint32_t *numbers, bool wait);

/* A signal every PERF_LOOK_NS, which ends a blocking receive: a timeout on the socket would have a timer in every measurement. */
void perf_tick_start(void);

/* ---- sockets ----------------------------------------------------------------------------------------------------------- */

struct perf_sock {
	perf_t h;
	const struct perf_end *end;
	bool open, tcp, listener, group;
	bool fresh; /* a connection from which nothing came yet */
	uint32_t number;
	struct perf_stream in; /* TCP */
};

/* A client's or a server's socket for `end`: options, bound or connected. 0, or 1 and it was said what is wrong. */
int perf_sock_open(struct perf_sock *s, const struct perf_opts *o, const struct perf_ops *ops, const struct perf_end *end);
/* TCP_NODELAY as the options want it. */
int perf_sock_nodelay(perf_t h, const struct perf_opts *o, const struct perf_ops *ops);
void perf_sock_close(struct perf_sock *s, const struct perf_ops *ops);

pv_inline bool perf_later(ssize_t rc)
{
	/* A refusal tells of an earlier message. */
	return rc == -EAGAIN || rc == -EINTR || rc == -ECONNREFUSED || rc == -ENOBUFS;
}

/* ---- the two programs -------------------------------------------------------------------------------------------------- */

int perf_client(const struct perf_opts *o, const struct perf_ops *ops);
int perf_server(const struct perf_opts *o, const struct perf_ops *ops);
int bench_perf(int argc, char **argv);

#endif
