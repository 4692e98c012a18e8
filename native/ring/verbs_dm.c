/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On-device memory: frames that are too long for the send queue entry are written across the bus once, and the device has them at
 * hand when it sends, instead of reading them from the host first.
 *
 * One block, used as a ring: `head` is where the next frame goes, `used` what the device may still read. A frame lies in one piece;
 * when it does not fit before the end but does at the front, the bytes skipped are charged to it, and come back with it. A charge is
 * entered only when the copy has succeeded, and an entry that the device refuses takes head and charge back, so the two never part.
 * The device completes in order, and so the block is freed in order: when there is no room, not before.
 *
 * The first bytes of a frame stay in host memory, in a table of the ring's: providers that put headers into the queue entry read
 * them by the processor (mlx5: 18 bytes), which cannot follow an offset into device memory. What the packet held is then nowhere
 * needed any more, so it is done as soon as it is copied, like an inlined one: a sender that keeps it may change it.
 */
#include <errno.h>
#include <stdio.h>

#include "ring/verbs_priv.h"

#define FRAME_ALIGN 64u /* frames begin on lines that write-combining flushes whole */
#define COPY_ALIGN 4u /* what devices ask of offset and length */
#define SCARCE 4u /* a completion is asked for at the latest when this part of the block was handed out */

#define HEADER VERBS_DM_HEADER

static size_t headers_bytes(const struct verbs_txq *q)
{
	return q->slots * sizeof(struct verbs_dm_header);
}

static uint32_t scratch_bytes(const struct verbs_ring *v)
{
	return (v->ring.caps.mtu + 18 + COPY_ALIGN) & ~(COPY_ALIGN - 1);
}

static int alloc_tables(struct verbs_ring *v, struct verbs_dm *d)
{
	const struct pv_mem *mem = v->mem;

	d->charge = mem->alloc(mem->ctx, v->tx.slots * sizeof(*d->charge));
	d->header = mem->alloc(mem->ctx, headers_bytes(&v->tx));
	d->scratch = mem->alloc(mem->ctx, scratch_bytes(v));
	return d->charge && d->header && d->scratch ? 0 : -ENOMEM;
}

static int alloc_device(struct verbs_ring *v, struct verbs_dm *d)
{
	struct ibv_alloc_dm_attr attr = { .length = d->size };

	errno = 0;
	d->dm = ibv_alloc_dm(v->ctx, &attr);
	if (d->dm)
		d->mr = ibv_reg_dm_mr(v->pd, d->dm, 0, d->size, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	if (d->mr)
		d->header_mr = v->lib.reg_mr(v->pd, d->header, headers_bytes(&v->tx), IBV_ACCESS_LOCAL_WRITE);
	return d->header_mr ? 0 : errno ? -errno : -ENOMEM;
}

static int attach(struct verbs_ring *v, uint32_t bytes)
{
	const struct pv_mem *mem = v->mem;
	struct verbs_dm *d;
	int rc;

	if (!v->ring.caps.dm_bytes || v->ring.caps.max_sge < 2)
		return -EOPNOTSUPP;
	if (bytes > v->ring.caps.dm_bytes)
		return -ENOSPC;
	d = v->tx.dm = mem->alloc(mem->ctx, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->size = bytes;
	rc = alloc_tables(v, d);
	return rc ? rc : alloc_device(v, d);
}

void pv_verbs_dm_open(struct verbs_ring *v, uint32_t bytes, char *err, size_t errsize)
{
	int rc = attach(v, (bytes + FRAME_ALIGN - 1) & ~(FRAME_ALIGN - 1));

	if (!rc) {
		v->ring.stat->c.dm_alloc = v->tx.dm->size;
		return;
	}
	pv_verbs_dm_close(v);
	if (rc == -EOPNOTSUPP)
		snprintf(err, errsize, "the device has no memory to send from");
	else if (rc == -ENOSPC)
		snprintf(err, errsize, "the device has %u bytes of memory to send from, not the %u asked for",
			 v->ring.caps.dm_bytes, bytes);
	else
		snprintf(err, errsize, "%u bytes of the device's memory cannot be had: %s", bytes, strerrordesc_np(-rc));
}

void pv_verbs_dm_close(struct verbs_ring *v)
{
	const struct pv_mem *mem = v->mem;
	struct verbs_dm *d = v->tx.dm;

	if (!d)
		return;
	if (!v->forgotten) {
		if (d->header_mr)
			v->lib.dereg_mr(d->header_mr);
		if (d->mr)
			v->lib.dereg_mr(d->mr);
		if (d->dm)
			ibv_free_dm(d->dm);
	}
	if (d->charge)
		mem->free(mem->ctx, d->charge, v->tx.slots * sizeof(*d->charge));
	if (d->header)
		mem->free(mem->ctx, d->header, headers_bytes(&v->tx));
	if (d->scratch)
		mem->free(mem->ctx, d->scratch, scratch_bytes(v));
	mem->free(mem->ctx, d, sizeof(*d));
	v->tx.dm = NULL;
}

/* Where `need` bytes in one piece may go, and what that charges; false: nowhere. */
static bool find(const struct verbs_dm *d, uint32_t need, uint32_t *at, uint32_t *charge)
{
	bool wraps = d->head + need > d->size;

	*at = wraps ? 0 : d->head;
	*charge = wraps ? d->size - d->head + need : need;
	return *charge <= d->size - d->used;
}

/* The bytes behind the header, as long as the device wants them. Behind a single buffer's end may be what is not ours to read. */
static const uint8_t *body(const struct verbs_dm *d, const struct pv_pkt *p, uint32_t padded)
{
	uint32_t off = 0;

	if (!p->frag && HEADER + padded <= p->size - pv_pkt_headroom(p))
		return p->data + HEADER;
	for (; p; off += p->len, p = p->frag)
		memcpy(d->scratch + off, p->data, p->len);
	return d->scratch + HEADER;
}

/* What completed WRs were charged comes back, in their order. */
static void release(struct verbs_txq *q)
{
	struct verbs_dm *d = q->dm;

	if (q->sq_head - d->freed > q->slots)
		d->freed = q->sq_head - q->slots; /* no slot twice */
	for (; d->freed != q->sq_head; d->freed++) {
		d->used -= d->charge[d->freed & q->sq_mask];
		d->charge[d->freed & q->sq_mask] = 0;
	}
	if (!d->used)
		d->head = 0;
}

static bool make_room(struct verbs_ring *v, struct verbs_txq *q, uint32_t need, uint32_t *at, uint32_t *charge)
{
	release(q);
	if (find(q->dm, need, at, charge))
		return true;
	pv_verbs_tx_poll(v, q);
	release(q);
	return find(q->dm, need, at, charge);
}

bool pv_verbs_dm_copy(struct verbs_ring *v, struct verbs_txq *q, const struct pv_pkt *p, uint32_t len, struct ibv_sge sge[2])
{
	struct verbs_dm *d = q->dm;
	uint32_t slot = q->sq_tail & q->sq_mask, at, charge, padded = (len - HEADER + COPY_ALIGN - 1) & ~(COPY_ALIGN - 1);
	uint32_t need = (padded + FRAME_ALIGN - 1) & ~(FRAME_ALIGN - 1);

	if (d->signalled != q->sq_signalled) {
		d->signalled = q->sq_signalled;
		d->unsignalled = 0;
	}
	if (q->sq_tail - d->freed >= q->slots)
		release(q); /* the slot's last charge, if it is there still */
	if (len <= HEADER || (!find(d, need, &at, &charge) && !make_room(v, q, need, &at, &charge)) || p->len < HEADER ||
	    pv_unlikely(ibv_memcpy_to_dm(d->dm, at, body(d, p, padded), padded))) {
		v->ring.stat->c.dm_oob++;
		return false;
	}
	memcpy(d->header[slot].bytes, p->data, HEADER);
	d->head = at + need;
	d->used += charge;
	d->unsignalled += charge;
	d->charge[slot] = charge;
	sge[0] = (struct ibv_sge){ (uint64_t)(uintptr_t)d->header[slot].bytes, HEADER, d->header_mr->lkey };
	sge[1] = (struct ibv_sge){ at, len - HEADER, d->mr->lkey };
	v->ring.stat->c.dm_packets++;
	v->ring.stat->c.dm_bytes += len;
	return true;
}

bool pv_verbs_dm_scarce(const struct verbs_dm *d)
{
	return d->unsignalled >= d->size / SCARCE;
}

/* From the last one back: what was charged with a skip is where the skip began. */
void pv_verbs_dm_undo(struct verbs_ring *v, struct verbs_txq *q, uint32_t from)
{
	struct verbs_dm *d = q->dm;

	release(q); /* what is charged from here on is these WRs' */
	for (uint32_t i = q->sq_tail; i-- != from;) {
		uint32_t *charge = &d->charge[i & q->sq_mask];

		if (!*charge)
			continue;
		d->head = (d->head + d->size - *charge) % d->size;
		d->used -= *charge;
		*charge = 0;
		v->ring.stat->c.dm_packets--;
	}
	d->unsignalled = PV_MIN(d->unsignalled, d->used);
}
