/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/port_tap.h"

#include <errno.h>
#include <stdlib.h>

#include "ring/tapdev.h"
#include "rt/agent.h"
#include "rt/error.h"
#include "rt/log.h"
#include "rt/mem.h"

struct rule {
	struct pv_list link;
	struct pv_flow flow;
};

struct pv_port_tap {
	struct pv_agent *agent; /* NULL: the rules are not ours to ask for */
	uint32_t ifindex, tap;
	struct pv_list rules;
};

/* A daemon that is away gets the rule when it is back; one that says no has its reason, which is the socket's. */
static int rule_add(void *ctx, const struct pv_flow *flow, uint64_t *handle)
{
	struct pv_port_tap *t = ctx;
	struct rule *r = malloc(sizeof(*r));
	char err[256] = "";
	int rc = 0;

	if (!r)
		return -ENOMEM;
	r->flow = *flow;
	if (t->agent)
		rc = pv_agent_flow_add(t->agent, t->ifindex, t->tap, flow, err, sizeof(err));
	if (rc && rc != -EAGAIN) {
		pv_log(PV_LOG_DEBUG, "the TAP device gets no rule: %s", err);
		free(r);
		return rc;
	}
	pv_list_add(&t->rules, &r->link);
	*handle = (uint64_t)(uintptr_t)r;
	return 0;
}

static int rule_del(void *ctx, uint64_t handle)
{
	struct pv_port_tap *t = ctx;
	struct rule *r = (struct rule *)(uintptr_t)handle;

	if (t->agent)
		(void)pv_agent_flow_del(t->agent, t->ifindex, t->tap, &r->flow);
	pv_list_del(&r->link);
	free(r);
	return 0;
}

static int from_daemon(struct pv_port_tap *t, struct pv_agent_tap *tap)
{
	char err[256] = "";
	int rc = pv_agent_connect(t->agent, err, sizeof(err));

	if (!rc)
		rc = pv_agent_tap(t->agent, t->ifindex, 1, tap, err, sizeof(err));
	if (rc)
		return pv_error(rc, "no TAP device for when its VF is away: %s", err);
	t->tap = tap->ifindex;
	return 0;
}

int pv_port_tap_open(struct pv_engine *e, const struct pv_port_tap_cfg *cfg, struct pv_ring **ring, struct pv_port_tap **out)
{
	struct pv_port_tap *t = calloc(1, sizeof(*t));
	struct pv_tapdev_steer steer = { .add = rule_add, .del = rule_del, .ctx = t };
	struct pv_tapdev_cfg tc = {
		.ifname = "pvma%d",
		.queues = 1,
		.rx_depth = cfg->rx_depth,
		.tx_depth = cfg->tx_depth,
		.mtu = cfg->mtu,
		.mac = cfg->mac,
		.no_offload = e->cfg->no_csum_offload,
		.no_tso = !e->cfg->tso,
		.steer = &steer,
	};
	struct pv_agent_tap tap = { .nfds = 0 };
	char err[256] = "";
	int rc = 0;

	if (!t)
		return pv_error(-ENOMEM, "no memory for a TAP device");
	t->ifindex = cfg->ifindex;
	t->agent = pv_agent_get(e);
	pv_list_init(&t->rules);
	if (t->agent) {
		rc = from_daemon(t, &tap);
		tc.ifname = tap.name;
		tc.mtu = 0; /* the daemon's to set */
		tc.fds = tap.fd;
		tc.nfds = tap.nfds;
	}
	if (!rc) {
		rc = pv_tapdev_open(ring, pv_mem_system(e->cfg->huge_pages), cfg->pool, &tc, err, sizeof(err));
		if (rc)
			rc = pv_error(rc, "no TAP device for when its VF is away: %s", err);
	}
	if (rc) {
		pv_port_tap_close(t);
		return rc;
	}
	*out = t;
	return 0;
}

void pv_port_tap_close(struct pv_port_tap *t)
{
	if (!t)
		return;
	pv_list_for_each_safe(it, tmp, &t->rules)
		(void)rule_del(t, (uint64_t)(uintptr_t)pv_list_entry(it, struct rule, link));
	if (t->agent && t->tap)
		pv_agent_tap_drop(t->agent, t->tap);
	free(t);
}

void pv_port_tap_forget(struct pv_port_tap *t)
{
	if (!t)
		return;
	t->agent = NULL;
	pv_port_tap_close(t);
}
