/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/stats_types.h"

#include <unistd.h>

#define ENGINE(name, member, kind, more, help) PV_STAT_FIELD(struct pv_engine_stat, name, member, kind, more, help)
static const struct pv_stat_field engine_fields[] = { PV_STATS_ENGINE(ENGINE) };

const struct pv_stat_type pv_engine_stat_type = PV_STAT_TYPE(ENGINE, struct pv_engine_stat, engine_fields);

#define SOCK(name, member, kind, more, help) PV_STAT_FIELD(struct pv_sock_stat, name, member, kind, more, help)
static const struct pv_stat_field sock_fields[] = { PV_STATS_SOCKET(SOCK) };

const struct pv_stat_type pv_sock_stat_type = PV_STAT_TYPE(SOCKET, struct pv_sock_stat, sock_fields);

#define EPOLL(name, member, kind, more, help) PV_STAT_FIELD(struct pv_epoll_stat, name, member, kind, more, help)
static const struct pv_stat_field epoll_fields[] = { PV_STATS_EPOLL(EPOLL) };

const struct pv_stat_type pv_epoll_stat_type = PV_STAT_TYPE(EPOLL, struct pv_epoll_stat, epoll_fields);

#define REASON(name, member, kind, more, help) PV_STAT_FIELD(struct pv_reason_stat, name, member, kind, more, help)
static const struct pv_stat_field reason_fields[] = { PV_STATS_REASON(REASON) };

const struct pv_stat_type pv_reason_stat_type = PV_STAT_TYPE(REASON, struct pv_reason_stat, reason_fields);

#define KERNEL(name, member, kind, more, help) PV_STAT_FIELD(struct pv_kernel_stat, name, member, kind, more, help)
static const struct pv_stat_field kernel_fields[] = { PV_STATS_KERNEL(KERNEL) };

const struct pv_stat_type pv_kernel_stat_type = PV_STAT_TYPE(KERNEL, struct pv_kernel_stat, kernel_fields);

_Thread_local uint32_t pv_stat_tid;

uint32_t pv_stat_tid_ask(void)
{
	pv_stat_tid = (uint32_t)gettid();
	return pv_stat_tid;
}
