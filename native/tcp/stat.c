/* SPDX-License-Identifier: BSD-3-Clause */
/* What readers of the statistics file see of TCP. */
#include "tcp/conn.h"

#define COUNTER(name, kind, unit, help) PV_STAT_FIELD(struct pv_tcp_counters, name, name, kind, unit, help)
static const struct pv_stat_field table_fields[] = { PV_TCP_COUNTERS(COUNTER) };

const struct pv_stat_type pv_tcp_table_stat_type = PV_STAT_TYPE(TCP_TABLE, struct pv_tcp_counters, table_fields);

#define CONN(name, member, kind, more, help) PV_STAT_FIELD(struct pv_tcp, name, member, kind, more, help)
static const struct pv_stat_field fields[] = { PV_STATS_TCP(CONN) };

/* TCP_INFO tells the same counters, and the delivery rate is reckoned with them. */
const struct pv_stat_type pv_tcp_stat_type = PV_STAT_TYPE(TCP, struct pv_tcp, fields, .kept = true);

#define LISTEN(name, member, kind, more, help) PV_STAT_FIELD(struct pv_tcp_listen, name, member, kind, more, help)
static const struct pv_stat_field listener_fields[] = { PV_STATS_LISTENER(LISTEN) };

const struct pv_stat_type pv_tcp_listener_stat_type = PV_STAT_TYPE(LISTENER, struct pv_tcp_listen, listener_fields);
