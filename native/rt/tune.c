/* SPDX-License-Identifier: BSD-3-Clause */
/* What is not read from the settings each time has a copy where it is used: those are brought up to date here, at the start and later. */
#include "rt/tune.h"

#include "rt/log.h"
#include "rt/recorder.h"

void pv_tune_apply(struct pv_engine *e)
{
	const struct pv_config *cfg = e->cfg;

	e->rx_budget = (uint32_t)cfg->rx_batch;
	e->spin_ns = cfg->rx_poll < 0 ? PV_NEVER : cfg->rx_poll * PV_NS_PER_US;
	e->kernel_ratio = (uint32_t)cfg->kernel_poll_ratio;
	e->stat->spin_ns = e->spin_ns;
	e->stat->kernel_ratio = e->kernel_ratio;
	pv_stack_set_rx_batch(e->stack, (uint32_t)cfg->rx_batch);
	pv_net_tune(e->net, (uint32_t)cfg->icmp_rate, cfg->reass_timeout * PV_NS_PER_S);
	pv_recorder_packets(e, cfg->trace_packets);
	pv_log_set((enum pv_log_level)cfg->log_level, (int)cfg->log_details);
}

int pv_tune(struct pv_engine *e, const char *name, const char *value)
{
	int rc = pv_config_tune(name, value, name);

	if (rc)
		return rc;
	pv_tune_apply(e);
	pv_log(PV_LOG_INFO, "control: %s is %s now", name, value);
	return 0;
}
