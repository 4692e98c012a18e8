/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion channels and asynchronous events.
 *
 * A channel's descriptor is that of the waker that senders in other processes write to; what happens in this process (a send
 * completion, a flushed buffer) wakes the same. The fabric reads it without waiting whatever its flags say, so O_NONBLOCK on it is the
 * application's own choice, off at first.
 *
 * An event counts as delivered once ibv_get_*_event has returned it; destroying its object waits until it is acknowledged.
 * Descriptors are used by raw system calls: a preloaded socket library has no business with them.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softnic/vb.h"

/* ---- waiting ------------------------------------------------------------------------------------------------------------------- */

int vb_waker_fd(struct sn_waker *w)
{
	int fd = sn_waker_fd(w);
	long flags = syscall(SYS_fcntl, fd, F_GETFL);

	if (flags < 0 || syscall(SYS_fcntl, fd, F_SETFL, flags & ~(long)O_NONBLOCK))
		return -errno;
	return fd;
}

/* 0 or -1 with errno, EAGAIN on a descriptor that the application made non-blocking. */
static int wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	long flags = syscall(SYS_fcntl, fd, F_GETFL);

	if (flags < 0)
		return -1;
	if (flags & O_NONBLOCK) {
		errno = EAGAIN;
		return -1;
	}
	return syscall(SYS_ppoll, &p, 1, NULL, NULL, 0) < 0 ? -1 : 0;
}

/* ---- completion channels --------------------------------------------------------------------------------------------------------- */

static struct vb_channel *channel_of(struct ibv_comp_channel *channel)
{
	return (struct vb_channel *)channel;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct vb_channel *chan;
	struct vb_ctx *ctx;
	int rc;

	if (!vb_ours(context))
		return VB_FORWARD_PTR(ibv_create_comp_channel, context);
	ctx = vb_ctx(context);
	if (ctx->gone)
		return vb_fail(ENODEV);
	chan = calloc(1, sizeof(*chan));
	if (!chan)
		return vb_fail(ENOMEM);
	rc = sn_waker_open(ctx->fabric, &chan->waker);
	if (rc) {
		free(chan);
		return vb_fail(-rc);
	}
	rc = vb_waker_fd(chan->waker);
	if (rc < 0) {
		sn_waker_close(chan->waker);
		free(chan);
		return vb_fail(-rc);
	}
	chan->ibv.context = context;
	chan->ibv.fd = rc;
	pthread_mutex_init(&chan->lock, NULL);
	pv_list_init(&chan->cqs);
	pv_list_init(&chan->ready);
	pthread_mutex_lock(&ctx->lock);
	pv_list_add(&ctx->channels, &chan->node);
	pthread_mutex_unlock(&ctx->lock);
	return &chan->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct vb_channel *chan = channel_of(ibv);
	struct vb_ctx *ctx;

	if (!vb_ours(ibv->context))
		return VB_FORWARD_INT(ibv_destroy_comp_channel, ibv);
	if (ibv->refcnt)
		return EBUSY;
	ctx = vb_ctx(ibv->context);
	pthread_mutex_lock(&ctx->lock);
	pv_list_del(&chan->node);
	pthread_mutex_unlock(&ctx->lock);
	if (ctx->gone)
		syscall(SYS_close, ibv->fd);
	else
		sn_waker_close(chan->waker);
	free(chan);
	return 0;
}

/* chan->lock is held. */
static void event_ready(struct vb_cq *cq)
{
	if (!cq->events_ready++)
		pv_list_add(&cq->chan->ready, &cq->ready_node);
}

void vb_cq_fire(struct vb_cq *cq, bool solicited)
{
	uint32_t armed = atomic_load(&cq->armed);

	if (!cq->chan || armed == VB_ARM_NONE || (armed == VB_ARM_SOLICITED && !solicited))
		return;
	if (!atomic_compare_exchange_strong(&cq->armed, &armed, VB_ARM_NONE))
		return;
	pthread_mutex_lock(&cq->chan->lock);
	event_ready(cq);
	pthread_mutex_unlock(&cq->chan->lock);
	sn_waker_wake(cq->chan->waker);
}

/* A receive would complete if the CQ were polled now; its lock is held. */
static bool rq_completes(struct vb_rq *rq, bool solicited)
{
	struct sn_frame f;

	if (atomic_load_explicit(&rq->pi, memory_order_acquire) == atomic_load_explicit(&rq->ci, memory_order_relaxed))
		return false;
	switch (atomic_load_explicit(&rq->mode, memory_order_relaxed)) {
	case VB_RQ_FLUSH:
		return true;
	case VB_RQ_READY:
	case VB_RQ_STRIP:
		/* No frame on Ethernet is solicited; flushing is an error, and errors count as solicited. */
		return !solicited && sn_rxq_peek(rq->rxq, &f);
	default:
		return false;
	}
}

static bool cq_completes(struct vb_cq *cq, bool solicited)
{
	for (uint32_t i = 0; i < cq->nrq; i++) {
		if (rq_completes(cq->rqs[i], solicited))
			return true;
	}
	return false;
}

void vb_cq_check_armed(struct vb_cq *cq)
{
	uint32_t armed;
	bool fire;

	vb_lock(&cq->lock);
	armed = atomic_load(&cq->armed);
	fire = armed != VB_ARM_NONE && cq_completes(cq, armed == VB_ARM_SOLICITED);
	vb_unlock(&cq->lock);
	if (fire)
		vb_cq_fire(cq, true);
}

/*
 * Refused without a frame being there, a sender is in the middle of one and would wake nobody: the event comes at once then, and if
 * the frame is still not complete when the CQ is polled, the application asks again. Waiting here instead would let a stopped process
 * hold up this one. A frame without a buffer does not complete; posting one looks again.
 */
bool vb_rq_arm(struct vb_rq *rq)
{
	struct vb_channel *chan = rq->cq->chan;
	struct sn_frame f;
	bool refused;

	if (!chan)
		return false;
	/* A waiter takes a queue that is not armed for one that was fired: it must not look in between. */
	pthread_mutex_lock(&chan->lock);
	refused = sn_rxq_arm(rq->rxq, chan->waker) != 0;
	rq->hw_armed = !refused;
	pthread_mutex_unlock(&chan->lock);
	return (refused && !sn_rxq_peek(rq->rxq, &f)) || rq_completes(rq, false);
}

/*
 * Completions that wait already fire at once, as on hardware that arms by consumer index: a program that arms, polls and sleeps cannot
 * miss one, and one that does not poll in between gets an event more.
 */
int vb_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct vb_cq *cq = vb_cq(ibv);
	bool fire;

	if (vb_ctx(ibv->context)->gone)
		return ENODEV;
	if (!cq->chan)
		return 0;
	vb_lock(&cq->lock);
	/* Armed before looked at: a paced frame that leaves in between either is seen here or sees it armed. */
	if (solicited_only) {
		uint32_t none = VB_ARM_NONE;

		atomic_compare_exchange_strong(&cq->armed, &none, VB_ARM_SOLICITED);
		fire = cq_completes(cq, true);
	} else {
		atomic_store(&cq->armed, VB_ARM_ANY);
		vb_pace_harvest(cq);
		fire = cq->cqe_ci != atomic_load_explicit(&cq->cqe_pi, memory_order_relaxed);
		for (uint32_t i = 0; i < cq->nrq; i++)
			fire |= vb_rq_arm(cq->rqs[i]);
	}
	vb_unlock(&cq->lock);
	if (fire)
		vb_cq_fire(cq, true);
	return 0;
}

/* Finds CQs that a sender has woken; chan->lock is held. */
static void collect(struct vb_channel *chan)
{
	pv_list_for_each(it, &chan->cqs) {
		struct vb_cq *cq = pv_list_entry(it, struct vb_cq, chan_node);
		uint32_t armed = VB_ARM_ANY;
		bool woken = false;

		if (atomic_load(&cq->armed) != VB_ARM_ANY)
			continue;
		for (uint32_t i = 0; i < cq->nrq; i++) {
			if (cq->rqs[i]->hw_armed && !sn_rxq_armed(cq->rqs[i]->rxq)) {
				cq->rqs[i]->hw_armed = false;
				woken = true;
			}
		}
		if (woken && atomic_compare_exchange_strong(&cq->armed, &armed, VB_ARM_NONE))
			event_ready(cq);
	}
}

static struct vb_cq *channel_next(struct vb_channel *chan)
{
	struct vb_cq *cq = NULL;

	pthread_mutex_lock(&chan->lock);
	collect(chan);
	if (pv_list_empty(&chan->ready)) {
		/* Cleared first, looked after: a wake between the two is seen here. */
		sn_waker_clear(chan->waker);
		collect(chan);
	}
	if (!pv_list_empty(&chan->ready)) {
		cq = pv_list_entry(chan->ready.next, struct vb_cq, ready_node);
		cq->events_delivered++;
		/* To the tail, so that a busy CQ does not starve another. */
		pv_list_del(&cq->ready_node);
		if (--cq->events_ready)
			pv_list_add(&chan->ready, &cq->ready_node);
	}
	/* The descriptor is readable as long as events wait, and no longer. */
	if (pv_list_empty(&chan->ready)) {
		sn_waker_clear(chan->waker);
		collect(chan);
	}
	if (!pv_list_empty(&chan->ready))
		sn_waker_wake(chan->waker);
	pthread_mutex_unlock(&chan->lock);
	return cq;
}

int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **out, void **cq_context)
{
	struct vb_channel *chan = channel_of(ibv);
	struct vb_cq *cq;

	if (!vb_ours(ibv->context))
		return vb_real()->ibv_get_cq_event ? vb_real()->ibv_get_cq_event(ibv, out, cq_context) : -1;
	if (vb_ctx(ibv->context)->gone) {
		errno = ENODEV;
		return -1;
	}
	while (!(cq = channel_next(chan))) {
		if (wait_readable(ibv->fd))
			return -1;
	}
	*out = &cq->ibv;
	*cq_context = cq->ibv.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	if (!vb_ours(cq->context)) {
		if (vb_real()->ibv_ack_cq_events)
			vb_real()->ibv_ack_cq_events(cq, n);
		return;
	}
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

void vb_cq_detach_channel(struct vb_cq *cq)
{
	struct vb_channel *chan = cq->chan;
	uint32_t delivered;

	if (!chan)
		return;
	atomic_store(&cq->armed, VB_ARM_NONE);
	pthread_mutex_lock(&chan->lock);
	pv_list_del(&cq->chan_node);
	pv_list_del(&cq->ready_node);
	cq->events_ready = 0;
	chan->ibv.refcnt--;
	delivered = cq->events_delivered;
	pthread_mutex_unlock(&chan->lock);
	cq->chan = NULL;
	pthread_mutex_lock(&cq->ibv.mutex);
	while (cq->ibv.comp_events_completed != delivered)
		pthread_cond_wait(&cq->ibv.cond, &cq->ibv.mutex);
	pthread_mutex_unlock(&cq->ibv.mutex);
}

/* ---- asynchronous events -------------------------------------------------------------------------------------------------------- */

static void *event_object(const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		return ev->element.cq;
	case IBV_EVENT_QP_FATAL:
		return ev->element.qp;
	case IBV_EVENT_WQ_FATAL:
		return ev->element.wq;
	default:
		return NULL;
	}
}

/* async_lock is held. An event for which there is no memory is lost. */
static void push(struct vb_ctx *ctx, enum ibv_event_type type, void *object)
{
	struct vb_event *e = calloc(1, sizeof(*e));

	if (!e)
		return;
	e->ev.event_type = type;
	if (type == IBV_EVENT_CQ_ERR)
		e->ev.element.cq = object;
	else if (type == IBV_EVENT_QP_FATAL)
		e->ev.element.qp = object;
	else if (type == IBV_EVENT_WQ_FATAL)
		e->ev.element.wq = object;
	else
		e->ev.element.port_num = 1;
	pv_list_add(&ctx->async_events, &e->node);
}

void vb_async_push(struct vb_ctx *ctx, enum ibv_event_type type, void *object)
{
	pthread_mutex_lock(&ctx->async_lock);
	push(ctx, type, object);
	pthread_mutex_unlock(&ctx->async_lock);
	sn_waker_wake(ctx->async_waker);
}

/* Of several changes since the last look only the state that they led to is told, twice when it came back to what it was. */
static void link_look(struct vb_ctx *ctx)
{
	uint32_t events = sn_port_link_events(ctx->port), missed = events - ctx->link_events;
	bool up = sn_port_link(ctx->port);

	if (sn_port_removed(ctx->port)) {
		if (!ctx->fatal_told)
			push(ctx, IBV_EVENT_DEVICE_FATAL, NULL);
		ctx->fatal_told = true;
		return;
	}
	if (!missed)
		return;
	if (missed % 2 == 0)
		push(ctx, up ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, NULL);
	push(ctx, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, NULL);
	ctx->link_events = events;
}

static bool async_next(struct vb_ctx *ctx, struct ibv_async_event *out)
{
	bool got = false;

	pthread_mutex_lock(&ctx->async_lock);
	sn_waker_clear(ctx->async_waker);
	link_look(ctx);
	if (!pv_list_empty(&ctx->async_events)) {
		struct vb_event *e = pv_list_entry(ctx->async_events.next, struct vb_event, node);

		*out = e->ev;
		got = true;
		pv_list_del(&e->node);
		free(e);
		if (out->event_type == IBV_EVENT_CQ_ERR)
			vb_cq(out->element.cq)->async_delivered++;
		else if (out->event_type == IBV_EVENT_QP_FATAL)
			vb_qp(out->element.qp)->async_delivered++;
		else if (out->event_type == IBV_EVENT_WQ_FATAL)
			((struct vb_wq *)out->element.wq)->async_delivered++;
	}
	if (!pv_list_empty(&ctx->async_events))
		sn_waker_wake(ctx->async_waker);
	pthread_mutex_unlock(&ctx->async_lock);
	return got;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	if (!vb_ours(context))
		return vb_real()->ibv_get_async_event ? vb_real()->ibv_get_async_event(context, event) : -1;
	if (vb_ctx(context)->gone) {
		errno = ENODEV;
		return -1;
	}
	while (!async_next(vb_ctx(context), event)) {
		if (wait_readable(context->async_fd))
			return -1;
	}
	return 0;
}

static bool event_is_ours(const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		return vb_ours(ev->element.cq->context);
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return vb_ours(ev->element.qp->context);
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return false;
	case IBV_EVENT_WQ_FATAL:
		return vb_ours(ev->element.wq->context);
	default:
		return true; /* about a port or the device: nothing counts them */
	}
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	if (!event_is_ours(ev)) {
		if (vb_real()->ibv_ack_async_event)
			vb_real()->ibv_ack_async_event(ev);
		return;
	}
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		ack(&ev->element.cq->mutex, &ev->element.cq->cond, &ev->element.cq->async_events_completed);
		break;
	case IBV_EVENT_QP_FATAL:
		ack(&ev->element.qp->mutex, &ev->element.qp->cond, &ev->element.qp->events_completed);
		break;
	case IBV_EVENT_WQ_FATAL:
		ack(&ev->element.wq->mutex, &ev->element.wq->cond, &ev->element.wq->events_completed);
		break;
	default:
		break;
	}
}

/* Number delivered so far, after dropping those that were not. */
static uint32_t forget(struct vb_ctx *ctx, const void *object, const uint32_t *delivered)
{
	uint32_t n;

	pthread_mutex_lock(&ctx->async_lock);
	pv_list_for_each_safe(it, tmp, &ctx->async_events) {
		struct vb_event *e = pv_list_entry(it, struct vb_event, node);

		if (!object || event_object(&e->ev) == object) {
			pv_list_del(&e->node);
			free(e);
		}
	}
	n = delivered ? *delivered : 0;
	pthread_mutex_unlock(&ctx->async_lock);
	return n;
}

static void wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, uint32_t delivered)
{
	pthread_mutex_lock(mutex);
	while (*completed != delivered)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

void vb_async_flush_cq(struct vb_ctx *ctx, struct vb_cq *cq)
{
	wait_acked(&cq->ibv.mutex, &cq->ibv.cond, &cq->ibv.async_events_completed, forget(ctx, cq, &cq->async_delivered));
}

void vb_async_flush_qp(struct vb_ctx *ctx, struct vb_qp *qp)
{
	wait_acked(&qp->ibv.mutex, &qp->ibv.cond, &qp->ibv.events_completed, forget(ctx, qp, &qp->async_delivered));
}

void vb_async_flush_wq(struct vb_ctx *ctx, struct vb_wq *wq)
{
	wait_acked(&wq->ibv.mutex, &wq->ibv.cond, &wq->ibv.events_completed, forget(ctx, wq, &wq->async_delivered));
}

void vb_async_fini(struct vb_ctx *ctx)
{
	forget(ctx, NULL, NULL);
}
