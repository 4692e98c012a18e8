/* SPDX-License-Identifier: BSD-3-Clause */
/* Rules of the application's own, beside those that its sockets make. */
#include <netinet/in.h>
#include <string.h>

#include "ring/ring.h"
#include "rt/error.h"
#include "sock/lane.h"
#include "sock/sock.h"

_Static_assert(PYVMA_FLOW_TOS == PV_FLOW_BY_TOS && PYVMA_FLOW_LABEL == PV_FLOW_BY_LABEL && PYVMA_FLOW_VXLAN == PV_FLOW_IN_VXLAN,
	       "the ring's bits");

/* False: of another family. `port` 0 and no address when there is none. */
static bool take_addr(const struct sockaddr_storage *ss, struct pv_addr *addr, uint16_t *port)
{
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;

	*port = 0;
	switch (ss->ss_family) {
	case AF_UNSPEC:
		return true;
	case AF_INET:
		memcpy(&in4, ss, sizeof(in4));
		*addr = pv_addr_from4((const uint8_t *)&in4.sin_addr);
		*port = ntohs(in4.sin_port);
		return true;
	case AF_INET6:
		memcpy(&in6, ss, sizeof(in6));
		*addr = pv_addr_from6(in6.sin6_addr.s6_addr);
		*port = ntohs(in6.sin6_port);
		return true;
	default:
		return false;
	}
}

/* What of a rule's headers is named decides its kind: from `least` on. -EINVAL: something is missing in between. */
static int take_tuple(const struct pyvma_flow_tuple *t, enum pv_flow_kind least, struct pv_flow_inner *out)
{
	static const uint8_t any[PV_ETH_ALEN];
	bool dst = t->dst.ss_family != AF_UNSPEC, src = t->src.ss_family != AF_UNSPEC;

	memset(out, 0, sizeof(*out));
	if (!take_addr(&t->dst, &out->dst, &out->dst_port) || !take_addr(&t->src, &out->src, &out->src_port))
		return -EINVAL;
	memcpy(out->dst_mac, t->dst_mac, PV_ETH_ALEN);
	out->l4_proto = t->l4_proto;
	if ((out->dst_port != 0) != (t->l4_proto != 0) || (src && (!out->dst_port || !out->src_port)))
		return -EINVAL;
	if (!dst)
		out->kind = pv_mac_eq(t->dst_mac, any) ? least : PV_FLOW_ETHER;
	else
		out->kind = src ? PV_FLOW_5TUPLE : out->dst_port ? PV_FLOW_3TUPLE : PV_FLOW_IP;
	return 0;
}

static int take_flow(const struct pyvma_flow *flow, struct pv_flow *out)
{
	struct pv_flow_inner t;
	int rc = take_tuple(&flow->outer, PV_FLOW_ETHER, &t);

	memset(out, 0, sizeof(*out));
	if (!rc)
		rc = take_tuple(&flow->inner, PV_FLOW_ALL, &out->inner);
	if (rc)
		return rc;
	*out = (struct pv_flow){
		.kind = t.kind,
		.match = flow->match,
		.ethertype = flow->ethertype,
		.vlan = flow->vlan,
		.l4_proto = t.l4_proto,
		.dst = t.dst,
		.src = t.src,
		.dst_port = t.dst_port,
		.src_port = t.src_port,
		.tos = flow->tos,
		.tos_mask = flow->tos_mask,
		.flow_label = flow->flow_label,
		.vni = flow->vni,
		.inner = out->inner,
	};
	memcpy(out->dst_mac, t.dst_mac, PV_ETH_ALEN);
	return flow->match & PV_FLOW_SNIFFER ? -EINVAL : 0;
}

static struct pv_port *find_port(uint32_t index)
{
	for (uint32_t i = 0; i < pv_engine.nports; i++) {
		if (pv_ifindex_public(pv_engine.ports[i].index) == index)
			return &pv_engine.ports[i];
	}
	return NULL;
}

static int add_locked(uint32_t index, const struct pv_flow *f, struct pyvma_rule *out)
{
	struct pv_port *p = find_port(index);
	struct pv_ring_caps *caps;
	int rc;

	if (!p)
		return pv_error(-ENODEV, "no interface of the engine has the number %u", index);
	caps = &p->ring->caps;
	rc = pv_ring_flow_add(p->ring, f, &out->handle);
	if (rc == -EINVAL)
		return pv_error(rc, "no device could match by such a rule");
	if (rc == -EOPNOTSUPP)
		return pv_error(rc, "%s cannot match by such a rule (it has kinds 0x%x, fields 0x%x)", caps->name, caps->flow_kinds,
				caps->flow_match);
	if (rc)
		return pv_error(rc, "%s refuses the rule: %s", caps->name, strerror(-rc));
	out->index = index;
	out->serial = p->serial;
	return 0;
}

int pyvma_rule_add(unsigned int index, const struct pyvma_flow *flow, struct pyvma_rule *out)
{
	struct pv_flow f;
	int rc = take_flow(flow, &f);

	memset(out, 0, sizeof(*out));
	if (rc)
		return pv_error(rc, "a port goes with a protocol and an address, a source with a destination");
	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return pv_error(-ENODEV, "the engine has no interface");
	pv_lock_get(&pv_engine.lock);
	rc = add_locked(index, &f, out);
	pv_lock_put(&pv_engine.lock);
	return rc;
}

static int move_locked(struct pyvma_rule *rule, int queue)
{
	struct pv_port *p = find_port(rule->index);
	uint32_t was = rule->queue;
	int rc;

	if (!p || p->serial != rule->serial)
		return pv_error(-ENODEV, "the rule's interface is gone");
	if (!p->ring->caps.rxqs)
		return pv_lane_none(p);
	if (queue < -1 || queue > PV_RING_RXQ_MAX)
		return pv_error(-ENOENT, "%s has no receive queue %d", p->ring->caps.name, queue);
	if (queue < 0)
		queue = pv_lane_open(p);
	if (queue < 0)
		return pv_error(queue, "%s opens no more receive queues: %s", p->ring->caps.name, strerror(-queue));
	pv_lane_use(p, (uint32_t)queue);
	rc = pv_lane_move(p->ring, rule->handle, queue ? UINT64_C(1) << queue : 0);
	if (rc) {
		pv_lane_leave(p, (uint32_t)queue);
		return pv_error(rc, "%s leaves the rule where it is: %s", p->ring->caps.name, strerror(-rc));
	}
	rule->queue = (uint32_t)queue;
	pv_lane_leave(p, was);
	return 0;
}

int pyvma_rule_move(struct pyvma_rule *rule, int queue)
{
	int rc;

	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return pv_error(-ENODEV, "the rule's interface is gone");
	pv_lock_get(&pv_engine.lock);
	rc = move_locked(rule, queue);
	pv_lock_put(&pv_engine.lock);
	return rc;
}

int pyvma_rule_del(const struct pyvma_rule *rule)
{
	struct pv_port *p;
	int rc = 0;

	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return 0;
	pv_lock_get(&pv_engine.lock);
	p = find_port(rule->index);
	if (p && p->serial == rule->serial) {
		rc = pv_ring_flow_del(p->ring, rule->handle);
		/* Whatever else the device says, the ring has it no more; one that it had no more has left already. */
		if (rc != -ENOENT)
			pv_lane_leave(p, rule->queue);
	}
	pv_lock_put(&pv_engine.lock);
	return rc;
}
