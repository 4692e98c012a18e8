/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernel sockets that keep ports of streams on interfaces that the kernel owns.
 *
 * A port stays ours for as long as the stack knows a connection of it: closing the program's socket leaves the kernel's behind, under a number
 * of our own, until the last one is over (pv_tcp_port_hold).
 *
 * A stream that connects without a name, and whose kernel socket nobody has asked for, gets none: its port is kept by a socket that belongs
 * to the port, and serves the next such stream when this one is over (tcp/reserve.c). It is bound as the program's would be, to the source
 * address and a port of the kernel's choice, and does not share it: nobody else can have that port at that address. Should the program ask
 * for its kernel socket later it is this one.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "rt/host.h"
#include "sock/stream.h"

/* Of the numbers that the process may have, how many at most keep ports. */
#define HOLD_SHARE 4u
#define HOLD_MAX 16384u

static struct pv_list holds = { &holds, &holds }; /* engine lock */
static uint32_t nholds;

static void hold_free(struct pv_hold *h)
{
	(void)pv_kfd_unhold(h);
	pv_list_del(&h->all);
	nholds--;
	close(h->fd);
	free(h);
}

void pv_stream_port_free(void *hold)
{
	for (struct pv_hold *h = hold, *next; h; h = next) {
		next = h->next;
		hold_free(h);
	}
}

/* A number that the program was told may lead to it still, and options may have been set. */
bool pv_stream_port_idle(void *hold)
{
	struct pv_hold *h = hold;

	return !pv_kfd_unhold(h) && !h->next;
}

/* Its kernel socket becomes the connection's own: as long as another number leads there the program's close would not end it. */
void pv_stream_hold_end(struct pv_sock *so, uint16_t port)
{
	void **slot = so->hold ? pv_tcp_port_hold(pv_engine.tcp, port) : NULL;
	struct pv_hold **at = (struct pv_hold **)slot;

	if (!slot)
		return;
	while (*at && *at != so->hold)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = so->hold->next;
	hold_free(so->hold);
	/* Nothing of ours keeps it for what else there was of the port. */
	pv_tcp_port_brief(pv_engine.tcp, port);
}

void pv_stream_holds_forked(void)
{
	pv_list_for_each_safe(it, tmp, &holds)
		hold_free(pv_list_entry(it, struct pv_hold, all));
}

static uint32_t hold_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return 0;
	return r.rlim_cur / HOLD_SHARE > HOLD_MAX ? HOLD_MAX : (uint32_t)r.rlim_cur / HOLD_SHARE;
}

/* May there be one more? A port that nobody has goes first. */
static bool have_room(void)
{
	return nholds < hold_limit() || pv_tcp_reserve_give_up(pv_engine.tcp, 0);
}

static struct pv_hold *hold_new(int fd, const struct pv_addr *addr)
{
	struct pv_hold *h = fd < 0 ? NULL : calloc(1, sizeof(*h));

	if (!h) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	h->fd = fd;
	h->addr = *addr;
	pv_list_add(&holds, &h->all);
	nholds++;
	return h;
}

void pv_stream_host_keep(struct pv_sock *so, const struct pv_endpoint *local)
{
	/* A listener's socket would go on to listen. Its port is for whoever wants it: connections that live have their flows. */
	void **slot = so->kernel_leg ? NULL : pv_tcp_port_hold(pv_engine.tcp, local->port);
	struct pv_hold *h;

	if (!slot)
		return;
	for (h = *slot; h; h = h->next)
		if (pv_addr_eq(&h->addr, &local->addr) || pv_addr_is_any(&h->addr))
			return;
	h = hold_new(have_room() ? pv_ownfd(fcntl(pv_sock_kfd(so), F_DUPFD_CLOEXEC, 0)) : -1, &local->addr);
	if (!h) {
		pv_tcp_port_brief(pv_engine.tcp, local->port);
		return;
	}
	h->next = *slot;
	*slot = h;
}

/* ---- reserved ports ---------------------------------------------------------------------------------------------------- */

/* The kernel's choice of a port at that address; -1 and *name is nothing's. */
static int kernel_port(const struct pv_sock *so, const struct pv_addr *addr, struct pv_endpoint *name)
{
	struct pv_endpoint at = { .addr = *addr };
	struct sockaddr_storage ss;
	socklen_t len = pv_addr_format(so->family, &at, &ss, sizeof(ss));
	int fd = pv_host_socket(&pv_engine, so->family, SOCK_STREAM | SOCK_CLOEXEC, so->proto);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&ss, len) == 0) {
		len = sizeof(ss);
		if (getsockname(fd, (struct sockaddr *)&ss, &len) == 0 && pv_addr_parse(so, (struct sockaddr *)&ss, len, name))
			return fd;
	}
	close(fd);
	return -1;
}

/* One more. 0; -EAGAIN: not in this way; what the ring said of the rule. */
static int reserve(struct pv_sock *so, const struct pv_path *path)
{
	struct pv_endpoint name = { .port = 0 };
	struct pv_hold *h = have_room() ? hold_new(kernel_port(so, &path->src, &name), &path->src) : NULL;
	int rc;

	if (!h)
		return -EAGAIN;
	rc = pv_tcp_bind(so->tc, &name) ? -EAGAIN : pv_tcp_reserve(so->tc, h, path->iface);
	if (!rc) {
		pv_kfd_hold(so, h);
		return 0;
	}
	if (rc == -EADDRINUSE)
		rc = -EAGAIN;
	/* A stream without a name again. */
	pv_stream_drop(so);
	hold_free(h);
	return rc;
}

int pv_stream_host_reserved(struct pv_sock *so, const struct pv_endpoint *to, const struct pv_path *path)
{
	const struct pv_tcp_opts *o = pv_tcp_options(so->tc);
	void *hold;
	int rc;

	if (pv_sock_kfd_made(so) != PV_KFD_NONE || !pv_engine.cfg->port_reserve || o->reuse_addr || o->reuse_port ||
	    o->bound_iface || pv_addr_is_linklocal6(&path->src))
		return -EAGAIN;
	rc = pv_tcp_bind_reserved(so->tc, &path->src, to, &hold);
	if (rc)
		return reserve(so, path);
	pv_kfd_hold(so, hold);
	return 0;
}
