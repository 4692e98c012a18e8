/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path MTUs that routers told us (RFC 1191, RFC 8201): a direct-mapped table of two places per hash, so that it is bounded and a
 * flood of messages can only cost other entries of the same two places. As in Linux an entry lives 10 minutes, never raises the
 * value, and a report below 552 bytes (IPv4) locks it: datagrams then go without DF. IPv6 never goes below 1280.
 */
#include "net/internal.h"

static struct pv_pmtu *pmtu_place(struct pv_net *net, const struct pv_addr *dst)
{
	return &net->pmtu[pv_hash_addr(&net->key, dst, 0) % (PV_PMTU_MAX / 2) * 2];
}

const struct pv_pmtu *pv_pmtu_find(struct pv_net *net, const struct pv_addr *dst, int64_t now_ns)
{
	struct pv_pmtu *p = pmtu_place(net, dst);

	for (int i = 0; i < 2; i++, p++)
		if (p->mtu && pv_addr_eq(&p->dst, dst) && p->expire_ns > now_ns)
			return p;
	return NULL;
}

/* Lets paths grow again (RFC 1191 6.3). */
static void pmtu_expire(struct pv_net *net, struct pv_net_timer *t, int64_t now_ns)
{
	int64_t next = PV_NEVER;

	for (uint32_t i = 0; i < PV_PMTU_MAX; i++) {
		struct pv_pmtu *p = &net->pmtu[i];

		if (p->mtu && p->expire_ns <= now_ns) {
			p->mtu = 0;
			pv_net_gen_bump(net);
		} else if (p->mtu) {
			next = PV_MIN(next, p->expire_ns);
		}
	}
	pv_net_timer_set(net, t, next);
}

/* `current`: what paths to dst use today, at most; 0: not known. */
void pv_pmtu_learn(struct pv_net *net, const struct pv_addr *dst, uint32_t mtu, uint32_t current, int64_t now_ns)
{
	bool v4 = pv_addr_is4(dst);
	uint32_t least = v4 ? PV_PMTU_MIN4 : PV_IP6_MIN_MTU;
	struct pv_pmtu *place = pmtu_place(net, dst), *p = NULL;
	bool locked = false;

	if (mtu < least) {
		locked = v4;
		mtu = least;
	}
	for (int i = 0; i < 2; i++) {
		struct pv_pmtu *e = &place[i];

		if (e->mtu && pv_addr_eq(&e->dst, dst)) {
			p = e;
			break;
		}
		if (!p || !e->mtu || (p->mtu && e->expire_ns < p->expire_ns))
			p = e;
	}
	if (p->mtu && pv_addr_eq(&p->dst, dst) && p->expire_ns > now_ns) {
		if (mtu > p->mtu || (mtu == p->mtu && locked == p->locked))
			return;
	} else if (current && mtu >= current && !locked) {
		return;
	}
	*p = (struct pv_pmtu){ .dst = *dst, .mtu = mtu, .locked = locked, .expire_ns = now_ns + PV_PMTU_EXPIRE_NS };
	pv_net_gen_bump(net);
	net->pmtu_timer.fn = pmtu_expire;
	if (!pv_timer_armed(&net->pmtu_timer.t))
		pv_net_timer_set(net, &net->pmtu_timer, p->expire_ns);
}

void pv_net_pmtu_set(struct pv_net *net, const struct pv_addr *dst, uint32_t mtu, int64_t now_ns)
{
	pv_pmtu_learn(net, dst, mtu, 0, now_ns);
}
