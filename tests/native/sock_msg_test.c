/* SPDX-License-Identifier: BSD-3-Clause */
/* Ancillary data in both directions and the error queue, compared with the kernel's. */
#include <time.h>
#include <linux/errqueue.h>
#include <netinet/ip_icmp.h>

#include "sock_env.h"

/* Everything that a message says but for addresses and interface numbers, which differ by nature: those are compared to what the
 * side's own are. */
static void trace_msg(struct trace *t, const struct side *side, struct msghdr *m)
{
	T(t, m->msg_flags);
	T(t, m->msg_controllen);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		struct in_pktinfo *pi = (void *)CMSG_DATA(c);
		struct in6_pktinfo *pi6 = (void *)CMSG_DATA(c);
		struct in_addr own;
		struct in6_addr own6;
		int val = 0;

		T(t, c->cmsg_level);
		T(t, c->cmsg_type);
		T(t, c->cmsg_len);
		CHECK_EQ(inet_pton(AF_INET, side->addr4, &own), 1);
		CHECK_EQ(inet_pton(AF_INET6, side->addr6, &own6), 1);
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO && c->cmsg_len >= CMSG_LEN(sizeof(*pi))) {
			T(t, pi->ipi_ifindex != 0);
			T(t, pi->ipi_addr.s_addr == own.s_addr);
			T(t, pi->ipi_spec_dst.s_addr == own.s_addr);
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO && c->cmsg_len >= CMSG_LEN(sizeof(*pi6))) {
			T(t, pi6->ipi6_ifindex != 0);
			T(t, !memcmp(&pi6->ipi6_addr, &own6, 16) || IN6_IS_ADDR_V4MAPPED(&pi6->ipi6_addr));
		} else if ((c->cmsg_level == IPPROTO_IP && (c->cmsg_type == IP_TTL || c->cmsg_type == IP_TOS)) ||
			   (c->cmsg_level == IPPROTO_IPV6 && (c->cmsg_type == IPV6_HOPLIMIT || c->cmsg_type == IPV6_TCLASS))) {
			memcpy(&val, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
			T(t, val);
		}
	}
}

static void recv_one(struct trace *t, const struct side *side, struct sk s, size_t room)
{
	char data[32], control[512];
	struct iovec iov = { data, sizeof(data) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room };

	memset(control, 0, sizeof(control));
	T(t, sk_recvmsg(s, &m, 0));
	trace_msg(t, side, &m);
}

ORACLE(receive_everything)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);

	T(t, sk_set_int(a, IPPROTO_IP, IP_TTL, 33));
	T(t, sk_set_int(a, IPPROTO_IP, IP_TOS, 0x48));
	if (family == AF_INET) {
		T(t, sk_set_int(b, IPPROTO_IP, IP_PKTINFO, 1));
		T(t, sk_set_int(b, IPPROTO_IP, IP_RECVTTL, 1));
		T(t, sk_set_int(b, IPPROTO_IP, IP_RECVTOS, 1));
		T(t, sk_set_int(b, IPPROTO_IP, IP_RECVORIGDSTADDR, 1));
	} else {
		T(t, sk_set_int(a, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 44));
		T(t, sk_set_int(a, IPPROTO_IPV6, IPV6_TCLASS, 0x20));
		T(t, sk_set_int(b, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1));
		T(t, sk_set_int(b, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1));
		T(t, sk_set_int(b, IPPROTO_IPV6, IPV6_RECVTCLASS, 1));
		T(t, sk_set_int(b, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 1));
	}
	/* Every size of the control buffer, so that each record is cut in each place. */
	for (size_t room = 0; room <= 160; room += 4) {
		T(t, sk_sendto(a, "payload", 7, 0, ba));
		recv_one(t, side, b, room);
	}
	sk_close(a);
	sk_close(b);
}

ORACLE(mapped_packets)
{
	struct sk a = sk_open(side, AF_INET6), b = sk_open(side, AF_INET);
	char mapped[64];
	struct any_addr aa;

	(void)family;
	snprintf(mapped, sizeof(mapped), "::ffff:%s", side->addr4);
	T(t, sk_set_int(a, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1));
	T(t, sk_set_int(a, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1));
	T(t, sk_set_int(a, IPPROTO_IP, IP_RECVTTL, 1));
	T(t, sk_bind(a, ip(mapped, 0)));
	T(t, sk_name(a, &aa));
	T(t, sk_sendto(b, "x", 1, 0, ip(side->addr4, addr_port(&aa))));
	recv_one(t, side, a, 512);
	sk_close(a);
	sk_close(b);
}

ORACLE(timestamps)
{
	struct any_addr aa;
	struct sk a = sk_bound(side, family, &aa);
	char data[8], control[128];
	struct iovec iov = { data, sizeof(data) };

	for (int ns = 0; ns < 2; ns++) {
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
		struct timespec before, stamp = { 0 }, after;
		struct timeval tv;

		T(t, sk_set_int(a, SOL_SOCKET, ns ? SO_TIMESTAMPNS : SO_TIMESTAMP, 1));
		clock_gettime(CLOCK_REALTIME, &before);
		T(t, sk_sendto(a, "x", 1, 0, aa));
		T(t, sk_recvmsg(a, &m, 0));
		clock_gettime(CLOCK_REALTIME, &after);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);

		T(t, c != NULL);
		T(t, c->cmsg_level);
		T(t, c->cmsg_type);
		T(t, c->cmsg_len);
		T(t, m.msg_controllen);
		if (ns) {
			memcpy(&stamp, CMSG_DATA(c), sizeof(stamp));
		} else {
			memcpy(&tv, CMSG_DATA(c), sizeof(tv));
			stamp = (struct timespec){ tv.tv_sec, tv.tv_usec * 1000 };
		}
		/* A millisecond of slack for two clocks read one after the other. */
		T(t, stamp.tv_sec * 1000 + stamp.tv_nsec / 1000000 >= before.tv_sec * 1000 + before.tv_nsec / 1000000 - 1);
		T(t, stamp.tv_sec * 1000 + stamp.tv_nsec / 1000000 <= after.tv_sec * 1000 + after.tv_nsec / 1000000 + 1);
	}
	sk_close(a);
}

/* ---- sending ----------------------------------------------------------------------------------------------------------- */

static int64_t send_cmsg(struct sk s, struct any_addr to, int level, int type, const void *data, size_t len)
{
	char control[256] = { 0 };
	struct iovec iov = { (char *)(uintptr_t) "data", 4 };
	struct msghdr m = { .msg_name = &to.ss,
			    .msg_namelen = to.len,
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = CMSG_SPACE(len) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	return sk_sendmsg(s, &m, 0);
}

ORACLE(send_with_options)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, ttl = family == AF_INET ? IP_TTL : IPV6_HOPLIMIT,
	    tos = family == AF_INET ? IP_TOS : IPV6_TCLASS;
	const int good[] = { 1, 7, 255 }, bad[] = { 0, -1, -2, 256, 100000 };

	T(t, sk_set_int(b, level, family == AF_INET ? IP_RECVTTL : IPV6_RECVHOPLIMIT, 1));
	T(t, sk_set_int(b, level, family == AF_INET ? IP_RECVTOS : IPV6_RECVTCLASS, 1));
	for (int i = 0; i < 3; i++) {
		T(t, send_cmsg(a, ba, level, ttl, &good[i], sizeof(int)));
		recv_one(t, side, b, 512);
		T(t, send_cmsg(a, ba, level, tos, &good[i], sizeof(int)));
		recv_one(t, side, b, 512);
	}
	for (int i = 0; i < 5; i++) {
		int64_t n = send_cmsg(a, ba, level, ttl, &bad[i], sizeof(int));

		T(t, n);
		if (n > 0)
			recv_one(t, side, b, 512);
		/* -1 for IPv6 is the socket's class or 255, by the kernel's version. */
		if (bad[i] == -1 && family == AF_INET6)
			continue;
		n = send_cmsg(a, ba, level, tos, &bad[i], sizeof(int));
		T(t, n);
		if (n > 0)
			recv_one(t, side, b, 512);
	}
	T(t, send_cmsg(a, ba, level, ttl, &good[0], 2));
	T(t, send_cmsg(a, ba, level, 250, &good[0], sizeof(int)));
	T(t, send_cmsg(a, ba, SOL_SOCKET, 9999, &good[0], sizeof(int)));
	T(t, send_cmsg(a, ba, IPPROTO_TCP, 1, &good[0], sizeof(int)));
	sk_close(a);
	sk_close(b);
}

ORACLE(send_from_an_address)
{
	struct any_addr aa, ba, from;
	struct sk a = sk_open(side, family), b = sk_bound(side, family, &ba);
	struct in_pktinfo pi = { 0 };
	struct in6_pktinfo pi6 = { .ipi6_ifindex = 0 };
	char buf[8];

	T(t, sk_bind(a, ip(family == AF_INET ? "0.0.0.0" : "::", 0)));
	T(t, sk_name(a, &aa));
	inet_pton(AF_INET, side->addr4, &pi.ipi_spec_dst);
	inet_pton(AF_INET6, side->addr6, &pi6.ipi6_addr);
	if (family == AF_INET)
		T(t, send_cmsg(a, ba, IPPROTO_IP, IP_PKTINFO, &pi, sizeof(pi)));
	else
		T(t, send_cmsg(a, ba, IPPROTO_IPV6, IPV6_PKTINFO, &pi6, sizeof(pi6)));
	T(t, sk_recvfrom(b, buf, sizeof(buf), 0, &from));
	T(t, addr_port(&from) == addr_port(&aa));
	if (family == AF_INET) {
		T(t, send_cmsg(a, ba, IPPROTO_IP, IP_PKTINFO, &pi, sizeof(pi) - 1));
		pi.ipi_ifindex = 55555;
		T(t, send_cmsg(a, ba, IPPROTO_IP, IP_PKTINFO, &pi, sizeof(pi)) < 0);
	} else {
		T(t, send_cmsg(a, ba, IPPROTO_IPV6, IPV6_PKTINFO, &pi6, sizeof(pi6) - 1));
		pi6.ipi6_ifindex = 55555;
		T(t, send_cmsg(a, ba, IPPROTO_IPV6, IPV6_PKTINFO, &pi6, sizeof(pi6)) < 0);
	}
	sk_close(a);
	sk_close(b);
}

/* ---- the error queue --------------------------------------------------------------------------------------------------- */

ORACLE(error_queue)
{
	struct any_addr aa, ba, to;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	char data[16], control[512];
	struct iovec iov = { data, sizeof(data) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };

	T(t, sk_recvmsg(a, &m, MSG_ERRQUEUE));
	sk_close(b);
	T(t, sk_set_int(a, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, family == AF_INET ? IP_RECVERR : IPV6_RECVERR, 1));
	/* With the option even a socket without a peer hears of it. */
	T(t, sk_sendto(a, "lost", 4, 0, ba));
	T(t, sk_poll(a, POLLIN | POLLPRI, LONG_NS));
	T(t, sk_set_int(a, SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1));
	T(t, sk_poll(a, POLLIN | POLLPRI, LONG_NS));
	T(t, sk_poll(a, POLLIN, LONG_NS));
	m.msg_name = &to.ss;
	m.msg_namelen = sizeof(to.ss);
	m.msg_controllen = sizeof(control);
	T(t, sk_recvmsg(a, &m, MSG_ERRQUEUE) >= 0);
	T(t, m.msg_flags & MSG_ERRQUEUE);
	T(t, m.msg_namelen);
	to.len = m.msg_namelen;
	T(t, addr_port(&to) == addr_port(&ba));
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	struct sock_extended_err *ee = (void *)CMSG_DATA(c);

	T(t, c->cmsg_level);
	T(t, c->cmsg_type);
	T(t, c->cmsg_len);
	T(t, ee->ee_errno);
	T(t, ee->ee_origin);
	T(t, ee->ee_type);
	T(t, ee->ee_code);
	T(t, SO_EE_OFFENDER(ee)->sa_family);
	T(t, sk_recvmsg(a, &m, MSG_ERRQUEUE | MSG_DONTWAIT));
	sk_close(a);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
