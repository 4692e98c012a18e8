/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What passes a device's port, by a sniffer rule: a queue pair of our own gets a copy of what the port receives and sends, and no other
 * program notices. No stack and no engine: a ring, a capture on it, and a loop that keeps the receive queue full.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt/capture_read.h"
#include "rt/engine.h"
#include "rt/error.h"
#include "rt/mem.h"

/* Deeper than usual: while the reader writes its file nobody polls. */
#define SNIFF_DEPTH 8192u
#define INFO_EVERY_NS (10 * PV_NS_PER_MS)

struct pv_sniffer {
	struct pv_port port;
	struct pv_capture *capture;
	uint32_t short_of; /* receive buffers that the ring should have and has not */
	struct pv_ring_clock_info info;
	int64_t info_until; /* when the one above is asked for again */
};

/* RAW ticks by what the device says of them. */
static bool stamp(void *ctx, uint32_t iface, uint64_t raw, int64_t *ns)
{
	struct pv_sniffer *s = ctx;
	const struct pv_ring_clock_info *k = &s->info;

	(void)iface;
	if (s->port.ring->caps.tstamp == PV_TSTAMP_REALTIME) {
		*ns = (int64_t)raw;
		return true;
	}
	if (!k->mult)
		return false;
	/* A stamp may be older than the pair: the difference is signed within the counter's width. */
	uint64_t delta = (raw - k->cycles) & k->mask;
	bool before = delta > k->mask >> 1;

	delta = before ? (k->cycles - raw) & k->mask : delta;

	unsigned __int128 part = (unsigned __int128)delta * k->mult;

	part = before ? ((unsigned __int128)k->nsec << k->shift) + k->frac - part
		      : ((unsigned __int128)k->nsec << k->shift) + k->frac + part;
	*ns = (int64_t)(part >> k->shift);
	return true;
}

static void look_at_clock(struct pv_sniffer *s, int64_t now)
{
	if (s->port.ring->caps.tstamp != PV_TSTAMP_RAW || now < s->info_until)
		return;
	s->info_until = now + INFO_EVERY_NS;
	if (pv_ring_clock_info(s->port.ring, &s->info))
		s->info.mult = 0;
}

static void refill(struct pv_sniffer *s)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];

	while (s->short_of) {
		uint32_t want = PV_MIN(s->short_of, PV_RING_BATCH_MAX), n = 0, k;

		while (n < want && (pkts[n] = pv_pkt_get(s->port.pool)))
			n++;
		k = n ? pv_ring_rx_post(s->port.ring, pkts, n) : 0;
		s->short_of -= k;
		for (uint32_t i = k; i < n; i++)
			pv_pkt_put(pkts[i]);
		if (!k)
			return;
	}
}

static uint32_t receive(struct pv_sniffer *s)
{
	struct pv_ring *r = s->port.ring;
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];
	uint32_t all = 0, n;

	look_at_clock(s, pv_clock_kernel_ns());
	/* The capture's tap sees them on their way. */
	do {
		n = pv_ring_rx_poll(r, pkts, PV_RING_BATCH_MAX);
		for (uint32_t i = 0; i < n; i++)
			pv_pkt_put(pkts[i]);
		s->short_of += n + r->rx_more;
		r->rx_more = 0;
		refill(s);
		all += n;
	} while (n == PV_RING_BATCH_MAX && all < SNIFF_DEPTH);
	return all;
}

static bool device_gone(struct pv_sniffer *s)
{
	enum pv_ring_event ev;

	do {
		ev = pv_ring_event(s->port.ring);
	} while (ev == PV_RING_EV_LINK_UP || ev == PV_RING_EV_LINK_DOWN);
	return ev != PV_RING_EV_NONE;
}

int pv_sniffer_poll(struct pv_sniffer *s, int64_t timeout_ns)
{
	struct pollfd fd = { .fd = s->port.notify_fd, .events = POLLIN };
	struct timespec ts = { timeout_ns / PV_NS_PER_S, timeout_ns % PV_NS_PER_S };
	uint32_t n = receive(s);

	if (n || timeout_ns <= 0)
		return (int)n;
	if (fd.fd >= 0 && pv_ring_arm(s->port.ring) > 0)
		return (int)receive(s);
	if (ppoll(&fd, fd.fd >= 0, &ts, NULL) < 0)
		return -errno;
	if (device_gone(s))
		return pv_error(-ENODEV, "%s: the device is gone", s->port.spec.name);
	return (int)receive(s);
}

void pv_sniffer_close(struct pv_sniffer *s)
{
	if (s->capture)
		pv_capture_close(s->capture);
	if (s->port.ring)
		pv_port_ring_close(&s->port);
	free(s);
}

static int start(struct pv_sniffer *s, const struct pv_config *cfg, const struct pv_capture_cfg *cc)
{
	struct pv_capture_port about = { .name = s->port.spec.name, .ctx = s };
	const struct pv_flow all = { .kind = PV_FLOW_ALL, .match = PV_FLOW_SNIFFER };
	uint64_t handle;
	int rc = pv_port_ring_open(&s->port, cfg);

	if (rc)
		return rc;
	rc = pv_capture_open(&s->capture, cc);
	if (rc)
		return rc;
	if (!pv_ring_set_stamps(s->port.ring, true, false))
		about.stamp = stamp;
	about.mode = s->port.ring->caps.mode;
	s->short_of = s->port.ring->caps.rx_depth;
	refill(s);
	rc = pv_capture_add(s->capture, s->port.ring, pv_mem_system(cfg->huge_pages), &about);
	if (rc)
		return pv_error(rc, "%s: cannot be captured: %s", about.name, strerror(-rc));
	rc = pv_ring_flow_add(s->port.ring, &all, &handle);
	return rc ? pv_error(rc, "%s: the device refuses a sniffer rule: %s", about.name, strerror(-rc)) : 0;
}

int pyvma_capture_sniff(const char *interface, const struct pyvma_capture_options *o, pyvma_capture **out)
{
	struct pv_capture_cfg cc = { .bytes = o->bytes, .snaplen = o->snaplen, .count = o->count, .sniffed = true };
	const struct pv_config *cfg;
	struct pv_sniffer *s;
	int rc = pv_config_load(&cfg), fd;

	if (rc)
		return rc;
	if (strlen(o->filter) >= sizeof(cc.filter))
		return pv_error(-E2BIG, "filter: longer than %zu bytes", sizeof(cc.filter) - 1);
	memcpy(cc.filter, o->filter, strlen(o->filter) + 1);
	s = calloc(1, sizeof(*s));
	if (!s)
		return pv_error(-ENOMEM, "capture: no memory");
	rc = pv_ifspec_parse_device(interface, &s->port.spec);
	if (!rc && s->port.spec.ring >= PV_IFSPEC_XDP)
		rc = pv_error(-EOPNOTSUPP, "%s: only devices of verbs have sniffer rules; tcpdump sees the kernel's", interface);
	if (!s->port.spec.rx_depth)
		s->port.spec.rx_depth = SNIFF_DEPTH;
	if (!rc)
		rc = start(s, cfg, &cc);
	if (rc) {
		pv_sniffer_close(s);
		return rc;
	}
	fd = pv_capture_take_fd(s->capture);
	rc = pyvma_capture_attach(fd, out);
	close(fd);
	if (rc)
		pv_sniffer_close(s);
	else
		pv_capture_set_sniffer(*out, s);
	return rc;
}
