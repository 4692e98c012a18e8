/* SPDX-License-Identifier: BSD-3-Clause */
/* What readers of the statistics file see of the network layer. */
#include "net/net.h"

#define COUNTER(name, kind, unit, help) PV_STAT_FIELD(struct pv_net_counters, name, name, kind, unit, help)
static const struct pv_stat_field fields[] = { PV_NET_COUNTERS(COUNTER) };

const struct pv_stat_type pv_net_stat_type = PV_STAT_TYPE(NET, struct pv_net_counters, fields);
