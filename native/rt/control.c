/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "pyvma.h"
#include "rt/capture.h"
#include "rt/control_msg.h"
#include "rt/control_path.h"
#include "rt/control_tune.h"
#include "rt/error.h"
#include "rt/log.h"
#include "rt/mem.h"
#include "rt/tstamp.h"

/* Of one connection in one turn: the others, and the stack, have theirs. */
#define MESSAGES_AT_ONCE 4
#define CALLERS_AT_ONCE 64 /* more than can wait */
#define LISTENER PV_CONTROL_CLIENTS /* its number in the epoll set, behind those of the clients */

struct client {
	int fd; /* -1: none */
	struct pv_capture *capture;
	char iface[PV_IFNAME_MAX]; /* what it captures; empty: all */
};

struct pv_control {
	int epfd, listener;
	char path[PV_CONTROL_PATH_MAX];
	struct client client[PV_CONTROL_CLIENTS];
	struct pv_control_msg in, out;
};

/* ---- captures ---------------------------------------------------------------------------------------------------------- */

static bool stamp(void *ctx, uint32_t iface, uint64_t raw, int64_t *ns)
{
	return pv_tstamp_ns(ctx, iface, raw, ns);
}

static int tap_port(struct client *c, struct pv_engine *e, const struct pv_port *p)
{
	struct pv_capture_port port = { .name = p->spec.name, .mode = p->ring->caps.mode, .iface = p->index, .ctx = e };
	struct pv_tstamp_src src;

	pv_tstamp_get_src(e, p->index, &src);
	/* Raw ones begin with the counter: they are no time of the day. */
	if (src.rx && src.mode != PV_TSTAMP_MODE_OFF && src.mode != PV_TSTAMP_MODE_RAW)
		port.stamp = stamp;
	return pv_capture_add(c->capture, p->ring, pv_mem_system(e->cfg->huge_pages), &port);
}

static void end_capture(struct client *c)
{
	if (c->capture)
		pv_capture_close(c->capture);
	c->capture = NULL;
}

void pv_control_port(struct pv_engine *e, const struct pv_port *p)
{
	for (uint32_t i = 0; e->control && i < PV_CONTROL_CLIENTS; i++) {
		struct client *c = &e->control->client[i];

		if (!c->capture || (*c->iface && strcmp(c->iface, p->spec.name)))
			continue;
		if (tap_port(c, e, p))
			pv_log(PV_LOG_WARN, "%s: a capture cannot follow it", p->spec.name);
	}
}

static void list_ports(const struct pv_engine *e, char *text, size_t size)
{
	size_t n = 0;

	*text = '\0';
	for (uint32_t i = 0; i < e->nports && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%s", i ? " " : "", e->ports[i].spec.name);
}

static int capture_cfg(const struct pv_control_msg *m, struct pv_capture_cfg *cfg, bool *stamps)
{
	const char *filter = pv_control_value(m, "filter");
	uint64_t snaplen = 0, count = 0, bytes = 0, want = 0;
	int rc = pv_control_number(m, "snaplen", UINT32_MAX, &snaplen);

	if (!rc)
		rc = pv_control_number(m, "count", UINT64_MAX, &count);
	if (!rc)
		rc = pv_control_number(m, "bytes", UINT32_MAX, &bytes);
	if (!rc)
		rc = pv_control_number(m, "stamps", 1, &want);
	if (!rc && filter && strlen(filter) >= sizeof(cfg->filter))
		rc = pv_error(-E2BIG, "filter: longer than %zu bytes", sizeof(cfg->filter) - 1);
	if (rc)
		return rc;
	*cfg = (struct pv_capture_cfg){ .bytes = (uint32_t)bytes, .snaplen = (uint32_t)snaplen, .count = count };
	snprintf(cfg->filter, sizeof(cfg->filter), "%s", filter ? filter : "");
	*stamps = want;
	return 0;
}

static int tap_ports(struct pv_engine *e, struct client *c)
{
	uint32_t found = 0;
	char names[512];

	for (uint32_t i = 0; i < e->nports; i++) {
		int rc;

		if (*c->iface && strcmp(c->iface, e->ports[i].spec.name))
			continue;
		rc = tap_port(c, e, &e->ports[i]);
		if (rc)
			return pv_error(rc, "%s: cannot be captured: %s", e->ports[i].spec.name, strerror(-rc));
		found++;
	}
	if (found || !*c->iface)
		return 0;
	list_ports(e, names, sizeof(names));
	return pv_error(-ENODEV, "no interface %s in that process: it has %s", c->iface, *names ? names : "none");
}

/* ---- verbs ------------------------------------------------------------------------------------------------------------- */

/* 0 or -errno with a text. `out` has been begun; `*fd` goes with it and is closed then. */
typedef int (*verb_fn)(struct pv_engine *e, struct client *c, int *fd);

static int verb_hello(struct pv_engine *e, struct client *c, int *fd)
{
	struct pv_control_msg *out = &e->control->out;
	char names[512];

	(void)c;
	(void)fd;
	list_ports(e, names, sizeof(names));
	pv_control_add_number(out, "pid", (uint64_t)getpid());
	pv_control_add(out, "version", pyvma_version());
	pv_control_add(out, "interfaces", names);
	return 0;
}

static int verb_capture(struct pv_engine *e, struct client *c, int *fd)
{
	const struct pv_control_msg *in = &e->control->in;
	const char *iface = pv_control_value(in, "iface");
	struct pv_capture_cfg cfg;
	bool stamps;
	int rc;

	if (c->capture)
		return pv_error(-EBUSY, "capture: one runs on this connection");
	if (iface && strlen(iface) >= sizeof(c->iface))
		return pv_error(-ENODEV, "no interface %s in that process", iface);
	rc = capture_cfg(in, &cfg, &stamps);
	if (rc)
		return rc;
	if (stamps)
		pv_tstamp_want(e, true, false);
	snprintf(c->iface, sizeof(c->iface), "%s", iface ? iface : "");
	rc = pv_capture_open(&c->capture, &cfg);
	if (rc)
		return rc;
	rc = tap_ports(e, c);
	if (rc) {
		end_capture(c);
		return rc;
	}
	*fd = pv_capture_take_fd(c->capture);
	return 0;
}

static int verb_stop(struct pv_engine *e, struct client *c, int *fd)
{
	(void)e;
	(void)fd;
	if (!c->capture)
		return pv_error(-EINVAL, "stop: no capture runs on this connection");
	end_capture(c);
	return 0;
}

static const struct {
	const char *name;
	verb_fn fn;
	const char *keys[8]; /* that it knows */
} verbs[] = {
	{ "hello", verb_hello, { NULL } },
	{ "capture", verb_capture, { "iface", "snaplen", "count", "bytes", "filter", "stamps", NULL } },
	{ "stop", verb_stop, { NULL } },
};

static int act(struct pv_engine *e, struct client *c, int *fd)
{
	const struct pv_control_msg *in = &e->control->in;

	for (size_t i = 0; i < pv_array_size(verbs); i++) {
		int rc;

		if (strcmp(in->verb, verbs[i].name))
			continue;
		rc = pv_control_only(in, verbs[i].keys);
		return rc ? rc : verbs[i].fn(e, c, fd);
	}
	return pv_control_tune(e, in, &e->control->out);
}

/* ---- connections ------------------------------------------------------------------------------------------------------- */

/* Never waits: a client that does not read its answers is let go. */
static bool answer(int to, const struct pv_control_msg *m, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)m->text, m->len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control.room);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	return sendmsg(to, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)m->len;
}

static bool answer_error(int to, struct pv_control_msg *m, int rc)
{
	pv_control_begin(m, "error");
	pv_control_add_number(m, "code", (uint64_t)-rc);
	pv_control_add(m, "text", pv_error_text());
	return answer(to, m, -1);
}

static void drop(struct client *c)
{
	end_capture(c);
	close(c->fd); /* leaves the epoll set, too */
	c->fd = -1;
}

/* One message; false when there is none. */
static bool serve_message(struct pv_engine *e, struct client *c)
{
	struct pv_control *k = e->control;
	char data[PV_CONTROL_MSG_MAX + 1];
	ssize_t n = recv(c->fd, data, sizeof(data), MSG_DONTWAIT | MSG_TRUNC);
	int rc, fd = -1;
	bool ok;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		drop(c);
		return false;
	}
	rc = pv_control_parse(&k->in, data, (size_t)n);
	if (!rc) {
		pv_control_begin(&k->out, "ok");
		rc = act(e, c, &fd);
	}
	ok = rc ? answer_error(c->fd, &k->out, rc) : answer(c->fd, &k->out, fd);
	if (fd >= 0)
		close(fd);
	if (!ok)
		drop(c);
	return ok;
}

/* Root, or whom the process belongs to. */
static int admitted(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return pv_error(-errno, "control: who asks cannot be told: %s", strerror(errno));
	if (peer.uid && peer.uid != geteuid())
		return pv_error(-EPERM, "control: the process belongs to another user");
	return 0;
}

static void admit(struct pv_control *k, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int rc = admitted(fd);

	while (!rc && ev.data.u32 < PV_CONTROL_CLIENTS && k->client[ev.data.u32].fd >= 0)
		ev.data.u32++;
	if (!rc && ev.data.u32 == PV_CONTROL_CLIENTS)
		rc = pv_error(-EUSERS, "control: %d connections are open", PV_CONTROL_CLIENTS);
	if (!rc && epoll_ctl(k->epfd, EPOLL_CTL_ADD, fd, &ev))
		rc = pv_error(-errno, "control: %s", strerror(errno));
	if (rc) {
		answer_error(fd, &k->out, rc);
		close(fd);
		return;
	}
	k->client[ev.data.u32] = (struct client){ .fd = fd };
}

void pv_control_serve(struct pv_engine *e)
{
	struct epoll_event ev[PV_CONTROL_CLIENTS + 1];
	struct pv_control *k = e->control;
	int n = k ? epoll_wait(k->epfd, ev, (int)pv_array_size(ev), 0) : 0;
	bool knock = false;

	for (int i = 0; i < n; i++) {
		knock |= ev[i].data.u32 == LISTENER;
		for (int m = 0; ev[i].data.u32 != LISTENER && m < MESSAGES_AT_ONCE; m++)
			if (!serve_message(e, &k->client[ev[i].data.u32]))
				break;
	}
	/* Last: who has left makes room for who comes. */
	for (int fd, i = 0; knock && i < CALLERS_AT_ONCE; i++) {
		fd = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			break;
		admit(k, pv_ownfd(fd));
	}
}

int pv_control_fd(const struct pv_engine *e)
{
	return e->control ? e->control->epfd : -1;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------------- */

static void dispose(struct pv_control *k)
{
	if (k->listener >= 0)
		close(k->listener);
	if (k->epfd >= 0)
		close(k->epfd);
	free(k);
}

static int make(struct pv_control *k, const char *dir)
{
	/* Edges: a connection for which there is no fd must not keep the thread awake. */
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.u32 = LISTENER };

	for (uint32_t i = 0; i < PV_CONTROL_CLIENTS; i++)
		k->client[i].fd = -1;
	k->listener = -1;
	k->epfd = pv_ownfd(epoll_create1(EPOLL_CLOEXEC));
	if (k->epfd < 0)
		return pv_error(-errno, "control: %s", strerror(errno));
	k->listener = pv_ownfd(pv_control_listen(dir, k->path));
	if (k->listener < 0)
		return k->listener;
	return epoll_ctl(k->epfd, EPOLL_CTL_ADD, k->listener, &ev) ? pv_error(-errno, "control: %s", strerror(errno)) : 0;
}

void pv_control_open(struct pv_engine *e)
{
	struct pv_control *k;

	if (!strcmp(e->cfg->control_dir, "none"))
		return;
	k = calloc(1, sizeof(*k));
	if (!k)
		return;
	if (make(k, e->cfg->control_dir)) {
		pv_log(PV_LOG_INFO, "no control socket: %s", pv_error_text());
		if (k->listener >= 0)
			unlink(k->path);
		dispose(k);
		return;
	}
	e->control = k;
}

void pv_control_close(struct pv_engine *e)
{
	struct pv_control *k = e->control;

	if (!k)
		return;
	e->control = NULL;
	unlink(k->path);
	for (uint32_t i = 0; i < PV_CONTROL_CLIENTS; i++)
		if (k->client[i].fd >= 0)
			drop(&k->client[i]);
	dispose(k);
}

void pv_control_forget(struct pv_engine *e)
{
	struct pv_control *k = e->control;

	if (!k)
		return;
	e->control = NULL;
	for (uint32_t i = 0; i < PV_CONTROL_CLIENTS; i++) {
		if (k->client[i].capture)
			pv_capture_forget(k->client[i].capture);
		if (k->client[i].fd >= 0)
			close(k->client[i].fd);
	}
	dispose(k);
}
