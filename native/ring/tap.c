/* SPDX-License-Identifier: BSD-3-Clause */
/* What is not watched goes by the ring's own operations: theirs are copied, and four replaced. */
#include "ring/tap.h"

#include <errno.h>

struct tapped {
	struct pv_ring_ops ops;
	const struct pv_ring_ops *own; /* the ring's */
	const struct pv_mem *mem;
	struct pv_list taps;
};

static struct tapped *tapped(const struct pv_ring *r)
{
	return pv_container_of(r->ops, struct tapped, ops);
}

static void show(struct tapped *d, struct pv_pkt *const *pkts, uint32_t n, enum pv_dir dir)
{
	pv_list_for_each(it, &d->taps) {
		struct pv_tap *t = pv_list_entry(it, struct pv_tap, on_ring);

		t->frames(t, pkts, n, dir);
	}
}

static uint32_t tap_rx_poll(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct tapped *d = tapped(r);
	uint32_t got = d->own->rx_poll(r, pkts, n);

	if (got)
		show(d, pkts, got, PV_DIR_RX);
	return got;
}

/* What the ring refuses is offered again, and must not be seen twice: so it is asked first, and a packet that it took may still be
 * read, for nobody writes to a frame that is on its way. */
static uint32_t tap_tx_post(struct pv_ring *r, struct pv_pkt **pkts, uint32_t n)
{
	struct tapped *d = tapped(r);
	uint32_t took = d->own->tx_post(r, pkts, n);

	if (took)
		show(d, pkts, took, PV_DIR_TX);
	return took;
}

/* The ring's own operations again. */
static void restore(struct pv_ring *r)
{
	struct tapped *d = tapped(r);
	const struct pv_mem *mem = d->mem;

	r->ops = d->own;
	mem->free(mem->ctx, d, sizeof(*d));
}

static void dismiss(struct pv_ring *r, bool forked)
{
	struct tapped *d = tapped(r);

	while (!pv_list_empty(&d->taps)) {
		struct pv_tap *t = pv_list_entry(d->taps.next, struct pv_tap, on_ring);

		pv_list_del(&t->on_ring);
		t->ring = NULL;
		t->gone(t, forked ? NULL : r);
	}
	restore(r);
}

static void tap_close(struct pv_ring *r)
{
	dismiss(r, false);
	r->ops->close(r);
}

static void tap_forget(struct pv_ring *r)
{
	dismiss(r, true);
	if (r->ops->forget)
		r->ops->forget(r);
}

int pv_tap_add(struct pv_tap *t, struct pv_ring *r, const struct pv_mem *mem)
{
	struct tapped *d;

	if (r->ops->rx_poll != tap_rx_poll) {
		d = mem->alloc(mem->ctx, sizeof(*d));
		if (!d)
			return -ENOMEM;
		d->own = r->ops;
		d->mem = mem;
		d->ops = *r->ops;
		d->ops.rx_poll = tap_rx_poll;
		d->ops.tx_post = tap_tx_post;
		d->ops.close = tap_close;
		d->ops.forget = tap_forget;
		pv_list_init(&d->taps);
		r->ops = &d->ops;
	}
	t->ring = r;
	pv_list_add(&tapped(r)->taps, &t->on_ring);
	return 0;
}

void pv_tap_del(struct pv_tap *t)
{
	struct pv_ring *r = t->ring;

	if (!r)
		return;
	t->ring = NULL;
	pv_list_del(&t->on_ring);
	if (pv_list_empty(&tapped(r)->taps))
		restore(r);
}
