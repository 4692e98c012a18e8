/* SPDX-License-Identifier: BSD-3-Clause */
/* AF_XDP rings with the daemon's privileges, and the daemon's half of that. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pyvma.h"
#include "ring/link.h"
#include "ring/xdp.h"
#include "rt/agent.h"
#include "rt/engine.h"
#include "rt/mem.h"

#ifdef PV_HAVE_XDP

struct keeper {
	struct pv_agent *agent;
	uint32_t ifindex;
};

static int keeper_add(void *ctx, const struct pv_flow *flow)
{
	const struct keeper *k = ctx;
	int rc = pv_agent_flow_add(k->agent, k->ifindex, 0, flow, NULL, 0);

	/* Away for a moment: it has the rule when it is back, and the kernel's socket the packets until then. */
	return rc == -EAGAIN ? 0 : rc;
}

static void keeper_del(void *ctx, const struct pv_flow *flow)
{
	const struct keeper *k = ctx;

	(void)pv_agent_flow_del(k->agent, k->ifindex, 0, flow);
}

static void keeper_close(void *ctx)
{
	struct keeper *k = ctx;

	pv_agent_xdp_drop(k->agent, k->ifindex);
	free(k);
}

int pv_agent_xdp_open(struct pv_agent *a, struct pv_ring **out, struct pv_pool *pool, struct pv_xdp_cfg *cfg, char *err,
		      size_t errsize)
{
	struct keeper *k = calloc(1, sizeof(*k));
	struct pv_xdp_keeper keeper = { keeper_add, keeper_del, keeper_close, k };
	struct pv_xdp_loan loan = { .rules_fd = -1, .config_fd = -1 };
	struct pv_agent_xdp got = { .queues = pv_xdp_queues(cfg), .mode = cfg->mode };
	int rc;

	_Static_assert(PV_XDP_LOAN_QUEUES >= PV_AGENT_QUEUES_MAX, "a loan has room for what the daemon passes");
	if (!k) {
		snprintf(err, errsize, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	k->agent = a;
	k->ifindex = pv_link_index(cfg->ifname);
	rc = pv_agent_xdp(a, k->ifindex, &got, err, errsize);
	if (rc) {
		free(k);
		return rc;
	}
	loan.link_fd = got.link_fd;
	loan.queues = got.queues;
	loan.native = got.native;
	memcpy(loan.sock_fd, got.sock_fd, sizeof(got.sock_fd));
	cfg->loan = &loan;
	cfg->keeper = &keeper;
	rc = pv_xdp_open(out, pv_mem_system(pv_engine.cfg->huge_pages), pool, cfg, err, errsize);
	cfg->loan = NULL;
	cfg->keeper = NULL;
	if (rc)
		keeper_close(k);
	return rc;
}

int pyvma_xdp_lend(const char *ifname, unsigned int queues, unsigned int mode, struct pyvma_xdp_loan *out, char *text, size_t size)
{
	struct pv_xdp_cfg cfg = { .ifname = ifname, .queues = queues, .mode = (enum pv_xdp_mode)mode };
	struct pv_xdp_loan loan;
	int rc;

	if (mode > PV_XDP_GENERIC)
		return -EINVAL;
	rc = pv_xdp_lend(&cfg, &loan, text, size);
	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	out->link_fd = loan.link_fd;
	out->rules_fd = loan.rules_fd;
	out->config_fd = loan.config_fd;
	out->queues = loan.queues;
	out->native = loan.native;
	memcpy(out->mac, loan.mac, sizeof(out->mac));
	for (uint32_t i = 0; i < loan.queues; i++)
		out->sock_fd[i] = loan.sock_fd[i];
	return 0;
}

#else

int pv_agent_xdp_open(struct pv_agent *a, struct pv_ring **out, struct pv_pool *pool, struct pv_xdp_cfg *cfg, char *err,
		      size_t errsize)
{
	(void)a;
	(void)out;
	(void)pool;
	(void)cfg;
	snprintf(err, errsize, "this build has no AF_XDP");
	return -EOPNOTSUPP;
}

int pyvma_xdp_lend(const char *ifname, unsigned int queues, unsigned int mode, struct pyvma_xdp_loan *out, char *text, size_t size)
{
	(void)ifname;
	(void)queues;
	(void)mode;
	(void)out;
	snprintf(text, size, "this build has no AF_XDP: libbpf's headers (libbpf-dev) or clang were not there");
	return -EOPNOTSUPP;
}

#endif
