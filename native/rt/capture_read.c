/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader's half of rt/capture.h. The memory came from another process: nothing in it is believed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/capture.h"
#include "rt/capture_read.h"
#include "rt/error.h"

struct pyvma_capture {
	struct pv_capture_mem *mem;
	const uint8_t *ring;
	uint64_t size, tail;
	struct pv_sniffer *sniffer; /* NULL: another process writes */
};

static int check_memory(int fd, uint64_t *size)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	/* Memory that could be cut short would end the reader by a signal. */
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st))
		return -EBADMSG;
	*size = (uint64_t)st.st_size - PV_CAPTURE_HEAD;
	if (st.st_size < (off_t)(PV_CAPTURE_HEAD + PV_CAPTURE_BYTES_MIN) || *size > PV_CAPTURE_BYTES_MAX || *size & (*size - 1))
		return -EBADMSG;
	return 0;
}

int pyvma_capture_attach(int fd, pyvma_capture **out)
{
	pyvma_capture *c;
	uint64_t size;
	void *base;

	if (check_memory(fd, &size))
		return pv_error(-EBADMSG, "capture: not the memory of a capture");
	base = mmap(NULL, PV_CAPTURE_HEAD + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return pv_error(-errno, "capture: %s", strerror(errno));
	c = calloc(1, sizeof(*c));
	if (!c || ((struct pv_capture_mem *)base)->magic != PV_CAPTURE_MAGIC) {
		munmap(base, PV_CAPTURE_HEAD + size);
		free(c);
		return c ? pv_error(-EBADMSG, "capture: memory of another version") : pv_error(-ENOMEM, "capture: no memory");
	}
	c->mem = base;
	c->ring = (const uint8_t *)base + PV_CAPTURE_HEAD;
	c->size = size;
	*out = c;
	return 0;
}

void pv_capture_set_sniffer(pyvma_capture *c, struct pv_sniffer *sniffer)
{
	c->sniffer = sniffer;
}

int64_t pyvma_capture_peek(pyvma_capture *c, const void **data)
{
	uint64_t there = atomic_load_explicit(&c->mem->head, memory_order_acquire) - c->tail, at = c->tail & (c->size - 1);

	if (there > c->size)
		return pv_error(-EBADMSG, "capture: its writer is confused");
	*data = c->ring + at;
	return (int64_t)PV_MIN(there, c->size - at);
}

void pyvma_capture_take(pyvma_capture *c, uint64_t n)
{
	c->tail += n;
	atomic_store_explicit(&c->mem->tail, c->tail, memory_order_release);
}

int pyvma_capture_done(pyvma_capture *c)
{
	return atomic_load_explicit(&c->mem->done, memory_order_acquire) != 0;
}

int pyvma_capture_stats(pyvma_capture *c, unsigned int i, struct pyvma_capture_stats *out)
{
	const struct pv_capture_iface *k = &c->mem->iface[i];

	if (i >= PV_MIN(atomic_load_explicit(&c->mem->nifaces, memory_order_acquire), PV_CAPTURE_IFACES))
		return -ENOENT;
	*out = (struct pyvma_capture_stats){
		.received = atomic_load_explicit(&k->received, memory_order_relaxed),
		.missed = atomic_load_explicit(&k->missed, memory_order_relaxed),
		.accepted = atomic_load_explicit(&k->accepted, memory_order_relaxed),
		.dropped = atomic_load_explicit(&k->dropped, memory_order_relaxed),
		.start_ns = k->start_ns,
	};
	memcpy(out->name, k->name, sizeof(out->name) - 1);
	return 0;
}

int pyvma_capture_trailer(pyvma_capture *c, void *buf, size_t size)
{
	struct pyvma_capture_stats k;
	struct timespec ts;
	uint64_t now;
	size_t len = 0;

	clock_gettime(CLOCK_REALTIME, &ts);
	now = (uint64_t)ts.tv_sec * PV_NS_PER_S + (uint64_t)ts.tv_nsec;
	for (unsigned int i = 0; !pyvma_capture_stats(c, i, &k); i++) {
		const struct pv_pcapng_stats s = { .start_ns = k.start_ns,
						   .end_ns = now,
						   .now_ns = now,
						   .received = k.received,
						   .missed = k.missed,
						   .accepted = k.accepted,
						   .dropped = k.dropped,
						   .delivered = k.accepted - k.dropped };

		if (size - len < PV_PCAPNG_STATS_MAX)
			return -ENOSPC;
		len += pv_pcapng_stats((uint8_t *)buf + len, i, &s);
	}
	return (int)len;
}

int pyvma_capture_poll(pyvma_capture *c, int64_t timeout_ns)
{
	return c->sniffer ? pv_sniffer_poll(c->sniffer, timeout_ns) : -EOPNOTSUPP;
}

void pyvma_capture_stop(pyvma_capture *c)
{
	if (c->sniffer)
		pv_sniffer_close(c->sniffer);
	c->sniffer = NULL;
}

void pyvma_capture_detach(pyvma_capture *c)
{
	pyvma_capture_stop(c);
	munmap(c->mem, PV_CAPTURE_HEAD + c->size);
	free(c);
}
