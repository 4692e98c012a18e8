/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send lanes. The table is made with the first one. A frame that waits for its neighbour, or for its time, may outlive its lane: before
 * it is posted it is looked up whether the queue that it names still is one.
 */
#include "net/txlane.h"

#include "net/internal.h"

struct lane {
	struct pv_txlane_key key;
	uint32_t senders;
	uint32_t decided; /* interfaces, a bit each: `queue` is so */
	uint8_t queue[PV_IFACE_MAX + 1];
};

struct pv_txlanes {
	struct lane lane[PV_TXLANE_MAX + 1];
	uint32_t count;
	bool open[PV_IFACE_MAX + 1][PV_RING_TXQ_MAX + 1]; /* by interface and queue: a lane has it */
};

static struct lane *find(const struct pv_net *net, uint32_t lane)
{
	return net->txlanes && lane && lane <= PV_TXLANE_MAX && net->txlanes->lane[lane].senders ? &net->txlanes->lane[lane] : NULL;
}

uint32_t pv_txlane_get(struct pv_net *net, const struct pv_txlane_key *key, uint32_t limit)
{
	uint32_t unused = 0;
	struct pv_txlanes *t;

	if (!net->txlanes)
		net->txlanes = pv_net_alloc(net, sizeof(*net->txlanes));
	t = net->txlanes;
	if (!t)
		return PV_TXLANE_NONE;
	for (uint32_t i = PV_TXLANE_MAX; i; i--) {
		struct lane *l = &t->lane[i];

		if (!l->senders) {
			unused = i;
		} else if (l->key.value == key->value && l->key.logic == key->logic) {
			l->senders++;
			return i;
		}
	}
	if (!unused || t->count >= limit)
		return PV_TXLANE_NONE;
	t->lane[unused] = (struct lane){ .key = *key, .senders = 1 };
	t->count++;
	return unused;
}

static void queue_close(struct pv_net *net, struct lane *l, uint32_t iface)
{
	l->decided &= ~(1u << (iface - 1));
	if (!l->queue[iface])
		return;
	net->txlanes->open[iface][l->queue[iface]] = false;
	(void)pv_net_txq_close(net->iface[iface]->ring, l->queue[iface]);
	l->queue[iface] = 0;
}

void pv_txlane_put(struct pv_net *net, uint32_t lane)
{
	struct lane *l = find(net, lane);

	if (!l || --l->senders)
		return;
	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++)
		queue_close(net, l, i);
	net->txlanes->count--;
}

static uint32_t queue_of(struct pv_net *net, struct lane *l, uint32_t iface)
{
	uint32_t bit = 1u << (iface - 1);
	int rc;

	if (l->decided & bit)
		return l->queue[iface];
	l->decided |= bit;
	rc = pv_net_txq_open(net->iface[iface]->ring, NULL);
	if (rc <= 0)
		return 0;
	l->queue[iface] = (uint8_t)rc;
	net->txlanes->open[iface][rc] = true;
	return (uint32_t)rc;
}

void pv_txlane_set(struct pv_net *net, struct pv_path *path, uint32_t lane)
{
	struct lane *l = find(net, lane);

	path->lane = (uint8_t)lane;
	/* The path of a connection that was ended may be of an interface that is gone. */
	path->txq = l && !path->is_local && net->iface[path->iface] ? (uint8_t)queue_of(net, l, path->iface) : 0;
	path->hdr_limit = 0;
}

uint32_t pv_txlane_follow(struct pv_net *net, struct pv_path *path, uint32_t lane, void *user)
{
	if (lane == PV_TXLANE_UNKNOWN && user)
		lane = net->cfg.lane(user, &path->src);
	pv_txlane_set(net, path, lane);
	return lane;
}

/* Do frames for that queue wait for their neighbours? */
static bool unresolved(const struct pv_net *net, uint32_t iface, uint32_t queue)
{
	pv_list_for_each(it, &net->neigh_lru[true]) {
		const struct pv_neigh *n = pv_list_entry(it, struct pv_neigh, lru);

		for (const struct pv_pkt *p = n->iface == iface ? n->queue.head : NULL; p; p = p->next)
			if (pv_pkt_txq(p) == queue)
				return true;
	}
	return false;
}

bool pv_txlane_settled(struct pv_net *net, uint32_t lane)
{
	const struct lane *l = find(net, lane);

	for (uint32_t i = 1; i <= PV_IFACE_MAX; i++) {
		struct pv_ring *r = net->iface[i] ? net->iface[i]->ring : NULL;
		uint32_t queue = l ? l->queue[i] : 0;

		if (!r || (l && !(l->decided & 1u << (i - 1))))
			continue;
		if (pv_ring_txq_pending(r, queue) || (!queue && r->tx_pending) || unresolved(net, i, queue))
			return false;
	}
	return true;
}

bool pv_txlane_info(const struct pv_net *net, uint32_t lane, uint32_t iface, struct pv_txlane_info *out)
{
	const struct lane *l = find(net, lane);

	if (!l || !iface || !(l->decided & 1u << (iface - 1)))
		return false;
	*out = (struct pv_txlane_info){ .key = l->key, .queue = l->queue[iface], .senders = l->senders };
	return true;
}

uint32_t pv_txlane_still(const struct pv_net *net, uint32_t iface, uint32_t queue)
{
	return net->txlanes && net->txlanes->open[iface][queue] ? queue : 0;
}

void pv_txlane_del_iface(struct pv_net *net, uint32_t iface)
{
	for (uint32_t i = 1; net->txlanes && i <= PV_TXLANE_MAX; i++)
		if (net->txlanes->lane[i].senders)
			queue_close(net, &net->txlanes->lane[i], iface);
}

void pv_txlane_fini(struct pv_net *net)
{
	pv_net_free(net, net->txlanes, sizeof(*net->txlanes));
}
