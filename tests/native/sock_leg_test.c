/* SPDX-License-Identifier: BSD-3-Clause */
/* Offloaded or not, and why; sockets with two legs; batches and lent buffers; strict mode; counters. */
#include <arpa/inet.h>

#include "rt/engine.h"
#include "sock_env.h"

static const char *why(struct sk s, int *state)
{
	static char text[160];

	*state = pyvma_sock_offload(s.h, text, sizeof(text));
	return text;
}

#define EXPECT(s, want_state, part)                                                                                                \
	do {                                                                                                                       \
		int state_;                                                                                                        \
		const char *text_ = why(s, &state_);                                                                               \
		if (state_ != (want_state) || !strstr(text_, part))                                                                \
			fprintf(stderr, "%d %s\n", state_, text_);                                                                 \
		CHECK_EQ(state_, want_state);                                                                                      \
		CHECK(strstr(text_, part));                                                                                        \
	} while (0)

TEST(decided_by_bind)
{
	struct sk s = sk_open(&our_side, AF_INET);

	EXPECT(s, PYVMA_UNDECIDED, "not decided");
	CHECK_EQ(sk_bind(s, ip("127.0.0.1", 0)), 0);
	EXPECT(s, PYVMA_KERNEL, "address 127.0.0.1 is the kernel's");
	sk_close(s);
	s = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_bind(s, ip("10.9.1.1", 0)), 0);
	EXPECT(s, PYVMA_OFFLOADED, "_1/1");
	sk_close(s);
	s = sk_open(&our_side, AF_INET6);
	CHECK_EQ(sk_bind(s, ip("::1", 0)), 0);
	EXPECT(s, PYVMA_KERNEL, "address ::1 is the kernel's");
	sk_close(s);
	s = sk_open(&our_side, AF_INET6);
	CHECK_EQ(sk_bind(s, ip("::", 0)), 0);
	EXPECT(s, PYVMA_OFFLOADED, "softnic:");
	sk_close(s);
}

TEST(decided_by_connect_and_send)
{
	struct sk s = sk_open(&our_side, AF_INET);

	CHECK_EQ(sk_connect(s, ip("127.0.0.1", 9)), 0);
	EXPECT(s, PYVMA_KERNEL, "127.0.0.1");
	sk_close(s);
	s = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_connect(s, ip("10.9.0.200", 9)), 0);
	EXPECT(s, PYVMA_OFFLOADED, "softnic:");
	sk_close(s);
	s = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_sendto(s, "x", 1, 0, ip("127.0.0.1", 9)), 1);
	EXPECT(s, PYVMA_KERNEL, "127.0.0.1");
	sk_close(s);
	s = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_sendto(s, "x", 1, 0, ip("10.9.0.1", 9)), 1);
	EXPECT(s, PYVMA_OFFLOADED, "softnic:");
	sk_close(s);
}

TEST(other_families_and_types)
{
	static const struct {
		int family, type;
		const char *text;
	} kinds[] = { { AF_UNIX, SOCK_SEQPACKET, "AF_UNIX: kernel" },
		      { AF_NETLINK, SOCK_DGRAM, "address family: kernel" },
		      { AF_UNIX, SOCK_DGRAM, "AF_UNIX: kernel" },
		      { AF_UNIX, SOCK_STREAM, "AF_UNIX: kernel" } };

	for (int i = 0; i < 4; i++) {
		struct sk s = { &our_side, -1, NULL };

		CHECK_EQ(pyvma_sock_open(kinds[i].family, kinds[i].type, 0, &s.h), 0);
		EXPECT(s, PYVMA_KERNEL, kinds[i].text);
		sk_close(s);
	}
	pyvma_sock *h;

	CHECK_EQ(pyvma_sock_open(12345, SOCK_DGRAM, 0, &h), -EAFNOSUPPORT);
	CHECK_EQ(pyvma_sock_open(AF_INET, 77, 0, &h), -EINVAL);
}

/* Both legs, spinning, sleeping and not waiting at all. */
TEST(two_legs)
{
	static const int64_t spins[] = { 0, 100000, PV_NEVER };

	env_start();
	for (int i = 0; i < 3; i++) {
		struct sk a = sk_open(&our_side, AF_INET), b = sk_open(&our_side, AF_INET), k = sk_open(&kernel_side, AF_INET);
		struct any_addr name, from;
		struct pyvma_sock_stats st;
		char buf[16];

		pv_engine.spin_ns = spins[i];
		CHECK_EQ(sk_bind(a, ip("0.0.0.0", 0)), 0);
		CHECK_EQ(sk_name(a, &name), 0);
		int port = addr_port(&name);

		for (int round = 0; round < 20; round++) {
			CHECK_EQ(sk_sendto(k, "kernel", 6, 0, ip("127.0.0.1", port)), 6);
			CHECK_EQ(sk_recvfrom(a, buf, sizeof(buf), 0, &from), 6);
			CHECK_EQ(((struct sockaddr_in *)&from.ss)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
			CHECK_EQ(sk_sendto(a, "back", 4, 0, from), 4); /* by the leg that it came by */
			CHECK_EQ(recv(k.fd, buf, sizeof(buf), 0), 4);
			CHECK_EQ(sk_sendto(b, "core", 4, 0, ip("10.9.0.1", port)), 4);
			CHECK_EQ(sk_recvfrom(a, buf, sizeof(buf), 0, &from), 4);
			CHECK_EQ(sk_sendto(a, "back", 4, 0, from), 4);
			CHECK_EQ(sk_recv(b, buf, sizeof(buf), 0), 4);
		}
		/* While the stack's leg is busy the other is heard too. */
		CHECK_EQ(sk_sendto(k, "kernel", 6, 0, ip("127.0.0.1", port)), 6);
		bool heard = false;

		for (int n = 0; n < 5000 && !heard; n++) {
			CHECK_EQ(sk_sendto(b, "core", 4, 0, ip("10.9.0.1", port)), 4);
			heard = sk_recv(a, buf, sizeof(buf), 0) == 6;
		}
		CHECK(heard);
		CHECK_EQ(pyvma_sock_stats(a.h, &st), 0);
		CHECK_EQ(st.kernel_rx_datagrams, 21);
		CHECK_EQ(st.kernel_tx_datagrams, 20);
		CHECK(st.rx_datagrams >= 20);
		sk_close(a);
		sk_close(b);
		sk_close(k);
	}
}

TEST(connecting_chooses_a_leg)
{
	struct sk a = sk_open(&our_side, AF_INET), k = sk_open(&kernel_side, AF_INET), b = sk_open(&our_side, AF_INET);
	struct any_addr name, kname, peer;
	char buf[16];

	CHECK_EQ(sk_bind(k, ip("127.0.0.1", 0)), 0);
	CHECK_EQ(sk_name(k, &kname), 0);
	CHECK_EQ(sk_bind(a, ip("0.0.0.0", 0)), 0);
	CHECK_EQ(sk_name(a, &name), 0);
	CHECK_EQ(sk_connect(a, kname), 0);
	CHECK_EQ(sk_peer(a, &peer), 0);
	CHECK_EQ(addr_port(&peer), addr_port(&kname));
	CHECK_EQ(sk_send(a, "to kernel", 9, 0), 9);
	CHECK_EQ(recv(k.fd, buf, sizeof(buf), 0), 9);
	/* A stranger by the other leg is not heard. */
	CHECK_EQ(sk_sendto(b, "stranger", 8, 0, ip("10.9.0.1", addr_port(&name))), 8);
	CHECK_EQ(sk_sendto(k, "peer", 4, 0, ip("127.0.0.1", addr_port(&name))), 4);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), 0), 4);
	CHECK_EQ(sk_recv(a, buf, sizeof(buf), MSG_DONTWAIT), -EAGAIN);
	CHECK_EQ(sk_disconnect(a), 0);
	CHECK_EQ(sk_peer(a, &peer), -ENOTCONN);
	sk_close(a);
	sk_close(b);
	sk_close(k);
}

TEST(the_kernel_keeps_the_port)
{
	struct sk a = sk_open(&our_side, AF_INET), k = sk_open(&kernel_side, AF_INET);
	struct any_addr name;

	CHECK_EQ(sk_bind(a, ip("0.0.0.0", 0)), 0);
	CHECK_EQ(sk_name(a, &name), 0);
	CHECK_EQ(sk_bind(k, ip("127.0.0.1", addr_port(&name))), -EADDRINUSE);
	sk_close(a);
	CHECK_EQ(sk_bind(k, ip("0.0.0.0", addr_port(&name))), 0);
	/* And the other way round. */
	a = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_bind(a, ip("0.0.0.0", addr_port(&name))), -EADDRINUSE);
	CHECK_EQ(sk_bind(a, ip("0.0.0.0", 0)), 0);
	EXPECT(a, PYVMA_OFFLOADED, "softnic:");
	/* The bare fd says the truth about a bound address of ours. */
	struct sk c = sk_bound(&our_side, AF_INET, &name);
	struct sockaddr_in in;
	socklen_t len = sizeof(in);

	CHECK_EQ(getsockname(c.fd, (struct sockaddr *)&in, &len), 0);
	CHECK_EQ(ntohs(in.sin_port), addr_port(&name));
	CHECK_EQ(in.sin_addr.s_addr, inet_addr("10.9.0.1"));
	sk_close(a);
	sk_close(c);
	sk_close(k);
}

/* ---- batches ----------------------------------------------------------------------------------------------------------- */

#define BATCH 40

static void batch_out(struct pyvma_msg *m, char (*bufs)[64], const struct any_addr *to)
{
	for (int i = 0; i < BATCH; i++) {
		m[i] = (struct pyvma_msg){ .base = bufs[i], .len = (uint32_t)(i % 60), .addrlen = to ? to->len : 0 };
		memset(bufs[i], 'a' + i % 26, 64);
		if (to)
			m[i].addr = to->ss;
	}
}

static void batch_check(struct pyvma_msg *m, int first, int n, const struct any_addr *from)
{
	for (int i = 0; i < n; i++) {
		int k = first + i;

		CHECK_EQ(m[i].len, k % 60);
		for (uint32_t b = 0; b < m[i].len; b++)
			CHECK_EQ(((char *)m[i].base)[b], 'a' + k % 26);
		CHECK_EQ(m[i].addrlen, from->len);
		CHECK(!memcmp(&m[i].addr, &from->ss, from->len));
		CHECK_EQ(m[i].flags, 0);
	}
}

static void batches(const struct side *side, bool lent)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(side, AF_INET, &aa), b = sk_bound(side, AF_INET, &ba);
	struct pyvma_msg m[BATCH];
	static char out[BATCH][64], in[BATCH][64];
	int got = 0;

	/* Kernel sockets go through handles here as well. */
	if (!side->ours) {
		CHECK_EQ(pyvma_sock_adopt(a.fd, &a.h), 0);
		CHECK_EQ(pyvma_sock_adopt(b.fd, &b.h), 0);
	}
	batch_out(m, out, &ba);
	CHECK_EQ(pyvma_sock_send_batch(a.h, m, BATCH, 0, -1), BATCH);
	while (got < BATCH) {
		for (int i = 0; i < BATCH; i++)
			m[i] = (struct pyvma_msg){ .base = in[i], .len = 64 };
		int n = lent ? pyvma_sock_recv_lent(b.h, m, BATCH, 0, LONG_NS) : pyvma_sock_recv_batch(b.h, m, BATCH, 0, LONG_NS);

		CHECK(n > 0 && got + n <= BATCH);
		batch_check(m, got, n, &aa);
		CHECK(m[0].arrival_ns > 0);
		got += n;
		if (lent) {
			CHECK(m[0].lent);
			pyvma_batch_release(m, (uint32_t)n);
			CHECK(!m[0].lent);
		}
	}
	CHECK_EQ(pyvma_sock_recv_batch(b.h, m, BATCH, MSG_DONTWAIT, -1), -EAGAIN);
	CHECK_EQ(pyvma_sock_recv_batch(b.h, m, BATCH, 0, 5 * NS_MS), -EAGAIN);
	/* Connected, without addresses; and an error in the middle. */
	CHECK_EQ(sk_connect(a, ba), 0);
	batch_out(m, out, NULL);
	m[3].len = 70000;
	CHECK_EQ(pyvma_sock_send_batch(a.h, m, BATCH, 0, -1), 3);
	CHECK_EQ(pyvma_sock_send_batch(a.h, m + 3, BATCH - 3, 0, -1), -EMSGSIZE);
	/* Truncation. */
	char small[4];

	m[0] = (struct pyvma_msg){ .base = out[0], .len = 10 };
	CHECK_EQ(pyvma_sock_send_batch(a.h, m, 1, 0, -1), 1);
	for (int i = 0; i < 4; i++) {
		m[0] = (struct pyvma_msg){ .base = small, .len = sizeof(small) };
		CHECK_EQ(pyvma_sock_recv_batch(b.h, m, 1, 0, LONG_NS), 1);
	}
	CHECK_EQ(m[0].len, 4);
	CHECK_EQ(m[0].flags, MSG_TRUNC);
	sk_close(a);
	sk_close(b);
}

TEST(batches_of_the_kernel)
{
	env_start();
	batches(&kernel_side, false);
}

TEST(batches_of_ours)
{
	batches(&our_side, false);
}

TEST(lent)
{
	batches(&our_side, true);
}

TEST(lent_fragments_and_limits)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_bound(&our_side, AF_INET, &ba);
	static char big[5000];
	struct pyvma_msg m;
	static struct pyvma_msg held[100000];

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 31);
	CHECK_EQ(sk_sendto(a, big, sizeof(big), 0, ba), (int64_t)sizeof(big));
	CHECK_EQ(pyvma_sock_recv_lent(b.h, &m, 1, 0, LONG_NS), 1);
	CHECK_EQ(m.len, sizeof(big));
	CHECK(!memcmp(m.base, big, sizeof(big)));
	pyvma_batch_release(&m, 1);
	/* At most half of the buffers may be away. */
	int n = 0, rc = 0;

	for (; n < 100000; n++) {
		CHECK_EQ(sk_sendto(a, big, 100, 0, ba), 100);
		rc = pyvma_sock_recv_lent(b.h, &held[n], 1, 0, LONG_NS);
		if (rc != 1)
			break;
	}
	CHECK_EQ(rc, -ENOBUFS);
	CHECK(n > 500);
	/* A batch for more than may be lent takes what may be. */
	pyvma_batch_release(&held[--n], 1);
	CHECK_EQ(pyvma_sock_recv_lent(b.h, &held[n], 16, 0, LONG_NS), 1);
	CHECK_EQ(sk_sendto(a, big, 100, 0, ba), 100);
	n++;
	/* The socket still works by copying, and lends again once something came back. */
	CHECK_EQ(sk_recv(b, big, sizeof(big), 0), 100);
	pyvma_batch_release(held, (uint32_t)n);
	CHECK_EQ(sk_sendto(a, big, 100, 0, ba), 100);
	CHECK_EQ(pyvma_sock_recv_lent(b.h, &m, 1, 0, LONG_NS), 1);
	/* Lent buffers outlive their socket. */
	sk_close(b);
	CHECK_EQ(m.len, 100);
	pyvma_batch_release(&m, 1);
	sk_close(a);
	struct sk k = sk_open(&our_side, AF_INET);

	CHECK_EQ(sk_bind(k, ip("127.0.0.1", 0)), 0);
	CHECK_EQ(pyvma_sock_recv_lent(k.h, &m, 1, MSG_DONTWAIT, 0), -EOPNOTSUPP);
	sk_close(k);
}

/* ---- what the engine tells --------------------------------------------------------------------------------------------- */

static uint64_t counter(const char *name)
{
	struct pyvma_counter c;

	for (unsigned int i = 0; pyvma_counter_get(i, &c) == 0; i++)
		if (!strcmp(c.name, name))
			return c.value;
	fprintf(stderr, "no counter %s\n", name);
	exit(1);
}

TEST(counters_and_interfaces)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);
	uint64_t before = counter("udp.rx_datagrams");
	struct pyvma_interface ifc;
	char b;

	CHECK_EQ(sk_sendto(a, "x", 1, 0, aa), 1);
	CHECK_EQ(sk_recv(a, &b, 1, 0), 1);
	CHECK_EQ(counter("udp.rx_datagrams"), before + 1);
	CHECK(counter("pool.sn0.total") >= 1024);
	CHECK(counter("engine.polls") > 0);
	counter("ring.sn1.tx_packets");
	counter("net.rx_frames");
	CHECK_EQ(pyvma_interface_get(1, &ifc), 0);
	CHECK(!strcmp(ifc.name, "sn0") && !strncmp(ifc.ring, "softnic:", 8));
	CHECK(ifc.mtu == 1500 && ifc.naddr >= 2 && ifc.link_up && ifc.rx_depth >= 16);
	CHECK_EQ(((struct sockaddr_in *)&ifc.addr[0])->sin_addr.s_addr, inet_addr("10.9.0.1"));
	CHECK_EQ(ifc.prefix_len[0], 24);
	CHECK_EQ(pyvma_interface_get(3, &ifc), -ENOENT);
	CHECK_EQ(pyvma_interface_get(0, &ifc), -ENOENT);
	sk_close(a);
}

/* Calls that wait while the engine stops: asleep, spinning, leading, following. */
#define STOPPED 4

static void *recv_until_stop(void *arg)
{
	struct sk *s = arg;
	char b;
	int64_t n = pyvma_sock_recv(s->h, &b, 1, 0, LONG_NS);

	if (n != -ENETDOWN)
		fprintf(stderr, "%lld\n", (long long)n);
	CHECK_EQ(n, -ENETDOWN);
	return NULL;
}

/* Last: it ends the engine of this process. */
TEST(zz_stop)
{
	pthread_t t[STOPPED];
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), k = sk_open(&our_side, AF_INET), s;
	struct pyvma_interface ifc;
	char b, text[128];

	CHECK_EQ(sk_bind(k, ip("127.0.0.1", 0)), 0);
	CHECK_EQ(pyvma_sock_fileno(a.h), a.fd);
	for (int i = 0; i < STOPPED; i++) {
		bool led = false;

		pv_lock_get(&pv_engine.lock);
		pv_engine.spin_ns = i < 2 ? 0 : PV_NEVER;
		pv_lock_put(&pv_engine.lock);
		CHECK_EQ(pthread_create(&t[i], NULL, recv_until_stop, &a), 0);
		/* One leads before the others come; where those have got to does not matter. */
		while (!led) {
			usleep(1000);
			pv_lock_get(&pv_engine.lock);
			led = pv_engine.leader != NULL;
			pv_lock_put(&pv_engine.lock);
		}
	}
	pyvma_stop();
	for (int i = 0; i < STOPPED; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(pv_engine.interest, 0);
	CHECK_EQ(pv_engine.exports, 0);
	CHECK_EQ(pyvma_interface_get(1, &ifc), -ENOENT);
	CHECK_EQ(sk_recv(a, &b, 1, 0), -ENETDOWN);
	CHECK_EQ(sk_sendto(a, "x", 1, 0, aa), -ENETDOWN);
	CHECK_EQ(sk_connect(a, aa), -ENETDOWN);
	CHECK_EQ(pyvma_sock_offload(a.h, text, sizeof(text)), PYVMA_KERNEL);
	CHECK(strstr(text, "stopped"));
	CHECK_EQ(sk_close(a), 0);
	CHECK_EQ(sk_close(k), 0);
	/* Strict: no socket of the kernel's unasked. */
	CHECK_EQ(pyvma_config_set("strict", "1"), 0);
	CHECK_EQ(pyvma_start(), 0);
	s = sk_open(&our_side, AF_INET);
	CHECK_EQ(sk_bind(s, ip("127.0.0.1", 0)), -EOPNOTSUPP);
	CHECK(strstr(pyvma_last_error(), "127.0.0.1"));
	CHECK_EQ(sk_connect(s, ip("127.0.0.1", 9)), -EOPNOTSUPP);
	CHECK_EQ(sk_sendto(s, "x", 1, 0, ip("127.0.0.1", 9)), -EOPNOTSUPP);
	CHECK_EQ(sk_bind(s, ip("10.9.0.1", 0)), 0);
	EXPECT(s, PYVMA_OFFLOADED, "softnic:");
	sk_close(s);
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("offload", "0"), 0);
	s = (struct sk){ &our_side, -1, NULL };
	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_DGRAM, 0, &s.h), 0);
	EXPECT(s, PYVMA_KERNEL, "no interface");
	CHECK_EQ(sk_bind(s, ip("127.0.0.1", 0)), 0);
	sk_close(s);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
