/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SO_MAX_PACING_RATE, and the form of it that names a burst (pyvma.h). The kernel socket has the rate, too: what it sends it paces itself
 * where its queueing discipline is fq. Sockets of the stack's are paced by net/txq.h and tcp/pace.c.
 *
 * Refused here, though Linux takes it: a rate below a kbit/s, which is the smallest that devices know, and one below the least of the
 * device that the socket sends by, as far as that is known yet. 0 is unlimited, as it is to Linux's TCP; to fq it is a packet a second.
 */
#include "sock/pacing.h"

#include <stdio.h>
#include <string.h>

#include "rt/wait.h"
#include "sock/stream.h"

#ifndef SO_MAX_PACING_RATE
#define SO_MAX_PACING_RATE 47
#endif
#define RATE_MIN 125u /* bytes a second: 1 kbit/s */

/* As sk_setsockopt in Linux reads it. False: the kernel says what is wrong. */
static bool parse_rate(const void *val, socklen_t len, uint64_t *out)
{
	uint32_t u32;

	if (!val || (int)len < (int)sizeof(u32))
		return false;
	memcpy(&u32, val, sizeof(u32));
	*out = u32 == UINT32_MAX ? UINT64_MAX : u32;
	if (len >= sizeof(*out))
		memcpy(out, val, sizeof(*out));
	return true;
}

/* ---- where it applies -------------------------------------------------------------------------------------------------- */

static bool is_below(uint32_t iface, const struct pv_pacing *p)
{
	struct pv_iface *ifp = pv_net_iface(pv_engine.net, iface);

	return ifp && pv_txq_check(&pv_iface_ring(ifp)->caps, p) == PV_TXQ_BELOW;
}

int pv_pacing_check(const struct pv_sock *so, int level, int name, const void *val, socklen_t len)
{
	struct pv_pacing p = { .burst = so->pacing_burst };
	struct pv_txq_info q;

	if (level != SOL_SOCKET || name != SO_MAX_PACING_RATE || !parse_rate(val, len, &p.rate) || !pv_pacing_on(&p))
		return 0;
	if (p.rate < RATE_MIN)
		return -EINVAL;
	if (so->tc)
		return is_below(pv_tcp_iface(so->tc), &p) ? -EINVAL : 0;
	if (!so->u)
		return 0;
	if (is_below(pv_udp_peer_iface(so->u), &p))
		return -EINVAL;
	for (uint32_t i = 0; pv_udp_pacing_info(so->u, i, &q); i++)
		if (is_below(q.iface, &p))
			return -EINVAL;
	return 0;
}

/* Frames leave, and room comes, by the stack's timers, while the program may do whatever it likes: as for an exported fd somebody must
 * keep them. */
static void set_progress(struct pv_sock *so, bool on)
{
	if (on == so->paced)
		return;
	so->paced = on;
	pv_ready_poll(on);
}

void pv_pacing_import(struct pv_sock *so)
{
	struct pv_pacing p = { .burst = so->pacing_burst, .typical = so->pacing_packet };
	socklen_t len = sizeof(p.rate);

	if (getsockopt(pv_sock_kfd(so), SOL_SOCKET, SO_MAX_PACING_RATE, &p.rate, &len) < 0 || len != sizeof(p.rate))
		return;
	(void)pv_udp_set_pacing(so->u, &p, pv_clock_now(&pv_engine.clock));
	set_progress(so, pv_pacing_on(&p));
	/* What waited may go sooner, or at once. */
	pv_send_done();
}

void pv_pacing_stream(struct pv_sock *so)
{
	struct pv_tcp_opts *o = pv_tcp_options(so->tc);

	o->pacing_burst = so->pacing_burst;
	o->pacing_packet = so->pacing_packet;
	set_progress(so, o->pacing_rate && o->pacing_rate != UINT64_MAX);
}

void pv_pacing_accepted(struct pv_sock *so)
{
	const struct pv_tcp_opts *o = pv_tcp_options(so->tc);

	so->pacing_burst = o->pacing_burst;
	so->pacing_packet = o->pacing_packet;
	set_progress(so, o->pacing_rate && o->pacing_rate != UINT64_MAX);
}

void pv_pacing_end(struct pv_sock *so)
{
	set_progress(so, false);
}

/* ---- the extended form ------------------------------------------------------------------------------------------------- */

static bool may_be_ours(const struct pv_sock *so)
{
	return so->candidate && pv_sock_mode(so) != PV_SOCK_KERNEL && pv_engine_state() == PV_ENGINE_RUNNING;
}

static void swap_extras(struct pv_sock *so, uint32_t *burst, uint16_t *packet)
{
	uint32_t b = so->pacing_burst;
	uint16_t p = so->pacing_packet;

	pv_lock_get(&pv_engine.lock);
	so->pacing_burst = *burst;
	so->pacing_packet = *packet;
	pv_lock_put(&pv_engine.lock);
	*burst = b;
	*packet = p;
}

int pv_pacing_set(struct pyvma_sock *h, struct pv_sock *so, int name, const void *val, socklen_t len)
{
	struct pyvma_pacing p;
	int rc;

	if (name != PYVMA_SO_PACING)
		return -ENOPROTOOPT;
	if (!val)
		return -EFAULT;
	if (len < sizeof(p))
		return -EINVAL;
	memcpy(&p, val, sizeof(p));
	if (p.reserved)
		return -EINVAL;
	/* The kernel has no word for a burst. */
	if (!may_be_ours(so))
		return p.burst ? -EOPNOTSUPP : pyvma_sock_setsockopt(h, SOL_SOCKET, SO_MAX_PACING_RATE, &p.rate, sizeof(p.rate));
	swap_extras(so, &p.burst, &p.packet);
	rc = pyvma_sock_setsockopt(h, SOL_SOCKET, SO_MAX_PACING_RATE, &p.rate, sizeof(p.rate));
	if (rc)
		swap_extras(so, &p.burst, &p.packet);
	return rc;
}

int pv_pacing_get(struct pyvma_sock *h, struct pv_sock *so, int name, void *val, socklen_t *len)
{
	struct pyvma_pacing p = { .burst = so->pacing_burst, .packet = so->pacing_packet };
	socklen_t size = sizeof(p.rate);
	int rc;

	if (name != PYVMA_SO_PACING)
		return -ENOPROTOOPT;
	if ((int)*len < 0)
		return -EINVAL;
	rc = pyvma_sock_getsockopt(h, SOL_SOCKET, SO_MAX_PACING_RATE, &p.rate, &size);
	if (rc)
		return rc;
	*len = PV_MIN(*len, (socklen_t)sizeof(p));
	memcpy(val, &p, *len);
	return 0;
}

/* ---- what became of it ------------------------------------------------------------------------------------------------- */

static void why_text(const struct pv_ring_caps *caps, enum pv_txq_why why, char *out, size_t size)
{
	static const char *const plain[] = {
		[PV_TXQ_OK] = "",
		[PV_TXQ_NO_PACING] = "the ring has no queues with a rate",
		[PV_TXQ_STEP] = "the device knows whole kbit/s only",
		[PV_TXQ_NO_BURST] = "the device takes no burst size",
		[PV_TXQ_NO_QUEUE] = "the device has no queue left",
		[PV_TXQ_REFUSED] = "the device refused the rate",
	};

	if (why == PV_TXQ_BELOW)
		snprintf(out, size, "below the device's %u kbit/s", caps->pacing_min_kbps);
	else if (why == PV_TXQ_ABOVE)
		snprintf(out, size, "above the device's %u kbit/s", caps->pacing_max_kbps);
	else
		snprintf(out, size, "%s", plain[why]);
}

uint32_t pv_pacing_by(const struct pv_txq_info *q)
{
	return q->by == PV_TXQ_DEVICE ? PYVMA_PACING_DEVICE : q->by == PV_TXQ_SOFTWARE ? PYVMA_PACING_SOFTWARE : PYVMA_PACING_NONE;
}

static void fill_state(struct pyvma_pacing_state *out, const struct pv_txq_info *q)
{
	struct pv_iface *ifp = pv_net_iface(pv_engine.net, q->iface);

	out->by = pv_pacing_by(q);
	out->queue = q->number;
	out->frames = q->load.frames;
	out->bytes = q->load.bytes;
	if (!ifp)
		return;
	snprintf(out->interface, sizeof(out->interface), "%s", pv_iface_config(ifp)->name);
	if (q->by == PV_TXQ_SOFTWARE)
		why_text(&pv_iface_ring(ifp)->caps, q->why, out->reason, sizeof(out->reason));
}

static int state_locked(const struct pv_sock *so, unsigned int i, struct pyvma_pacing_state *out)
{
	struct pv_txq_info q;

	if (so->u ? !pv_udp_pacing_info(so->u, i, &q) : i || !pv_tcp_pacing_info(so->tc, &q))
		return -ENOENT;
	fill_state(out, &q);
	return 0;
}

int pyvma_sock_pacing(pyvma_sock *h, unsigned int i, struct pyvma_pacing_state *out)
{
	struct pv_sock *so = pv_handle_sock(h);
	socklen_t len = sizeof(out->pacing);
	int rc;

	memset(out, 0, sizeof(*out));
	if (!so)
		return -EBADF;
	rc = pv_pacing_get(h, so, PYVMA_SO_PACING, &out->pacing, &len);
	if (rc)
		return rc;
	rc = -ENOENT;
	if (pv_sock_is_ours(so)) {
		pv_lock_get(&pv_engine.lock);
		if (pv_handle_sock(h) == so && (so->u || so->tc))
			rc = state_locked(so, i, out);
		pv_lock_put(&pv_engine.lock);
	} else if (!i && out->pacing.rate && out->pacing.rate != UINT64_MAX && pv_sock_mode(so) == PV_SOCK_KERNEL) {
		out->by = PYVMA_PACING_KERNEL;
		rc = 0;
	}
	return rc;
}
