/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams among threads, at a close, in a forked child, when the engine stops; and what an exported fd shows. What a stream does to
 * somebody who uses it alone the contract tests say (tests/contract/test_tcp.py), with the kernel's as oracle. */
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/compiler.h"
#include "rt/engine.h"
#include "sock_env.h"

static struct sockaddr_in at(const char *host, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	CHECK_EQ(inet_pton(AF_INET, host, &a.sin_addr), 1);
	return a;
}

static pyvma_sock *stream(void)
{
	pyvma_sock *s;

	env_start();
	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &s), 0);
	return s;
}

static pyvma_sock *listener(struct sockaddr_in *name)
{
	struct sockaddr_in a = at("10.9.0.1", 0);
	socklen_t len = sizeof(*name);
	pyvma_sock *s = stream();
	char text[64];

	CHECK_EQ(pyvma_sock_bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(pyvma_sock_listen(s, 64), 0);
	CHECK_EQ(pyvma_sock_getsockname(s, (struct sockaddr *)name, &len), 0);
	CHECK_EQ(pyvma_sock_offload(s, text, sizeof(text)), PYVMA_OFFLOADED);
	return s;
}

struct pair {
	pyvma_sock *listener, *server, *client;
};

static struct pair make_pair(void)
{
	struct sockaddr_in name;
	struct pair p = { .listener = listener(&name), .client = stream() };

	CHECK_EQ(pyvma_sock_connect(p.client, (struct sockaddr *)&name, sizeof(name), LONG_NS), 0);
	CHECK_EQ(pyvma_sock_accept(p.listener, NULL, NULL, 0, LONG_NS, &p.server), 0);
	return p;
}

static void close_pair(struct pair *p)
{
	CHECK_EQ(pyvma_sock_close(p->client), 0);
	CHECK_EQ(pyvma_sock_close(p->server), 0);
	CHECK_EQ(pyvma_sock_close(p->listener), 0);
}

static void recv_whole(pyvma_sock *s, void *buf, size_t len)
{
	CHECK_EQ(pyvma_sock_recv(s, buf, len, MSG_WAITALL, LONG_NS), (int64_t)len);
}

/* ---- threads ----------------------------------------------------------------------------------------------------------- */

#define ECHOES 300
#define CLIENTS 3

static void *echo(void *arg)
{
	char buf[1000];
	int64_t n;

	while ((n = pyvma_sock_recv(arg, buf, sizeof(buf), 0, LONG_NS)) > 0)
		CHECK_EQ(pyvma_sock_send(arg, buf, (size_t)n, 0, -1), n);
	CHECK_EQ(n, 0);
	CHECK_EQ(pyvma_sock_close(arg), 0);
	return NULL;
}

static void *serve(void *arg)
{
	pthread_t thread[CLIENTS];

	for (int i = 0; i < CLIENTS; i++) {
		pyvma_sock *s;

		CHECK_EQ(pyvma_sock_accept(arg, NULL, NULL, 0, LONG_NS, &s), 0);
		CHECK_EQ(pthread_create(&thread[i], NULL, echo, s), 0);
	}
	for (int i = 0; i < CLIENTS; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
	return NULL;
}

static void *ask(void *arg)
{
	unsigned char out[700], in[700];
	pyvma_sock *s = stream();

	CHECK_EQ(pyvma_sock_connect(s, arg, sizeof(struct sockaddr_in), LONG_NS), 0);
	for (size_t i = 0; i < ECHOES; i++) {
		size_t len = 1 + i * 37 % sizeof(out);

		memset(out, (int)i, len);
		CHECK_EQ(pyvma_sock_send(s, out, len, 0, -1), (int64_t)len);
		recv_whole(s, in, len);
		CHECK_EQ(memcmp(in, out, len), 0);
	}
	CHECK_EQ(pyvma_sock_close(s), 0);
	return NULL;
}

TEST(clients_and_servers_in_threads)
{
	pthread_t server, client[CLIENTS];
	struct sockaddr_in name;
	pyvma_sock *l = listener(&name);

	CHECK_EQ(pthread_create(&server, NULL, serve, l), 0);
	for (int i = 0; i < CLIENTS; i++)
		CHECK_EQ(pthread_create(&client[i], NULL, ask, &name), 0);
	for (int i = 0; i < CLIENTS; i++)
		CHECK_EQ(pthread_join(client[i], NULL), 0);
	CHECK_EQ(pthread_join(server, NULL), 0);
	CHECK_EQ(pyvma_sock_close(l), 0);
}

#define ACCEPTS 50

static void *accept_each(void *arg)
{
	for (int i = 0; i < ACCEPTS; i++) {
		pyvma_sock *s;

		CHECK_EQ(pyvma_sock_accept(arg, NULL, NULL, 0, LONG_NS, &s), 0);
		CHECK_EQ(pyvma_sock_set_nonblock(s, 1), 0);
		CHECK_EQ(pyvma_sock_close(s), 0);
	}
	return NULL;
}

/* At each turn of the wait the kernel's half is asked, and has none: that says nothing of the connection that comes next. */
TEST(a_listener_that_asked_the_kernel_in_vain)
{
	struct sockaddr_in any = at("0.0.0.0", 0), name = at("10.9.0.1", 0);
	socklen_t len = sizeof(any);
	pyvma_sock *l = stream();
	uint32_t ratio = pv_engine.kernel_ratio;
	pthread_t thread;

	pv_engine.kernel_ratio = 1;
	CHECK_EQ(pyvma_sock_bind(l, (struct sockaddr *)&any, sizeof(any)), 0);
	CHECK_EQ(pyvma_sock_listen(l, 64), 0);
	CHECK_EQ(pyvma_sock_getsockname(l, (struct sockaddr *)&any, &len), 0);
	name.sin_port = any.sin_port;
	CHECK_EQ(pthread_create(&thread, NULL, accept_each, l), 0);
	for (int i = 0; i < ACCEPTS; i++) {
		pyvma_sock *s = stream();

		CHECK_EQ(pyvma_sock_connect(s, (struct sockaddr *)&name, sizeof(name), LONG_NS), 0);
		CHECK_EQ(pyvma_sock_close(s), 0);
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(pyvma_sock_close(l), 0);
	pv_engine.kernel_ratio = ratio;
}

#define BULK (3u << 20)

static void *send_bulk(void *arg)
{
	unsigned char buf[10000];
	size_t sent = 0;

	while (sent < BULK) {
		size_t n = PV_MIN(sizeof(buf), BULK - sent);

		for (size_t i = 0; i < n; i++)
			buf[i] = (unsigned char)((sent + i) * 7 + ((sent + i) >> 12));
		CHECK_EQ(pyvma_sock_send(arg, buf, n, 0, -1), (int64_t)n);
		sent += n;
	}
	CHECK_EQ(pyvma_sock_shutdown(arg, SHUT_WR), 0);
	return NULL;
}

TEST(bulk_with_a_slow_reader)
{
	struct pair p = make_pair();
	unsigned char buf[70000];
	pthread_t thread;
	size_t got = 0;
	int64_t n;

	CHECK_EQ(pthread_create(&thread, NULL, send_bulk, p.client), 0);
	while ((n = pyvma_sock_recv(p.server, buf, sizeof(buf), 0, LONG_NS)) > 0) {
		for (size_t i = 0; i < (size_t)n; i++)
			CHECK_EQ(buf[i], (unsigned char)((got + i) * 7 + ((got + i) >> 12)));
		got += (size_t)n;
		if (got % 5 == 0)
			usleep(200);
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(got, BULK);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	close_pair(&p);
}

/* Other sockets have news as soon as the first segments arrive: here the peer itself, which is of the same engine. */
#define LONG_WRITE (256u << 10)

static int64_t long_write(pyvma_sock *s, size_t from, int flags)
{
	static char block[LONG_WRITE];

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i * 11 + (i >> 9));
	return pyvma_sock_send(s, block + from, sizeof(block) - from, flags, flags ? 0 : -1);
}

static void read_long(pyvma_sock *s)
{
	static char block[LONG_WRITE];

	recv_whole(s, block, sizeof(block));
	for (size_t i = 0; i < sizeof(block); i++)
		CHECK_EQ(block[i], (char)(i * 11 + (i >> 9)));
}

TEST(a_long_write_ends_where_others_have_news)
{
	struct pyvma_event ev = { .events = EPOLLOUT | EPOLLET }, out;
	int room = 1 << 20;
	struct pair p = make_pair();
	pyvma_epoll *ep;
	int64_t n;

	CHECK_EQ(pyvma_sock_setsockopt(p.client, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
	CHECK_EQ(pyvma_epoll_open(&ep), 0);
	CHECK_EQ(pyvma_epoll_ctl_sock(ep, EPOLL_CTL_ADD, p.client, &ev), 0);
	CHECK_EQ(pyvma_epoll_wait(ep, &out, 1, LONG_NS), 1);
	n = long_write(p.client, 0, MSG_DONTWAIT);
	CHECK(n > 0 && n < (int64_t)LONG_WRITE);
	/* There is room all the same, and it is told once more. */
	CHECK_EQ(pyvma_epoll_wait(ep, &out, 1, LONG_NS), 1);
	CHECK(out.events & EPOLLOUT);
	CHECK_EQ(long_write(p.client, (size_t)n, 0), (int64_t)LONG_WRITE - n);
	read_long(p.server);
	CHECK_EQ(long_write(p.client, 0, 0), LONG_WRITE);
	read_long(p.server);
	pyvma_epoll_close(ep);
	/* An fd that polls writable all the time cannot tell it. */
	CHECK(pyvma_sock_fileno(p.client) >= 0);
	CHECK_EQ(long_write(p.client, 0, MSG_DONTWAIT), LONG_WRITE);
	read_long(p.server);
	close_pair(&p);
}

/* ---- somebody else ends it --------------------------------------------------------------------------------------------- */

struct waiter {
	pyvma_sock *s;
	bool accepts;
	int64_t rc;
	_Atomic(bool) about;
};

static void *wait_in(void *arg)
{
	struct waiter *w = arg;
	pyvma_sock *out;
	char buf[10];

	w->about = true;
	w->rc = w->accepts ? pyvma_sock_accept(w->s, NULL, NULL, 0, -1, &out) : pyvma_sock_recv(w->s, buf, sizeof(buf), 0, -1);
	return NULL;
}

static pthread_t start_waiter(struct waiter *w)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, wait_in, w), 0);
	while (!w->about)
		usleep(100);
	usleep(20000); /* most likely asleep by now; either way the answer is the same */
	return thread;
}

TEST(a_close_wakes_who_waits)
{
	struct pair p = make_pair();
	struct waiter reader = { .s = p.server }, accepter = { .s = p.listener, .accepts = true };
	pthread_t one = start_waiter(&reader), two = start_waiter(&accepter);

	CHECK_EQ(pyvma_sock_close(p.server), 0);
	CHECK_EQ(pyvma_sock_close(p.listener), 0);
	CHECK_EQ(pyvma_sock_close(p.client), 0);
	CHECK_EQ(pthread_join(one, NULL), 0);
	CHECK_EQ(pthread_join(two, NULL), 0);
	CHECK_EQ(reader.rc, -EBADF);
	CHECK_EQ(accepter.rc, -EBADF);
}

TEST(a_shutdown_wakes_who_waits)
{
	struct pair p = make_pair();
	struct waiter reader = { .s = p.server }, accepter = { .s = p.listener, .accepts = true };
	pthread_t one = start_waiter(&reader), two = start_waiter(&accepter);

	CHECK_EQ(pyvma_sock_shutdown(p.server, SHUT_RD), 0);
	CHECK_EQ(pyvma_sock_shutdown(p.listener, SHUT_RD), 0);
	CHECK_EQ(pthread_join(one, NULL), 0);
	CHECK_EQ(pthread_join(two, NULL), 0);
	CHECK_EQ(reader.rc, 0);
	CHECK_EQ(accepter.rc, -EINVAL);
	close_pair(&p);
}

TEST(a_forked_child_has_no_streams)
{
	struct pair p = make_pair();
	char buf[4];
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		int64_t n = pyvma_sock_send(p.client, "x", 1, MSG_NOSIGNAL, 0);

		_exit(n == -ENOTCONN && pyvma_sock_recv(p.client, buf, 1, 0, 0) == -ENOTCONN && !pyvma_sock_close(p.client) ? 0
															    : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK_EQ(pyvma_sock_send(p.client, "here", 4, 0, -1), 4);
	recv_whole(p.server, buf, 4);
	close_pair(&p);
}

TEST(the_engine_stops)
{
	struct pair p = make_pair();
	struct waiter reader = { .s = p.server };
	pthread_t one = start_waiter(&reader);

	pyvma_stop();
	CHECK_EQ(pthread_join(one, NULL), 0);
	CHECK_EQ(reader.rc, -ENETDOWN);
	CHECK_EQ(pyvma_sock_send(p.client, "x", 1, MSG_NOSIGNAL, 0), -ENETDOWN);
	close_pair(&p);
	*env_fabric = '\0';
}

/* ---- readiness --------------------------------------------------------------------------------------------------------- */

static int shows(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };

	CHECK(poll(&p, 1, timeout_ms) >= 0);
	return p.revents & (POLLIN | POLLOUT);
}

/* Until the fd shows that; it may be on its way. */
static void await(int fd, int want)
{
	for (int i = 0; i < 30000 && shows(fd, 0) != want; i++)
		usleep(1000);
	CHECK_EQ(shows(fd, 0), want);
}

TEST(an_exported_fd_shows_both_directions)
{
	struct pair p = make_pair();
	static char block[65536];
	int fd = pyvma_sock_fileno(p.client), lfd = pyvma_sock_fileno(p.listener);
	int64_t n, sent = 0, got = 0;

	CHECK(fd >= 0 && lfd >= 0);
	await(fd, POLLOUT);
	CHECK_EQ(shows(lfd, 0) & POLLIN, 0);
	CHECK_EQ(pyvma_sock_send(p.server, "x", 1, 0, -1), 1);
	await(fd, POLLIN | POLLOUT);
	CHECK_EQ(pyvma_sock_recv(p.client, block, 10, 0, LONG_NS), 1);
	await(fd, POLLOUT);
	for (;;) {
		n = pyvma_sock_send(p.client, block, sizeof(block), MSG_DONTWAIT, 0);
		sent += PV_MAX(n, INT64_C(0));
		if (n < 0 && shows(fd, 300) == 0)
			break;
	}
	while (got < sent) {
		n = pyvma_sock_recv(p.server, block, sizeof(block), 0, LONG_NS);
		CHECK(n > 0);
		got += n;
	}
	await(fd, POLLOUT);
	CHECK_EQ(pyvma_sock_close(p.server), 0);
	await(fd, POLLIN | POLLOUT);
	CHECK_EQ(pyvma_sock_recv(p.client, block, 1, 0, LONG_NS), 0);
	CHECK_EQ(pyvma_sock_close(p.client), 0);
	CHECK_EQ(pyvma_sock_close(p.listener), 0);
}

TEST(poll_on_one_socket)
{
	struct pair p = make_pair();
	pyvma_sock *none;
	char buf[4];

	CHECK_EQ(pyvma_sock_poll(p.client, POLLIN | POLLOUT, LONG_NS), POLLOUT);
	CHECK_EQ(pyvma_sock_poll(p.client, POLLIN, 1000000), 0);
	CHECK_EQ(pyvma_sock_send(p.server, "abcd", 4, 0, -1), 4);
	CHECK_EQ(pyvma_sock_poll(p.client, POLLIN, LONG_NS), POLLIN);
	recv_whole(p.client, buf, 4);
	CHECK_EQ(pyvma_sock_accept(p.listener, NULL, NULL, 0, 0, &none), -EAGAIN);
	CHECK_EQ(pyvma_sock_accept(p.listener, NULL, NULL, 0, 1000000, &none), -EAGAIN);
	CHECK_EQ(pyvma_sock_recv(p.client, buf, 1, MSG_DONTWAIT, -1), -EAGAIN);
	CHECK_EQ(pyvma_sock_recv(p.client, buf, 1, 0, 1000000), -EAGAIN);
	close_pair(&p);
}

static volatile sig_atomic_t pipes;

static void on_pipe(int sig)
{
	(void)sig;
	pipes = pipes + 1;
}

TEST(a_broken_pipe_raises_its_signal)
{
	struct sigaction sa = { .sa_handler = on_pipe }, old;
	struct pair p = make_pair();

	sigaction(SIGPIPE, &sa, &old);
	CHECK_EQ(pyvma_sock_shutdown(p.client, SHUT_WR), 0);
	CHECK_EQ(pyvma_sock_send(p.client, "x", 1, MSG_NOSIGNAL, 0), -EPIPE);
	CHECK_EQ(pipes, 0);
	CHECK_EQ(pyvma_sock_send(p.client, "x", 1, 0, 0), -EPIPE);
	CHECK_EQ(pipes, 1);
	sigaction(SIGPIPE, &old, NULL);
	close_pair(&p);
}

/* ---- lending ----------------------------------------------------------------------------------------------------------- */

static void check_bulk(const struct pyvma_msg *m, size_t at)
{
	const unsigned char *p = m->base;

	CHECK(m->len > 0);
	CHECK_EQ(m->addrlen, 0);
	for (size_t i = 0; i < m->len; i++)
		CHECK_EQ(p[i], (unsigned char)((at + i) * 7 + ((at + i) >> 12)));
}

TEST(pieces_are_lent_in_order)
{
	struct pair p = make_pair();
	struct pyvma_msg m[7];
	pthread_t thread;
	size_t got = 0;
	int n;

	CHECK_EQ(pthread_create(&thread, NULL, send_bulk, p.client), 0);
	while ((n = pyvma_sock_recv_lent(p.server, m, pv_array_size(m), 0, LONG_NS)) > 0) {
		for (int i = 0; i < n; i++) {
			check_bulk(&m[i], got);
			got += m[i].len;
		}
		pyvma_batch_release(m, (uint32_t)n);
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(got, BULK);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m, 1, 0, LONG_NS), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	close_pair(&p);
}

#define SMALL 300u /* one buffer each: too much for the room that another has left */
#define SMALLS 20000u

static void *send_smalls(void *arg)
{
	unsigned char buf[SMALL];

	for (uint32_t i = 0; i < SMALLS; i++) {
		memset(buf, (int)(i % 251), sizeof(buf));
		CHECK_EQ(pyvma_sock_send(arg, buf, sizeof(buf), MSG_EOR, -1), (int64_t)sizeof(buf));
	}
	CHECK_EQ(pyvma_sock_shutdown(arg, SHUT_WR), 0);
	return NULL;
}

/* Returns how far the stream is now. */
static size_t check_smalls(const struct pyvma_msg *m, int n, size_t at)
{
	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < m[i].len; k++, at++)
			CHECK_EQ(((unsigned char *)m[i].base)[k], at / SMALL % 251);
	return at;
}

TEST(at_most_half_of_the_buffers_are_lent)
{
	struct pyvma_msg *m = calloc(2 * SMALLS, sizeof(*m));
	struct pair p = make_pair();
	int n, one = 1, kept = 0;
	unsigned char copy[1000];
	pthread_t thread;
	size_t got;

	CHECK(m);
	CHECK_EQ(pyvma_sock_setsockopt(p.client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	CHECK_EQ(pthread_create(&thread, NULL, send_smalls, p.client), 0);
	while ((n = pyvma_sock_recv_lent(p.server, m + kept, 64, 0, LONG_NS)) > 0)
		CHECK((kept += n) < (int)SMALLS);
	CHECK_EQ(n, -ENOBUFS);
	CHECK(kept > 100);
	/* Copies are to be had all the time, and what is lent stays as it is. */
	recv_whole(p.server, copy, sizeof(copy));
	got = check_smalls(m, kept, 0);
	got = check_smalls(&(struct pyvma_msg){ .base = copy, .len = sizeof(copy) }, 1, got);
	pyvma_batch_release(m, (uint32_t)kept);
	while ((n = pyvma_sock_recv_lent(p.server, m, 64, 0, LONG_NS)) > 0) {
		got = check_smalls(m, n, got);
		pyvma_batch_release(m, (uint32_t)n);
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(got, SMALLS * SMALL);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	close_pair(&p);
	free(m);
}

TEST(lending_says_what_a_read_says)
{
	struct linger off = { 1, 0 };
	struct pair p = make_pair();
	pyvma_sock *fresh = stream();
	struct pyvma_msg m[4];

	CHECK_EQ(pyvma_sock_recv_lent(p.server, m, 4, MSG_DONTWAIT, -1), -EAGAIN);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m, 4, 0, 0), -EAGAIN);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m, 4, 0, NS_MS), -EAGAIN);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m, 4, MSG_PEEK, -1), -EINVAL);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m, 0, 0, -1), 0);
	CHECK_EQ(pyvma_sock_recv_lent(p.listener, m, 4, 0, -1), -ENOTCONN);
	CHECK_EQ(pyvma_sock_recv_lent(fresh, m, 4, 0, -1), -EOPNOTSUPP);
	CHECK_EQ(pyvma_sock_close(fresh), 0);
	/* An error does not take the place of what came before it. */
	CHECK_EQ(pyvma_sock_send(p.client, "last words", 10, 0, -1), 10);
	CHECK_EQ(pyvma_sock_poll(p.server, POLLIN, LONG_NS), POLLIN);
	CHECK_EQ(pyvma_sock_setsockopt(p.client, SOL_SOCKET, SO_LINGER, &off, sizeof(off)), 0);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m, 4, 0, LONG_NS), 1);
	CHECK(m[0].len == 10 && !memcmp(m[0].base, "last words", 10));
	CHECK_EQ(pyvma_sock_close(p.client), 0);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m + 1, 3, 0, LONG_NS), -ECONNRESET);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m + 1, 3, 0, LONG_NS), 0);
	/* It stays when the socket goes. */
	CHECK_EQ(pyvma_sock_close(p.server), 0);
	CHECK_EQ(pyvma_sock_close(p.listener), 0);
	CHECK(!memcmp(m[0].base, "last words", 10));
	pyvma_batch_release(m, 1);
}

TEST(lent_pieces_end_at_the_urgent_byte)
{
	struct pair p = make_pair();
	struct pyvma_msg m[4];
	char urgent;

	CHECK_EQ(pyvma_sock_send(p.client, "before", 6, 0, -1), 6);
	CHECK_EQ(pyvma_sock_send(p.client, "!", 1, MSG_OOB, -1), 1);
	CHECK_EQ(pyvma_sock_send(p.client, "after", 5, 0, -1), 5);
	CHECK_EQ(pyvma_sock_shutdown(p.client, SHUT_WR), 0);
	CHECK_EQ(pyvma_sock_poll(p.server, POLLRDHUP, LONG_NS), POLLRDHUP);
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m, 4, 0, LONG_NS), 1);
	CHECK(m[0].len == 6 && !memcmp(m[0].base, "before", 6));
	CHECK_EQ(pyvma_sock_recv(p.server, &urgent, 1, MSG_OOB, -1), 1);
	CHECK_EQ(urgent, '!');
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m + 1, 3, 0, LONG_NS), 1);
	CHECK(m[1].len == 5 && !memcmp(m[1].base, "after", 5));
	CHECK_EQ(pyvma_sock_recv_lent(p.server, m + 2, 2, 0, LONG_NS), 0);
	pyvma_batch_release(m, 2);
	close_pair(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
