/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring of bytes is mapped twice, one copy behind the other, so that a block is written in one piece wherever it begins. `head` is
 * published once a batch, when its blocks are whole.
 */
#include "rt/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "rt/error.h"
#include "rt/log.h"

struct capture_tap {
	struct pv_tap tap;
	struct pv_capture *capture;
	uint32_t id; /* of the interface in the file */
	uint64_t lost; /* since the last frame that found room */
	uint64_t missed0; /* the ring's count at the start */
	struct pv_capture_port port;
};

struct pv_capture {
	struct pv_capture_mem *mem;
	uint8_t *ring;
	uint64_t head, size, left; /* left: frames until `count`; UINT64_MAX: no end */
	uint32_t snaplen, nifaces;
	bool sniffed;
	int fd;
	struct pv_filter filter;
	char filter_text[PV_FILTER_TEXT_MAX];
	struct capture_tap taps[PV_CAPTURE_IFACES];
};

static uint64_t realtime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * PV_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void count(_Atomic(uint64_t) *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* ---- writing ----------------------------------------------------------------------------------------------------------- */

/* Where `len` bytes may be written; NULL: the reader is behind. It may have written anything as its `tail`. */
static uint8_t *room(const struct pv_capture *c, uint64_t len)
{
	uint64_t used = c->head - atomic_load_explicit(&c->mem->tail, memory_order_acquire);

	return used <= c->size && len <= c->size - used ? c->ring + (c->head & (c->size - 1)) : NULL;
}

static void publish(struct pv_capture *c)
{
	atomic_store_explicit(&c->mem->head, c->head, memory_order_release);
}

static void finish(struct pv_capture *c)
{
	atomic_store_explicit(&c->mem->done, 1, memory_order_release);
}

/* The ring's stamp where it has one that is a time of the day. */
static uint64_t stamp_of(const struct capture_tap *t, const struct pv_pkt *pkt, enum pv_dir dir, uint64_t now)
{
	int64_t ns;

	if (dir == PV_DIR_RX && pkt->flags & PV_PKT_TSTAMP && t->port.stamp &&
	    t->port.stamp(t->port.ctx, t->port.iface, pkt->tstamp, &ns))
		return (uint64_t)ns;
	return now;
}

static void write_frame(struct capture_tap *t, const struct pv_pkt *pkt, enum pv_dir dir, uint64_t now)
{
	struct pv_capture *c = t->capture;
	uint32_t len = pv_pcapng_len(pkt);
	struct pv_pcapng_frame meta = { .iface = t->id, .snaplen = c->snaplen, .dir = dir, .dropped = t->lost };
	uint8_t *at = room(c, PV_MIN(len, c->snaplen) + PV_PCAPNG_FRAME_EXTRA);

	if (!at) {
		t->lost++;
		count(&c->mem->iface[t->id].dropped, 1);
		return;
	}
	if (c->sniffed && pkt->len >= 12 && pv_mac_eq(pkt->data + 6, t->tap.ring->caps.mac))
		meta.dir = PV_DIR_TX;
	meta.stamp_ns = stamp_of(t, pkt, dir, now);
	c->head += pv_pcapng_frame(at, pkt, &meta);
	t->lost = 0;
	c->left -= c->left != UINT64_MAX;
}

static void frames(struct pv_tap *tap, struct pv_pkt *const *pkts, uint32_t n, enum pv_dir dir)
{
	struct capture_tap *t = pv_container_of(tap, struct capture_tap, tap);
	struct pv_capture *c = t->capture;
	uint64_t now = realtime_ns(), accepted = 0;

	for (uint32_t i = 0; i < n && c->left; i++) {
		if (!pv_filter_match(&c->filter, pkts[i]))
			continue;
		accepted++;
		write_frame(t, pkts[i], dir, now);
	}
	count(&c->mem->iface[t->id].received, n);
	count(&c->mem->iface[t->id].accepted, accepted);
	publish(c);
	if (!c->left)
		finish(c);
}

/* ---- interfaces -------------------------------------------------------------------------------------------------------- */

static void sync_tap(const struct capture_tap *t, struct pv_ring *ring)
{
	struct pv_ring_counters k;

	if (!ring)
		return;
	pv_ring_counters(ring, &k);
	atomic_store_explicit(&t->capture->mem->iface[t->id].missed, k.rx_no_buf - t->missed0, memory_order_relaxed);
}

void pv_capture_sync(struct pv_capture *c)
{
	for (uint32_t i = 0; i < c->nifaces; i++)
		sync_tap(&c->taps[i], c->taps[i].tap.ring);
}

static void gone(struct pv_tap *tap, struct pv_ring *ring)
{
	sync_tap(pv_container_of(tap, struct capture_tap, tap), ring);
}

int pv_capture_add(struct pv_capture *c, struct pv_ring *ring, const struct pv_mem *mem, const struct pv_capture_port *port)
{
	char about[PV_PCAPNG_TEXT_MAX];
	const struct pv_pcapng_iface head = { .name = port->name,
					      .description = about,
					      .hardware = ring->caps.name,
					      .filter = c->filter_text,
					      .mac = ring->caps.mac,
					      .snaplen = c->snaplen };
	struct pv_capture_iface *iface = &c->mem->iface[c->nifaces];
	struct capture_tap *t = &c->taps[c->nifaces];
	struct pv_ring_counters k;
	uint8_t *at;

	if (c->nifaces == PV_CAPTURE_IFACES)
		return -ENOSPC;
	at = room(c, PV_PCAPNG_HEAD_MAX);
	if (!at)
		return -ENOSPC;
	pv_ring_counters(ring, &k);
	*t = (struct capture_tap){
		.tap = { .frames = frames, .gone = gone }, .capture = c, .id = c->nifaces, .missed0 = k.rx_no_buf
	};
	t->port = *port;
	if (pv_tap_add(&t->tap, ring, mem))
		return -ENOMEM;
	snprintf(about, sizeof(about), "%s, receive stamps %s", port->mode,
		 port->stamp ? "of the device where it has one, else of the poll" : "of the poll");
	iface->start_ns = realtime_ns();
	snprintf(iface->name, sizeof(iface->name), "%s", port->name);
	c->nifaces++;
	c->head += pv_pcapng_iface(at, &head);
	atomic_store_explicit(&c->mem->nifaces, c->nifaces, memory_order_release);
	publish(c);
	return 0;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------------- */

static uint64_t power_of_two(uint64_t n)
{
	uint64_t size = PV_CAPTURE_BYTES_MIN;

	while (size < n)
		size <<= 1;
	return size;
}

/* The counters and the ring twice, into a range of addresses reserved for the three. */
static int map(struct pv_capture *c)
{
	uint8_t *base = mmap(NULL, PV_CAPTURE_HEAD + 2 * c->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const int prot = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_FIXED;

	if (base == MAP_FAILED)
		return -errno;
	c->mem = (void *)base;
	c->ring = base + PV_CAPTURE_HEAD;
	if (mmap(base, PV_CAPTURE_HEAD + c->size, prot, how, c->fd, 0) == MAP_FAILED ||
	    mmap(c->ring + c->size, c->size, prot, how, c->fd, PV_CAPTURE_HEAD) == MAP_FAILED)
		return -errno;
	/* A child's copy of the writer would write into the parent's file. */
	return madvise(base, PV_CAPTURE_HEAD + 2 * c->size, MADV_DONTFORK) ? -errno : 0;
}

static int make_memory(struct pv_capture *c)
{
	c->fd = pv_ownfd(memfd_create("pyvma-capture", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (c->fd < 0)
		return -errno;
	if (ftruncate(c->fd, (off_t)(PV_CAPTURE_HEAD + c->size)) ||
	    fcntl(c->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	return map(c);
}

static void dispose(struct pv_capture *c)
{
	if (c->mem)
		munmap(c->mem, PV_CAPTURE_HEAD + 2 * c->size);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

int pv_capture_open(struct pv_capture **out, const struct pv_capture_cfg *cfg)
{
	struct pv_capture *c;
	int rc;

	if (cfg->bytes > PV_CAPTURE_BYTES_MAX)
		return pv_error(-EINVAL, "capture: a buffer of more than %u MiB", PV_CAPTURE_BYTES_MAX >> 20);
	c = calloc(1, sizeof(*c));
	if (!c)
		return pv_error(-ENOMEM, "capture: no memory");
	c->fd = -1;
	rc = pv_filter_parse(cfg->filter, &c->filter);
	if (rc) {
		dispose(c);
		return rc;
	}
	snprintf(c->filter_text, sizeof(c->filter_text), "%s", cfg->filter);
	c->size = power_of_two(cfg->bytes ? cfg->bytes : PV_CAPTURE_BYTES);
	c->snaplen = cfg->snaplen ? PV_MIN(cfg->snaplen, PV_PCAPNG_SNAPLEN) : PV_PCAPNG_SNAPLEN;
	c->left = cfg->count ? cfg->count : UINT64_MAX;
	c->sniffed = cfg->sniffed;
	rc = make_memory(c);
	if (rc) {
		dispose(c);
		return pv_error(rc, "capture: no memory to share: %s", strerror(-rc));
	}
	c->mem->magic = PV_CAPTURE_MAGIC;
	c->mem->size = c->size;
	c->head = pv_pcapng_section(c->ring, "pyvma " PYVMA_VERSION);
	publish(c);
	*out = c;
	return 0;
}

int pv_capture_take_fd(struct pv_capture *c)
{
	int fd = c->fd;

	c->fd = -1;
	return fd;
}

void pv_capture_close(struct pv_capture *c)
{
	pv_capture_sync(c);
	for (uint32_t i = 0; i < c->nifaces; i++)
		pv_tap_del(&c->taps[i].tap);
	finish(c);
	dispose(c);
}

void pv_capture_forget(struct pv_capture *c)
{
	c->mem = NULL; /* not there, and other memory may be by now */
	dispose(c);
}
