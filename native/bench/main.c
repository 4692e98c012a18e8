/* SPDX-License-Identifier: BSD-3-Clause */
/* Options, signals, and which role over which transport. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <sys/time.h>

#include "bench/bench.h"
#include "bench/conns.h"
#include "bench/load.h"
#include "bench/perf.h"

volatile sig_atomic_t bench_stop;

static void on_tick(int sig)
{
	(void)sig;
}

void bench_tick(void)
{
	struct sigaction sa = { .sa_handler = on_tick };
	struct itimerval every = { { 0, 50000 }, { 0, 50000 } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

static const char usage[] =
    "usage: pyvma-bench server|ping-pong|throughput|paced|mixed --transport raw|pyvma|kernel [options]\n"
    "       pyvma-bench client|serve ...   as sockperf: see them\n"
    "       pyvma-bench line --cpu A --cpu2 B [--seconds S]\n"
    "       pyvma-bench idle [--interfaces SPEC] [--local ADDR:PORT] [--seconds S]\n"
    "       pyvma-bench connections --transport pyvma|kernel --local ADDR:PORT | --remote ADDR:PORT   orders: conns.h\n"
    "       pyvma-bench load --transport pyvma|kernel --remote ADDR:PORT [--connections N (64)] [--tcp] [--http] [--seconds S]\n"
    "       pyvma-bench rules --device IFNAME [--rules N (5000)]\n"
    "  --local ADDR:PORT  --remote ADDR:PORT   a server with --remote is connected to it; IPv6 as [ADDR]:PORT\n"
    "  --size BYTES (64)  --seconds S (1)  --batch N (1)  --window N (0: send blindly)  --cpu N\n"
    "  --gap US (1000)    paced: one message after such a pause, stamped, to a server that reports how long it took\n"
    "  --mixed --chunk BYTES (8192)  server, TCP: of a mixed client, whose requests (--size, every --gap us; 0: none) go beside a "
    "bulk\n"
    "                     stream in one engine, CHUNK bytes a call (0: no such stream)\n"
    "  --tcp              one TCP connection with TCP_NODELAY instead of datagrams (pyvma and kernel)\n"
    "  --block            wait in the kernel or asleep in the engine; default: spin\n"
    "  --histogram        all latencies in the report\n"
    "  --interfaces SPEC  --preset NAME   pyvma: the settings of these names\n"
    "  --library PATH --device FABRIC/PORT|NAME --peer-mac MAC   raw\n"
    "                   the software NIC's or the system's libibverbs; --library xdp: AF_XDP, DEVICE is an interface\n"
    "                   --library tap: a TAP device without a ring, server only\n";

static void on_signal(int sig)
{
	(void)sig;
	bench_stop = 1;
}

int bench_parse_addr(const char *text, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
	char host[64];
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	char *end;
	unsigned long port;

	memset(out, 0, sizeof(*out));
	if (!colon || len >= sizeof(host))
		return -1;
	port = strtoul(colon + 1, &end, 10);
	if (!colon[1] || *end || port > 65535)
		return -1;
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		snprintf(host, sizeof(host), "%.*s", (int)len - 2, text + 1);
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 ? 0 : -1;
	}
	snprintf(host, sizeof(host), "%.*s", (int)len, text);
	v4->sin_family = AF_INET;
	v4->sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? 0 : -1;
}

static int parse_mac(const char *text, uint8_t *mac)
{
	unsigned int b[6];
	char rest;

	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &rest) != 6)
		return -1;
	for (int i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	return 0;
}

int bench_parse_num(const char *text, unsigned long lo, unsigned long hi, uint32_t *out)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || v < lo || v > hi)
		return -1;
	*out = (uint32_t)v;
	return 0;
}

int bench_parse_seconds(const char *text, double *out)
{
	char *end;

	*out = strtod(text, &end);
	return *text && !*end && *out > 0 && *out <= 86400 ? 0 : -1;
}

enum {
	O_LOCAL = 1,
	O_REMOTE,
	O_SIZE,
	O_SECONDS,
	O_BATCH,
	O_WINDOW,
	O_GAP,
	O_CHUNK,
	O_MIXED,
	O_RULES,
	O_CONNECTIONS,
	O_HTTP,
	O_CPU,
	O_CPU2,
	O_BLOCK,
	O_HISTOGRAM,
	O_TCP,
	O_INTERFACES,
	O_PRESET,
	O_LIBRARY,
	O_DEVICE,
	O_MAC,
	O_TRANSPORT
};

static const struct option options[] = {
	{ "local", 1, NULL, O_LOCAL },
	{ "remote", 1, NULL, O_REMOTE },
	{ "size", 1, NULL, O_SIZE },
	{ "seconds", 1, NULL, O_SECONDS },
	{ "batch", 1, NULL, O_BATCH },
	{ "window", 1, NULL, O_WINDOW },
	{ "gap", 1, NULL, O_GAP },
	{ "chunk", 1, NULL, O_CHUNK },
	{ "mixed", 0, NULL, O_MIXED },
	{ "rules", 1, NULL, O_RULES },
	{ "connections", 1, NULL, O_CONNECTIONS },
	{ "http", 0, NULL, O_HTTP },
	{ "cpu", 1, NULL, O_CPU },
	{ "cpu2", 1, NULL, O_CPU2 },
	{ "block", 0, NULL, O_BLOCK },
	{ "histogram", 0, NULL, O_HISTOGRAM },
	{ "tcp", 0, NULL, O_TCP },
	{ "interfaces", 1, NULL, O_INTERFACES },
	{ "preset", 1, NULL, O_PRESET },
	{ "library", 1, NULL, O_LIBRARY },
	{ "device", 1, NULL, O_DEVICE },
	{ "peer-mac", 1, NULL, O_MAC },
	{ "transport", 1, NULL, O_TRANSPORT },
	{ NULL, 0, NULL, 0 },
};

struct args {
	struct bench_opts o;
	const char *transport;
	uint32_t cpu, cpu2;
};

static int parse_one(int c, const char *v, struct args *a)
{
	switch (c) {
	case O_LOCAL:
		return bench_parse_addr(v, &a->o.local);
	case O_REMOTE:
		return bench_parse_addr(v, &a->o.remote);
	case O_SIZE:
		return bench_parse_num(v, MSG_HLEN, BENCH_SIZE_MAX, &a->o.size);
	case O_SECONDS:
		return bench_parse_seconds(v, &a->o.seconds);
	case O_BATCH:
		return bench_parse_num(v, 1, BENCH_BATCH_MAX, &a->o.batch);
	case O_WINDOW:
		return bench_parse_num(v, 0, 1u << 20, &a->o.window);
	case O_RULES:
		return bench_parse_num(v, 1, 60000, &a->o.rules);
	case O_CONNECTIONS:
		return bench_parse_num(v, 1, LOAD_MAX, &a->o.connections);
	case O_HTTP:
		a->o.http = a->o.tcp = true;
		return 0;
	case O_GAP:
		return bench_parse_num(v, 0, 1000000, &a->o.gap_us);
	case O_CHUNK:
		return bench_parse_num(v, 0, 1u << 20, &a->o.chunk);
	case O_MIXED:
		a->o.mixed = a->o.tcp = true;
		return 0;
	case O_CPU:
		return bench_parse_num(v, 0, 1023, &a->cpu);
	case O_CPU2:
		return bench_parse_num(v, 0, 1023, &a->cpu2);
	case O_MAC:
		return parse_mac(v, a->o.peer_mac);
	case O_BLOCK:
		a->o.block = true;
		return 0;
	case O_HISTOGRAM:
		a->o.histogram = true;
		return 0;
	case O_TCP:
		a->o.tcp = true;
		return 0;
	case O_INTERFACES:
		a->o.interfaces = v;
		return 0;
	case O_PRESET:
		a->o.preset = v;
		return 0;
	case O_LIBRARY:
		a->o.library = v;
		return 0;
	case O_DEVICE:
		a->o.device = v;
		return 0;
	case O_TRANSPORT:
		a->transport = v;
		return 0;
	default:
		return -1;
	}
}

/* 0, -1 when it is no command line at all, 1 when it has said what is wrong. */
static int parse(int argc, char **argv, struct args *a)
{
	int c, at;

	while ((c = getopt_long(argc, argv, "", options, &at)) != -1) {
		if (c == '?')
			return -1;
		if (parse_one(c, optarg, a)) {
			fprintf(stderr, "pyvma-bench: --%s: bad value \"%s\"\n", options[at].name, optarg);
			return 1;
		}
	}
	if (optind != argc - 1)
		return -1;
	/* Eight replies a window keep it moving. */
	a->o.reply_every = PV_MAX(a->o.window / 8, 1u);
	if (a->o.window && a->o.window < 2 * a->o.batch) {
		fprintf(stderr, "pyvma-bench: --window must be at least twice --batch\n");
		return 1;
	}
	return 0;
}

static int run(struct args *a, const char *role)
{
	static struct bench_result r;
	int rc;

	if (!strcmp(role, "server"))
		a->o.role = ROLE_SERVER;
	else if (!strcmp(role, "ping-pong"))
		a->o.role = ROLE_PING_PONG;
	else if (!strcmp(role, "throughput"))
		a->o.role = ROLE_THROUGHPUT;
	else if (!strcmp(role, "paced"))
		a->o.role = ROLE_PACED;
	else if (!strcmp(role, "mixed"))
		a->o.role = ROLE_MIXED;
	else
		return bench_fail("no such role", 0);
	if (a->o.role == ROLE_MIXED)
		a->o.mixed = a->o.tcp = true;
	if (a->o.mixed && !strcmp(a->transport, "raw"))
		return bench_fail("mixed: a raw ring has no connections", 0);
	if (a->o.role == ROLE_PACED && !a->o.gap_us)
		return bench_fail("paced: --gap has to be above 0", 0);
	if (a->o.role == ROLE_SERVER ? !a->o.local.ss_family : !a->o.remote.ss_family)
		return bench_fail("a server needs --local, a client --remote", 0);
	hist_init(&r.rtt);
	hist_init(&r.wake);
	seen_init(&r.seen);
	if (!strcmp(a->transport, "raw") && a->o.library && !strcmp(a->o.library, "xdp"))
		rc = bench_run_xdp(&a->o, &r);
	else if (!strcmp(a->transport, "raw") && a->o.library && !strcmp(a->o.library, "tap"))
		rc = bench_run_tap(&a->o, &r);
	else if (!strcmp(a->transport, "raw"))
		rc = bench_run_raw(&a->o, &r);
	else if (!strcmp(a->transport, "pyvma"))
		rc = a->o.tcp ? bench_run_engine_tcp(&a->o, &r) : bench_run_engine(&a->o, &r);
	else if (!strcmp(a->transport, "kernel"))
		rc = a->o.tcp ? bench_run_kernel_tcp(&a->o, &r) : bench_run_kernel(&a->o, &r);
	else
		return bench_fail("no such transport", 0);
	if (!rc)
		bench_report(&a->o, &r);
	return rc;
}

int main(int argc, char **argv)
{
	struct args a = {
		.o = { .seconds = 1, .size = 64, .batch = 1, .gap_us = 1000, .chunk = 8192, .rules = 5000, .connections = 64 },
		.transport = "kernel",
		.cpu = UINT32_MAX,
		.cpu2 = UINT32_MAX
	};
	struct sigaction sa = { .sa_handler = on_signal };
	const char *role;
	int rc;

	bench_clock_start();
	/* No SA_RESTART: a blocked receive comes back. */
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (argc > 1 && (!strcmp(argv[1], "client") || !strcmp(argv[1], "serve")))
		return bench_perf(argc, argv);
	rc = parse(argc, argv, &a);
	if (rc < 0)
		fputs(usage, stderr);
	if (rc)
		return 2;
	role = argv[optind];
	if (!strcmp(role, "line"))
		return bench_line((int)a.cpu, (int)a.cpu2, a.o.seconds);
	if (!strcmp(role, "idle"))
		return bench_idle(&a.o);
	if (!strcmp(role, "rules"))
		return bench_rules(&a.o);
	if (bench_pin((int)a.cpu))
		return 1;
	if (!strcmp(role, "connections"))
		return bench_conns(&a.o, !strcmp(a.transport, "pyvma") ? &conns_engine : &conns_kernel);
	if (!strcmp(role, "load")) {
		if (!a.o.remote.ss_family)
			return bench_fail("load needs --remote", 0);
		return bench_load(&a.o, !strcmp(a.transport, "pyvma") ? &load_engine : &load_kernel);
	}
	return run(&a, role);
}
