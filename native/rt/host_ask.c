/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions about the kernel's interfaces: whose an address is, why it is not offloaded. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pyvma.h"
#include "rt/host_priv.h"

uint32_t pv_host_kernel_index(const struct pv_engine *e, uint32_t iface)
{
	struct pv_iface *ifp = e->net ? pv_net_iface(e->net, iface) : NULL;
	const struct pv_iface_cfg *ic = ifp ? pv_iface_config(ifp) : NULL;

	return ic && ic->steer == PV_STEER_SOCKET ? ic->kernel_index : 0;
}

bool pv_host_is(const struct pv_engine *e, uint32_t iface)
{
	return pv_host_kernel_index(e, iface) != 0;
}

uint32_t pv_host_owner(const struct pv_engine *e, const struct pv_addr *addr)
{
	uint32_t iface = e->net ? pv_net_addr_owner(e->net, addr) : 0;

	return iface && pv_host_is(e, iface) ? iface : 0;
}

static bool has_addr(const struct pv_host_state *s, const struct pv_addr *addr)
{
	for (uint32_t i = 0; i < s->naddr; i++)
		if (pv_addr_eq(&s->addr[i].addr, addr))
			return true;
	return false;
}

const char *pv_host_reason(const struct pv_engine *e, const struct pv_addr *addr)
{
	if (e->host && e->host->blind)
		return e->host->entry[0].reason;
	for (uint32_t i = 0; e->host && i < e->host->n; i++)
		if (!e->host->entry[i].iface && has_addr(&e->host->entry[i].state, addr))
			return e->host->entry[i].reason;
	return NULL;
}

const char *pv_host_reason_to(struct pv_engine *e, const struct pv_addr *dst)
{
	struct pv_host_query q = { .dst = *dst };
	struct pv_host_route r;
	bool some = false;

	if (e->host && e->host->blind)
		return e->host->entry[0].reason;
	for (uint32_t i = 0; e->host && i < e->host->n; i++)
		some |= !e->host->entry[i].iface;
	if (!some || pv_host_ops.route(e, &q, &r) || r.local)
		return NULL;
	return pv_host_reason_of(e, r.kernel_index);
}

const char *pv_host_reason_of(const struct pv_engine *e, uint32_t kernel_index)
{
	for (uint32_t i = 0; e->host && kernel_index && i < e->host->n; i++)
		if (!e->host->entry[i].iface && e->host->entry[i].state.kernel_index == kernel_index)
			return e->host->entry[i].reason;
	return NULL;
}

void pv_host_pmtu(struct pv_engine *e, const struct pv_addr *dst, uint32_t mtu)
{
	pv_net_pmtu_set(e->net, dst, mtu, pv_clock_now(&e->clock));
}

bool pv_host_entry(const struct pv_engine *e, uint32_t i, struct pv_host_entry_info *out)
{
	const struct host_entry *en;

	if (!e->host || i >= e->host->n)
		return false;
	en = &e->host->entry[i];
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "%s", *en->name ? en->name : en->spec.netdev);
	out->kind = pv_ifspec_kind(&en->spec);
	out->kernel_index = en->state.kernel_index;
	out->iface = en->iface;
	out->reason = en->reason;
	return true;
}

int pyvma_kernel_interface_get(unsigned int number, struct pyvma_kernel_interface *out)
{
	struct pv_host_entry_info info;
	int rc = -ENOENT;

	if (pv_engine_state() != PV_ENGINE_RUNNING)
		return rc;
	pv_lock_get(&pv_engine.lock);
	if (number >= 1 && pv_host_entry(&pv_engine, number - 1, &info)) {
		memset(out, 0, sizeof(*out));
		snprintf(out->name, sizeof(out->name), "%s", info.name);
		snprintf(out->ring, sizeof(out->ring), "%s", info.kind);
		snprintf(out->reason, sizeof(out->reason), "%s", info.reason ? info.reason : "");
		out->index = info.kernel_index;
		out->offloaded = info.iface != 0;
		rc = 0;
	}
	pv_lock_put(&pv_engine.lock);
	return rc;
}
