/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The far end of tools/pacing_rates.py: a host of its own on a port of the software NIC, which takes whatever comes to UDP port 7000 and
 * TCP port 7001 and notes of each frame that carries payload when the NIC received it, by the NIC's clock.
 *
 * usage: pace_sink LIBRARY FABRIC PORT ADDRESS
 *
 * On standard input: "flows" prints a line a flow, "PORT FRAMES BYTES NANOSECONDS BURST", of all since the last time; "flows RATE" takes
 * bytes a second for the burst, which is what was ahead of that rate at most, in bytes; "slices MS" prints "PORT SLICE BYTES". Bytes are
 * those of frames without FCS; a flow is named by its sender's port, and the first frame of it begins its time.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "ring/verbs.h"
#include "rt/clock.h"
#include "rt/mem.h"
#include "stack/stack.h"

#define NOTES_MAX (4u << 20)
#define CONNS_MAX 16

struct note {
	uint64_t ns;
	uint32_t len;
	uint16_t port;
	uint16_t pad;
};

static struct {
	uint32_t (*rx_poll)(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n);
	uint64_t khz;
	uint32_t n;
	struct note note[NOTES_MAX];
} tap;

static struct pv_stack *stack;
static struct pv_udp *udp;
static struct pv_tcp *listener, *conn[CONNS_MAX];
static uint32_t nconn;

static void die(const char *what, int rc)
{
	fprintf(stderr, "pace_sink: %s: %s\n", what, strerror(-rc));
	exit(1);
}

/* ---- what came ----------------------------------------------------------------------------------------------------------- */

static void note(const struct pv_pkt *p)
{
	const uint8_t *ip = p->data + 14, *l4 = ip + 20;
	uint32_t payload = 0;

	if (p->len < 42 || pv_get16(p->data + 12) != 0x0800 || (ip[6] & 0x3f) || ip[7])
		return;
	if (ip[9] == 17)
		payload = pv_get16(l4 + 4) - 8u;
	else if (ip[9] == 6)
		payload = pv_get16(ip + 2) - 20u - (uint32_t)(l4[12] >> 4) * 4;
	if (!payload || !(p->flags & PV_PKT_TSTAMP) || tap.n == NOTES_MAX)
		return;
	tap.note[tap.n++] =
	    (struct note){ .ns = (uint64_t)((double)p->tstamp * 1e6 / (double)tap.khz), .len = p->len, .port = pv_get16(l4) };
}

static uint32_t tap_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	uint32_t k = tap.rx_poll(r, pkts, n);

	for (uint32_t i = 0; i < k; i++)
		note(pkts[i]);
	return k;
}

static void print_flow(uint16_t port, double rate)
{
	uint64_t first = 0, last = 0, bytes = 0, frames = 0;
	double level = 0, burst = 0;

	for (uint32_t i = 0; i < tap.n; i++) {
		const struct note *e = &tap.note[i];

		if (e->port != port)
			continue;
		if (!frames++) {
			first = last = e->ns;
		} else {
			bytes += e->len;
			level -= rate * (double)(e->ns - last) / 1e9;
			level = level < 0 ? 0 : level;
		}
		level += e->len;
		burst = level > burst ? level : burst;
		last = e->ns;
	}
	printf("%u %llu %llu %llu %.0f\n", port, (unsigned long long)frames, (unsigned long long)bytes,
	       (unsigned long long)(last - first), burst);
}

static void print_slices(uint16_t port, uint64_t slice_ns)
{
	uint64_t begin = 0, at = 0, bytes = 0;
	bool any = false;

	for (uint32_t i = 0; i < tap.n; i++) {
		const struct note *e = &tap.note[i];

		if (e->port != port)
			continue;
		begin = any ? begin : e->ns;
		any = true;
		while (e->ns - begin >= (at + 1) * slice_ns) {
			printf("%u %llu %llu\n", port, (unsigned long long)at++, (unsigned long long)bytes);
			bytes = 0;
		}
		bytes += e->len;
	}
	printf("%u %llu %llu\n", port, (unsigned long long)at, (unsigned long long)bytes);
}

static void answer(const char *line)
{
	static uint8_t seen[8192];
	unsigned int ms = 0;
	double rate = 0;

	if (sscanf(line, "slices %u", &ms) != 1 && sscanf(line, "flows %lf", &rate) != 1 && strncmp(line, "flows", 5))
		exit(0);
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < tap.n; i++) {
		uint16_t port = tap.note[i].port;

		if (seen[port / 8] & 1u << port % 8)
			continue;
		seen[port / 8] |= (uint8_t)(1u << port % 8);
		if (ms)
			print_slices(port, ms * UINT64_C(1000000));
		else
			print_flow(port, rate);
	}
	printf(".\n");
	fflush(stdout);
	tap.n = 0;
}

/* ---- a host -------------------------------------------------------------------------------------------------------------- */

static void drain(int64_t now)
{
	static char buf[65536];
	struct pv_iov iov = { buf, sizeof(buf) };
	struct pv_udp_recv m = { .iov = &iov, .iovcnt = 1 };
	struct pv_event ev[CONNS_MAX];
	struct pv_tcp *c;

	while (pv_stack_events(stack, ev, CONNS_MAX))
		;
	while (pv_udp_recv(udp, &m) >= 0)
		;
	if (nconn < CONNS_MAX && !pv_tcp_accept(listener, &c))
		conn[nconn++] = c;
	for (uint32_t i = 0; i < nconn; i++) {
		int64_t n;

		while ((n = pv_tcp_recv(conn[i], &iov, 1, PV_TCP_MSG_TRUNC, now)) > 0)
			;
		if (n == -EAGAIN)
			continue;
		pv_tcp_close(conn[i], now);
		conn[i--] = conn[--nconn];
	}
}

static struct pv_ring *ring_open(const char *lib, const char *fabric, const char *port)
{
	struct pv_pool_cfg pc = { .buf_size = 2048, .headroom = PV_NET_HEADROOM, .count = 16384, .max = 16384 };
	struct pv_verbs_cfg vc = { .library = lib, .rx_depth = 8192, .tx_depth = 1024, .stamps = PV_VERBS_STAMPS_RAW };
	static struct pv_ring_ops ops;
	char spec[128], device[PV_RING_NAME_MAX], err[256];
	int (*add)(const char *, char *, size_t);
	const struct pv_mem *mem = pv_mem_system(false);
	struct pv_pool *pool;
	struct pv_ring *r;
	void *h = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
	int rc;

	add = h ? (int (*)(const char *, char *, size_t))dlsym(h, "softnic_device_add") : NULL;
	snprintf(spec, sizeof(spec), "%s/%s", fabric, port);
	rc = add ? add(spec, device, sizeof(device)) : -ENOENT;
	if (rc)
		die(lib, rc);
	rc = pv_pool_open(&pool, mem, &pc);
	if (rc)
		die("pool", rc);
	vc.device = device;
	rc = pv_verbs_open(&r, mem, pool, &vc, err, sizeof(err));
	if (rc)
		die(err, rc);
	rc = pv_ring_set_stamps(r, true, false);
	if (rc)
		die("stamps", rc);
	tap.khz = r->caps.tstamp_khz;
	tap.rx_poll = r->ops->rx_poll;
	ops = *r->ops;
	ops.rx_poll = tap_rx_poll;
	r->ops = &ops;
	return r;
}

static void host_open(struct pv_ring *r, const char *address)
{
	struct pv_stack_cfg sc = { .mem = pv_mem_system(false), .seed = (uint64_t)getpid() };
	struct pv_iface_cfg ic = { .name = "sink", .steer = PV_STEER_ADDRESS, .ring = r, .naddr = 1 };
	struct pv_endpoint any = { .port = 7000 };
	uint8_t a[4];
	int rc;

	if (inet_pton(AF_INET, address, a) != 1)
		die(address, -EINVAL);
	ic.addr[0] = (struct pv_ifaddr){ pv_addr_from4(a), 16 };
	any.addr.w[2] = PV_ADDR_MAPPED_W2;
	rc = pv_stack_open(&stack, &sc);
	if (!rc)
		rc = pv_stack_iface_add(stack, &ic);
	if (rc > 0)
		rc = pv_udp_open(pv_stack_udp(stack), PV_AF_INET, NULL, &udp);
	if (!rc)
		rc = pv_udp_bind(udp, &any);
	any.port = 7001;
	if (!rc)
		rc = pv_tcp_open(pv_stack_tcp(stack), PV_AF_INET, NULL, &listener);
	if (!rc)
		rc = pv_tcp_bind(listener, &any);
	if (!rc)
		rc = pv_tcp_listen(listener, CONNS_MAX);
	if (rc)
		die("host", rc);
	pv_udp_options(udp)->rcvbuf = 1 << 26;
	pv_udp_options_changed(udp);
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 5) {
		fprintf(stderr, "usage: pace_sink LIBRARY FABRIC PORT ADDRESS\n");
		return 2;
	}
	host_open(ring_open(argv[1], argv[2], argv[3]), argv[4]);
	fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
	printf("ready\n");
	fflush(stdout);
	for (uint32_t turn = 0;; turn++) {
		int64_t now = now_ns();
		uint32_t n = pv_stack_poll(stack, now, 256);
		ssize_t got;

		drain(now);
		if (n)
			continue;
		(void)nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
		if (turn % 16)
			continue;
		got = read(STDIN_FILENO, line, sizeof(line) - 1);
		if (!got)
			return 0;
		if (got > 0) {
			line[got] = '\0';
			answer(line);
		}
	}
}
