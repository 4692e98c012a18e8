/* SPDX-License-Identifier: BSD-3-Clause */
/* What readers of the statistics file see of UDP. */
#include "udp/udp_int.h"

#define TABLE(name, kind, unit, help) PV_STAT_FIELD(struct pv_udp_counters, name, name, kind, unit, help)
static const struct pv_stat_field table_fields[] = { PV_UDP_COUNTERS(TABLE) };

const struct pv_stat_type pv_udp_table_stat_type = PV_STAT_TYPE(UDP_TABLE, struct pv_udp_counters, table_fields);

#define SOCK(name, member, kind, more, help) PV_STAT_FIELD(struct pv_udp, name, member, kind, more, help)
#define COUNTER(name, kind, unit, help) PV_STAT_FIELD(struct pv_udp, name, counters.name, kind, unit, help)
static const struct pv_stat_field fields[] = { PV_STATS_UDP(SOCK) PV_UDP_COUNTERS(COUNTER) };

const struct pv_stat_type pv_udp_stat_type = PV_STAT_TYPE(UDP, struct pv_udp, fields);

#define MEMBER(name, member, kind, more, help) PV_STAT_FIELD(struct pv_udp_member, name, member, kind, more, help)
static const struct pv_stat_field member_fields[] = { PV_STATS_MEMBERSHIP(MEMBER) };

const struct pv_stat_type pv_udp_member_stat_type = PV_STAT_TYPE(MEMBERSHIP, struct pv_udp_member, member_fields);
