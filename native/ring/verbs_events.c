/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping and asynchronous events. notify_fd is an epoll set of the completion channel and the device's event fd, so that one fd
 * tells of both. Notifications are not queued: arm() takes what the channel has, asks for the next completion and then looks
 * whether one came in between; that one waits in `stash` for the next rx_poll.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "ring/verbs_priv.h"

static int watch(int epoll_fd, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev))
		return -errno;
	return 0;
}

int pv_verbs_events_open(struct verbs_ring *v)
{
	int rc;

	v->epoll_fd = pv_ownfd(epoll_create1(EPOLL_CLOEXEC));
	if (v->epoll_fd < 0)
		return -errno;
	(void)pv_ownfd(v->ctx->async_fd);
	(void)pv_ownfd(v->ctx->cmd_fd);
	if (v->channel)
		(void)pv_ownfd(v->channel->fd);
	rc = watch(v->epoll_fd, v->ctx->async_fd);
	if (!rc && v->channel)
		rc = watch(v->epoll_fd, v->channel->fd);
	return rc;
}

void pv_verbs_events_close(struct verbs_ring *v)
{
	if (v->epoll_fd >= 0)
		close(v->epoll_fd);
	v->epoll_fd = -1;
	/* The library closes the others in a moment. */
	if (v->ctx) {
		pv_ownfd_not(v->ctx->async_fd);
		pv_ownfd_not(v->ctx->cmd_fd);
	}
	if (v->channel)
		pv_ownfd_not(v->channel->fd);
}

/* Takes the notifications that are there. A channel of one CQ holds one or two of them. */
static void drain_channel(struct verbs_ring *v)
{
	struct pollfd pfd = { .fd = v->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *cq_ctx;
	unsigned int n = 0;

	while (poll(&pfd, 1, 0) == 1 && pfd.revents & POLLIN && !v->lib.get_cq_event(v->channel, &cq, &cq_ctx))
		n++;
	if (n) {
		v->ring.stat->c.interrupts += n;
		v->lib.ack_cq_events(v->rx_cq, n);
	}
}

int pv_verbs_arm(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);
	struct pv_pkt *p;
	int rc;

	if (!v->channel)
		return -EOPNOTSUPP;
	if (v->stash || v->events)
		return 1;
	if (v->gone)
		return -ENODEV;
	drain_channel(v);
	rc = v->ctx->ops.req_notify_cq(v->rx_cq, 0);
	if (rc)
		return -rc;
	v->ring.stat->c.interrupts_asked++;
	/* Not a tap's: rx_poll hands it out again. */
	if (v->ops.rx_poll(r, &p, 1)) {
		v->stash = p;
		return 1;
	}
	return 0;
}

int pv_verbs_notify_fd(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);

	return v->channel ? v->epoll_fd : -EOPNOTSUPP;
}

static enum pv_ring_event translate(struct verbs_ring *v, const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		if (ev->element.port_num != v->port)
			return PV_RING_EV_NONE;
		v->ring.caps.link_up = ev->event_type == IBV_EVENT_PORT_ACTIVE;
		return v->ring.caps.link_up ? PV_RING_EV_LINK_UP : PV_RING_EV_LINK_DOWN;
	case IBV_EVENT_DEVICE_FATAL:
		pv_verbs_set_gone(v); /* tells of itself */
		return PV_RING_EV_NONE;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_WQ_FATAL:
		return PV_RING_EV_ERROR;
	default:
		return PV_RING_EV_NONE;
	}
}

enum pv_ring_event pv_verbs_event(struct pv_ring *r)
{
	struct verbs_ring *v = verbs_ring(r);
	struct pollfd pfd = { .fd = v->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	while (!v->gone && poll(&pfd, 1, 0) == 1 && pfd.revents & POLLIN && !v->lib.get_async_event(v->ctx, &ev)) {
		enum pv_ring_event event = translate(v, &ev);

		v->lib.ack_async_event(&ev);
		if (event != PV_RING_EV_NONE)
			return event;
	}
	if (v->closing)
		pv_verbs_txq_sweep(v);
	if (v->rxqs && v->rxqs->closing)
		pv_verbs_rxq_sweep(v);
	/* POLLHUP or POLLERR: the kernel took the device away. */
	if (pfd.revents & (POLLERR | POLLHUP | POLLNVAL))
		pv_verbs_set_gone(v);
	for (uint32_t kind = PV_RING_EV_LINK_UP; kind <= PV_RING_EV_ERROR; kind++) {
		if (v->events & 1u << kind) {
			v->events &= ~(1u << kind);
			return (enum pv_ring_event)kind;
		}
	}
	return PV_RING_EV_NONE;
}
