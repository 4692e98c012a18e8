/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports, and the lanes by which senders are on them. A port is there while a lane is; a lane keeps its counters when it is given
 * back, and its next owner counts on from them, so a total is the sum over all lanes at any time.
 */
#include <stdlib.h>

#include "softnic/fab.h"

_Static_assert(SN_PORTS <= 64, "ports of a route are bits of a word");

int sn_lane_get(struct sn_fabric *f, uint32_t port)
{
	struct sn_shm *s = f->s;

	for (uint32_t i = 0; i < SN_LANES; i++) {
		struct sn_lane_ent *e = &s->lane_ent[i];
		int rc;

		if (sn_get(&e->state) != SN_FREE)
			continue;
		rc = sn_reserve(f, &s->lane[i], sizeof(s->lane[i]));
		if (rc)
			return rc;
		if (sn_get(&s->lanes_used) < i + 1)
			sn_set(&s->lanes_used, i + 1);
		sn_set(&s->lane[i].busy, 0);
		sn_set(&s->lane[i].dm_bytes, 0);
		sn_set(&e->client, f->client);
		sn_set(&e->port, port);
		sn_set(&e->watch, 0);
		sn_set(&e->state, SN_LIVE);
		return (int)i;
	}
	return sn_fail(-ENOSPC, "fabric %s: %u queue pairs are on it already", f->name, SN_LANES);
}

/* What a dead owner still held back is lost: the difference becomes part of held_lost, however often this is done. */
void sn_lane_put(struct sn_fabric *f, uint32_t lane)
{
	struct sn_lane *l = &f->s->lane[lane];

	for (uint32_t i = 0; i < SN_PORTS; i++) {
		struct sn_lane_count *c = &l->count[i];

		sn_set(&c->held_lost, sn_get(&c->held_in) - sn_get(&c->held_out));
	}
	sn_set(&l->busy, 0);
	sn_set(&l->dm_bytes, 0);
	sn_set(&f->s->lane_ent[lane].watch, 0);
	sn_set(&f->s->lane_ent[lane].state, SN_FREE);
}

static uint32_t lanes_on(const struct sn_shm *s, uint32_t port)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < SN_LANES; i++)
		n += sn_get(&s->lane_ent[i].state) == SN_LIVE && sn_get(&s->lane_ent[i].port) == port;
	return n;
}

void sn_port_settle(struct sn_fabric *f, uint32_t port)
{
	struct sn_shm *s = f->s;

	if (sn_get(&s->port[port].state) == SN_FREE || lanes_on(s, port))
		return;
	sn_fdb_drop(f, port, UINT32_MAX);
	sn_set(&s->port[port].state, SN_FREE);
}

static bool mac_taken(const struct sn_shm *s, uint64_t mac)
{
	for (uint32_t i = 0; i < SN_PORTS; i++) {
		if (sn_get(&s->port[i].state) == SN_LIVE && sn_get(&s->port[i].mac) == mac)
			return true;
	}
	return false;
}

/* With the lock. */
static int port_make(struct sn_fabric *f, uint32_t number, const struct sn_port_cfg *cfg)
{
	static const uint8_t base[6] = { 0x02, 0x53, 0x4e, 0, 0, 0 };
	struct sn_port_ent *e = &f->s->port[number];
	uint64_t mac = sn_mac_u64(cfg->mac);

	if (!mac)
		mac = sn_mac_u64(base) | (uint64_t)number << 40;
	if (mac & 1)
		return sn_fail(-EINVAL, "fabric %s, port %u: a group address cannot be its MAC", f->name, number);
	if (mac_taken(f->s, mac))
		return sn_fail(-EEXIST, "fabric %s, port %u: another port has its MAC", f->name, number);
	sn_change_begin(f);
	sn_set(&e->mac, mac);
	sn_set(&e->mtu, cfg->mtu ? cfg->mtu : 1500);
	sn_set(&e->dm_bytes, cfg->dm_bytes ? cfg->dm_bytes : SN_DM_DEFAULT);
	sn_set(&e->link, 1);
	sn_set(&e->link_events, 0);
	sn_set(&e->uplink, 0);
	sn_set(&e->impaired, 0);
	sn_set(&e->wire_free_ns, 0);
	sn_clock_reset(f, number);
	if (sn_get(&f->s->ports_used) < number + 1)
		sn_set(&f->s->ports_used, number + 1);
	sn_set(&e->state, SN_LIVE);
	sn_change_end(f);
	return 0;
}

static int port_join(struct sn_fabric *f, uint32_t number, const struct sn_port_cfg *cfg)
{
	struct sn_port_ent *e = &f->s->port[number];

	sn_clients_reap(f);
	sn_port_settle(f, number);
	if (sn_get(&e->state) != SN_LIVE)
		return port_make(f, number, cfg);
	if (sn_mac_u64(cfg->mac) && sn_mac_u64(cfg->mac) != sn_get(&e->mac))
		return sn_fail(-EEXIST, "fabric %s, port %u: another process gave it another MAC", f->name, number);
	if (cfg->mtu && cfg->mtu != sn_get(&e->mtu))
		return sn_fail(-EEXIST, "fabric %s, port %u: another process gave it MTU %u", f->name, number, sn_get(&e->mtu));
	if (cfg->dm_bytes && cfg->dm_bytes != sn_get(&e->dm_bytes))
		return sn_fail(-EEXIST, "fabric %s, port %u: another process gave it %u bytes of device memory", f->name, number,
			       (uint32_t)sn_get(&e->dm_bytes));
	return 0;
}

/* The process's side of a lane. */
struct sn_port *sn_port_view(struct sn_fabric *f, uint32_t number, uint32_t lane)
{
	struct sn_port *p = calloc(1, sizeof(*p));
	size_t paths = SN_PATHS * sizeof(struct sn_path), route = (sizeof(struct sn_route) + 63) & ~(size_t)63;

	if (!p)
		return NULL;
	p->alloc = aligned_alloc(64, (paths + route + SN_FRAME_MAX + 127) & ~(size_t)63);
	if (!p->alloc) {
		free(p);
		return NULL;
	}
	memset(p->alloc, 0, paths);
	p->path = p->alloc;
	p->route = (struct sn_route *)(void *)((uint8_t *)p->alloc + paths);
	p->scratch = (uint8_t *)p->alloc + paths + route;
	p->f = f;
	p->s = f->s;
	p->number = number;
	p->lane_no = p->self = lane;
	p->lane = &f->s->lane[lane];
	p->count = &p->lane->count[number];
	p->fences = f->fences;
	p->plug = sn_get(&f->s->port[number].plug);
	return p;
}

void sn_port_unview(struct sn_port *p)
{
	free(p->alloc);
	free(p);
}

int sn_port_attach(struct sn_fabric *f, uint32_t number, const struct sn_port_cfg *cfg, struct sn_port **out)
{
	static const struct sn_port_cfg none;
	struct sn_port *p = NULL;
	uint32_t ordinal;
	int rc;

	if (!cfg)
		cfg = &none;
	if (number >= SN_PORTS)
		return sn_fail(-EINVAL, "fabric %s: ports are numbered 0 to %d", f->name, SN_PORTS - 1);
	if (cfg->mtu && (cfg->mtu < 68 || cfg->mtu > SN_MTU_MAX))
		return sn_fail(-EINVAL, "fabric %s, port %u: an MTU is 68 to %u", f->name, number, SN_MTU_MAX);
	rc = sn_lock(f);
	if (rc)
		return rc;
	rc = port_join(f, number, cfg);
	ordinal = lanes_on(f->s, number);
	if (!rc)
		rc = sn_lane_get(f, number);
	if (rc >= 0) {
		p = sn_port_view(f, number, (uint32_t)rc);
		if (p) {
			p->ordinal = ordinal;
		} else {
			sn_lane_put(f, (uint32_t)rc);
			rc = sn_fail(-ENOMEM, "no memory");
		}
	}
	if (rc < 0)
		sn_port_settle(f, number);
	sn_unlock(f);
	if (rc < 0)
		return rc;
	sn_port_refresh(p);
	*out = p;
	return 0;
}

void sn_port_detach(struct sn_port *p)
{
	struct sn_fabric *f = p->f;

	sn_impair_detach(p);
	if (!sn_lock(f)) {
		sn_change_begin(f);
		sn_rules_drop(f, f->client, p->lane_no);
		sn_lane_put(f, p->lane_no);
		sn_port_settle(f, p->number);
		sn_change_end(f);
		sn_unlock(f);
	}
	sn_port_unview(p);
}

void sn_port_mac(const struct sn_port *p, uint8_t mac[6])
{
	uint64_t m = sn_get(&p->s->port[p->number].mac);

	memcpy(mac, &m, 6);
}

uint32_t sn_port_mtu(const struct sn_port *p)
{
	return PV_MIN(sn_get(&p->s->port[p->number].mtu), SN_MTU_MAX);
}

bool sn_port_link(const struct sn_port *p)
{
	return sn_get(&p->s->port[p->number].link) != 0;
}

uint32_t sn_port_link_events(const struct sn_port *p)
{
	return sn_get(&p->s->port[p->number].link_events);
}

/* With the lock. */
static void wake_watchers(struct sn_port *p)
{
	struct sn_shm *s = p->s;

	for (uint32_t i = 0; i < SN_LANES; i++) {
		if (sn_get(&s->lane_ent[i].state) == SN_LIVE && sn_get(&s->lane_ent[i].port) == p->number &&
		    sn_get(&s->lane_ent[i].watch))
			sn_wake(p->f, sn_get(&s->lane_ent[i].watch) - 1);
	}
}

void sn_port_set_link(struct sn_port *p, bool up)
{
	struct sn_port_ent *e = &p->s->port[p->number];

	if (sn_lock(p->f))
		return;
	if ((sn_get(&e->link) != 0) != up) {
		sn_change_begin(p->f);
		sn_set(&e->link, up);
		sn_set(&e->link_events, sn_get(&e->link_events) + 1);
		sn_change_end(p->f);
		wake_watchers(p);
	}
	sn_unlock(p->f);
}

bool sn_port_plugged(const struct sn_port *p)
{
	return !(sn_get(&p->s->port[p->number].plug) & 1);
}

bool sn_port_removed(const struct sn_port *p)
{
	return sn_get(&p->s->port[p->number].plug) != p->plug;
}

void sn_port_plug(struct sn_port *p, bool in)
{
	struct sn_port_ent *e = &p->s->port[p->number];

	if (sn_lock(p->f))
		return;
	if (sn_port_plugged(p) != in) {
		sn_change_begin(p->f);
		sn_set(&e->plug, sn_get(&e->plug) + 1);
		sn_change_end(p->f);
		wake_watchers(p);
	}
	sn_unlock(p->f);
}

/* From here on MACs that the port's frames come from are behind it. */
void sn_port_set_uplink(struct sn_port *p)
{
	if (sn_lock(p->f))
		return;
	sn_change_begin(p->f);
	sn_set(&p->s->port[p->number].uplink, 1);
	sn_change_end(p->f);
	sn_unlock(p->f);
}

int sn_port_watch(struct sn_port *p, struct sn_waker *w)
{
	sn_set(&p->s->lane_ent[p->lane_no].watch, w ? w->no + 1 : 0);
	return 0;
}

uint32_t sn_port_dm_bytes(const struct sn_port *p)
{
	return (uint32_t)PV_MIN(sn_get(&p->s->port[p->number].dm_bytes), (uint64_t)UINT32_MAX);
}

int sn_port_dm_take(struct sn_port *p, uint64_t bytes)
{
	struct sn_shm *s = p->s;
	uint64_t room = sn_port_dm_bytes(p);
	int rc = sn_lock(p->f);

	if (rc)
		return rc;
	sn_clients_reap(p->f);
	for (uint32_t i = 0; i < SN_LANES; i++) {
		if (sn_get(&s->lane_ent[i].state) == SN_LIVE && sn_get(&s->lane_ent[i].port) == p->number)
			room -= PV_MIN(room, sn_get(&s->lane[i].dm_bytes));
	}
	if (bytes <= room)
		sn_count(&p->lane->dm_bytes, bytes);
	sn_unlock(p->f);
	return bytes <= room ? 0
			     : sn_fail(-ENOMEM, "fabric %s, port %u: %llu bytes of device memory left", p->f->name, p->number,
				       (unsigned long long)room);
}

void sn_port_dm_give(struct sn_port *p, uint64_t bytes)
{
	if (sn_lock(p->f))
		return;
	sn_set(&p->lane->dm_bytes, sn_get(&p->lane->dm_bytes) - PV_MIN(bytes, sn_get(&p->lane->dm_bytes)));
	sn_unlock(p->f);
}

static void count_lane(const struct sn_lane_count *c, bool live, struct sn_port_counters *out)
{
	uint64_t lost = live ? sn_get(&c->held_lost) : sn_get(&c->held_in) - sn_get(&c->held_out);

	out->tx_packets += sn_get(&c->tx_packets);
	out->tx_bytes += sn_get(&c->tx_bytes);
	out->rx_packets += sn_get(&c->rx_packets);
	out->rx_bytes += sn_get(&c->rx_bytes);
	out->rx_no_rule += sn_get(&c->rx_no_rule);
	out->rx_rule_drop += sn_get(&c->rx_rule_drop);
	out->rx_queue_full += sn_get(&c->rx_queue_full);
	out->rx_too_long += sn_get(&c->rx_too_long);
	out->rx_link_down += sn_get(&c->rx_link_down);
	out->tx_link_down += sn_get(&c->tx_link_down);
	out->tx_too_long += sn_get(&c->tx_too_long);
	out->tx_impaired_loss += sn_get(&c->tx_loss) + lost;
	out->tx_duplicated += sn_get(&c->tx_duplicated);
	out->tx_corrupted += sn_get(&c->tx_corrupted);
	out->tx_reordered += sn_get(&c->tx_reordered);
}

void sn_port_get_counters(const struct sn_port *p, struct sn_port_counters *out)
{
	struct sn_shm *s = p->s;
	uint32_t used;

	memset(out, 0, sizeof(*out));
	if (sn_lock(p->f))
		return;
	used = PV_MIN(sn_get(&s->lanes_used), SN_LANES);
	for (uint32_t i = 0; i < used; i++) {
		const struct sn_lane_ent *e = &s->lane_ent[i];

		count_lane(&s->lane[i].count[p->number], sn_get(&e->state) == SN_LIVE && sn_client_alive(p->f, sn_get(&e->client)),
			   out);
	}
	sn_unlock(p->f);
}
