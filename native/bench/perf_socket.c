/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets with the options of the command line. */
#include "bench/perf.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

static int set_int(perf_t h, const struct perf_ops *ops, int level, int name, int value)
{
	return ops->setopt(h, level, name, &value, sizeof(value));
}

/* By number, which both families have; an address of ours names an interface in IPv4 only, and there in a request of its own. */
static int join(perf_t h, const struct perf_opts *o, const struct perf_ops *ops, const struct perf_end *end)
{
	const struct sockaddr_in *group = (const struct sockaddr_in *)(const void *)&end->addr;
	const struct sockaddr_in *source = (const struct sockaddr_in *)(const void *)&end->source;
	int level = end->addr.ss_family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;

	if (o->group_rx.addr.s_addr && level == IPPROTO_IP && end->source.ss_family) {
		struct ip_mreq_source m = { .imr_multiaddr = group->sin_addr,
					    .imr_interface = o->group_rx.addr,
					    .imr_sourceaddr = source->sin_addr };

		return ops->setopt(h, level, IP_ADD_SOURCE_MEMBERSHIP, &m, sizeof(m));
	}
	if (end->source.ss_family) {
		struct group_source_req m = { .gsr_interface = o->group_rx.index,
					      .gsr_group = end->addr,
					      .gsr_source = end->source };

		return ops->setopt(h, level, MCAST_JOIN_SOURCE_GROUP, &m, sizeof(m));
	}
	if (level == IPPROTO_IP) {
		struct ip_mreqn m = { .imr_multiaddr = group->sin_addr,
				      .imr_address = o->group_rx.addr,
				      .imr_ifindex = (int)o->group_rx.index };

		return ops->setopt(h, level, IP_ADD_MEMBERSHIP, &m, sizeof(m));
	}
	struct group_req m = { .gr_interface = o->group_rx.index, .gr_group = end->addr };

	return ops->setopt(h, level, MCAST_JOIN_GROUP, &m, sizeof(m));
}

static int set_group(perf_t h, const struct perf_opts *o, const struct perf_ops *ops, const struct perf_end *end)
{
	bool v6 = end->addr.ss_family == AF_INET6;
	int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, rc = 0;
	struct ip_mreqn out = { .imr_address = o->group_tx.addr, .imr_ifindex = (int)o->group_tx.index };

	if (v6 && o->group_tx.index)
		rc = set_int(h, ops, level, IPV6_MULTICAST_IF, (int)o->group_tx.index);
	else if (!v6 && (o->group_tx.index || o->group_tx.addr.s_addr))
		rc = ops->setopt(h, level, IP_MULTICAST_IF, &out, sizeof(out));
	if (!rc)
		rc = set_int(h, ops, level, v6 ? IPV6_MULTICAST_HOPS : IP_MULTICAST_TTL, (int)o->group_ttl);
	if (!rc)
		rc = set_int(h, ops, level, v6 ? IPV6_MULTICAST_LOOP : IP_MULTICAST_LOOP, o->group_loop);
	return rc ? rc : join(h, o, ops, end);
}

int perf_sock_nodelay(perf_t h, const struct perf_opts *o, const struct perf_ops *ops)
{
	/* As sockperf: many small messages one way are gathered, all else leaves at once. */
	bool nagle = (o->mode == PERF_THROUGHPUT) != o->nagle_switch;

	return set_int(h, ops, IPPROTO_TCP, TCP_NODELAY, !nagle);
}

static int bind_server(struct perf_sock *s, const struct perf_ops *ops)
{
	struct sockaddr_storage at = s->end->addr;

	/* Messages to a group are the socket's, and those to an address of the host: answers to it have to come from one. */
	if (s->group && at.ss_family == AF_INET6)
		((struct sockaddr_in6 *)(void *)&at)->sin6_addr = in6addr_any;
	else if (s->group)
		((struct sockaddr_in *)(void *)&at)->sin_addr.s_addr = INADDR_ANY;
	return ops->bind(s->h, &at);
}

static int attach(struct perf_sock *s, const struct perf_opts *o, const struct perf_ops *ops)
{
	int rc = 0;

	if (o->mode == PERF_SERVER)
		rc = bind_server(s, ops);
	else if (o->local.ss_family)
		rc = ops->bind(s->h, &o->local);
	if (!rc && s->listener)
		rc = ops->listen(s->h);
	else if (!rc && o->mode != PERF_SERVER && (s->tcp || (o->connect && !s->group)))
		rc = ops->connect(s->h, &s->end->addr);
	/* After that, as sockperf: a device's queue is known only then. */
	if (!rc && o->rate_limit)
		rc = ops->setopt(s->h, SOL_SOCKET, SO_MAX_PACING_RATE, &o->rate_limit, sizeof(o->rate_limit));
	return rc;
}

int perf_sock_open(struct perf_sock *s, const struct perf_opts *o, const struct perf_ops *ops, const struct perf_end *end)
{
	const char *step = "socket";
	int rc = ops->open(end->addr.ss_family, end->tcp, &s->h);

	s->end = end;
	s->tcp = end->tcp;
	s->group = perf_is_group(&end->addr);
	s->listener = o->mode == PERF_SERVER && s->tcp;
	if (rc)
		return bench_fail(step, rc);
	s->open = true;
	if (o->buffer) {
		step = "--buffer-size";
		rc = set_int(s->h, ops, SOL_SOCKET, SO_RCVBUF, (int)o->buffer);
		rc = rc ? rc : set_int(s->h, ops, SOL_SOCKET, SO_SNDBUF, (int)o->buffer);
	}
	if (!rc && o->mode == PERF_SERVER && (s->group || s->tcp))
		rc = set_int(s->h, ops, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!rc && s->tcp && !s->listener)
		rc = perf_sock_nodelay(s->h, o, ops);
	if (!rc && s->group) {
		step = "group";
		rc = set_group(s->h, o, ops, end);
	}
	if (!rc) {
		step = o->mode == PERF_SERVER ? "bind" : s->tcp ? "connect" : "socket";
		rc = attach(s, o, ops);
	}
	return rc ? bench_fail(step, rc) : 0;
}

void perf_sock_close(struct perf_sock *s, const struct perf_ops *ops)
{
	if (s->open)
		ops->close(s->h);
	s->open = false;
	perf_stream_fini(&s->in);
}
