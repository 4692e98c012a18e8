/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Legs as they come and go. A leg is wanted when sysfs names its interface and, unless it is an AF_XDP ring of that, a verbs device for it, and
 * the kernel has that interface; it is sent by when all that is heard of it says so: the kernel's flags, operstate, what bonding says, its
 * own ring's link. Whatever is heard first of a leg that is gone ends it; then it is tried again for a while, since a VF is announced
 * before its driver and udev are done with it, and gone in as many steps.
 */
#include "rt/port_bond.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ring/link.h"
#include "ring/tapdev.h"
#include "rt/bond.h"
#include "rt/error.h"
#include "rt/log.h"
#include "rt/mem.h"
#include "rt/port_leg.h"
#include "rt/port_tap.h"
#include "rt/recorder.h"
#include "rt/tstamp_engine.h"

/* A leg that cannot be opened is tried again after that long, and ever more rarely; one of verbs until it was tried for long enough. */
#define RETRY_MIN_NS (10 * PV_NS_PER_MS)
#define RETRY_MAX_NS PV_NS_PER_S
#define RETRY_FOR_NS (60 * PV_NS_PER_S)
/* A leader that spins looks at the legs' rings this often. */
#define GLANCE_NS (PV_NS_PER_MS / 2)
/* Bonding has noticed by then that its choice is dead, if it is: sent by another meanwhile. */
#define NOTICE_NS PV_NS_PER_S
/* Read of one leg at a time. */
#define EVENTS_MAX 16
/* Turns after which whoever sleeps hears of what goes on coming. */
#define ARM_TURNS 16

struct leg {
	struct pv_bond_slave slave; /* as last read; the TAP: its name and number */
	uint32_t id;
	struct pv_ring *ring; /* NULL: not open */
	struct pv_leg_job *job; /* by which its device is being opened; NULL: it is not */
	bool tap, active, link_up;
	bool seen; /* by the reading under way */
	uint32_t at; /* its place among the slaves */
	int64_t lost_ns; /* when its ring was lost; 0: it had none */
	int64_t retry_ns, since_ns; /* when it is tried again, PV_NEVER: not; since when it fails */
	const char *why; /* it is not open; told once */
};

struct pv_port_bond {
	struct pv_ring *ring; /* the bond's own, inside of what wraps it */
	struct pv_bond_info info;
	char netdev[IFNAMSIZ];
	struct leg leg[PV_BOND_LEGS_MAX + 1];
	uint32_t n;
	uint32_t ifindex, mtu; /* of the interface, when it was opened */
	uint8_t mac[PV_ETH_ALEN];
	struct pv_port_tap *tap;
	uint64_t plugouts;
	bool changed, moved; /* by what is being done: the legs, and who of them sends or what was lost with one */
	bool running; /* it stands in e->ports */
	bool xdp; /* legs are AF_XDP rings */
	int64_t glance_ns; /* last */
};

/* ---- what the kernel says ------------------------------------------------------------------------------------------------ */

/* 0: there is none of that name. `flags` are the kernel's, IFF_*. */
static uint32_t kernel_link(const struct pv_engine *e, const char *name, int *flags)
{
	int fd = pv_host_socket(e, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint32_t index = fd < 0 ? 0 : pv_link_of(fd, name);
	struct ifreq req;

	memset(&req, 0, sizeof(req));
	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	if (index && ioctl(fd, SIOCGIFFLAGS, &req) < 0)
		index = 0;
	*flags = index ? req.ifr_flags : 0;
	if (fd >= 0)
		close(fd);
	return index;
}

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

static int open_tap_leg(struct pv_engine *e, struct pv_port *p, struct leg *l, struct pv_ring **ring)
{
	const struct pv_port_tap_cfg tc = {
		.pool = p->pool,
		.ifindex = p->bond->ifindex,
		.rx_depth = p->spec.rx_depth ? p->spec.rx_depth : (uint32_t)e->cfg->rx_depth,
		.tx_depth = p->spec.tx_depth ? p->spec.tx_depth : (uint32_t)e->cfg->tx_depth,
		.mtu = p->bond->mtu,
		.mac = p->bond->mac,
	};
	int rc = pv_port_tap_open(e, &tc, ring, &p->bond->tap);

	if (rc) {
		*ring = NULL;
		return rc;
	}
	l->id = pv_tapdev_ifindex(*ring);
	snprintf(l->slave.ifname, sizeof(l->slave.ifname), "%.15s", pv_tapdev_ifname(*ring));
	return 0;
}

static void log_leg(const struct pv_port_bond *b, const struct leg *l, const char *what)
{
	pv_log(PV_LOG_INFO, "%s: %s%s%s%s: %s", b->netdev, l->slave.ifname, *l->slave.device ? " (" : "", l->slave.device,
	       *l->slave.device ? ")" : "", what);
}

static void leg_stat(const struct pv_port_bond *b, const struct leg *l)
{
	struct pv_ring_stat *s = l->ring->stat;
	const struct pv_ring_caps *c = &l->ring->caps;
	struct pv_bond_leg_cfg lc;
	struct pv_ring *r;

	for (uint32_t i = 0; (r = pv_bond_leg(b->ring, i, &lc)) != NULL; i++)
		if (r == l->ring)
			s->active = lc.sends;

	snprintf(s->ifname, sizeof(s->ifname), "%s", b->netdev);
	memcpy(s->name, c->name, sizeof(s->name));
	memcpy(s->mode, c->mode, sizeof(s->mode));
	memcpy(s->mac, c->mac, sizeof(s->mac));
	s->mtu = c->mtu;
	s->link_up = l->link_up;
	s->master = b->ring->stat;
	s->pool = l->ring->pool;
	s->rx_depth = c->rx_depth;
	s->tx_depth = c->tx_depth;
	s->queues = c->queues;
	s->dm_size = c->dm_bytes;
	s->moderation_frames = c->moderation_frames;
	s->moderation_us = c->moderation_us;
	s->pacing_min_kbps = c->pacing_min_kbps;
	s->pacing_max_kbps = c->pacing_max_kbps;
	if (!l->tap)
		return;
	s->rx_buffers = c->rx_depth;
	s->vf_plugouts = b->plugouts;
	s->tap_fd = pv_tapdev_fd(l->ring);
	snprintf(s->tap_device, sizeof(s->tap_device), "%.15s", pv_tapdev_ifname(l->ring));
}

/* The link as its ring has it, known to the statistics and the log. */
static void take_link(struct pv_port_bond *b, struct leg *l)
{
	bool up = l->ring->caps.link_up;

	if (l->link_up == up)
		return;
	l->link_up = up;
	b->changed = true;
	log_leg(b, l, up ? "link up" : "link down");
}

/* What every source says together. */
static bool may_send(const struct pv_port_bond *b, const struct leg *l)
{
	return l->ring && l->link_up && (l->tap || (!l->slave.down && (!l->slave.backup || b->info.kind != PV_BOND_KIND_BOND)));
}

/* Bonding has chosen a slave that is no leg: what comes does so by that, to the kernel. One that was lost just now is dead for bonding, too, as
 * it will say. */
static bool elsewhere(const struct leg *l, int64_t now)
{
	return !l->tap && !l->ring && !l->slave.backup && !l->slave.down && (!l->lost_ns || now - l->lost_ns >= NOTICE_NS);
}

/* Where one leg sends and the one that bonding named cannot, it is the first that can: bonding will say so a little later. None that runs may
 * mean that it was not told yet: then bonding, which asks the devices themselves, knows better. */
static bool better(const struct leg *l, const struct leg *than)
{
	if (!l->ring || !l->link_up || (l->slave.down && l->slave.backup))
		return false;
	return !than || (than->slave.down && !l->slave.down);
}

static void settle(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;
	bool bond = b->info.kind == PV_BOND_KIND_BOND, one = b->info.mode == PV_BOND_ACTIVE_BACKUP, any = false, away = false;
	int64_t now = pv_clock_now(&e->clock);
	struct leg *spare = NULL;
	uint32_t expect = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		struct leg *l = &b->leg[i];

		any |= may_send(b, l);
		away |= bond && one && elsewhere(l, now);
		expect += bond && (l->ring || !l->slave.down);
		spare = better(l, spare) ? l : spare;
	}
	/* By a slave that is up and no leg the kernel hears what is for us: no new connections meanwhile. */
	pv_bond_expect(b->ring, expect);
	pv_bond_elsewhere(b->ring, away);
	p->ring->caps.rx_partial = b->ring->caps.rx_partial;
	for (uint32_t i = 0; i < b->n; i++) {
		struct leg *l = &b->leg[i];
		bool active = may_send(b, l) || (one && !any && !away && l == spare);

		/* The TAP needs no word: it is for when there is nothing else. */
		if (!l->ring || l->tap || active == l->active)
			continue;
		if (!pv_bond_leg_set(b->ring, l->id, active)) {
			l->active = active;
			b->changed = true;
			leg_stat(b, l);
			log_leg(b, l, active ? "is sent by" : "is not sent by any more");
		}
	}
}

static void try_later(struct pv_engine *e, struct leg *l)
{
	int64_t now = pv_clock_now(&e->clock), step;

	if (!l->since_ns)
		l->since_ns = now;
	step = PV_MIN(PV_MAX(RETRY_MIN_NS, (now - l->since_ns) / 2), RETRY_MAX_NS);
	/* There is nothing to do without the TAP when the VF goes. */
	l->retry_ns = l->tap || now - l->since_ns < RETRY_FOR_NS ? now + step : PV_NEVER;
}

/* 0, or with a text: the ring is closed then. */
static int join(struct pv_engine *e, struct pv_port_bond *b, struct leg *l, struct pv_ring *ring)
{
	struct pv_bond_leg_cfg lc = { .id = l->id, .fallback = l->tap, .at = l->at };
	int rc, flags;

	l->ring = ring;
	/* As take_slave has it, of which the ring was told another way when it was opened. */
	if (b->xdp && !l->tap && kernel_link(e, l->slave.ifname, &flags) == l->id)
		ring->caps.link_up = flags & IFF_UP;
	l->link_up = ring->caps.link_up || l->tap;
	lc.active = l->active = may_send(b, l);
	rc = pv_bond_leg_add(b->ring, ring, &lc);
	if (!rc)
		return 0;
	pv_ring_close(ring);
	l->ring = NULL;
	if (l->tap) {
		pv_port_tap_close(b->tap);
		b->tap = NULL;
	}
	return pv_error(rc, "%s: it cannot be a leg: %s", l->slave.ifname, strerror(-rc));
}

/* `ring` NULL: it could not be opened, as the text says. */
static void leg_opened(struct pv_engine *e, struct pv_port_bond *b, struct leg *l, struct pv_ring *ring)
{
	if (!ring || join(e, b, l, ring)) {
		const char *why = pv_error_keep(pv_error_text());

		/* Of one that is not open the host's entry tells. */
		if (l->why != why && b->running)
			pv_log(PV_LOG_INFO, "%s: not a leg yet: %s", b->netdev, why);
		l->why = why;
		try_later(e, l);
		return;
	}
	l->why = NULL;
	l->retry_ns = PV_NEVER;
	l->since_ns = 0;
	b->changed = true;
	leg_stat(b, l);
	log_leg(b, l, l->active ? "is a leg, and sent by" : "is a leg");
}

/* A port that stands goes on meanwhile; where there is none, or no thread to do it, it is waited for. */
static void open_leg(struct pv_engine *e, struct pv_port *p, struct leg *l)
{
	struct pv_ring *ring = NULL;

	if (!l->tap && p->bond->running && pv_leg_thread(e)) {
		l->job = pv_leg_open_later(e, p, &l->slave);
		if (l->job)
			return;
	} else if (l->tap) {
		(void)open_tap_leg(e, p, l, &ring);
	} else {
		(void)pv_leg_open(e, p, &l->slave, &ring);
	}
	leg_opened(e, p->bond, l, ring);
}

static void forget_job(struct leg *l)
{
	pv_leg_unwanted(l->job);
	l->job = NULL;
}

/* The ring is the bond's to close, and gives back what it held by that. */
static void drop_leg(struct pv_engine *e, struct pv_port *p, struct leg *l, const char *why)
{
	struct pv_port_bond *b = p->bond;
	struct pv_ring *ring = l->ring;
	int64_t begin;

	forget_job(l);
	if (!ring)
		return;
	l->ring = NULL;
	l->active = false;
	l->lost_ns = pv_clock_kernel_ns();
	b->changed = true;
	b->plugouts += b->info.kind == PV_BOND_KIND_NETVSC && !l->tap;
	log_leg(b, l, why);
	begin = pv_clock_kernel_ns();
	(void)pv_bond_leg_part(b->ring, l->id);
	ring->stat->active = ring->stat->link_up = false;
	if (l->tap || !pv_leg_thread(e) || pv_leg_shut_later(e, p, b->ring, ring))
		pv_bond_leg_end(b->ring, ring);
	pv_log(PV_LOG_DEBUG, "%s: leaving it took %lld us", b->netdev, (long long)(pv_clock_kernel_ns() - begin) / 1000);
	if (l->tap) {
		pv_port_tap_close(b->tap);
		b->tap = NULL;
	}
}

/* ---- what sysfs says ------------------------------------------------------------------------------------------------------- */

static struct leg *leg_of(struct pv_port_bond *b, const struct pv_bond_slave *s)
{
	for (uint32_t i = 0; i < b->n; i++) {
		struct leg *l = &b->leg[i];

		if (!l->tap && !strcmp(l->slave.ifname, s->ifname))
			return l;
	}
	return NULL;
}

static struct leg *leg_new(struct pv_port_bond *b)
{
	struct leg *l = &b->leg[b->n];

	if (b->n == pv_array_size(b->leg))
		return NULL;
	b->n++;
	memset(l, 0, sizeof(*l));
	return l;
}

/* One slave as it is now. */
static void take_slave(struct pv_engine *e, struct pv_port *p, const struct pv_bond_slave *s, uint32_t at)
{
	struct pv_port_bond *b = p->bond;
	struct leg *l = leg_of(b, s);
	int flags;
	uint32_t id = kernel_link(e, s->ifname, &flags);
	bool running = (flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);

	if (!l && !id)
		return;
	if (!l && !(l = leg_new(b)))
		return;
	l->seen = true;
	if (l->id != id || strcmp(l->slave.device, s->device))
		drop_leg(e, p, l, "is gone, or another one by now");
	/* A new one, one that was changed, one that is up again: the count begins anew. */
	if (l->id != id || strcmp(l->slave.device, s->device) || (l->slave.down && running && !s->down))
		l->since_ns = l->retry_ns = 0;
	l->slave = *s;
	l->slave.down |= !running;
	l->at = at;
	if (l->ring)
		(void)pv_bond_leg_place(b->ring, id, at);
	/* That one is running again is told up to a second late: where no leg is, one that is up at least will do. */
	if (l->ring && b->xdp) {
		l->ring->caps.link_up = flags & IFF_UP;
		take_link(b, l);
	}
	l->id = id;
	/* Links of others change, too: it has its time. */
	if (!id || l->ring || l->job || pv_clock_now(&e->clock) < l->retry_ns)
		return;
	if (*s->device)
		open_leg(e, p, l);
	else
		try_later(e, l);
}

static void forget_legs(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		if (!b->leg[i].tap && !b->leg[i].seen)
			drop_leg(e, p, &b->leg[i], "is gone");
		if (b->leg[i].tap || b->leg[i].seen)
			b->leg[n++] = b->leg[i];
	}
	b->n = n;
}

/* Those that are gone first: who sent by them sends by the others before anything is opened, which takes its time. */
static void follow(struct pv_engine *e, struct pv_port *p, const struct pv_bond_info *info)
{
	struct pv_port_bond *b = p->bond;
	int flags;

	b->info = *info;
	for (uint32_t i = 0; i < b->n; i++) {
		struct leg *l = &b->leg[i];

		l->seen = false;
		for (uint32_t k = 0; !l->tap && k < info->n; k++)
			l->seen |= !strcmp(info->slave[k].ifname, l->slave.ifname) &&
				   kernel_link(e, l->slave.ifname, &flags) == l->id && l->id;
	}
	forget_legs(e, p);
	for (uint32_t i = 0; i < info->n && !e->progress_stop; i++)
		take_slave(e, p, &info->slave[i], i);
	settle(e, p);
}

/* ---- after a change -------------------------------------------------------------------------------------------------------- */

static int64_t next_try(const struct pv_port_bond *b)
{
	int64_t next = PV_NEVER;

	for (uint32_t i = 0; i < b->n; i++)
		if (!b->leg[i].ring && !b->leg[i].job)
			next = PV_MIN(next, b->leg[i].retry_ns);
	return next;
}

static void take_events(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;
	enum pv_ring_event ev;

	for (int n = 0; n < EVENTS_MAX && (ev = pv_ring_event(p->ring)) != PV_RING_EV_NONE; n++) {
		pv_recorder_ring(e, p, PV_TRACE_LINK_UP + (uint32_t)ev - PV_RING_EV_LINK_UP);
		b->changed = true;
		b->moved |= ev == PV_RING_EV_MOVED;
	}
}

/* Open, or about to be. */
static bool has_legs(const struct pv_port_bond *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->leg[i].ring || b->leg[i].job)
			return true;
	return false;
}

/* Whoever sleeps does so on what was armed before: the new legs are, and what is there already is taken. */
static void tell(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;
	int64_t now = pv_clock_now(&e->clock);

	take_events(e, p);
	if (!b->changed)
		return;
	b->changed = false;
	pv_port_stat(p);
	for (uint32_t i = 0; i < b->n; i++)
		if (b->leg[i].ring)
			leg_stat(b, &b->leg[i]);
	/* A backup that comes or goes is nothing to connections and rates. */
	if (b->moved) {
		(void)pv_stack_iface_moved(e->stack, p->index, now);
		/* Stamps are of another clock. */
		pv_tstamp_port_del(e, p);
		pv_tstamp_port_add(e, p);
	}
	b->moved = false;
	pv_net_kick(e->net);
	for (int i = 0; i < ARM_TURNS && pv_ring_arm(p->ring) > 0; i++)
		(void)pv_stack_poll(e->stack, now, e->rx_budget);
	e->ports_gen++;
	pv_engine_route(e);
	if (e->leader && e->leader->asleep)
		pv_engine_wake(e->leader);
	if (e->progress.asleep)
		pv_engine_wake(&e->progress);
}

/* With no descriptor left sysfs looks empty, and the kernel as if it had no interface. */
static bool can_read(const struct pv_engine *e)
{
	int fd = pv_host_socket(e, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno != EMFILE && errno != ENFILE;
	close(fd);
	return true;
}

bool pv_port_bond_follow(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;
	struct pv_bond_info info;
	char err[256] = "";
	int rc;

	if (!can_read(e)) {
		pv_host_legs_at(e, pv_clock_now(&e->clock) + RETRY_MAX_NS);
		return true;
	}
	rc = pv_bond_read(e->cfg->sysfs_root, p->spec.netdev, p->spec.xdp_legs, &info, err, sizeof(err));
	/* An interface that is gone is the caller's to find out. */
	if (rc == -ENODEV)
		return true;
	if (rc || info.kind != b->info.kind || info.mode != b->info.mode || info.hash_policy != b->info.hash_policy ||
	    info.fail_over_mac != b->info.fail_over_mac)
		return false;
	b->running = true;
	follow(e, p, &info);
	for (uint32_t i = 0; i < b->n; i++)
		if (b->leg[i].tap && !b->leg[i].ring && pv_clock_now(&e->clock) >= b->leg[i].retry_ns)
			open_leg(e, p, &b->leg[i]);
	/* Nothing goes, and what comes is the kernel's: it is no ring of ours. */
	if (!has_legs(b))
		return false;
	tell(e, p);
	pv_host_legs_at(e, next_try(b));
	return true;
}

void pv_port_bond_again(struct pv_port *p)
{
	for (uint32_t i = 0; p->bond && i < p->bond->n; i++)
		if (p->bond->leg[i].tap)
			p->bond->leg[i].since_ns = p->bond->leg[i].retry_ns = 0;
}

/* ---- what the legs' rings say ------------------------------------------------------------------------------------------------ */

/* What the bond has found out of its legs by now, by their events or since they did not take what was posted. */
static void look_at(struct pv_engine *e, struct pv_port *p, struct leg *l)
{
	struct pv_port_bond *b = p->bond;
	struct pv_bond_leg_cfg lc;
	struct pv_ring *r;

	for (uint32_t i = 0; l->ring && (r = pv_bond_leg(b->ring, i, &lc)) != NULL; i++) {
		if (r != l->ring)
			continue;
		if (lc.gone) {
			drop_leg(e, p, l, "its device is gone, or reported an error");
			try_later(e, l);
			return;
		}
		take_link(b, l);
	}
}

/* After a change of legs. Without one the port is closed, and asked for legs ever again, by whoever follows the kernel. */
static void legs_changed(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;

	settle(e, p);
	tell(e, p);
	if (has_legs(b)) {
		pv_host_legs_at(e, next_try(b));
		return;
	}
	pv_log(PV_LOG_WARN, "%s: the last device beneath it is gone", b->netdev);
	pv_port_failed(e, p, PV_RING_EV_GONE);
	pv_host_legs_at(e, pv_clock_now(&e->clock));
}

void pv_port_bond_events(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;

	b->glance_ns = pv_clock_now(&e->clock);
	if (p->failed)
		return;
	b->running = true;
	take_events(e, p);
	for (uint32_t i = 0; i < b->n; i++)
		look_at(e, p, &b->leg[i]);
	legs_changed(e, p);
}

static struct pv_port *port_of(struct pv_engine *e, const struct pv_port_bond *b)
{
	for (uint32_t i = 0; i < e->nports; i++)
		if (e->ports[i].bond == b)
			return &e->ports[i];
	return NULL;
}

void pv_port_bond_opened(struct pv_engine *e, const struct pv_port_bond *owner, const struct pv_leg_job *job, struct pv_ring *ring)
{
	struct pv_port *p = port_of(e, owner);
	struct pv_port_bond *b = p->bond;
	struct leg *l = b->leg;
	int64_t begin = pv_clock_kernel_ns();

	while (l->job != job)
		l++;
	l->job = NULL;
	leg_opened(e, b, l, ring);
	if (!p->failed)
		legs_changed(e, p);
	pv_log(PV_LOG_DEBUG, "%s: joining it took %lld us", b->netdev, (long long)(pv_clock_kernel_ns() - begin) / 1000);
}

void pv_port_bond_ended(struct pv_engine *e, const struct pv_port_bond *owner)
{
	struct pv_port *p = port_of(e, owner);

	p->bond->changed = true;
	if (!p->failed)
		tell(e, p);
}

void pv_port_bond_glance(struct pv_engine *e, int64_t now)
{
	for (uint32_t i = 0; i < e->nports; i++)
		if (e->ports[i].bond && now - e->ports[i].bond->glance_ns >= GLANCE_NS)
			pv_port_bond_events(e, &e->ports[i]);
}

/* ---- life -------------------------------------------------------------------------------------------------------------------- */

/* The most that is wanted of any leg, and that of two at least: it cannot grow. */
static int open_xdp_pool(struct pv_engine *e, struct pv_port *p)
{
	const struct pv_bond_info *info = &p->bond->info;
	struct pv_pool_cfg pc = { .chunk = 0 };
	struct pv_ifspec s = p->spec;
	uint32_t rx, tx, rx_all = 0, rx_most = 0;
	int rc = pv_port_xdp_pool(&s, e->cfg, &pc, &rx, &tx);

	for (uint32_t i = 0; !rc && i < info->n; i++) {
		struct pv_pool_cfg of;

		snprintf(s.netdev, sizeof(s.netdev), "%s", info->slave[i].ifname);
		/* One that is gone by now comes, if it does, with queues of a number that nobody knows. */
		if (pv_port_xdp_pool(&s, e->cfg, &of, &rx, &tx))
			continue;
		pc.buf_size = PV_MAX(pc.buf_size, of.buf_size);
		rx_all += rx;
		rx_most = PV_MAX(rx_most, rx);
	}
	rx_most = PV_MAX(rx_most, rx);
	return rc ? rc : pv_port_pool_open(p, e->cfg, &pc, PV_MAX(rx_all, 2 * rx_most), 2 * tx);
}

static int open_pool(struct pv_engine *e, struct pv_port *p)
{
	struct pv_pool_cfg pc = {
		.headroom = PV_NET_HEADROOM,
		.chunk = (uint32_t)e->cfg->buf_chunk,
		.buf_size = pv_port_buf_size(p->bond->mtu),
	};
	uint32_t rx = p->spec.rx_depth ? p->spec.rx_depth : (uint32_t)e->cfg->rx_depth;
	uint32_t tx = p->spec.tx_depth ? p->spec.tx_depth : (uint32_t)e->cfg->tx_depth;

	if (p->spec.xdp_legs)
		return open_xdp_pool(e, p);
	/* Two legs at a time are the usual. */
	return pv_port_pool_open(p, e->cfg, &pc, 2 * rx, 2 * tx);
}

static int open_ring(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;
	char err[256] = "";
	struct pv_bond_cfg bc = {
		.mode = b->info.kind == PV_BOND_KIND_PLAIN ? PV_BOND_ACTIVE_BACKUP : b->info.mode,
		.fail_over_mac = b->info.fail_over_mac,
		.hash_policy = b->info.hash_policy,
		.mtu = b->mtu,
		.name = b->netdev,
	};
	int rc = open_pool(e, p);

	if (rc)
		return rc;
	memcpy(bc.mac, b->mac, PV_ETH_ALEN);
	rc = pv_bond_open(&p->ring, pv_mem_system(e->cfg->huge_pages), p->pool, &bc, err, sizeof(err));
	if (!rc) {
		b->ring = p->ring;
		return 0;
	}
	(void)pv_pool_close(p->pool);
	return pv_error(rc, "%s: %s", p->spec.name, err);
}

static int no_device(const struct pv_port *p)
{
	return pv_error(-ENODEV, "%s: it is a %s interface, and there is no %s beneath it", p->spec.name,
			pv_bond_kind_text(&p->bond->info), p->spec.xdp_legs ? "interface" : "verbs device");
}

/* Before all that is made for a ring: it is asked for again and again. */
static bool has_device(const struct pv_bond_info *info)
{
	for (uint32_t i = 0; i < info->n; i++)
		if (*info->slave[i].device)
			return true;
	return info->kind == PV_BOND_KIND_NETVSC;
}

/* 0, or the reason of the first leg when there is none to go by. */
static int open_legs(struct pv_engine *e, struct pv_port *p)
{
	struct pv_port_bond *b = p->bond;
	const struct pv_bond_info info = b->info;
	const char *why = NULL;

	if (info.kind == PV_BOND_KIND_NETVSC) {
		struct leg *tap = leg_new(b);

		tap->tap = true;
		open_leg(e, p, tap);
		/* Without it all traffic would end with the VF. */
		if (!tap->ring)
			return pv_error(-EPERM, "%s: %s", p->spec.name, tap->why);
	}
	follow(e, p, &info);
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->leg[i].ring)
			return 0;
		why = why ? why : b->leg[i].why;
	}
	return why ? pv_error(-ENODEV, "%s", why) : no_device(p);
}

int pv_port_bond_open(struct pv_engine *e, struct pv_port *p, const struct pv_host_state *host)
{
	struct pv_port_bond *b = calloc(1, sizeof(*b));
	char err[256] = "";
	int rc;

	if (!b)
		return pv_error(-ENOMEM, "%s: no memory for a bond", p->spec.name);
	b->ifindex = host->kernel_index;
	b->mtu = host->mtu;
	memcpy(b->mac, host->mac, PV_ETH_ALEN);
	snprintf(b->netdev, sizeof(b->netdev), "%s", p->spec.netdev);
	b->xdp = p->spec.xdp_legs;
	p->bond = b;
	rc = pv_bond_read(e->cfg->sysfs_root, b->netdev, p->spec.xdp_legs, &b->info, err, sizeof(err));
	rc = rc ? pv_error(rc, "%s: %s", p->spec.name, err) : has_device(&b->info) ? open_ring(e, p) : no_device(p);
	if (!rc) {
		rc = open_legs(e, p);
		if (rc) {
			pv_ring_close(p->ring);
			(void)pv_pool_close(p->pool);
		}
	}
	if (rc) {
		pv_port_bond_close(p);
		return rc;
	}
	b->changed = false;
	pv_host_legs_at(e, next_try(b));
	pv_log(PV_LOG_INFO, "%s: %s", b->netdev, pv_bond_kind_text(&b->info));
	return 0;
}

void pv_port_bond_forget(struct pv_port *p)
{
	if (!p->bond)
		return;
	pv_port_tap_forget(p->bond->tap);
	p->bond->tap = NULL;
	pv_port_bond_close(p);
}

void pv_port_bond_rest(struct pv_engine *e, struct pv_port *p)
{
	if (p->bond)
		pv_leg_wait(e, p->bond);
}

void pv_port_bond_close(struct pv_port *p)
{
	if (!p->bond)
		return;
	pv_port_tap_close(p->bond->tap);
	free(p->bond);
	p->bond = NULL;
}
