/* SPDX-License-Identifier: BSD-3-Clause */
/* Flow rules: written here with the lock, read by fab_route.c without it. */
#include "softnic/fab.h"

static bool rule_live(const struct sn_rule_ent *e)
{
	return sn_get(&e->state) != 0;
}

void sn_rules_drop(struct sn_fabric *f, uint32_t client, uint32_t lane)
{
	uint32_t used = PV_MIN(sn_get(&f->s->rules_used), SN_RULES);

	for (uint32_t i = 0; i < used; i++) {
		struct sn_rule_ent *e = &f->s->rule[i];

		if (rule_live(e) && sn_get(&e->client) == client && (lane == UINT32_MAX || sn_get(&e->lane) == lane))
			sn_set(&e->state, 0);
	}
}

/* A rule that leads to a queue ends with it. */
void sn_rules_drop_queue(struct sn_fabric *f, uint32_t rxq)
{
	uint32_t used = PV_MIN(sn_get(&f->s->rules_used), SN_RULES);

	for (uint32_t i = 0; i < used; i++) {
		struct sn_rule_ent *e = &f->s->rule[i];
		uint32_t n = rule_live(e) ? PV_MIN(sn_get(&e->nqueues), SN_RULE_QUEUES) : 0;

		for (uint32_t k = 0; k < n; k++) {
			if (sn_get(&e->queue[k]) == rxq) {
				sn_set(&e->state, 0);
				break;
			}
		}
	}
}

static void fill(struct sn_rule_ent *e, const struct sn_port *p, const struct sn_rule *rule)
{
	uint64_t value[SN_KEY_WORDS + SN_INNER_WORDS] = { 0 }, mask[SN_KEY_WORDS + SN_INNER_WORDS] = { 0 }, key[5];
	uint32_t n = rule->nqueues ? rule->nqueues : 1;

	memcpy(value, &rule->value, sizeof(rule->value));
	memcpy(mask, &rule->mask, sizeof(rule->mask));
	memcpy(value + SN_KEY_WORDS, &rule->inner_value, sizeof(rule->inner_value));
	memcpy(mask + SN_KEY_WORDS, &rule->inner_mask, sizeof(rule->inner_mask));
	memcpy(key, rule->rss_key, sizeof(key));
	for (uint32_t i = 0; i < SN_KEY_WORDS + SN_INNER_WORDS; i++) {
		sn_set(&e->mask[i], mask[i]);
		sn_set(&e->value[i], value[i] & mask[i]);
	}
	for (uint32_t i = 0; i < 5; i++)
		sn_set(&e->key[i], key[i]);
	for (uint32_t i = 0; i < n; i++)
		sn_set(&e->queue[i], rule->queues[i]->no);
	sn_set(&e->client, p->f->client);
	sn_set(&e->lane, p->lane_no);
	sn_set(&e->port, p->number);
	sn_set(&e->kind, rule->sniffer ? SN_RULE_SNIFFER : rule->all_default ? SN_RULE_ALL : rule->mc_default ? SN_RULE_MC : 0);
	sn_set(&e->priority, rule->priority);
	sn_set(&e->need, sn_rule_fields(rule));
	sn_set(&e->flags, (rule->drop ? SN_RULE_DROP : 0) | (rule->tagged ? SN_RULE_TAG : 0));
	sn_set(&e->tag, rule->tag);
	sn_set(&e->nqueues, n);
	sn_set(&e->rss_fields, rule->rss_fields);
}

static struct sn_rule_ent *find_free(struct sn_fabric *f)
{
	for (uint32_t i = 0; i < SN_RULES; i++) {
		struct sn_rule_ent *e = &f->s->rule[i];

		if (i < sn_get(&f->s->rules_used)) {
			if (rule_live(e))
				continue;
			return e;
		}
		if (sn_reserve(f, e, sizeof(*e)))
			return NULL;
		sn_set(&f->s->rules_used, i + 1);
		return e;
	}
	sn_fail(-ENOSPC, "fabric %s: %u rules are in it already", f->name, SN_RULES);
	return NULL;
}

int sn_rule_add(struct sn_port *p, const struct sn_rule *rule, uint64_t *handle)
{
	struct sn_fabric *f = p->f;
	uint32_t n = rule->nqueues ? rule->nqueues : 1;
	struct sn_rule_ent *e;
	uint64_t h;
	int rc;

	if (n > SN_RULE_QUEUES || (n & (n - 1)))
		return sn_fail(-EINVAL, "a rule spreads over a power of two of queues, at most %u", SN_RULE_QUEUES);
	rc = sn_lock(f);
	if (rc)
		return rc;
	sn_clients_reap(f);
	e = find_free(f);
	if (!e) {
		sn_unlock(f);
		return -ENOSPC;
	}
	h = sn_get(&f->s->next_handle) + 1;
	sn_set(&f->s->next_handle, h);
	fill(e, p, rule);
	sn_change_begin(f);
	sn_set(&e->state, h);
	sn_change_end(f);
	sn_unlock(f);
	*handle = h;
	return 0;
}

int sn_rule_del(struct sn_port *p, uint64_t handle)
{
	struct sn_fabric *f = p->f;
	uint32_t used;
	int rc = sn_lock(f);

	if (rc)
		return rc;
	rc = -ENOENT;
	used = PV_MIN(sn_get(&f->s->rules_used), SN_RULES);
	for (uint32_t i = 0; i < used && rc; i++) {
		struct sn_rule_ent *e = &f->s->rule[i];

		if (!handle || sn_get(&e->state) != handle || sn_get(&e->client) != f->client)
			continue;
		sn_change_begin(f);
		sn_set(&e->state, 0);
		sn_change_end(f);
		rc = 0;
	}
	sn_unlock(f);
	return rc;
}
