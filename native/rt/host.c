/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Following the kernel. A change of neighbours is passed on as it is. A change of links or addresses of our interfaces only marks that
 * something changed: after all that have come were read, the tables are dumped and the whole state is brought in line, so that lost
 * messages (ENOBUFS) and seen ones take the same way, and a burst costs one round.
 */
#include "rt/host_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/agent.h"
#include "rt/error.h"
#include "rt/log.h"
#include "rt/netlink.h"
#include "rt/port_bond.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* How often a table is read that changes while it is. */
#define DUMP_TRIES 10
/* The kernel frees an interface's queues and hook a little after who had them is gone: so long they are asked for again. */
#define TAKEN_MAX_NS (2 * PV_NS_PER_S)
/* A bond without a device beneath is asked again after so long, and ever more rarely; tables that could not be read, once a second. */
#define AGAIN_MIN_NS (10 * PV_NS_PER_MS)
#define AGAIN_MAX_NS PV_NS_PER_S

/* ---- reasons ----------------------------------------------------------------------------------------------------------- */

static void set_reason(struct host_entry *en, const char *text)
{
	const char *reason = pv_error_keep(text);

	if (en->reason != reason)
		pv_log(PV_LOG_WARN, "%s is not offloaded: %s", en->spec.netdev, reason);
	en->reason = reason;
}

/* ---- what the network layer asks --------------------------------------------------------------------------------------- */

#ifdef PV_HAVE_NETLINK

static int host_route(void *ctx, const struct pv_host_query *q, struct pv_host_route *out)
{
	const struct pv_engine *e = ctx;
	struct pv_nl_query nq = {
		.dst = q->dst,
		.src = q->src,
		.oif = q->kernel_index,
		.tos = q->tos,
		.proto = q->proto,
		.src_port = q->src_port,
		.dst_port = q->dst_port,
	};
	struct pv_nl_answer a;
	int rc = e->host && e->host->nl ? pv_nl_route_get(e->host->nl, &nq, &a) : -EXDEV;

	switch (rc) {
	case 0:
		break;
	case -ENETUNREACH:
	case -EHOSTUNREACH:
	case -EACCES:
	case -EINVAL:
		return rc;
	default:
		/* Whatever it is, the kernel socket beneath gets it, too, or gets on. */
		return -EXDEV;
	}
	*out = (struct pv_host_route){
		.kernel_index = a.oif,
		.src = a.src,
		.gateway = a.gateway,
		.mtu = a.mtu,
		.local = a.local,
		.broadcast = a.broadcast,
	};
	return 0;
}

static int64_t now_ns(struct pv_engine *e)
{
	return pv_clock_now(&e->clock);
}

static void tell_neigh(struct pv_engine *e, const struct pv_nl_msg *m)
{
	uint32_t iface = pv_net_iface_of_kernel(e->net, m->ifindex);

	if (!iface)
		return;
	if (m->deleted)
		(void)pv_net_neigh_set(e->net, iface, &m->addr, NULL, now_ns(e));
	else if (m->usable)
		(void)pv_net_neigh_set(e->net, iface, &m->addr, m->mac, now_ns(e));
	else if (m->failed)
		(void)pv_net_neigh_fail(e->net, iface, &m->addr, now_ns(e));
}

/* The kernel tells of changes only: what it knows already is read. */
static void host_resolve(void *ctx, uint32_t kernel_index, const struct pv_addr *addr)
{
	struct pv_engine *e = ctx;
	struct pv_nl *nl = e->host ? e->host->nl : NULL;
	struct pv_nl_msg m;
	bool fixed;

	if (!nl)
		return;
	/* One that was written by hand stays so only as long as nobody says that it is in use. */
	fixed = !pv_nl_neigh_get(nl, kernel_index, addr, &m) && m.permanent;
	if (!fixed && pv_nl_neigh_use(nl, kernel_index, addr) == -EPERM && e->agent)
		pv_agent_neigh(e->agent, kernel_index, addr);
	if (!pv_nl_neigh_get(nl, kernel_index, addr, &m) && m.usable)
		tell_neigh(e, &m);
}

const struct pv_host_ops pv_host_ops = { .route = host_route, .resolve = host_resolve };

/* ---- the kernel's tables ----------------------------------------------------------------------------------------------- */

static struct host_entry *entry_of(struct pv_host *h, uint32_t kernel_index)
{
	for (uint32_t i = 0; kernel_index && i < h->n; i++)
		if (h->entry[i].state.kernel_index == kernel_index)
			return &h->entry[i];
	return NULL;
}

static struct host_entry *entry_awaiting(struct pv_host *h, const char *name)
{
	for (uint32_t i = 0; i < h->n; i++)
		if (!h->entry[i].state.kernel_index && !strcmp(h->entry[i].spec.netdev, name))
			return &h->entry[i];
	return NULL;
}

static void take_link(struct host_entry *en, const struct pv_nl_msg *m)
{
	struct pv_host_state *s = &en->state;
	bool link_up = m->up && m->running;

	en->retry |= s->kernel_index != m->ifindex || link_up != s->link_up || m->mtu != s->mtu || m->vrf != s->vrf;
	s->kernel_index = m->ifindex;
	s->mtu = m->mtu;
	s->link_up = link_up;
	s->vrf = m->vrf;
	memcpy(s->mac, m->mac, sizeof(s->mac));
	memcpy(en->name, m->name, sizeof(en->name));
}

struct round {
	struct pv_host *h;
	bool seen[PV_IFACE_MAX];
	bool adopt; /* links for entries that have none; else the links that entries have */
};

static void dump_link(void *ctx, const struct pv_nl_msg *m)
{
	struct round *r = ctx;
	struct host_entry *en = r->adopt ? entry_awaiting(r->h, m->name) : entry_of(r->h, m->ifindex);

	if (!en)
		return;
	r->seen[en - r->h->entry] = true;
	take_link(en, m);
}

static void dump_addr(void *ctx, const struct pv_nl_msg *m)
{
	struct round *r = ctx;
	struct host_entry *en = entry_of(r->h, m->ifindex);
	struct pv_host_state *s;

	if (!en || !m->usable)
		return;
	s = &en->state;
	if (s->naddr == PV_IFACE_ADDR_MAX) {
		if (!en->more)
			pv_log(PV_LOG_WARN, "%s has more than %u addresses: the others are the kernel's alone", en->name,
			       PV_IFACE_ADDR_MAX);
		en->more = true;
		return;
	}
	s->addr[s->naddr++] = (struct pv_ifaddr){ .addr = m->addr, .prefix_len = m->prefix_len };
}

/* What an interrupted reading told. */
static void forget_links(struct round *r)
{
	for (uint32_t i = 0; i < r->h->n; i++)
		if (r->adopt && r->seen[i])
			memset(&r->h->entry[i].state, 0, sizeof(r->h->entry[i].state));
	memset(r->seen, 0, sizeof(r->seen));
}

static void forget_addrs(struct round *r)
{
	for (uint32_t i = 0; i < r->h->n; i++)
		r->h->entry[i].state.naddr = 0;
}

static int dump(struct round *r, enum pv_nl_kind kind)
{
	int rc = -EINTR;

	for (int tries = 0; rc == -EINTR && tries < DUMP_TRIES; tries++) {
		if (kind == PV_NL_LINK)
			forget_links(r);
		else
			forget_addrs(r);
		rc = pv_nl_dump(r->h->nl, kind, kind == PV_NL_LINK ? dump_link : dump_addr, r);
	}
	return rc;
}

/* 0, or the tables could not be read and are as they were but for what is gone. */
static int read_tables(struct pv_host *h)
{
	struct round r = { .h = h };
	bool awaited = false;
	int rc;

	rc = dump(&r, PV_NL_LINK);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < h->n; i++) {
		struct host_entry *en = &h->entry[i];

		en->lost |= en->state.kernel_index && !r.seen[i];
		if (!r.seen[i])
			memset(&en->state, 0, sizeof(en->state));
		awaited |= !en->state.kernel_index;
	}
	memset(r.seen, 0, sizeof(r.seen));
	r.adopt = true;
	if (awaited)
		rc = dump(&r, PV_NL_LINK);
	return rc ? rc : dump(&r, PV_NL_ADDR);
}

/* ---- bringing the stack in line ---------------------------------------------------------------------------------------- */

static struct pv_port *port_of(struct pv_engine *e, uint32_t iface)
{
	for (uint32_t i = 0; iface && i < e->nports; i++)
		if (e->ports[i].index == iface)
			return &e->ports[i];
	return NULL;
}

static bool ring_fits(const struct host_entry *en, const struct pv_port *p)
{
	const struct pv_ring_caps *c = &p->ring->caps;
	const struct pv_iface_cfg *ic = pv_iface_config(pv_net_iface(pv_engine.net, en->iface));

	/* The buffers of an AF_XDP ring are as large as its MTU was. */
	return !en->lost && !p->failed && !en->state.vrf && en->state.kernel_index == ic->kernel_index &&
	       pv_mac_eq(en->state.mac, c->mac) && ((p->spec.ring != PV_IFSPEC_XDP && !p->bond) || en->state.mtu <= c->mtu);
}

static void close_entry(struct pv_engine *e, struct host_entry *en)
{
	struct pv_port *p = port_of(e, en->iface);

	/* A device that does not work would fail again at once: it gets its next chance when the link changes. */
	en->retry = !p->failed || p->gone;
	pv_log(PV_LOG_INFO, "%s: the ring is closed", en->spec.netdev);
	pv_port_close(e, p);
	en->iface = 0;
	if (!en->retry)
		set_reason(en, "its device reported an error");
	e->host->moved = true;
}

static bool can_open(struct host_entry *en)
{
	static const uint8_t none[PV_ETH_ALEN];

	if (!en->state.kernel_index)
		set_reason(en, "there is no such interface at the moment");
	else if (pv_mac_eq(en->state.mac, none))
		set_reason(en, "it is not an Ethernet interface");
	else if (en->state.vrf)
		/* Its addresses are of another table than unbound sockets see, and what comes by it is for sockets of the VRF. */
		set_reason(en, "it belongs to a VRF, whose sockets and routes are the kernel's alone");
	else
		return true;
	return false;
}

/* A ring is opened in the namespace of the thread that does it. */
static bool at_home(const struct pv_engine *e)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool home = fd < 0 || pv_host_same_netns(e, fd);

	if (fd >= 0)
		close(fd);
	return home;
}

static void about_to_open(struct pv_engine *e, struct host_entry *en)
{
	en->retry = true;
	en->reason = pv_error_keep("its ring is about to be opened");
	if (e->have_thread)
		pv_engine_wake(&e->progress);
}

/* At start the ring itself waits: nobody is there yet whom the lock would keep. */
static bool try_later(struct pv_engine *e, struct host_entry *en)
{
	int64_t now = now_ns(e), since = en->taken_ns ? en->taken_ns : now;

	en->taken_ns = 0;
	if (pv_engine_state() != PV_ENGINE_RUNNING || now - since >= TAKEN_MAX_NS)
		return false;
	en->taken_ns = since;
	e->host->again_ns = PV_MIN(e->host->again_ns, now + PV_MAX(TAKEN_MAX_NS / 200, now - since));
	about_to_open(e, en);
	return true;
}

/* The device of a bond's leg comes without a word of the kernel's. What is no bond of ours, or needs privileges, is told of otherwise. */
static void ask_again(struct pv_engine *e, struct host_entry *en, int rc)
{
	int64_t now = now_ns(e);

	if (en->spec.ring != PV_IFSPEC_BOND || rc == -EOPNOTSUPP || rc == -EPERM)
		return;
	if (!en->fails_ns)
		en->fails_ns = now;
	en->again_ns = now + PV_MIN(PV_MAX(AGAIN_MIN_NS, (now - en->fails_ns) / 2), AGAIN_MAX_NS);
}

static bool wants_ring(struct pv_engine *e, struct host_entry *en)
{
	if (!en->retry && en->again_ns && now_ns(e) < en->again_ns) {
		e->host->again_ns = PV_MIN(e->host->again_ns, en->again_ns);
		return false;
	}
	return en->retry || en->again_ns;
}

static int open_entry(struct pv_engine *e, struct host_entry *en)
{
	struct pv_ifspec spec = en->spec;
	int rc;

	en->lost = false;
	if (!can_open(en))
		return pv_error(-ENODEV, "%s: %s", en->spec.netdev, en->reason);
	if (!wants_ring(e, en))
		return 0;
	if (!at_home(e)) {
		about_to_open(e, en);
		e->host->links = true;
		return 0;
	}
	en->retry = false;
	en->again_ns = 0;
	snprintf(spec.netdev, sizeof(spec.netdev), "%s", en->name);
	snprintf(spec.name, sizeof(spec.name), "%s", en->name);
	rc = pv_port_open(e, &spec, &en->state);
	if (rc == -EBUSY && try_later(e, en))
		return 0;
	en->taken_ns = 0;
	if (rc) {
		const char *text = pv_error_text(), *colon = strstr(text, ": ");

		set_reason(en, colon ? colon + 2 : text);
		ask_again(e, en, rc);
		if (en->again_ns)
			e->host->again_ns = PV_MIN(e->host->again_ns, en->again_ns);
		return rc;
	}
	en->fails_ns = 0;
	en->iface = e->ports[e->nports - 1].index;
	en->reason = NULL;
	e->host->moved = true;
	return 0;
}

static bool same_state(const struct pv_iface_cfg *ic, const struct pv_ring *ring, const struct host_entry *en)
{
	const struct pv_host_state *s = &en->state;

	if (ic->naddr != s->naddr || ic->mtu != PV_MIN(s->mtu, ring->caps.mtu) || ring->caps.link_up != s->link_up ||
	    strcmp(ic->name, en->name))
		return false;
	for (uint32_t i = 0; i < s->naddr; i++)
		if (!pv_addr_eq(&ic->addr[i].addr, &s->addr[i].addr) || ic->addr[i].prefix_len != s->addr[i].prefix_len)
			return false;
	return true;
}

static void update_entry(struct pv_engine *e, struct host_entry *en, struct pv_port *p)
{
	struct pv_iface_state state = {
		.addr = en->state.addr,
		.naddr = en->state.naddr,
		.mtu = en->state.mtu,
		.link_up = en->state.link_up,
	};
	int rc;

	if (same_state(pv_iface_config(pv_net_iface(e->net, en->iface)), p->ring, en))
		return;
	snprintf(state.name, sizeof(state.name), "%s", en->name);
	rc = pv_stack_iface_set(e->stack, en->iface, &state);
	if (rc)
		pv_log(PV_LOG_WARN, "%s: its change cannot be followed: %s", en->name, strerror(-rc));
	snprintf(p->spec.name, sizeof(p->spec.name), "%s", en->name);
	e->host->moved = true;
}

static void routes_changed(struct pv_engine *e)
{
	struct pv_host *h = e->host;

	if (h->rules)
		h->by_ports = pv_nl_route_by_ports(h->nl) != 0;
	if (h->routes)
		pv_net_host_changed(e->net, h->by_ports);
	h->routes = h->rules = false;
}

/* Who sends next asks the kernel, with the engine's lock: where there is a thread to wait for the kernel's own, it does so before. */
static void tell_routes(struct pv_engine *e)
{
	struct pv_host *h = e->host;

	if (!e->have_thread || e->progress_stop)
		routes_changed(e);
	else if (h->fresh && e->progress.asleep)
		pv_engine_wake(&e->progress);
}

/* 0, or with `strict` the first failure to open a ring, with a text; else all that can be opened are. */
static int bring_in_line(struct pv_engine *e, bool strict)
{
	struct pv_host *h = e->host;

	tell_routes(e);
	for (uint32_t i = 0; i < h->n; i++) {
		struct pv_port *p = port_of(e, h->entry[i].iface);

		if (p && (!ring_fits(&h->entry[i], p) || (p->bond && !pv_port_bond_follow(e, p))))
			close_entry(e, &h->entry[i]);
	}
	for (uint32_t i = 0; i < h->n; i++) {
		struct host_entry *en = &h->entry[i];
		struct pv_port *p = port_of(e, en->iface);
		int rc = 0;

		if (p)
			update_entry(e, en, p);
		else
			rc = open_entry(e, en);
		if (rc && strict)
			return rc;
	}
	return 0;
}

/* ---- changes ----------------------------------------------------------------------------------------------------------- */

static void change(void *ctx, const struct pv_nl_msg *m)
{
	struct pv_engine *e = ctx;
	struct pv_host *h = e->host;
	struct host_entry *en = entry_of(h, m->ifindex);

	switch (m->kind) {
	case PV_NL_LINK:
		if (en && m->deleted)
			en->lost = true;
		/* It may be up again by the time of the dump. */
		if (en && !(m->up && m->running))
			en->state.link_up = false;
		h->links |= en || entry_awaiting(h, m->name);
		/* Of bonds any may be a leg, or what a leg is told by. */
		h->legs |= h->bonds;
		/* A link of others may still be where a route leads. */
		h->routes = h->fresh = true;
		break;
	case PV_NL_ADDR:
		h->addrs |= en != NULL;
		e->kernel_addrs++;
		h->routes = h->fresh = true;
		break;
	case PV_NL_NEIGH:
		if (en && en->iface)
			tell_neigh(e, m);
		break;
	case PV_NL_ROUTE:
		h->routes = h->fresh = true;
		h->rules |= m->rule;
		break;
	}
}

/* Whoever sleeps on rings sleeps on those that were. */
static void wake_sleepers(struct pv_engine *e)
{
	if (e->leader && e->leader->asleep)
		pv_engine_wake(e->leader);
	if (e->progress.asleep)
		pv_engine_wake(&e->progress);
}

void pv_host_routes(struct pv_engine *e)
{
	struct pv_host *h = e->host;

	h->fresh = false;
	pv_lock_put(&e->lock);
	pv_nl_pass(h->nl);
	pv_lock_get(&e->lock);
	/* What came meanwhile may be of another turn of the kernel's lock. */
	if (h->fresh)
		return;
	routes_changed(e);
	pv_net_kick(e->net);
	pv_engine_route(e);
	wake_sleepers(e);
}

/* Without the tables: who takes an interface away has the kernel's lock of them meanwhile, and traffic is not to wait for that. */
static void follow_legs(struct pv_engine *e)
{
	struct pv_host *h = e->host;

	h->legs = false;
	h->legs_ns = PV_NEVER;
	for (uint32_t i = 0; i < e->nports; i++)
		/* Another kind of interface, or nothing beneath it: it is closed, and opened when it can be, by the tables. */
		if (e->ports[i].bond && !pv_port_bond_follow(e, &e->ports[i]))
			h->links = true;
}

/* False: the tables cannot be read; they are at the next change, and a little later in any case. */
static bool follow_tables(struct pv_engine *e)
{
	struct pv_host *h = e->host;

	if (read_tables(h)) {
		h->again_ns = now_ns(e) + AGAIN_MAX_NS;
		return false;
	}
	h->links = h->addrs = h->legs = h->blind = false;
	h->again_ns = h->legs_ns = PV_NEVER;
	(void)bring_in_line(e, false);
	return true;
}

bool pv_host_read(struct pv_engine *e)
{
	struct pv_host *h = e->host;
	bool tables;
	int n;

	if (!h || !h->nl)
		return false;
	h->moved = false;
	n = pv_nl_read(h->nl, change, e);
	if (n < 0) {
		h->links = h->addrs = h->routes = h->rules = h->fresh = true;
		e->kernel_addrs++;
		pv_net_neigh_doubt(e->net);
	}
	for (uint32_t i = 0; i < e->nports; i++)
		h->links |= e->ports[i].failed && *e->ports[i].spec.netdev;
	tables = h->links || h->addrs || now_ns(e) >= h->again_ns;
	/* Legs that are due are looked at even when the tables cannot be read: else their deadline would stay in the past. */
	if (!(tables && follow_tables(e)) && (h->legs || now_ns(e) >= h->legs_ns)) {
		follow_legs(e);
		if (!tables && h->links)
			(void)follow_tables(e);
	}
	if (h->moved && pv_engine_hooks())
		pv_engine_hooks()->ifaces();
	tell_routes(e);
	if (h->moved || n) {
		pv_net_kick(e->net);
		pv_engine_route(e);
		wake_sleepers(e);
	}
	return h->moved;
}

/* ---- life -------------------------------------------------------------------------------------------------------------- */

static int open_netlink(struct pv_host *h, char *err, size_t errsize)
{
	h->routes = h->rules = true;
	return pv_nl_open(&h->nl, err, errsize);
}

int pv_host_fd(const struct pv_engine *e)
{
	return e->host && e->host->nl ? pv_nl_fd(e->host->nl) : -1;
}

static void close_netlink(struct pv_host *h)
{
	if (h->nl)
		pv_nl_close(h->nl);
}

#else

/* Without libmnl's headers at build: every entry has that as its reason. */
static int host_route(void *ctx, const struct pv_host_query *q, struct pv_host_route *out)
{
	(void)ctx;
	(void)q;
	(void)out;
	return -EXDEV;
}

static void host_resolve(void *ctx, uint32_t kernel_index, const struct pv_addr *addr)
{
	(void)ctx;
	(void)kernel_index;
	(void)addr;
}

const struct pv_host_ops pv_host_ops = { .route = host_route, .resolve = host_resolve };

static int open_netlink(struct pv_host *h, char *err, size_t errsize)
{
	(void)h;
	snprintf(err, errsize, "this build has no rtnetlink: libmnl's headers (libmnl-dev) were not there");
	return -EOPNOTSUPP;
}

static int read_tables(struct pv_host *h)
{
	(void)h;
	return -EOPNOTSUPP;
}

static int bring_in_line(struct pv_engine *e, bool strict)
{
	(void)e;
	(void)strict;
	return -EOPNOTSUPP;
}

bool pv_host_read(struct pv_engine *e)
{
	(void)e;
	return false;
}

void pv_host_routes(struct pv_engine *e)
{
	(void)e;
}

int pv_host_fd(const struct pv_engine *e)
{
	(void)e;
	return -1;
}

static void close_netlink(struct pv_host *h)
{
	(void)h;
}

#endif

int pv_host_add(struct pv_engine *e, const struct pv_ifspec *spec)
{
	struct host_entry *en;

	if (!e->host)
		e->host = calloc(1, sizeof(*e->host));
	if (!e->host)
		return pv_error(-ENOMEM, "no memory for the kernel's interfaces");
	e->host->again_ns = e->host->legs_ns = PV_NEVER;
	en = &e->host->entry[e->host->n++];
	en->spec = *spec;
	en->retry = true;
	e->host->bonds |= spec->ring == PV_IFSPEC_BOND;
	return 0;
}

int pv_host_start(struct pv_engine *e)
{
	struct pv_host *h = e->host;
	char err[256] = "";
	int rc;

	if (!h)
		return 0;
	rc = open_netlink(h, err, sizeof(err));
	if (!rc) {
		pv_netns_open(e, pv_host_fd(e));
		rc = read_tables(h);
		if (rc)
			snprintf(err, sizeof(err), "the kernel's interfaces cannot be read: %s", strerror(-rc));
	}
	for (uint32_t i = 0; rc && i < h->n; i++)
		set_reason(&h->entry[i], err);
	/* What cannot be read now is read at the next change. */
	h->blind = h->links = h->addrs = rc != 0;
	if (rc)
		(void)pv_error(rc, "%s: %s", h->entry[0].spec.netdev, err);
	else
		rc = bring_in_line(e, e->cfg->strict);
	return e->cfg->strict ? rc : 0;
}

void pv_host_stop(struct pv_engine *e)
{
	if (!e->host)
		return;
	pv_netns_close(e);
	close_netlink(e->host);
	free(e->host);
	e->host = NULL;
}

bool pv_host_routes_due(const struct pv_engine *e)
{
	return e->host && e->host->routes && e->host->nl;
}

int64_t pv_host_deadline(const struct pv_engine *e)
{
	return e->host ? PV_MIN(e->host->again_ns, e->host->legs_ns) : PV_NEVER;
}

void pv_host_legs_at(struct pv_engine *e, int64_t when_ns)
{
	if (when_ns >= e->host->legs_ns)
		return;
	e->host->legs_ns = when_ns;
	if (e->have_thread && e->progress.asleep)
		pv_engine_wake(&e->progress);
}

bool pv_host_due(struct pv_engine *e)
{
	return e->host && (e->host->links || pv_clock_now(&e->clock) >= pv_host_deadline(e));
}

void pv_host_again(struct pv_engine *e)
{
	for (uint32_t i = 0; e->host && i < e->host->n; i++)
		e->host->entry[i].retry |= !e->host->entry[i].iface;
	for (uint32_t i = 0; i < e->nports; i++)
		pv_port_bond_again(&e->ports[i]);
	if (e->host)
		e->host->links = true;
	(void)pv_host_read(e);
}

void pv_host_tick(struct pv_engine *e)
{
	if (e->have_thread && !(e->progress_parked && e->stat->polls % PV_PARKED_POLLS == 0)) {
		if (e->host && e->host->bonds)
			pv_port_bond_glance(e, pv_clock_now(&e->clock));
		return;
	}
	pv_ports_events(e);
	(void)pv_host_read(e);
	pv_agent_tick(e);
}
