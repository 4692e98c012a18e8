/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of client and server, and the files it names. */
#include "bench/perf.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <net/if.h>
#include <stdlib.h>

/* sockperf's 400 ms and 50 ms, of runs of a second and longer; as much of a shorter one. */
#define WARMUP_S 0.4
#define COOLDOWN_S 0.05

const char perf_usage[] =
    "usage: pyvma-bench client --mode ping-pong|under-load|throughput|playback --end [T:|U:]ADDR:PORT [options]\n"
    "       pyvma-bench serve --end [T:|U:]ADDR:PORT [options]\n"
    "  --end ...  --file FILE   endpoints, TCP or UDP, one or many; of a group [:SOURCE] may follow\n"
    "  --transport pyvma|kernel  --interfaces SPEC  --block  --cpu N  --sender-affinity N  --receiver-affinity N\n"
    "  --style recvfrom|recv_batch|select|poll|epoll   default: recvfrom for one endpoint, epoll for many\n"
    "  --seconds S (1)  --size BYTES (64)  --range BYTES  --burst N (1)  --reply-every N (100)  --mps N|max  --data-file FILE\n"
    "  --warmup-ms N (400)  --cooldown-ms N (50)  --full-rtt  --full-log FILE  --histogram  --data-integrity\n"
    "  --connect  --local ADDR:PORT  --rate-limit BYTES/S  --buffer-size BYTES  --tcp-avoid-nodelay\n"
    "  --mc-rx-if, --mc-tx-if ADDR|IFNAME  --mc-ttl N (2)  --mc-loopback-enable  --force-unicast-reply  --dont-reply\n";

enum {
	O_MODE = 1,
	O_END,
	O_FILE,
	O_TRANSPORT,
	O_INTERFACES,
	O_BLOCK,
	O_CPU,
	O_SENDER,
	O_RECEIVER,
	O_STYLE,
	O_SECONDS,
	O_SIZE,
	O_RANGE,
	O_BURST,
	O_REPLY_EVERY,
	O_MPS,
	O_DATA_FILE,
	O_WARMUP,
	O_COOLDOWN,
	O_FULL_RTT,
	O_FULL_LOG,
	O_HISTOGRAM,
	O_INTEGRITY,
	O_CONNECT,
	O_LOCAL,
	O_RATE_LIMIT,
	O_BUFFER,
	O_NODELAY,
	O_MC_RX,
	O_MC_TX,
	O_MC_TTL,
	O_MC_LOOP,
	O_UNICAST,
	O_DONT_REPLY
};

static const struct option options[] = {
	{ "mode", 1, NULL, O_MODE },
	{ "end", 1, NULL, O_END },
	{ "file", 1, NULL, O_FILE },
	{ "transport", 1, NULL, O_TRANSPORT },
	{ "interfaces", 1, NULL, O_INTERFACES },
	{ "block", 0, NULL, O_BLOCK },
	{ "cpu", 1, NULL, O_CPU },
	{ "sender-affinity", 1, NULL, O_SENDER },
	{ "receiver-affinity", 1, NULL, O_RECEIVER },
	{ "style", 1, NULL, O_STYLE },
	{ "seconds", 1, NULL, O_SECONDS },
	{ "size", 1, NULL, O_SIZE },
	{ "range", 1, NULL, O_RANGE },
	{ "burst", 1, NULL, O_BURST },
	{ "reply-every", 1, NULL, O_REPLY_EVERY },
	{ "mps", 1, NULL, O_MPS },
	{ "data-file", 1, NULL, O_DATA_FILE },
	{ "warmup-ms", 1, NULL, O_WARMUP },
	{ "cooldown-ms", 1, NULL, O_COOLDOWN },
	{ "full-rtt", 0, NULL, O_FULL_RTT },
	{ "full-log", 1, NULL, O_FULL_LOG },
	{ "histogram", 0, NULL, O_HISTOGRAM },
	{ "data-integrity", 0, NULL, O_INTEGRITY },
	{ "connect", 0, NULL, O_CONNECT },
	{ "local", 1, NULL, O_LOCAL },
	{ "rate-limit", 1, NULL, O_RATE_LIMIT },
	{ "buffer-size", 1, NULL, O_BUFFER },
	{ "tcp-avoid-nodelay", 0, NULL, O_NODELAY },
	{ "mc-rx-if", 1, NULL, O_MC_RX },
	{ "mc-tx-if", 1, NULL, O_MC_TX },
	{ "mc-ttl", 1, NULL, O_MC_TTL },
	{ "mc-loopback-enable", 0, NULL, O_MC_LOOP },
	{ "force-unicast-reply", 0, NULL, O_UNICAST },
	{ "dont-reply", 0, NULL, O_DONT_REPLY },
	{ NULL, 0, NULL, 0 },
};

static int parse_name(const char *text, const char *const *names, uint32_t n, uint32_t *out)
{
	for (*out = 0; *out < n; (*out)++)
		if (!strcmp(text, names[*out]))
			return 0;
	return -1;
}

/* A message every 10 us at most would be a limit of this program's clock, not of the network: none of it up to 100 million. */
static int parse_mps(const char *text, double *out)
{
	uint32_t n = 0;
	int rc = strcmp(text, "max") ? bench_parse_num(text, 1, 100000000, &n) : 0;

	*out = n;
	return rc;
}

static int parse_interface(const char *text, struct perf_interface *out)
{
	if (inet_pton(AF_INET, text, &out->addr) == 1)
		return 0;
	out->addr.s_addr = 0;
	out->index = if_nametoindex(text);
	return out->index ? 0 : -1;
}

static int parse_ms(const char *text, double *out)
{
	uint32_t ms = 0;
	int rc = bench_parse_num(text, 0, 3600000, &ms);

	*out = ms / 1e3;
	return rc;
}

static int add_end(const char *text, struct perf_opts *o)
{
	struct perf_end *list = realloc(o->ends, (o->n_ends + 1) * sizeof(*list));

	if (!list)
		return -1;
	o->ends = list;
	return o->n_ends < PERF_SOCKS_MAX && !perf_parse_end(text, &list[o->n_ends++]) ? 0 : -1;
}

/* The whole of it, ended by a zero; NULL and it was said why. */
static char *read_file(const char *name)
{
	FILE *f = fopen(name, "re");
	size_t have = 0, size = 0, n;
	char *text = NULL;

	while (f) {
		char *more = realloc(text, size = 2 * size + 65536);

		if (!more)
			break;
		text = more;
		n = fread(text + have, 1, size - have - 1, f);
		have += n;
		if (have < size - 1)
			break;
	}
	if (!f || !text || ferror(f)) {
		fprintf(stderr, "pyvma-bench: %s: %s\n", name, f ? "cannot be read" : strerror(errno));
		free(text);
		text = NULL;
	} else {
		text[have] = '\0';
	}
	if (f)
		fclose(f);
	return text;
}

static int read_list(const char *name, struct perf_opts *o, bool ends)
{
	char *text = read_file(name);
	uint32_t line = 0;
	int n;

	if (!text)
		return 1;
	n = ends ? perf_parse_ends(text, &o->ends, &line) : perf_parse_plays(text, &o->plays, &line);
	free(text);
	if (n <= 0) {
		fprintf(stderr, "pyvma-bench: %s: %s", name, n ? "line " : "says nothing\n");
		if (n)
			fprintf(stderr, "%u is no %s\n", line,
				ends ? "[T:|U:]ADDR:PORT" : "\"SECONDS, BYTES\", with seconds that do not go back");
		return 1;
	}
	*(ends ? &o->n_ends : &o->n_plays) = (uint32_t)n;
	return 0;
}

static int parse_figures(int c, const char *v, struct perf_opts *o)
{
	switch (c) {
	case O_SECONDS:
		return bench_parse_seconds(v, &o->seconds);
	case O_SIZE:
		return bench_parse_num(v, MSG_HLEN, PERF_MSG_MAX, &o->size);
	case O_RANGE:
		return bench_parse_num(v, 0, PERF_MSG_MAX, &o->range);
	case O_BURST:
		return bench_parse_num(v, 1, 100000, &o->burst);
	case O_REPLY_EVERY:
		return bench_parse_num(v, 1, 1000000000, &o->reply_every);
	case O_MPS:
		return parse_mps(v, &o->mps);
	case O_WARMUP:
		return parse_ms(v, &o->warmup_s);
	case O_COOLDOWN:
		return parse_ms(v, &o->cooldown_s);
	case O_RATE_LIMIT:
		return bench_parse_num(v, 1, UINT32_MAX - 1, &o->rate_limit);
	case O_BUFFER:
		return bench_parse_num(v, 1, INT32_MAX, &o->buffer);
	case O_MC_TTL:
		return bench_parse_num(v, 0, 255, &o->group_ttl);
	case O_CPU:
		return bench_parse_num(v, 0, 1023, &o->cpu);
	case O_SENDER:
		return bench_parse_num(v, 0, 1023, &o->sender_cpu);
	case O_RECEIVER:
		return bench_parse_num(v, 0, 1023, &o->receiver_cpu);
	default:
		return -1;
	}
}

static int parse_text(int c, const char *v, struct perf_opts *o)
{
	static const char *const modes[] = { "ping-pong", "under-load", "throughput", "playback" };
	static const char *const styles[] = { "recvfrom", "recv_batch", "select", "poll", "epoll" };
	uint32_t at;

	switch (c) {
	case O_MODE:
		if (parse_name(v, modes, pv_array_size(modes), &at))
			return -1;
		o->mode = (enum perf_mode)at;
		return 0;
	case O_STYLE:
		if (parse_name(v, styles, pv_array_size(styles), &at))
			return -1;
		o->style = (enum perf_style)at;
		return 0;
	case O_END:
		return add_end(v, o);
	case O_LOCAL:
		return bench_parse_addr(v, &o->local);
	case O_MC_RX:
		return parse_interface(v, &o->group_rx);
	case O_MC_TX:
		return parse_interface(v, &o->group_tx);
	case O_TRANSPORT:
		o->transport = v;
		return strcmp(v, "pyvma") && strcmp(v, "kernel") ? -1 : 0;
	case O_INTERFACES:
		o->interfaces = v;
		return 0;
	case O_FULL_LOG:
		o->full_log = v;
		return 0;
	default:
		return parse_figures(c, v, o);
	}
}

static bool *flag(int c, struct perf_opts *o)
{
	switch (c) {
	case O_BLOCK:
		return &o->block;
	case O_FULL_RTT:
		return &o->full_rtt;
	case O_HISTOGRAM:
		return &o->histogram;
	case O_INTEGRITY:
		return &o->integrity;
	case O_CONNECT:
		return &o->connect;
	case O_NODELAY:
		return &o->nagle_switch;
	case O_MC_LOOP:
		return &o->group_loop;
	case O_UNICAST:
		return &o->unicast_reply;
	case O_DONT_REPLY:
		return &o->dont_reply;
	default:
		return NULL;
	}
}

static int check_size(const struct perf_opts *o)
{
	uint32_t most = o->size + o->range;

	for (uint32_t i = 0; i < o->n_plays; i++)
		most = PV_MAX(most, o->plays[i].size);
	for (uint32_t i = 0; i < o->n_ends; i++)
		if (!o->ends[i].tcp && most > PERF_UDP_MAX)
			return bench_fail("--size: a datagram has 65507 bytes at most", 0);
	return most > PERF_MSG_MAX ? bench_fail("--size: a message has 1048575 bytes at most", 0) : 0;
}

/* What was not given, and what does not go together. */
static int complete(struct perf_opts *o, bool server)
{
	if (server)
		o->mode = PERF_SERVER;
	if (!o->n_ends)
		return bench_fail("--end or --file is needed", 0);
	if ((int)o->style < 0)
		o->style = o->n_ends == 1 ? PERF_RECVFROM : PERF_EPOLL;
	if (o->mps < 0)
		o->mps = o->mode == PERF_UNDER_LOAD ? 10000 : 0;
	if (o->mode == PERF_PING_PONG || o->mode == PERF_THROUGHPUT)
		o->reply_every = o->mode == PERF_PING_PONG;
	if (o->mode == PERF_PLAYBACK && !o->n_plays)
		return bench_fail("playback: --data-file is needed", 0);
	/* All of a file counts, and of throughput, as in sockperf, if nothing else was said. */
	if (o->warmup_s < 0)
		o->warmup_s = o->mode == PERF_THROUGHPUT ? 0 : PV_MIN(WARMUP_S, 0.4 * o->seconds);
	if (o->cooldown_s < 0)
		o->cooldown_s = o->mode == PERF_THROUGHPUT ? 0 : PV_MIN(COOLDOWN_S, 0.05 * o->seconds);
	if (o->mode == PERF_PLAYBACK || o->mode == PERF_SERVER)
		o->warmup_s = o->cooldown_s = 0;
	else if (o->warmup_s + o->cooldown_s >= o->seconds)
		return bench_fail("--seconds: nothing is left between warm-up and cool-down", 0);
	return check_size(o);
}

int perf_parse(int argc, char **argv, struct perf_opts *o)
{
	const char *ends = NULL, *plays = NULL;
	int c, at = 0;

	*o = (struct perf_opts){ .style = (enum perf_style) - 1,
				 .transport = "kernel",
				 .seconds = 1,
				 .size = 64,
				 .burst = 1,
				 .reply_every = 100,
				 .mps = -1,
				 .warmup_s = -1,
				 .cooldown_s = -1,
				 .group_ttl = 2,
				 .cpu = UINT32_MAX,
				 .sender_cpu = UINT32_MAX,
				 .receiver_cpu = UINT32_MAX };
	while ((c = getopt_long(argc, argv, "", options, &at)) != -1) {
		bool *on = flag(c, o);

		if (c == '?')
			return 2;
		if (on) {
			*on = true;
		} else if (c == O_FILE) {
			ends = optarg;
		} else if (c == O_DATA_FILE) {
			plays = optarg;
		} else if (parse_text(c, optarg, o)) {
			fprintf(stderr, "pyvma-bench: --%s: bad value \"%s\"\n", options[at].name, optarg);
			return 1;
		}
	}
	if (optind != argc - 1 || (ends && o->n_ends))
		return 2;
	if ((ends && read_list(ends, o, true)) || (plays && read_list(plays, o, false)))
		return 1;
	return complete(o, !strcmp(argv[optind], "serve"));
}

int bench_perf(int argc, char **argv)
{
	static struct perf_opts o;
	const struct perf_ops *ops;
	int rc = perf_parse(argc, argv, &o);

	if (rc == 2)
		fputs(perf_usage, stderr);
	if (rc)
		return rc;
	if (bench_pin((int)o.cpu))
		return 1;
	ops = strcmp(o.transport, "pyvma") ? &perf_kernel : &perf_engine;
	if (ops->start(&o))
		return 1;
	return o.mode == PERF_SERVER ? perf_server(&o, ops) : perf_client(&o, ops);
}
