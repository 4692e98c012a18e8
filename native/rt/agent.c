/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of the daemon. One connection; answers are told apart by their ids, so that requests whose answer nobody needs (a rule deleted)
 * cost one send.
 *
 * What the process has is kept here in the form in which it is asked for. A daemon that was started anew finds rules and devices in the
 * kernel by their marks, but not which connection they belong to: it is told again.
 */
#include "rt/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/htab.h"
#include "base/ownfd.h"
#include "pyvma.h"
#include "rt/agent_msg.h"
#include "rt/engine.h"
#include "rt/host.h"
#include "rt/log.h"
#include "rt/mem.h"
#include "rt/stats.h"

#define FDS_MAX (1u + PV_AGENT_QUEUES_MAX)
#define FLOW_WAIT_NS (2 * PV_NS_PER_S)
#define MAKE_WAIT_NS (10 * PV_NS_PER_S) /* devices and programs take the kernel its time */
/* Between looks for a daemon that is away. */
#define RETRY_MIN_NS (100 * PV_NS_PER_MS)
#define RETRY_MAX_NS (2 * PV_NS_PER_S)
/* Rules under way while all are registered again: as many as the daemon takes from one process in a turn. */
#define PIPELINE 32u

struct agent_thing {
	uint32_t ifindex; /* 0: free */
	uint32_t what; /* TAP: of it; XDP: flags of the request */
	uint32_t queues;
	int fd; /* ours, of the TAP or the link: shows a new daemon that we have it */
};

struct agent_flow {
	struct pv_hnode node;
	struct pv_agent_flow msg;
	struct pv_flow flow;
};

struct pv_agent {
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	pid_t pid; /* whose it is: in a forked child nothing is asked for */
	int fd;
	uint32_t next_id;
	bool crash; /* the setting crash_reset */
	bool met; /* a daemon has answered our hello once: it is looked for again when it goes */
	int64_t retry_ns, retry_after_ns;
	struct agent_thing tap[PV_IFACE_MAX], xdp[PV_IFACE_MAX];
	struct pv_htab flows;
};

struct request {
	uint16_t type;
	const void *body;
	size_t len;
	const char *text; /* after the body; NULL: none */
	int fds[FDS_MAX];
	uint32_t nfds;
};

struct answer {
	int32_t result;
	uint8_t body[PV_AGENT_MSG_MAX];
	size_t len; /* of the body, with the text behind the fields */
	int fds[FDS_MAX];
	uint32_t nfds;
};

/* ---- the connection ---------------------------------------------------------------------------------------------------- */

static int say(char *err, size_t errsize, int rc, const char *fmt, const char *what)
{
	if (err)
		snprintf(err, errsize, fmt, what);
	return rc;
}

static void hang_up(struct pv_agent *a)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	a->retry_after_ns = RETRY_MIN_NS;
	a->retry_ns = pv_clock_kernel_ns() + a->retry_after_ns;
}

/* 0 when the fd is ready by then. */
static int wait_for(int fd, short events, int64_t until_ns)
{
	struct pollfd p = { .fd = fd, .events = events };
	int rc;

	do {
		struct timespec ts = pv_clock_left(until_ns);

		rc = ppoll(&p, 1, &ts, NULL);
	} while (rc < 0 && errno == EINTR);
	return rc > 0 ? 0 : rc < 0 ? -errno : -ETIMEDOUT;
}

static int send_request(struct pv_agent *a, const struct request *rq, uint32_t *id, int64_t until_ns)
{
	struct pv_agent_head head = { .magic = PV_AGENT_MAGIC, .version = PV_AGENT_VERSION, .type = rq->type, .id = ++a->next_id };
	size_t text = rq->text ? strnlen(rq->text, 64) : 0;
	struct iovec iov[] = { { &head, sizeof(head) },
			       { (void *)(uintptr_t)rq->body, rq->len },
			       { (void *)(uintptr_t)rq->text, text } };
	union {
		struct cmsghdr align;
		char b[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control = { .b = { 0 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = pv_array_size(iov) };

	head.length = (uint32_t)(sizeof(head) + rq->len + text);
	if (rq->nfds) {
		struct cmsghdr *c = &control.align;

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * rq->nfds);
		memcpy(CMSG_DATA(c), rq->fds, sizeof(int) * rq->nfds);
		msg.msg_control = control.b;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * rq->nfds);
	}
	*id = head.id;
	for (;;) {
		int rc;

		if (sendmsg(a->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		rc = wait_for(a->fd, POLLOUT, until_ns);
		if (rc)
			return rc;
	}
}

static void take_fds(struct msghdr *msg, struct answer *an)
{
	an->nfds = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		uint32_t n = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

		memcpy(an->fds, CMSG_DATA(c), n * sizeof(int));
		an->nfds = n;
	}
}

static void drop_fds(struct answer *an)
{
	for (uint32_t i = 0; i < an->nfds; i++)
		close(an->fds[i]);
	an->nfds = 0;
}

/* One message that is there. Its id, 0 for what is no answer, or -errno. */
static int64_t receive(struct pv_agent *a, struct answer *an)
{
	uint8_t buf[PV_AGENT_MSG_MAX];
	const uint8_t *body;
	uint32_t id;
	union {
		struct cmsghdr align;
		char b[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	} control;
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.b };
	ssize_t n;

	/* Not CMSG_SPACE: its padding has room for one more. */
	msg.msg_controllen = CMSG_LEN(sizeof(int) * FDS_MAX);
	n = recvmsg(a->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	take_fds(&msg, an);
	id = pv_agent_parse(buf, (size_t)n, &an->result, &body, &an->len);
	if (!id) {
		drop_fds(an);
		return 0;
	}
	memcpy(an->body, body, an->len);
	return id;
}

/* Answers of requests that nobody waits for: a refusal is said. */
static void late(struct answer *an)
{
	if (an->result)
		pv_log(PV_LOG_DEBUG, "pyvmad: %.*s", (int)an->len, (const char *)an->body);
	drop_fds(an);
}

static int await(struct pv_agent *a, uint32_t id, struct answer *an, int64_t until_ns)
{
	for (;;) {
		int64_t got = receive(a, an);
		int rc;

		if (got == (int64_t)id)
			return 0;
		if (got > 0)
			late(an);
		if (got >= 0)
			continue;
		if (got == -EINTR)
			continue;
		if (got != -EAGAIN)
			return (int)got;
		rc = wait_for(a->fd, POLLIN, until_ns);
		if (rc)
			return rc;
	}
}

/* What the daemon refuses it says why, without the type's fields. */
static int refused(const struct answer *an, char *err, size_t errsize)
{
	if (err && an->len)
		snprintf(err, errsize, "pyvmad: %.*s", (int)an->len, (const char *)an->body);
	else if (err)
		snprintf(err, errsize, "pyvmad: %s", strerror(-an->result));
	return an->result;
}

/* Of an answer: bytes before its text, and how long it may take. */
static const struct {
	size_t fields;
	int64_t wait_ns;
} answers[] = {
	[PV_AGENT_HELLO] = { 8, FLOW_WAIT_NS },    [PV_AGENT_TAP] = { sizeof(struct pv_agent_tap_answer), MAKE_WAIT_NS },
	[PV_AGENT_FLOW_ADD] = { 0, FLOW_WAIT_NS }, [PV_AGENT_XDP] = { sizeof(struct pv_agent_xdp_answer), MAKE_WAIT_NS },
	[PV_AGENT_CRASH] = { 0, FLOW_WAIT_NS },
};

/* Request and answer. 0 or what the daemon answered, then with text; -EAGAIN: the daemon went away. `an` has descriptors only with 0. */
static int call(struct pv_agent *a, const struct request *rq, struct answer *an, char *err, size_t errsize)
{
	int64_t until = pv_clock_kernel_ns() + answers[rq->type].wait_ns;
	size_t fields = answers[rq->type].fields;
	uint32_t id;
	int rc = send_request(a, rq, &id, until);

	an->nfds = 0;
	rc = rc ? rc : await(a, id, an, until);
	if (rc) {
		hang_up(a);
		return say(err, errsize, -EAGAIN, rc == -ETIMEDOUT ? "pyvmad at %s does not answer" : "pyvmad at %s went away",
			   a->path);
	}
	if (an->result < 0 || (!an->result && an->len < fields)) {
		drop_fds(an);
		if (an->result < 0)
			return refused(an, err, errsize);
		return say(err, errsize, -EPROTO, "pyvmad at %s answers something else", a->path);
	}
	return 0;
}

static int dial(struct pv_agent *a, char *err, size_t errsize)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct timeval wait = { .tv_sec = FLOW_WAIT_NS / PV_NS_PER_S };
	int rc;

	memcpy(un.sun_path, a->path, sizeof(un.sun_path));
	a->fd = pv_ownfd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (a->fd < 0)
		return say(err, errsize, -errno, "%s", strerror(errno));
	/* A daemon that many connect to at once is waited for, by this call alone: the others ask not to wait. */
	(void)setsockopt(a->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (!connect(a->fd, (struct sockaddr *)&un, sizeof(un)))
		return 0;
	rc = -errno;
	hang_up(a);
	switch (rc) {
	case -ENOENT:
	case -ENOTDIR:
		return say(err, errsize, -ENOENT, "pyvmad is not there (%s)", a->path);
	case -ECONNREFUSED:
		return say(err, errsize, rc, "pyvmad does not run (%s)", a->path);
	case -EACCES:
	case -EPERM:
		return say(err, errsize, -EACCES, "this user is not in the group of pyvmad (%s)", a->path);
	case -EAGAIN:
		return say(err, errsize, rc, "pyvmad at %s is too busy", a->path);
	}
	if (err)
		snprintf(err, errsize, "%s: %s", a->path, strerror(-rc));
	return rc;
}

static int hello(struct pv_agent *a, char *err, size_t errsize)
{
	unsigned int major = 0, minor = 0, patch = 0;
	uint32_t version;
	struct request rq = {
		.type = PV_AGENT_HELLO, .body = &version, .len = sizeof(version), .text = program_invocation_short_name
	};
	struct answer an;

	sscanf(pyvma_version(), "%u.%u.%u", &major, &minor, &patch);
	version = major << 16 | minor << 8 | patch;
	return call(a, &rq, &an, err, errsize);
}

/* Without the file only the connections that have a rule of their own are known to the daemon. */
static void say_crash(struct pv_agent *a)
{
	uint32_t flags = PV_AGENT_CRASH_RST;
	int file = pv_stats_reopen();
	struct request rq = { .type = PV_AGENT_CRASH, .body = &flags, .len = sizeof(flags), .fds = { file }, .nfds = file >= 0 };
	struct answer an;
	char err[256];

	if (call(a, &rq, &an, err, sizeof(err)))
		pv_log(PV_LOG_WARN, "crash_reset: %s", err);
	else
		drop_fds(&an);
	if (file >= 0)
		close(file);
}

/* ---- everything again -------------------------------------------------------------------------------------------------- */

static void again_thing(struct pv_agent *a, const struct agent_thing *t, bool xdp)
{
	struct pv_agent_tap_ask tap = { .ifindex = t->ifindex, .queues = (uint16_t)t->queues, .flags = PV_AGENT_AGAIN };
	struct pv_agent_xdp_ask x = { .ifindex = t->ifindex, .queues = t->queues, .flags = t->what | PV_AGENT_AGAIN };
	struct request rq = { .type = PV_AGENT_TAP, .body = &tap, .len = sizeof(tap), .fds = { t->fd }, .nfds = 1 };
	struct answer an;
	char err[256];

	if (xdp) {
		rq.type = PV_AGENT_XDP;
		rq.body = &x;
		rq.len = sizeof(x);
	}
	if (a->fd < 0)
		return;
	if (call(a, &rq, &an, err, sizeof(err)))
		pv_log(PV_LOG_WARN, "interface %u: %s", t->ifindex, err);
	else
		drop_fds(&an);
}

static void flow_request(const struct agent_flow *f, struct request *rq)
{
	int proof = pv_agent_proof(&f->flow);

	*rq = (struct request){
		.type = PV_AGENT_FLOW_ADD, .body = &f->msg, .len = sizeof(f->msg), .fds = { proof }, .nfds = proof >= 0
	};
}

static void again_flows(struct pv_agent *a)
{
	uint32_t ids[PIPELINE], n = 0;
	struct pv_hnode *node = NULL;
	struct answer an;

	do {
		int64_t until = pv_clock_kernel_ns() + FLOW_WAIT_NS;

		for (n = 0; n < PIPELINE && (node = pv_htab_next(&a->flows, node)) != NULL; n++) {
			struct request rq;

			flow_request(pv_htab_entry(node, struct agent_flow, node), &rq);
			if (send_request(a, &rq, &ids[n], until)) {
				hang_up(a);
				return;
			}
		}
		for (uint32_t i = 0; i < n; i++) {
			if (await(a, ids[i], &an, until)) {
				hang_up(a);
				return;
			}
			if (an.result)
				pv_log(PV_LOG_WARN, "a rule is not in force any more: pyvmad: %.*s", (int)an.len,
				       (const char *)an.body);
			drop_fds(&an);
		}
	} while (node);
}

static void register_all(struct pv_agent *a)
{
	for (uint32_t i = 0; i < PV_IFACE_MAX; i++) {
		if (a->tap[i].fd >= 0)
			again_thing(a, &a->tap[i], false);
		if (a->xdp[i].fd >= 0)
			again_thing(a, &a->xdp[i], true);
	}
	if (a->fd >= 0)
		again_flows(a);
}

int pv_agent_connect(struct pv_agent *a, char *err, size_t errsize)
{
	int rc;

	if (a->fd >= 0)
		return 0;
	rc = dial(a, err, errsize);
	rc = rc ? rc : hello(a, err, errsize);
	if (rc)
		return rc;
	a->met = true;
	a->retry_ns = PV_NEVER;
	if (a->crash)
		say_crash(a);
	if (a->fd >= 0)
		register_all(a);
	return a->fd >= 0 ? 0 : say(err, errsize, -EAGAIN, "pyvmad at %s went away", a->path);
}

/* ---- devices and programs ---------------------------------------------------------------------------------------------- */

static struct agent_thing *place(struct agent_thing *t)
{
	for (uint32_t i = 0; i < PV_IFACE_MAX; i++)
		if (t[i].fd < 0)
			return &t[i];
	return NULL;
}

static void flows_drop(struct pv_agent *a, uint32_t ifindex, uint32_t tap)
{
	struct pv_hnode *node = pv_htab_next(&a->flows, NULL), *next;

	for (; node; node = next) {
		struct agent_flow *f = pv_htab_entry(node, struct agent_flow, node);

		next = pv_htab_next(&a->flows, node);
		if (f->msg.tap != tap || (!tap && f->msg.ifindex != ifindex))
			continue;
		(void)pv_htab_del(&a->flows, node);
		free(f);
	}
}

static void thing_drop(struct agent_thing *t)
{
	if (t->fd >= 0)
		close(t->fd);
	*t = (struct agent_thing){ .fd = -1 };
}

int pv_agent_tap(struct pv_agent *a, uint32_t ifindex, uint32_t queues, struct pv_agent_tap *out, char *err, size_t errsize)
{
	struct pv_agent_tap_ask ask = { .ifindex = ifindex, .queues = (uint16_t)PV_MIN(queues, PV_AGENT_QUEUES_MAX) };
	struct request rq = { .type = PV_AGENT_TAP, .body = &ask, .len = sizeof(ask) };
	struct pv_agent_tap_answer got;
	struct agent_thing *t = place(a->tap);
	struct answer an;
	int rc = pv_agent_connect(a, err, errsize);

	if (rc)
		return rc;
	if (!t)
		return say(err, errsize, -ENOSPC, "%s", "too many TAP devices");
	rc = call(a, &rq, &an, err, errsize);
	if (rc)
		return rc;
	memcpy(&got, an.body, sizeof(got));
	if (!an.nfds || an.nfds > PV_AGENT_QUEUES_MAX || (t->fd = pv_ownfd(fcntl(an.fds[0], F_DUPFD_CLOEXEC, 0))) < 0) {
		drop_fds(&an);
		return say(err, errsize, -EPROTO, "pyvmad at %s sent no TAP device", a->path);
	}
	t->ifindex = ifindex;
	t->what = got.ifindex;
	t->queues = ask.queues;
	*out = (struct pv_agent_tap){ .ifindex = got.ifindex, .nfds = an.nfds };
	memcpy(out->name, got.name, sizeof(out->name));
	out->name[sizeof(out->name) - 1] = '\0';
	memcpy(out->fd, an.fds, an.nfds * sizeof(int));
	return 0;
}

void pv_agent_tap_drop(struct pv_agent *a, uint32_t tap)
{
	for (uint32_t i = 0; a->pid == getpid() && i < PV_IFACE_MAX; i++) {
		if (a->tap[i].fd < 0 || a->tap[i].what != tap)
			continue;
		thing_drop(&a->tap[i]);
		flows_drop(a, 0, tap);
	}
}

int pv_agent_xdp(struct pv_agent *a, uint32_t ifindex, struct pv_agent_xdp *out, char *err, size_t errsize)
{
	struct pv_agent_xdp_ask ask = { .ifindex = ifindex, .queues = out->queues, .flags = out->mode };
	struct request rq = { .type = PV_AGENT_XDP, .body = &ask, .len = sizeof(ask) };
	struct pv_agent_xdp_answer got;
	struct agent_thing *t = place(a->xdp);
	struct answer an;
	int rc = pv_agent_connect(a, err, errsize);

	if (rc)
		return rc;
	if (!t)
		return say(err, errsize, -ENOSPC, "%s", "too many interfaces");
	rc = call(a, &rq, &an, err, errsize);
	if (rc)
		return rc;
	memcpy(&got, an.body, sizeof(got));
	if (an.nfds < 2 || an.nfds != got.queues + 1 || (t->fd = pv_ownfd(fcntl(an.fds[0], F_DUPFD_CLOEXEC, 0))) < 0) {
		drop_fds(&an);
		return say(err, errsize, -EPROTO, "pyvmad at %s sent no AF_XDP sockets", a->path);
	}
	t->ifindex = ifindex;
	t->what = out->mode;
	t->queues = got.queues;
	out->link_fd = an.fds[0];
	out->queues = got.queues;
	out->native = got.mode & PV_AGENT_XDP_IS_NATIVE;
	memcpy(out->sock_fd, an.fds + 1, got.queues * sizeof(int));
	return 0;
}

void pv_agent_xdp_drop(struct pv_agent *a, uint32_t ifindex)
{
	struct request rq = { .type = PV_AGENT_XDP_DROP, .body = &ifindex, .len = sizeof(ifindex) };
	bool had = false;
	uint32_t id;

	for (uint32_t i = 0; a->pid == getpid() && i < PV_IFACE_MAX; i++) {
		if (a->xdp[i].fd < 0 || a->xdp[i].ifindex != ifindex)
			continue;
		thing_drop(&a->xdp[i]);
		flows_drop(a, ifindex, 0);
		had = true;
	}
	if (had && a->fd >= 0 && send_request(a, &rq, &id, pv_clock_kernel_ns() + FLOW_WAIT_NS))
		hang_up(a);
}

/* ---- rules ------------------------------------------------------------------------------------------------------------- */

static int flow_msg(uint32_t ifindex, uint32_t tap, const struct pv_flow *flow, struct pv_agent_flow *out)
{
	bool v4 = pv_addr_is4(&flow->dst);

	if ((flow->kind != PV_FLOW_3TUPLE && flow->kind != PV_FLOW_5TUPLE) || flow->vlan || flow->match)
		return -EOPNOTSUPP;
	*out = (struct pv_agent_flow){
		.ifindex = ifindex,
		.tap = tap,
		.family = v4 ? AF_INET : AF_INET6,
		.proto = flow->l4_proto,
		.flags = flow->sole ? PV_AGENT_FLOW_SOLE : 0,
		.dst_port = flow->dst_port,
	};
	memcpy(out->dst, v4 ? flow->dst.b + 12 : flow->dst.b, v4 ? 4 : 16);
	if (flow->kind == PV_FLOW_5TUPLE) {
		out->src_port = flow->src_port;
		memcpy(out->src, v4 ? flow->src.b + 12 : flow->src.b, v4 ? 4 : 16);
	}
	return 0;
}

/* `flags` is none of the key. */
static uint32_t flow_hash(const struct pv_agent_flow *f)
{
	struct pv_hash_key key = pv_hash_key(0);
	const uint8_t *b = (const uint8_t *)f;
	uint32_t h = 0;

	for (size_t i = 0; i < sizeof(*f); i += sizeof(uint64_t)) {
		uint64_t v;

		memcpy(&v, b + i, sizeof(v));
		h = pv_hash_u64(&key, v ^ (uint64_t)h << 32);
	}
	return h;
}

static struct agent_flow *flow_find(const struct pv_agent *a, const struct pv_agent_flow *msg, uint32_t hash)
{
	pv_htab_for_each(n, &a->flows, hash)
	{
		struct agent_flow *f = pv_htab_entry(n, struct agent_flow, node);

		if (!memcmp(&f->msg, msg, sizeof(*msg)))
			return f;
	}
	return NULL;
}

int pv_agent_flow_add(struct pv_agent *a, uint32_t ifindex, uint32_t tap, const struct pv_flow *flow, char *err, size_t errsize)
{
	struct agent_flow *f = calloc(1, sizeof(*f));
	struct request rq;
	struct answer an;
	uint32_t hash;
	int rc;

	if (!f)
		return say(err, errsize, -ENOMEM, "%s", strerror(ENOMEM));
	f->flow = *flow;
	rc = flow_msg(ifindex, tap, flow, &f->msg);
	if (rc) {
		free(f);
		return say(err, errsize, rc, "%s", "pyvmad has rules for ports and flows only");
	}
	hash = flow_hash(&f->msg);
	if (flow_find(a, &f->msg, hash)) {
		free(f);
		return say(err, errsize, -EEXIST, "%s", "the rule is there already");
	}
	rc = pv_agent_connect(a, err, errsize);
	if (!rc) {
		flow_request(f, &rq);
		rc = call(a, &rq, &an, err, errsize);
	}
	/* Of a daemon that is away for a moment the rule is had as soon as it is back; the kernel's socket has the packets until then. */
	if (rc && !(a->met && a->fd < 0)) {
		free(f);
		return rc;
	}
	pv_htab_add(&a->flows, &f->node, hash);
	return rc ? -EAGAIN : 0;
}

int pv_agent_flow_del(struct pv_agent *a, uint32_t ifindex, uint32_t tap, const struct pv_flow *flow)
{
	struct pv_agent_flow msg;
	struct agent_flow *f = flow_msg(ifindex, tap, flow, &msg) ? NULL : flow_find(a, &msg, flow_hash(&msg));
	struct request rq = { .type = PV_AGENT_FLOW_DEL, .body = &msg, .len = sizeof(msg) };
	uint32_t id;

	if (!f || a->pid != getpid())
		return -ENOENT;
	(void)pv_htab_del(&a->flows, &f->node);
	free(f);
	if (a->fd < 0)
		return 0;
	if (send_request(a, &rq, &id, pv_clock_kernel_ns() + FLOW_WAIT_NS))
		hang_up(a);
	else
		(void)pv_agent_serve(a);
	return 0;
}

void pv_agent_neigh(struct pv_agent *a, uint32_t ifindex, const struct pv_addr *addr)
{
	bool v4 = pv_addr_is4(addr);
	struct pv_agent_neigh msg = { .ifindex = ifindex, .family = v4 ? AF_INET : AF_INET6 };
	struct request rq = { .type = PV_AGENT_NEIGH, .body = &msg, .len = sizeof(msg) };
	uint32_t id;

	memcpy(msg.addr, v4 ? addr->b + 12 : addr->b, v4 ? 4 : 16);
	if (a->fd >= 0 && a->pid == getpid())
		(void)send_request(a, &rq, &id, pv_clock_kernel_ns());
}

/* ---- life -------------------------------------------------------------------------------------------------------------- */

int pv_agent_fd(const struct pv_agent *a)
{
	return a->fd;
}

int64_t pv_agent_deadline(const struct pv_agent *a)
{
	return a->fd < 0 ? a->retry_ns : PV_NEVER;
}

bool pv_agent_serve(struct pv_agent *a)
{
	struct answer an;
	int64_t id = 0, after = PV_MIN(2 * a->retry_after_ns, RETRY_MAX_NS);

	while (a->fd >= 0 && (id = receive(a, &an)) >= 0)
		if (id)
			late(&an);
	if (a->fd >= 0) {
		if (id != -EAGAIN && id != -EINTR)
			hang_up(a);
		return false;
	}
	if (a->retry_ns == PV_NEVER || pv_clock_kernel_ns() < a->retry_ns)
		return false;
	if (!pv_agent_connect(a, NULL, 0))
		return true;
	a->retry_after_ns = PV_MAX(after, RETRY_MIN_NS);
	a->retry_ns = pv_clock_kernel_ns() + a->retry_after_ns;
	return false;
}

void pv_agent_tick(struct pv_engine *e)
{
	if (e->agent && pv_agent_serve(e->agent))
		pv_host_again(e);
}

struct pv_agent *pv_agent_get(struct pv_engine *e)
{
	struct pv_agent *a = e->agent;

	if (a || !e->cfg || !*e->cfg->daemon || !strcmp(e->cfg->daemon, "none"))
		return a;
	a = calloc(1, sizeof(*a));
	if (!a || strlen(e->cfg->daemon) >= sizeof(a->path) || pv_htab_init(&a->flows, pv_mem_system(false), 64)) {
		free(a);
		return NULL;
	}
	strcpy(a->path, e->cfg->daemon);
	a->pid = getpid();
	a->crash = e->cfg->crash_reset;
	a->fd = -1;
	a->retry_ns = PV_NEVER;
	for (uint32_t i = 0; i < PV_IFACE_MAX; i++)
		a->tap[i].fd = a->xdp[i].fd = -1;
	return e->agent = a;
}

void pv_agent_forget(struct pv_engine *e)
{
	struct pv_agent *a = e->agent;
	struct pv_hnode *n;

	if (!a)
		return;
	e->agent = NULL;
	while ((n = pv_htab_next(&a->flows, NULL)) != NULL) {
		(void)pv_htab_del(&a->flows, n);
		free(pv_htab_entry(n, struct agent_flow, node));
	}
	pv_htab_fini(&a->flows);
	for (uint32_t i = 0; i < PV_IFACE_MAX; i++) {
		thing_drop(&a->tap[i]);
		thing_drop(&a->xdp[i]);
	}
	if (a->fd >= 0)
		close(a->fd);
	free(a);
}

void pv_agent_start(struct pv_engine *e)
{
	struct pv_agent *a = e->cfg->crash_reset ? pv_agent_get(e) : NULL;
	char err[256];

	if (a && pv_agent_connect(a, err, sizeof(err)))
		pv_log(PV_LOG_WARN, "crash_reset: %s", err);
}

void pv_agent_stop(struct pv_engine *e)
{
	struct request rq = { .type = PV_AGENT_BYE };
	uint32_t id;

	if (e->agent && e->agent->fd >= 0)
		(void)send_request(e->agent, &rq, &id, pv_clock_kernel_ns());
	pv_agent_forget(e);
}
