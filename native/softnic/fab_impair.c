/* SPDX-License-Identifier: BSD-3-Clause */
/* What a port does to the frames it sends, by its shared settings. */
#include <stdlib.h>

#include "softnic/fab.h"

struct sn_impair_state {
	uint64_t gen; /* of the settings below */
	struct sn_impairments set;
	struct pv_rng rng;
};

int sn_port_impair(struct sn_port *p, const struct sn_impairments *imp)
{
	struct sn_port_ent *e = &p->s->port[p->number];
	int rc;

	if (imp->delay_ns || imp->jitter_ns || imp->rate_kbps || imp->reorder_ppm)
		return sn_fail(-EOPNOTSUPP, "no frames are held back");
	rc = sn_lock(p->f);
	if (rc)
		return rc;
	sn_change_begin(p->f);
	sn_set(&e->loss_ppm, imp->loss_ppm);
	sn_set(&e->duplicate_ppm, imp->duplicate_ppm);
	sn_set(&e->corrupt_ppm, imp->corrupt_ppm);
	sn_set(&e->seed, imp->seed);
	sn_set(&e->impaired, imp->loss_ppm || imp->duplicate_ppm || imp->corrupt_ppm);
	sn_change_end(p->f);
	sn_unlock(p->f);
	return 0;
}

static bool happens(struct sn_impair_state *st, uint32_t ppm)
{
	return ppm && pv_rng_below(&st->rng, 1000000) < ppm;
}

void sn_impair_send(struct sn_port *p, uint8_t *frame, uint32_t len)
{
	struct sn_lane_count *c = &p->lane->count[p->number];
	const struct sn_port_ent *e = &p->s->port[p->number];
	struct sn_impair_state *st = p->impair;

	if (!st) {
		st = p->impair = calloc(1, sizeof(*st));
		if (!st)
			return;
		pv_rng_seed(&st->rng, sn_get(&e->seed));
	}
	if (happens(st, (uint32_t)sn_get(&e->loss_ppm))) {
		sn_count(&c->tx_loss, 1);
		return;
	}
	if (happens(st, (uint32_t)sn_get(&e->corrupt_ppm))) {
		uint64_t bit = pv_rng_below(&st->rng, (uint64_t)len * 8);

		frame[bit / 8] ^= (uint8_t)(1u << (bit & 7));
		sn_count(&c->tx_corrupted, 1);
	}
	sn_send_now(p, frame, len, 0);
	if (happens(st, (uint32_t)sn_get(&e->duplicate_ppm))) {
		sn_count(&c->tx_duplicated, 1);
		sn_send_now(p, frame, len, 0);
	}
}

void sn_impair_detach(struct sn_port *p)
{
	free(p->impair);
	p->impair = NULL;
}

void sn_hold_close(struct sn_fabric *f)
{
	(void)f;
}
