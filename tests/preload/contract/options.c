/* SPDX-License-Identifier: BSD-3-Clause */
/* setsockopt and getsockopt: every option by every length and a few values. */
#include "contract.h"

#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION(level, name, kinds, told)                                                                                           \
	{                                                                                                                          \
		level, name, #name, kinds, told                                                                                    \
	}

static const struct option {
	int level, name;
	const char *text;
	unsigned int kinds;
	bool told; /* its value is the same everywhere */
} options[] = {
	OPTION(SOL_SOCKET, SO_REUSEADDR, BOTH, true),
	OPTION(SOL_SOCKET, SO_REUSEPORT, BOTH, true),
	OPTION(SOL_SOCKET, SO_TYPE, BOTH, true),
	OPTION(SOL_SOCKET, SO_ERROR, BOTH, true),
	OPTION(SOL_SOCKET, SO_DONTROUTE, BOTH, true),
	OPTION(SOL_SOCKET, SO_BROADCAST, BOTH, true),
	OPTION(SOL_SOCKET, SO_SNDBUF, BOTH, false),
	OPTION(SOL_SOCKET, SO_RCVBUF, BOTH, false),
	OPTION(SOL_SOCKET, SO_KEEPALIVE, BOTH, true),
	OPTION(SOL_SOCKET, SO_OOBINLINE, BOTH, true),
	OPTION(SOL_SOCKET, SO_NO_CHECK, BOTH, true),
	OPTION(SOL_SOCKET, SO_PRIORITY, BOTH, true),
	OPTION(SOL_SOCKET, SO_LINGER, BOTH, true),
	OPTION(SOL_SOCKET, SO_PASSCRED, BOTH, true),
	OPTION(SOL_SOCKET, SO_PEERCRED, BOTH, true),
	OPTION(SOL_SOCKET, SO_RCVLOWAT, BOTH, true),
	OPTION(SOL_SOCKET, SO_SNDLOWAT, BOTH, true),
	OPTION(SOL_SOCKET, SO_RCVTIMEO, BOTH, true),
	OPTION(SOL_SOCKET, SO_SNDTIMEO, BOTH, true),
	OPTION(SOL_SOCKET, SO_TIMESTAMP, BOTH, true),
	OPTION(SOL_SOCKET, SO_TIMESTAMPNS, BOTH, true),
	OPTION(SOL_SOCKET, SO_TIMESTAMPING, BOTH, true),
	OPTION(SOL_SOCKET, SO_ACCEPTCONN, BOTH, true),
	OPTION(SOL_SOCKET, SO_PROTOCOL, BOTH, true),
	OPTION(SOL_SOCKET, SO_DOMAIN, BOTH, true),
	OPTION(SOL_SOCKET, SO_MARK, BOTH, true),
	OPTION(SOL_SOCKET, SO_RXQ_OVFL, BOTH, true),
	OPTION(SOL_SOCKET, SO_PEEK_OFF, BOTH, true),
	OPTION(SOL_SOCKET, SO_BUSY_POLL, BOTH, true),
	OPTION(SOL_SOCKET, SO_MAX_PACING_RATE, BOTH, true),
	OPTION(SOL_SOCKET, SO_COOKIE, BOTH, false),
	OPTION(SOL_SOCKET, SO_BINDTODEVICE, BOTH, true),
	OPTION(SOL_SOCKET, SO_ZEROCOPY, BOTH, true),
	OPTION(SOL_SOCKET, 9999, BOTH, true),
	OPTION(IPPROTO_IP, IP_TOS, BOTH, true),
	OPTION(IPPROTO_IP, IP_TTL, BOTH, true),
	OPTION(IPPROTO_IP, IP_HDRINCL, BOTH, true),
	OPTION(IPPROTO_IP, IP_PKTINFO, BOTH, true),
	OPTION(IPPROTO_IP, IP_MTU_DISCOVER, BOTH, true),
	OPTION(IPPROTO_IP, IP_MTU, BOTH, true),
	OPTION(IPPROTO_IP, IP_RECVERR, BOTH, true),
	OPTION(IPPROTO_IP, IP_RECVTTL, BOTH, true),
	OPTION(IPPROTO_IP, IP_RECVTOS, BOTH, true),
	OPTION(IPPROTO_IP, IP_FREEBIND, BOTH, true),
	OPTION(IPPROTO_IP, IP_MULTICAST_TTL, BOTH, true),
	OPTION(IPPROTO_IP, IP_MULTICAST_LOOP, BOTH, true),
	OPTION(IPPROTO_IP, IP_MULTICAST_ALL, BOTH, true),
	OPTION(IPPROTO_IP, IP_MULTICAST_IF, UDP, true),
	OPTION(IPPROTO_IP, IP_ADD_MEMBERSHIP, UDP, true),
	OPTION(IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, BOTH, true),
	OPTION(IPPROTO_IP, 9999, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_V6ONLY, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_UNICAST_HOPS, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_MULTICAST_HOPS, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_MULTICAST_LOOP, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_MULTICAST_IF, UDP, true),
	OPTION(IPPROTO_IPV6, IPV6_TCLASS, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_RECVPKTINFO, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_RECVHOPLIMIT, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_RECVTCLASS, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_MTU_DISCOVER, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_MTU, BOTH, true),
	OPTION(IPPROTO_IPV6, IPV6_RECVERR, BOTH, true),
	OPTION(IPPROTO_IPV6, 9999, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_NODELAY, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_MAXSEG, BOTH, false),
	OPTION(IPPROTO_TCP, TCP_CORK, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_KEEPIDLE, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_KEEPINTVL, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_KEEPCNT, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_SYNCNT, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_LINGER2, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_DEFER_ACCEPT, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_WINDOW_CLAMP, BOTH, false),
	OPTION(IPPROTO_TCP, TCP_INFO, BOTH, false),
	OPTION(IPPROTO_TCP, TCP_QUICKACK, BOTH, false),
	OPTION(IPPROTO_TCP, TCP_CONGESTION, BOTH, false),
	OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_FASTOPEN, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_NOTSENT_LOWAT, BOTH, true),
	OPTION(IPPROTO_TCP, TCP_TIMESTAMP, BOTH, false),
	OPTION(IPPROTO_TCP, 9999, BOTH, true),
	OPTION(SOL_UDP, UDP_CORK, UDP, true),
	OPTION(SOL_UDP, UDP_SEGMENT, UDP, true),
	OPTION(SOL_UDP, UDP_GRO, UDP, true),
	OPTION(SOL_UDP, 9999, UDP, true),
	OPTION(77, 1, BOTH, true),
};
#define OPTIONS (sizeof(options) / sizeof(options[0]))

static void get(int fd)
{
	static const socklen_t sizes[] = { 4, 0, 1, 2, 8, 256, (socklen_t)-1 };
	const struct option *o = &options[arg];
	unsigned char value[512];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		socklen_t len = sizes[i];

		if (o->level == IPPROTO_TCP && o->name == TCP_INFO && len == 256)
			continue; /* it grows with the kernel's version */

		memset(value, 0, sizeof(value));
		if (rc("get", getsockopt(fd, o->level, o->name, value, &len)) < 0)
			continue;
		say("/%u", len);
		if (o->told)
			bytes((char *)value, len > 16 ? 16 : len);
	}
}

static void set(int fd)
{
	static const int values[] = { 0, 1, 7, 40, 255, 256, 100000, -1 };
	const struct option *o = &options[arg];

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		unsigned char value[64] = { 0 };
		socklen_t len = sizeof(value);

		if (rc("set", setsockopt(fd, o->level, o->name, &values[i], sizeof(values[i]))) < 0 || !o->told)
			continue;
		if (o->name == SO_RCVLOWAT && o->level == SOL_SOCKET && values[i] < 0)
			continue; /* what buffers may grow to, of which each has its own setting */
		if (getsockopt(fd, o->level, o->name, value, &len) == 0)
			bytes((char *)value, len > 16 ? 16 : len);
	}
}

static void set_sizes(int fd)
{
	static const socklen_t sizes[] = { 0, 1, 2, 3, 8, 16, 60 };
	const struct option *o = &options[arg];
	unsigned char value[64] = { 1 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		rc("set", setsockopt(fd, o->level, o->name, value, sizes[i]));
}

const struct call *option_calls(void)
{
	static struct call calls[3 * OPTIONS + 1];
	static char names[3 * OPTIONS][64];
	static const struct {
		const char *name;
		void (*run)(int fd);
	} ways[] = { { "get", get }, { "set", set }, { "set_sizes", set_sizes } };

	for (size_t i = 0; i < 3 * OPTIONS; i++) {
		const struct option *o = &options[i / 3];

		snprintf(names[i], sizeof(names[i]), "%s_%d_%s", ways[i % 3].name, o->level, o->text);
		calls[i] = (struct call){ names[i], o->kinds, ways[i % 3].run, (int)(i / 3) };
	}
	return calls;
}
