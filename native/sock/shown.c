/* SPDX-License-Identifier: BSD-3-Clause */
#include "sock/shown.h"

#include <stdio.h>
#include <string.h>

#include "rt/stats.h"

static const char *kernel_text(const struct pv_sock *so)
{
	if (so->family == AF_UNIX)
		return "AF_UNIX: kernel";
	if (so->family != AF_INET && so->family != AF_INET6)
		return "address family: kernel";
	if (so->type == SOCK_STREAM)
		return "SOCK_STREAM of another protocol: kernel";
	return so->type == SOCK_RAW ? "raw sockets: kernel" : so->type == SOCK_SEQPACKET ? "SOCK_SEQPACKET: kernel" : "kernel";
}

/* As what readers see it, 0: not any more. A call that comes late may have shown it for the socket before. */
static void kernel_shown(struct pv_sock_stat *st, uint32_t id)
{
	pv_stats_hide(NULL, __atomic_exchange_n(&st->kernel_id, id, __ATOMIC_RELAXED));
}

int pv_shown_open(struct pv_sock *so)
{
	struct pv_sock_stat *st = so->st ? so->st : pv_stats_alloc(NULL, sizeof(*st));
	struct pv_kernel_stat *block;

	if (!st)
		return -ENOMEM;
	kernel_shown(st, 0);
	block = st->kernel_block;
	if (block)
		memset(block, 0, sizeof(*block));
	so->st = st;
	memset(st, 0, sizeof(*st));
	st->kernel_block = block;
	st->fd = -1;
	st->family = (uint8_t)so->family;
	st->type = (uint8_t)so->type;
	st->proto = (uint16_t)so->proto;
	st->created_ns = pv_clock_kernel_ns();
	if (!so->candidate)
		pv_shown_reason(so, kernel_text(so), NULL);
	pv_shown_update(so);
	so->st_id = pv_stats_show(NULL, &pv_sock_stat_type, st);
	return 0;
}

/* Several threads may come here at once: one's block stays, and one of them shows it. */
struct pv_kernel_stat *pv_shown_kernel_make(struct pv_sock *so)
{
	static struct pv_kernel_stat nobodys;
	struct pv_sock_stat *st = so->st;
	struct pv_kernel_stat *block = st->kernel_block, *none = NULL;

	if (!block) {
		struct pv_kernel_stat *made = pv_stats_alloc(NULL, sizeof(*made));

		if (!made)
			return &nobodys;
		if (atomic_compare_exchange_strong(&st->kernel_block, &block, made))
			block = made;
		else
			pv_stats_free(NULL, made, sizeof(*made));
	}
	if (atomic_compare_exchange_strong(&st->kernel, &none, block))
		kernel_shown(st, pv_stats_show(NULL, &pv_kernel_stat_type, block));
	return block;
}

static void reason_free(struct pv_reason_stat *r)
{
	if (!r)
		return;
	pv_stats_hide(NULL, r->shown);
	pv_stats_free(NULL, r, sizeof(*r));
}

void pv_shown_close(struct pv_sock *so)
{
	struct pv_sock_stat *st = so->st;

	pv_stats_hide(NULL, so->st_id);
	kernel_shown(st, 0);
	if (!st->reason)
		return;
	/* Whoever asks for it at this moment has the lock. */
	pv_lock_get(&pv_engine.lock);
	struct pv_reason_stat *r = st->reason;

	st->reason = NULL;
	pv_lock_put(&pv_engine.lock);
	reason_free(r);
}

void pv_shown_update(struct pv_sock *so)
{
	static const uint8_t states[] = { [PV_SOCK_UNDECIDED] = PV_SHOWN_UNDECIDED,
					  [PV_SOCK_KERNEL] = PV_SHOWN_KERNEL,
					  [PV_SOCK_CORE] = PV_SHOWN_OFFLOADED,
					  [PV_SOCK_STREAM] = PV_SHOWN_OFFLOADED };
	struct pv_sock_stat *st = so->st;

	st->state = so->dead ? PV_SHOWN_LOST : so->retired ? PV_SHOWN_KERNEL : states[pv_sock_mode(so)];
	st->transport = so->u ? (const void *)so->u : (const void *)so->tc;
	st->nonblock = pv_sock_nonblock(so);
}

void pv_shown_reason(struct pv_sock *so, const char *reason, const struct pv_addr *addr)
{
	struct pv_reason_stat *r = so->st->reason;
	char text[64];

	if (!r) {
		r = pv_stats_alloc(NULL, sizeof(*r));
		if (!r)
			return;
		r->shown = pv_stats_show(NULL, &pv_reason_stat_type, r);
	}
	if (addr)
		pv_addr_text(addr, text, sizeof(text));
	snprintf(r->text, sizeof(r->text), "%s%s%s", addr ? "address " : "", addr ? text : "", reason ? reason : "kernel");
	so->st->reason = r;
}
