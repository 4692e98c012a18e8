/* SPDX-License-Identifier: BSD-3-Clause */
/* What programs do with UDP sockets, on the kernel's and on ours: same results, same errors. */
#include "sock_env.h"

static struct any_addr other(struct any_addr a, int port)
{
	if (a.ss.ss_family == AF_INET)
		((struct sockaddr_in *)&a.ss)->sin_port = htons((uint16_t)port);
	else
		((struct sockaddr_in6 *)&a.ss)->sin6_port = htons((uint16_t)port);
	return a;
}

static bool same_addr(const struct any_addr *a, const struct any_addr *b)
{
	return a->len == b->len && !memcmp(&a->ss, &b->ss, a->len);
}

ORACLE(send_and_receive)
{
	struct any_addr aa, ba, from;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	char buf[100];

	T(t, sk_sendto(a, "hello", 5, 0, ba));
	memset(buf, 0, sizeof(buf));
	T(t, sk_recvfrom(b, buf, sizeof(buf), 0, &from));
	T(t, !memcmp(buf, "hello", 5));
	T(t, same_addr(&from, &aa));
	T(t, from.len);
	T(t, sk_sendto(b, "", 0, 0, from));
	T(t, sk_recv(a, buf, sizeof(buf), 0));
	T(t, sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT));
	T(t, sk_close(a));
	T(t, sk_close(b));
}

ORACLE(truncation_and_peek)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	char buf[100];

	for (int i = 0; i < 4; i++)
		T(t, sk_sendto(a, "0123456789", 10, 0, ba));
	T(t, sk_recv(b, buf, 4, MSG_PEEK));
	T(t, sk_recv(b, buf, 4, MSG_PEEK | MSG_TRUNC));
	T(t, sk_recv(b, buf, 4, MSG_TRUNC));
	T(t, sk_recv(b, buf, 4, 0));
	T(t, sk_recv(b, buf, 0, 0));
	T(t, sk_recv(b, NULL, 0, MSG_TRUNC));
	T(t, sk_recv(b, buf, 4, MSG_DONTWAIT));
	T(t, sk_sendto(a, "", 0, 0, ba));
	T(t, sk_recv(b, buf, 4, MSG_PEEK));
	T(t, sk_recv(b, buf, 4, 0));
	T(t, sk_recv(b, buf, 4, MSG_DONTWAIT | MSG_PEEK));
	for (int peek = 0; peek < 2; peek++) {
		struct iovec iov[2] = { { buf, 3 }, { buf + 3, 4 } };
		struct any_addr from;
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2, .msg_name = &from.ss, .msg_namelen = sizeof(from.ss) };

		if (!peek)
			T(t, sk_sendto(a, "abcdefghij", 10, 0, ba));
		T(t, sk_recvmsg(b, &m, peek ? 0 : MSG_PEEK));
		T(t, m.msg_flags);
		T(t, m.msg_namelen);
		T(t, m.msg_controllen);
		T(t, !memcmp(buf, "abcdefg", 7));
	}
	sk_close(a);
	sk_close(b);
}

ORACLE(bind_errors)
{
	struct any_addr aa, name;
	struct sk a = sk_bound(side, family, &aa), b = sk_open(side, family), c;

	T(t, sk_bind(a, ip(side_addr(side, family), 0)));
	T(t, sk_bind(b, aa));
	T(t, sk_bind(b, ip(family == AF_INET ? "203.0.113.77" : "2001:db8::77", 0)));
	T(t, sk_bind(b, (struct any_addr){ .ss = aa.ss, .len = 3 }));
	T(t, sk_bind(b, ip(family == AF_INET ? "::1" : "127.0.0.1", 0)));
	T(t, sk_name(b, &name));
	T(t, addr_port(&name));
	T(t, sk_bind(b, ip(side_addr(side, family), 0)));
	T(t, sk_bind(b, ip(side_addr(side, family), 0)));
	/* A port is free again when its socket is closed. */
	T(t, sk_close(a));
	c = sk_open(side, family);
	T(t, sk_bind(c, aa));
	sk_close(b);
	sk_close(c);
	/* All addresses and one of them: one port. */
	a = sk_bound(side, family, &aa);
	b = sk_open(side, family);
	T(t, sk_bind(b, ip(family == AF_INET ? "0.0.0.0" : "::", addr_port(&aa))));
	sk_close(a);
	sk_close(b);
}

ORACLE(reuse)
{
	struct any_addr aa;
	struct sk a = sk_open(side, family), b = sk_open(side, family), c = sk_open(side, family);

	T(t, sk_set_int(a, SOL_SOCKET, SO_REUSEADDR, 1));
	T(t, sk_set_int(b, SOL_SOCKET, SO_REUSEADDR, 1));
	T(t, sk_bind(a, ip(side_addr(side, family), 0)));
	T(t, sk_name(a, &aa));
	T(t, sk_bind(b, aa));
	T(t, sk_bind(c, aa));
	sk_close(a);
	sk_close(b);
	sk_close(c);
	a = sk_open(side, family);
	b = sk_open(side, family);
	T(t, sk_set_int(a, SOL_SOCKET, SO_REUSEPORT, 1));
	T(t, sk_bind(a, ip(side_addr(side, family), 0)));
	T(t, sk_name(a, &aa));
	T(t, sk_bind(b, aa));
	T(t, sk_set_int(b, SOL_SOCKET, SO_REUSEPORT, 1));
	T(t, sk_bind(b, aa));
	sk_close(a);
	sk_close(b);
}

ORACLE(connected)
{
	struct any_addr aa, ba, ca, name, peer;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba), c = sk_open(side, family);
	char buf[16];

	T(t, sk_peer(c, &peer));
	T(t, sk_send(c, "x", 1, 0));
	T(t, sk_connect(c, aa));
	T(t, sk_peer(c, &peer));
	T(t, same_addr(&peer, &aa));
	T(t, sk_name(c, &ca));
	T(t, addr_port(&ca) != 0);
	T(t, ca.len);
	T(t, sk_send(c, "one", 3, 0));
	T(t, sk_recvfrom(a, buf, sizeof(buf), 0, &name));
	T(t, same_addr(&name, &ca));
	/* Only the peer is heard. */
	T(t, sk_sendto(b, "stranger", 8, 0, ca));
	T(t, sk_sendto(a, "peer", 4, 0, ca));
	T(t, sk_recv(c, buf, sizeof(buf), 0));
	T(t, sk_recv(c, buf, sizeof(buf), MSG_DONTWAIT));
	/* Another address for one datagram, another peer, none. */
	T(t, sk_sendto(c, "two", 3, 0, ba));
	T(t, sk_recv(b, buf, sizeof(buf), 0));
	T(t, sk_connect(c, ba));
	T(t, sk_name(c, &name));
	T(t, same_addr(&name, &ca));
	T(t, sk_disconnect(c));
	T(t, sk_peer(c, &peer));
	T(t, sk_send(c, "x", 1, 0));
	T(t, sk_name(c, &name));
	sk_close(a);
	sk_close(b);
	sk_close(c);
}

ORACLE(send_errors)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	static char big[70000];

	T(t, sk_send(a, "x", 1, 0));
	T(t, sk_sendto(a, "x", 1, 0, other(ba, 0)));
	T(t, sk_sendto(a, "x", 1, 0, (struct any_addr){ .ss = ba.ss, .len = 5 }));
	T(t, sk_sendto(a, "x", 1, MSG_OOB, ba));
	T(t, sk_sendto(a, big, 65536, 0, ba));
	T(t, sk_sendto(a, big, 70000, 0, ba));
	T(t, sk_sendto(a, "x", 1, MSG_NOSIGNAL, ba));
	struct any_addr odd = ba;

	odd.ss.ss_family = AF_UNIX;
	T(t, sk_sendto(a, "x", 1, 0, odd));
	T(t, sk_recv(b, big, sizeof(big), 0));
	sk_close(a);
	sk_close(b);
}

ORACLE(refused)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	char buf[16];
	int err = 0;
	socklen_t len = sizeof(err);

	sk_close(b);
	T(t, sk_connect(a, ba));
	T(t, sk_send(a, "x", 1, 0));
	T(t, sk_poll(a, POLLIN, LONG_NS) != 0);
	T(t, sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT));
	T(t, sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT));
	T(t, sk_send(a, "x", 1, 0));
	T(t, sk_poll(a, POLLIN, LONG_NS) != 0);
	T(t, sk_send(a, "x", 1, 0));
	T(t, sk_send(a, "x", 1, 0));
	T(t, sk_poll(a, POLLIN, LONG_NS) != 0);
	T(t, sk_get(a, SOL_SOCKET, SO_ERROR, &err, &len));
	T(t, err);
	T(t, sk_get(a, SOL_SOCKET, SO_ERROR, &err, &len));
	T(t, err);
	sk_close(a);
	/* A socket without a peer hears nothing of it. */
	a = sk_bound(side, family, &aa);
	T(t, sk_sendto(a, "x", 1, 0, ba));
	T(t, sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT));
	sk_close(a);
}

ORACLE(large)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	static char out[65507], in[70000];
	const int sizes[] = { 1472, 1473, 2000, 9000, 65506, 65507 };

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 7 + (i >> 8));
	for (int i = 0; i < 6; i++) {
		T(t, sk_sendto(a, out, (size_t)sizes[i], 0, ba));
		memset(in, 0, sizeof(in));
		T(t, sk_recv(b, in, sizeof(in), 0));
		T(t, !memcmp(in, out, (size_t)sizes[i]));
	}
	T(t, sk_sendto(a, out, 40000, 0, ba));
	T(t, sk_recv(b, in, 10000, MSG_TRUNC));
	T(t, !memcmp(in, out, 10000));
	sk_close(a);
	sk_close(b);
}

ORACLE(shut_down)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	char buf[16];

	T(t, sk_shutdown(a, 7));
	T(t, sk_connect(a, ba));
	T(t, sk_connect(b, aa));
	T(t, sk_send(a, "one", 3, 0));
	T(t, sk_shutdown(a, SHUT_WR));
	T(t, sk_send(a, "two", 3, MSG_NOSIGNAL));
	T(t, sk_recv(b, buf, sizeof(buf), 0));
	T(t, sk_send(b, "back", 4, 0));
	T(t, sk_recv(a, buf, sizeof(buf), 0));
	T(t, sk_shutdown(b, SHUT_RD));
	T(t, sk_recv(b, buf, sizeof(buf), 0));
	T(t, (sk_poll(b, POLLIN | POLLRDHUP, 0) & POLLIN) != 0);
	sk_close(a);
	sk_close(b);
}

ORACLE(non_blocking)
{
	struct any_addr aa;
	struct sk a = sk_bound(side, family, &aa);
	char buf[16];
	int n = -1;

	T(t, sk_nonblock(a, 1));
	T(t, sk_recv(a, buf, sizeof(buf), 0));
	T(t, a.h ? pyvma_sock_ioctl(a.h, FIONREAD, &n) : neg(ioctl(a.fd, FIONREAD, &n)));
	T(t, n);
	T(t, sk_poll(a, POLLIN, 0));
	T(t, sk_poll(a, POLLOUT, 0));
	T(t, sk_sendto(a, "12345", 5, 0, aa));
	T(t, sk_poll(a, POLLIN | POLLOUT, LONG_NS));
	T(t, a.h ? pyvma_sock_ioctl(a.h, FIONREAD, &n) : neg(ioctl(a.fd, FIONREAD, &n)));
	T(t, n);
	T(t, sk_recv(a, buf, sizeof(buf), 0));
	T(t, sk_nonblock(a, 0));
	T(t, sk_sendto(a, "12345", 5, 0, aa));
	T(t, sk_recv(a, buf, sizeof(buf), 0));
	sk_close(a);
}

ORACLE(receive_timeout)
{
	struct any_addr aa;
	struct sk a = sk_bound(side, family, &aa);
	struct timeval tv = { .tv_usec = 20000 }, got;
	socklen_t len = sizeof(got);
	char buf[16];

	T(t, sk_set(a, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	T(t, sk_get(a, SOL_SOCKET, SO_RCVTIMEO, &got, &len));
	T(t, got.tv_usec >= 20000 && got.tv_usec < 30000);
	T(t, sk_recv(a, buf, sizeof(buf), 0));
	T(t, sk_sendto(a, "x", 1, 0, aa));
	T(t, sk_recv(a, buf, sizeof(buf), 0));
	sk_close(a);
}

ORACLE(fill_the_receive_buffer)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_open(side, family);
	char buf[1000] = { 0 };
	int n = 0;

	T(t, sk_set_int(b, SOL_SOCKET, SO_RCVBUF, 8192));
	T(t, sk_bind(b, ip(side_addr(side, family), 0)));
	T(t, sk_name(b, &ba));
	for (int i = 0; i < 500; i++) {
		sk_sendto(a, buf, sizeof(buf), 0, ba);
		sk_poll(a, POLLIN, 0); /* what waits in a ring is not in the buffer yet */
	}
	while (sk_recv(b, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		n++;
	if (n <= 2 || n >= 100)
		fprintf(stderr, "%d fit\n", n);
	/* How many fit depends on the overhead that is counted; that it is bounded and not zero does not. */
	T(t, n > 2 && n < 100);
	T(t, sk_sendto(a, buf, 10, 0, ba));
	T(t, sk_recv(b, buf, sizeof(buf), 0));
	sk_close(a);
	sk_close(b);
}

ORACLE(mapped)
{
	struct sk a = sk_open(side, AF_INET6), b = sk_open(side, AF_INET);
	char mapped[64], buf[16];
	struct any_addr aa, ba, from;

	(void)family;
	snprintf(mapped, sizeof(mapped), "::ffff:%s", side->addr4);
	T(t, sk_bind(a, ip(mapped, 0)));
	T(t, sk_name(a, &aa));
	T(t, aa.len);
	T(t, sk_bind(b, ip(side->addr4, 0)));
	T(t, sk_name(b, &ba));
	T(t, sk_sendto(b, "four", 4, 0, ip(side->addr4, addr_port(&aa))));
	T(t, sk_recvfrom(a, buf, sizeof(buf), 0, &from));
	T(t, from.ss.ss_family == AF_INET6 && addr_port(&from) == addr_port(&ba));
	T(t, IN6_IS_ADDR_V4MAPPED(&((struct sockaddr_in6 *)&from.ss)->sin6_addr));
	T(t, sk_sendto(a, "back", 4, 0, from));
	T(t, sk_recvfrom(b, buf, sizeof(buf), 0, &from));
	T(t, from.ss.ss_family == AF_INET && addr_port(&from) == addr_port(&aa));
	T(t, sk_sendto(a, "plain", 5, 0, ba));
	T(t, sk_recv(b, buf, sizeof(buf), 0));
	sk_close(a);
	sk_close(b);
	a = sk_open(side, AF_INET6);
	T(t, sk_set_int(a, IPPROTO_IPV6, IPV6_V6ONLY, 1));
	T(t, sk_bind(a, ip(mapped, 0)));
	sk_close(a);
}

ORACLE(gather_and_scatter)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, family, &aa), b = sk_bound(side, family, &ba);
	char x[5], y[5], z[5];
	struct iovec out[3] = { { (char *)"abc", 3 }, { NULL, 0 }, { (char *)"defgh", 5 } };
	struct iovec in[4] = { { x, 2 }, { y, 0 }, { z, 5 }, { x + 2, 3 } };
	struct msghdr m = { .msg_name = &ba.ss, .msg_namelen = ba.len, .msg_iov = out, .msg_iovlen = 3 };

	T(t, sk_sendmsg(a, &m, 0));
	m = (struct msghdr){ .msg_iov = in, .msg_iovlen = 4 };
	T(t, sk_recvmsg(b, &m, 0));
	T(t, m.msg_flags);
	T(t, !memcmp(x, "abh", 3) && !memcmp(z, "cdefg", 5));
	m = (struct msghdr){ .msg_iov = NULL, .msg_iovlen = 0, .msg_name = &ba.ss, .msg_namelen = ba.len };
	T(t, sk_sendmsg(a, &m, 0));
	m = (struct msghdr){ .msg_iov = in, .msg_iovlen = 4 };
	T(t, sk_recvmsg(b, &m, 0));
	sk_close(a);
	sk_close(b);
}

/* The oracle is worth something only if ours are really offloaded. */
TEST(ours_are_offloaded)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_bound(&our_side, AF_INET6, &aa), c = sk_open(&our_side, AF_INET);
	char text[128];

	CHECK(is_offloaded(a));
	CHECK(is_offloaded(b));
	CHECK_EQ(pyvma_sock_offload(c.h, text, sizeof(text)), PYVMA_UNDECIDED);
	CHECK_EQ(sk_connect(c, ip("10.9.0.1", 1)), 0);
	CHECK_EQ(pyvma_sock_offload(c.h, text, sizeof(text)), PYVMA_OFFLOADED);
	CHECK(!strncmp(text, "softnic:", 8));
	sk_close(a);
	sk_close(b);
	sk_close(c);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
