/* SPDX-License-Identifier: BSD-3-Clause */
/* Thousands of streams: they take no fd, little memory, and leave nothing behind. */
#include <dirent.h>
#include <malloc.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "rt/wait.h"
#include "rt/engine.h"
#include "rt/stats.h"
#include "rt/stats_types.h"
#include "sock/shown.h"
#include "sock_env.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(PV_DEBUG)
#define COUNT 1000
#define HEAP_TELLS false
#else
#define COUNT 5000
#define HEAP_TELLS true
#endif
#define EACH_MAX 2048 /* bytes of one end of an idle connection */

static pyvma_sock *client[COUNT], *server[COUNT];

static int fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Bytes of the heap, its mapped blocks too, and of what is shown. */
static size_t used(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd + pv_stats_used();
}

static pyvma_sock *listener(struct sockaddr_in *name)
{
	struct any_addr a = ip("10.9.0.1", 0);
	socklen_t len = sizeof(*name);
	pyvma_sock *s;

	env_start();
	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &s), 0);
	CHECK_EQ(pyvma_sock_bind(s, (struct sockaddr *)&a.ss, a.len), 0);
	CHECK_EQ(pyvma_sock_listen(s, 64), 0);
	CHECK_EQ(pyvma_sock_getsockname(s, (struct sockaddr *)name, &len), 0);
	return s;
}

static void open_all(pyvma_sock *l, const struct sockaddr_in *to)
{
	char buf[8];
	int one = 1;

	for (int i = 0; i < COUNT; i++) {
		CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &client[i]), 0);
		CHECK_EQ(pyvma_sock_setsockopt(client[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
		CHECK_EQ(pyvma_sock_connect(client[i], (const struct sockaddr *)to, sizeof(*to), LONG_NS), 0);
		CHECK_EQ(pyvma_sock_accept(l, NULL, NULL, SOCK_CLOEXEC, LONG_NS, &server[i]), 0);
		CHECK_EQ(pyvma_sock_send(client[i], &i, sizeof(i), 0, LONG_NS), (int64_t)sizeof(i));
		CHECK_EQ(pyvma_sock_recv(server[i], buf, sizeof(buf), 0, LONG_NS), (int64_t)sizeof(i));
		CHECK_EQ(memcmp(buf, &i, sizeof(i)), 0);
	}
}

/* Ends in TIME_WAIT at the clients. */
static void close_all(void)
{
	char byte;

	for (int i = 0; i < COUNT; i++) {
		CHECK_EQ(pyvma_sock_close(client[i]), 0);
		CHECK_EQ(pyvma_sock_recv(server[i], &byte, 1, 0, LONG_NS), 0);
		CHECK_EQ(pyvma_sock_close(server[i]), 0);
	}
}

static uint32_t living(void)
{
	static const enum pv_tcp_state states[] = { PV_TCP_ESTABLISHED, PV_TCP_FIN_WAIT_1, PV_TCP_FIN_WAIT_2, PV_TCP_CLOSE_WAIT,
						    PV_TCP_LAST_ACK,    PV_TCP_CLOSING,    PV_TCP_SYN_RCVD,   PV_TCP_CLOSED };
	uint32_t n = 0;

	pv_lock_get(&pv_engine.lock);
	for (size_t i = 0; i < pv_array_size(states); i++)
		n += pv_tcp_count(pv_engine.tcp, states[i]);
	pv_lock_put(&pv_engine.lock);
	return n;
}

static void wait_for_none(void)
{
	for (int i = 0; living() && i < 10000; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	CHECK_EQ(living(), 0);
}

static bool thread_asleep(void)
{
	bool asleep;

	pv_lock_get(&pv_engine.lock);
	asleep = pv_engine.progress.asleep && !pv_engine.progress_parked;
	pv_lock_put(&pv_engine.lock);
	return asleep;
}

/* The software NIC makes a socket when a frame first wakes somebody: here one to all hosts, by one interface to the other. Ten times, since
 * the thread wakes up by itself, too. */
static void wake_by_frames(void)
{
	struct any_addr all = ip("224.0.0.1", 9);
	pyvma_sock *s;

	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0, &s), 0);
	for (int n = 0; n < 10; n++) {
		for (int i = 0; !thread_asleep() && i < 10000; i++)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		CHECK_EQ(pyvma_sock_sendto(s, "x", 1, 0, (struct sockaddr *)&all.ss, all.len, LONG_NS), 1);
	}
	CHECK_EQ(pyvma_sock_close(s), 0);
}

TEST(thousands_of_connections_with_no_fd_to_spare)
{
	struct rlimit was, few;
	struct sockaddr_in name;
	pyvma_sock *l = listener(&name);
	size_t before, full;
	int open_before;

	/* The first one makes what all share. */
	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM, 0, &client[0]), 0);
	CHECK_EQ(pyvma_sock_connect(client[0], (struct sockaddr *)&name, sizeof(name), LONG_NS), 0);
	CHECK_EQ(pyvma_sock_accept(l, NULL, NULL, 0, LONG_NS, &server[0]), 0);
	CHECK_EQ(pyvma_sock_close(server[0]), 0);
	CHECK_EQ(pyvma_sock_close(client[0]), 0);
	wait_for_none();
	wake_by_frames();
	CHECK(pv_wait_efd() >= 0); /* a thread that sleeps for the first time makes one to be woken by */
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	open_before = fds();
	few = (struct rlimit){ (rlim_t)open_before + 2, was.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	before = used();
	open_all(l, &name);
	full = used();
	CHECK(fds() <= open_before + 2);
	printf("# %zu bytes for each end of a connection\n", (full - before) / (2 * COUNT));
	CHECK(!HEAP_TELLS || (full - before) / (2 * COUNT) <= EACH_MAX);
	/* Whoever asks for more numbers than there are is told, and the connection goes on. */
	few.rlim_cur = 3;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	CHECK_EQ(pyvma_sock_fileno(server[7]), -EMFILE);
	CHECK_EQ(pyvma_sock_fd(server[7]), -EMFILE);
	CHECK_EQ(pyvma_sock_send(server[7], "x", 1, 0, LONG_NS), 1);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
	CHECK(pyvma_sock_fileno(server[7]) >= 0);
	CHECK(fds() > open_before);
	CHECK_EQ(pyvma_sock_recv(client[7], &(char){ 0 }, 1, 0, LONG_NS), 1);
	close_all();
	wait_for_none();
	CHECK_EQ(fds(), open_before);
	CHECK_EQ(pyvma_sock_close(l), 0);
}

/* What a first time left (pools, tables, TIME_WAITs) is enough for the second. */
TEST(they_leave_nothing_behind)
{
	struct sockaddr_in name;
	pyvma_sock *l = listener(&name);
	size_t after[3];

	for (size_t i = 0; i < pv_array_size(after); i++) {
		open_all(l, &name);
		close_all();
		wait_for_none();
		after[i] = used();
	}
	/* TIME_WAITs are 160 bytes and a table's entry, and what has a port of its own 100. */
	CHECK(!HEAP_TELLS || after[2] <= after[1] + COUNT * 384);
	CHECK_EQ(pyvma_sock_close(l), 0);
}

/* ---- a socket's first call of the kernel's, by several threads at once ------------------------------------------------- */

#define CALLERS 3
#define ROUNDS_LEAST 100u
#define ROUNDS_MOST (20u * COUNT)
#define ROUNDS_NS (2 * PV_NS_PER_S) /* where others have the CPUs, each round waits for its threads' turns */
#define SPINS 2000 /* before another thread may have the CPU */

static struct {
	struct pv_sock *so;
	_Atomic(uint32_t) round, done;
	_Atomic(bool) over;
} first;

static void reach(_Atomic(uint32_t) *value, uint32_t wanted)
{
	for (uint32_t i = 1; atomic_load(value) < wanted; i++)
		if (i % SPINS == 0)
			sched_yield();
}

static void call_first(void)
{
	pv_shown_kernel_tx(first.so, 10);
	atomic_fetch_add(&first.done, 1);
}

static void *caller(void *arg)
{
	(void)arg;
	for (uint32_t round = 1;; round++) {
		reach(&first.round, round);
		if (atomic_load(&first.over))
			return NULL;
		call_first();
	}
}

struct shown {
	uint32_t n;
	uint64_t tx, bytes;
};

static void count_shown(void *ctx, const struct pv_stat_type *type, const void *obj)
{
	const struct pv_kernel_stat *k = obj;
	struct shown *found = ctx;

	(void)type;
	found->n++;
	found->tx += k->tx;
	found->bytes += k->tx_bytes;
}

/* Every call counts in the one block that readers see, whoever makes it, and the memory is the next socket's. */
TEST(a_first_call_of_many_threads)
{
	pthread_t threads[CALLERS];
	pyvma_sock *s;
	size_t before = 0;
	uint32_t round = 0;
	int64_t end;

	env_start();
	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0, &s), 0);
	first.so = pv_handle_sock(s);
	for (int i = 1; i < CALLERS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, caller, NULL), 0);
	end = pv_clock_kernel_ns() + ROUNDS_NS;
	while (++round <= ROUNDS_LEAST || (round <= ROUNDS_MOST && pv_clock_kernel_ns() < end)) {
		struct shown found = { 0 };

		/* As the memory of a socket that is gone becomes another. */
		pv_shown_close(first.so);
		CHECK_EQ(pv_shown_open(first.so), 0);
		atomic_store(&first.done, 0);
		atomic_store(&first.round, round);
		call_first();
		reach(&first.done, CALLERS);
		pv_lock_get(&pv_engine.lock);
		pv_stats_each(PV_STAT_T_KERNEL, count_shown, &found);
		pv_lock_put(&pv_engine.lock);
		CHECK_EQ(found.n, 1);
		CHECK_EQ(found.tx, CALLERS);
		CHECK_EQ(found.bytes, CALLERS * 10);
		if (round == 1)
			before = pv_stats_used();
	}
	CHECK_EQ(pv_stats_used(), before);
	atomic_store(&first.over, true);
	atomic_store(&first.round, round);
	for (int i = 1; i < CALLERS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
}

static void *accept_one(void *listener)
{
	pyvma_sock *got = listener;

	CHECK_EQ(pyvma_sock_accept(listener, NULL, NULL, SOCK_CLOEXEC, LONG_NS, &got), -ENETDOWN);
	CHECK(!got);
	return NULL;
}

static bool has_queue(pyvma_sock *l)
{
	bool has;

	pv_lock_get(&pv_engine.lock);
	has = pv_tcp_accept_queue(pv_handle_sock(l)->tc);
	pv_lock_put(&pv_engine.lock);
	return has;
}

/* The connection has left the queue, and has no handle yet: as when a thread ends the process in which another accepts. */
TEST(a_stop_within_an_accept)
{
	struct sockaddr_in name;
	pyvma_sock *l = listener(&name), *s;
	pthread_t thread;

	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &s), 0);
	CHECK_EQ(pyvma_sock_connect(s, (struct sockaddr *)&name, sizeof(name), LONG_NS), 0);
	while (!has_queue(l))
		sched_yield();
	pv_registry_get();
	CHECK_EQ(pthread_create(&thread, NULL, accept_one, l), 0);
	while (has_queue(l))
		sched_yield();
	pyvma_stop();
	pv_registry_put();
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
	CHECK_EQ(pyvma_sock_close(l), 0);
}

/* Without the program's help: what is open when the engine stops has said so to its peer. */
TEST(a_stop_ends_them_all)
{
	struct sockaddr_in name;
	pyvma_sock *l = listener(&name);
	uint32_t state;

	open_all(l, &name);
	pyvma_stop();
	state = (uint32_t)pyvma_sock_send(server[1], "x", 1, MSG_NOSIGNAL, 0);
	CHECK_EQ((int)state, -ENETDOWN);
	for (int i = 0; i < COUNT; i++) {
		CHECK_EQ(pyvma_sock_close(client[i]), 0);
		CHECK_EQ(pyvma_sock_close(server[i]), 0);
	}
	CHECK_EQ(pyvma_sock_close(l), 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
