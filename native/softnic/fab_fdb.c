/* SPDX-License-Identifier: BSD-3-Clause */
/* MACs seen behind uplinks. Hashed, with linear probing over a short run; a full run forgets its oldest. */
#include "softnic/fab.h"

#define RUN 8u

static uint32_t slot_of(uint64_t mac)
{
	return (uint32_t)((mac * UINT64_C(0x9e3779b97f4a7c15)) >> 40) % SN_FDB;
}

int sn_fdb_find(struct sn_shm *s, uint64_t mac)
{
	uint32_t at = slot_of(mac);

	if (!sn_get(&s->fdb_used))
		return -1;
	for (uint32_t i = 0; i < RUN; i++) {
		const struct sn_fdb_ent *e = &s->fdb[(at + i) % SN_FDB];
		uint32_t port = sn_get(&e->port);

		if (sn_get(&e->mac) == mac && port < SN_PORTS && sn_get(&s->port[port].state) == SN_LIVE)
			return (int)port;
	}
	return -1;
}

/* By the uplink that is the port; cheap while nothing is new. */
void sn_fdb_learn(struct sn_fabric *f, uint32_t port, uint64_t mac, uint32_t now_s)
{
	struct sn_fdb_ent *into = NULL;
	uint32_t at = slot_of(mac);

	if (mac & 1)
		return;
	for (uint32_t i = 0; i < RUN; i++) {
		struct sn_fdb_ent *e = &f->s->fdb[(at + i) % SN_FDB];

		if (sn_get(&e->mac) == mac && sn_get(&e->port) == port) {
			sn_set_relaxed(&e->seen_s, now_s);
			return;
		}
	}
	if (sn_lock(f))
		return;
	for (uint32_t i = 0; i < RUN; i++) {
		struct sn_fdb_ent *e = &f->s->fdb[(at + i) % SN_FDB];
		uint64_t have = sn_get(&e->mac);

		if (have == mac) {
			into = e;
			break;
		}
		if (!into || (sn_get(&into->mac) && (!have || sn_get(&e->seen_s) < sn_get(&into->seen_s))))
			into = e;
	}
	sn_change_begin(f);
	sn_set(&into->mac, 0);
	sn_set(&into->port, port);
	sn_set(&into->seen_s, now_s);
	sn_set(&into->mac, mac);
	sn_set(&f->s->fdb_used, 1);
	sn_change_end(f);
	sn_unlock(f);
}

/* With the lock: forgets the port's MACs last seen before `older_than_s`. */
void sn_fdb_drop(struct sn_fabric *f, uint32_t port, uint32_t older_than_s)
{
	for (uint32_t i = 0; i < SN_FDB; i++) {
		struct sn_fdb_ent *e = &f->s->fdb[i];

		if (sn_get(&e->mac) && sn_get(&e->port) == port && sn_get(&e->seen_s) < older_than_s)
			sn_set(&e->mac, 0);
	}
}

void sn_fdb_age(struct sn_fabric *f, uint32_t port, uint32_t older_than_s)
{
	bool old = false;

	for (uint32_t i = 0; i < SN_FDB; i++) {
		const struct sn_fdb_ent *e = &f->s->fdb[i];

		old |= sn_get(&e->mac) && sn_get(&e->port) == port && sn_get(&e->seen_s) < older_than_s;
	}
	if (!old || sn_lock(f))
		return;
	sn_change_begin(f);
	sn_fdb_drop(f, port, older_than_s);
	sn_change_end(f);
	sn_unlock(f);
}
