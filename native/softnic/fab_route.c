/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a frame goes, found in the tables without a lock: the caller compares the generation before and after, and starts again
 * when it changed. What is read from the tables is checked before it is used as an index.
 */
#include "softnic/fab.h"

struct choice {
	uint64_t handle;
	uint32_t priority, rule;
};

struct finder {
	struct sn_port *p;
	struct sn_route *out;
	uint64_t ports; /* that the frame reaches, as bits */
	uint64_t taken; /* where a normal rule took it */
	uint64_t dropped; /* where such a rule drops it */
	bool group, flood;
	bool echo; /* the queue pair that sent it may hear it */
	struct choice best[SN_PORTS];
};

static bool rule_matches(const struct sn_rule_ent *e, const struct sn_parse *parse)
{
	uint32_t need = sn_get(&e->need), words = need & SN_FIELDS_INNER ? SN_KEY_WORDS + SN_INNER_WORDS : SN_KEY_WORDS;

	if (need & ~parse->has)
		return false;
	for (uint32_t i = 0; i < words; i++) {
		if ((parse->key[i] ^ sn_get(&e->value[i])) & sn_get(&e->mask[i]))
			return false;
	}
	return true;
}

static void add_target(struct finder *d, const struct sn_rule_ent *e)
{
	struct sn_route *out = d->out;
	uint32_t n = sn_get(&e->nqueues), rss = sn_get(&e->rss_fields), hash = 0;
	struct sn_target *t = &out->target[out->ntargets];

	if (sn_get(&e->flags) & SN_RULE_DROP) {
		d->dropped |= UINT64_C(1) << sn_get(&e->port) % SN_PORTS;
		return;
	}
	if (!n || n > SN_RULE_QUEUES || out->ntargets == SN_ROUTE_TARGETS)
		return;
	if (rss) {
		uint64_t key[5];

		for (int i = 0; i < 5; i++)
			key[i] = sn_get(&e->key[i]);
		out->fields |= sn_rss_field_bits(rss);
		sn_rss_hash(&out->parse, rss, (const uint8_t *)key, &hash);
	}
	if (!sn_target_get(d->p->s, sn_get(&e->queue[hash & (n - 1)]), t))
		return;
	if (!d->echo && sn_get(&t->ent->lane) == d->p->self)
		return;
	for (uint32_t i = 0; i < out->ntargets; i++) {
		if (out->target[i].ent == t->ent)
			return;
	}
	t->hash = sn_get(&e->flags) & SN_RULE_TAG ? sn_get(&e->tag) : hash;
	t->flags = sn_get(&e->flags) & SN_RULE_TAG ? SN_RX_TAG : 0;
	t->count = &d->p->lane->count[t->port];
	t->max_len = sn_get(&d->p->s->port[t->port].mtu) + 18;
	out->ntargets++;
}

/* One rule of kind normal or, in the second round, default. */
static void consider(struct finder *d, uint32_t no, const struct sn_rule_ent *e, uint32_t port)
{
	struct choice *best = &d->best[port];
	uint64_t handle = sn_get(&e->state);
	uint32_t priority = sn_get(&e->priority);

	d->taken |= UINT64_C(1) << port;
	if (d->group) {
		add_target(d, e);
		return;
	}
	if (best->handle && (best->priority < priority || (best->priority == priority && best->handle < handle)))
		return;
	best->handle = handle;
	best->priority = priority;
	best->rule = no;
}

static bool same_match(const struct sn_rule_ent *a, const struct sn_rule_ent *b)
{
	uint64_t differ = sn_get(&a->port) ^ sn_get(&b->port);

	differ |= (sn_get(&a->kind) ^ sn_get(&b->kind)) | (sn_get(&a->priority) ^ sn_get(&b->priority));
	for (uint32_t i = 0; i < SN_KEY_WORDS + SN_INNER_WORDS; i++)
		differ |= (sn_get(&a->value[i]) ^ sn_get(&b->value[i])) | (sn_get(&a->mask[i]) ^ sn_get(&b->mask[i]));
	return !differ;
}

/* The best rule of each port, and every other rule that says exactly the same: one entry of the flow table with several receivers. */
static void add_best(struct finder *d, uint64_t ports)
{
	struct sn_shm *s = d->p->s;
	uint32_t used = PV_MIN(sn_get(&s->rules_used), SN_RULES);

	for (; ports; ports &= ports - 1) {
		const struct choice *best = &d->best[__builtin_ctzll(ports)];

		for (uint32_t i = 0; best->handle && i < used; i++) {
			if (sn_get(&s->rule[i].state) && same_match(&s->rule[best->rule], &s->rule[i]))
				add_target(d, &s->rule[i]);
		}
	}
}

static void normal_round(struct finder *d)
{
	struct sn_shm *s = d->p->s;
	uint32_t used = PV_MIN(sn_get(&s->rules_used), SN_RULES);
	uint64_t own = UINT64_C(1) << d->p->number;

	for (uint32_t i = 0; i < used; i++) {
		const struct sn_rule_ent *e = &s->rule[i];
		uint32_t kind, port;
		uint64_t bit;

		if (!sn_get(&e->state))
			continue;
		kind = sn_get(&e->kind);
		port = sn_get(&e->port);
		if (port >= SN_PORTS || kind > SN_RULE_SNIFFER)
			continue;
		bit = UINT64_C(1) << port;
		if (!(bit & (kind == SN_RULE_SNIFFER ? d->ports | own : d->ports)))
			continue;
		d->out->fields |= sn_get(&e->need);
		if (!rule_matches(e, &d->out->parse))
			continue;
		if (kind == SN_RULE_SNIFFER)
			add_target(d, e);
		else
			consider(d, i, e, port);
	}
	add_best(d, d->taken);
}

/* Default rules take what no normal rule of their port took. */
static void default_round(struct finder *d, uint64_t ports)
{
	struct sn_shm *s = d->p->s;
	uint32_t used = PV_MIN(sn_get(&s->rules_used), SN_RULES);

	for (uint32_t i = 0; i < used; i++) {
		const struct sn_rule_ent *e = &s->rule[i];
		uint32_t kind, port;

		if (!sn_get(&e->state))
			continue;
		kind = sn_get(&e->kind);
		port = sn_get(&e->port);
		if (port >= SN_PORTS || !(ports >> port & 1) || (kind != SN_RULE_ALL && (kind != SN_RULE_MC || !d->group)))
			continue;
		d->out->fields |= sn_get(&e->need);
		if (rule_matches(e, &d->out->parse))
			consider(d, i, e, port);
	}
	add_best(d, d->taken & ports);
}

static void add_miss(struct sn_route *out, uint32_t port, uint32_t why)
{
	out->miss[out->nmisses++] = (struct sn_miss){ .port = (uint8_t)port, .why = (uint8_t)why };
}

/* Where a rule that drops is all that took the frame. */
static void add_dropped(struct finder *d)
{
	for (uint32_t i = 0; i < d->out->ntargets; i++)
		d->dropped &= ~(UINT64_C(1) << d->out->target[i].port);
	for (d->dropped &= d->ports; d->dropped; d->dropped &= d->dropped - 1)
		add_miss(d->out, (uint32_t)__builtin_ctzll(d->dropped), SN_MISS_DROPPED);
}

/* The port that has `mac`; -1: none. */
static int find_port(struct sn_shm *s, uint64_t mac)
{
	uint32_t used = PV_MIN(sn_get(&s->ports_used), SN_PORTS);

	for (uint32_t i = 0; i < used; i++) {
		if (sn_get(&s->port[i].state) == SN_LIVE && sn_get(&s->port[i].mac) == mac)
			return (int)i;
	}
	return -1;
}

void sn_route_find(struct sn_port *p, const uint8_t *frame, uint32_t len, struct sn_route *out)
{
	struct sn_shm *s = p->s;
	struct finder d = { .p = p, .out = out, .group = frame[0] & 1 };
	uint32_t used = PV_MIN(sn_get(&s->ports_used), SN_PORTS);
	uint64_t own = UINT64_C(1) << p->number, missed;
	int dst = d.group ? -1 : find_port(s, sn_mac_u64(frame));

	/* Only who names the port's own MAC means itself; what goes to many, or behind the port, does not come back. */
	d.echo = dst >= 0;
	if (dst < 0 && !d.group)
		dst = sn_fdb_find(s, sn_mac_u64(frame));
	sn_parse(frame, len, &out->parse);
	out->fields = SN_FIELD_DST_MAC;
	out->ntargets = out->nmisses = 0;
	d.flood = dst < 0;
	for (uint32_t i = 0; i < used; i++) {
		if (sn_get(&s->port[i].state) != SN_LIVE || (dst >= 0 && (uint32_t)dst != i))
			continue;
		if (sn_get(&s->port[i].link) && !(sn_get(&s->port[i].plug) & 1))
			d.ports |= UINT64_C(1) << i;
		else
			add_miss(out, i, SN_MISS_LINK_DOWN);
	}
	normal_round(&d);
	/* The sender's own port is no receiver of a flood: only rules that ask for such a frame get it there. */
	missed = d.ports & ~d.taken & ~(d.flood ? own : 0);
	if (missed)
		default_round(&d, missed);
	for (missed &= ~d.taken; missed; missed &= missed - 1)
		add_miss(out, (uint32_t)__builtin_ctzll(missed), SN_MISS_NO_RULE);
	add_dropped(&d);
}

void sn_path_learn(struct sn_port *p, struct sn_path *path, const struct sn_route *route, const uint8_t *head)
{
	uint8_t mask[SN_HEAD];
	uint32_t hlen = route->parse.hlen, n = (hlen + 15) / 16, fields = route->fields;
	bool inner = fields & SN_FIELDS_INNER;

	/* What is inside a tunnel lies too far behind: such a frame is looked up each time, and no other may be taken for it. */
	if (inner)
		fields |= SN_FIELD_DST_PORT;
	path->hlen = 0;
	if (!hlen || (inner && route->parse.vxlan) || route->ntargets > SN_PATH_TARGETS || route->nmisses > SN_PATH_MISSES ||
	    sn_get(&p->s->port[p->number].uplink))
		return;
	sn_parse_mask(&route->parse, fields, mask);
	memset(path->value, 0, sizeof(path->value));
	memset(path->mask, 0, sizeof(path->mask));
	/* Whole vectors from the front, and as the last one that which ends at hlen. */
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = i == n - 1 ? hlen - 16 : i * 16, to = i == n - 1 ? 3 : i;

		memcpy(&path->mask[to], mask + at, 16);
		memcpy(&path->value[to], head + at, 16);
		path->value[to] &= path->mask[to];
	}
	memcpy(path->target, route->target, route->ntargets * sizeof(route->target[0]));
	memcpy(path->miss, route->miss, route->nmisses * sizeof(route->miss[0]));
	path->ntargets = (uint8_t)route->ntargets;
	path->nmisses = (uint8_t)route->nmisses;
	path->layers = route->parse.layers;
	path->udp4 = route->parse.layers.flags == (SN_RX_IP4 | SN_RX_UDP) && route->parse.layers.l4 == route->parse.layers.l3 + 20;
	path->one_max = route->ntargets == 1 && !route->nmisses ? PV_MIN(route->target[0].max_len, SN_SLOT_DATA) : 0;
	path->hlen = hlen;
}
