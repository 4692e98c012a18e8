/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of edges.c, which has their helpers: the end of a thread. */
#ifndef PRELOAD_EDGES_THREAD_H
#define PRELOAD_EDGES_THREAD_H

struct blocked {
	int fd, how, to;
	_Atomic(bool) *cleaned;
};

static void cleans(void *arg)
{
	struct blocked *b = arg;
	int fd = connected(SOCK_DGRAM); /* what a thread that ends does is done */

	close(fd);
	*b->cleaned = true;
}

static void *blocks(void *arg)
{
	struct blocked *b = arg;
	struct pollfd p[2] = { { .fd = b->fd, .events = POLLIN }, { .fd = 0 } };
	char c;

	pthread_cleanup_push(cleans, b);
	for (;;) {
		if (b->how == 0)
			(void)!recv(b->fd, &c, 1, 0);
		else if (b->how == 1)
			accept(b->fd, NULL, NULL);
		else if (b->how == 2)
			poll(p, 1, -1);
		else if (b->how == 3)
			(void)!splice(b->fd, NULL, b->to, NULL, 100, 0);
		else
			poll(p, 2, -1);
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static _Atomic(bool) over;

static void *goes_on(void *arg)
{
	int fd = connected(SOCK_STREAM);

	(void)arg;
	while (!over)
		says(fd, "goes on");
	close(fd);
	return NULL;
}

/* Cancelled before it has made any call; the first ones that it makes are no cancellation points. */
static _Atomic(bool) begun, go;

static void *late(void *arg)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char c;

	begun = true;
	while (!go)
		;
	CHECK(getpeername(*(int *)arg, (struct sockaddr *)&ss, &len) == 0);
	(void)!recv(*(int *)arg, &c, 1, 0);
	return NULL;
}

static void ends(pthread_t t, void *with)
{
	struct timespec limit;
	void *result;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += LIMIT_MS / 1000;
	CHECK(pthread_timedjoin_np(t, &result, &limit) == 0);
	CHECK(result == with);
}

static void cancelled_before(void)
{
	int fd = connected(SOCK_STREAM);
	pthread_t t;

	CHECK(pthread_create(&t, NULL, late, &fd) == 0);
	while (!begun)
		usleep(100);
	CHECK(pthread_cancel(t) == 0);
	go = true;
	ends(t, PTHREAD_CANCELED);
	says(fd, "still there");
	close(fd);
}

static int open_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#define HOWS 4

/* As `blocks` does from `how` on. */
static void cancelled_in(int how, int hows)
{
	int fd[HOWS] = { connected(SOCK_STREAM), bound(SOCK_STREAM), connected(SOCK_DGRAM), connected(SOCK_STREAM) };
	int to[2], before = open_files();
	pthread_t other, t[HOWS];

	over = false;
	CHECK(pipe(to) == 0 && pthread_create(&other, NULL, goes_on, NULL) == 0);
	for (int turn = 0; turn < 30; turn++) {
		_Atomic(bool) cleaned[HOWS] = { 0 };
		struct blocked b[HOWS];

		for (int i = 0; i < hows; i++) {
			b[i] = (struct blocked){ fd[i], how + i, to[1], &cleaned[i] };
			CHECK(pthread_create(&t[i], NULL, blocks, &b[i]) == 0);
		}
		usleep(turn % 3 * 1500);
		for (int i = 0; i < hows; i++)
			CHECK(pthread_cancel(t[i]) == 0);
		for (int i = 0; i < hows; i++) {
			ends(t[i], PTHREAD_CANCELED);
			/* One may have been cancelled before it began. */
			CHECK(cleaned[i] || turn % 3 == 0);
		}
	}
	over = true;
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(close(to[0]) == 0 && close(to[1]) == 0 && open_files() < before + 10);
	says(fd[0], "still there");
	for (int i = 0; i < HOWS; i++)
		CHECK(close(fd[i]) == 0);
}

static void cancelled(void)
{
	cancelled_in(0, HOWS);
}

/* A wait for a file of the kernel's, too: the thread may end in a call of the kernel's. */
static void cancelled_among(void)
{
	cancelled_in(HOWS, 1);
}

/* A cleanup handler that waits: for its peer, and under the thread's own mask where it was a wait under another one that ended. The kernel's
 * may leave the other one in force. */
static volatile sig_atomic_t let_in;
static _Atomic(int) waited;

static void on_usr1(int sig)
{
	(void)sig;
	let_in = let_in + 1;
}

static void waits_itself(void *arg)
{
	int fd = connected(SOCK_STREAM);

	(void)arg;
	CHECK(raise(SIGUSR1) == 0);
	for (int i = 0; i < 20; i++)
		says(fd, "goodbye");
	CHECK(!let_in || !getenv("LD_PRELOAD"));
	CHECK(close(fd) == 0);
	waited = waited + 1;
}

static void *waits_masked(void *arg)
{
	struct blocked *b = arg;
	struct pollfd p[2] = { { .fd = b->fd, .events = POLLIN }, { .fd = b->to, .events = POLLIN } };
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0);
	sigset_t usr1, none;

	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &usr1, NULL) == 0);
	CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, b->fd, &ev) == 0);
	pthread_cleanup_push(waits_itself, NULL);
	for (;;) {
		*b->cleaned = true;
		if (b->how < 2)
			ppoll(p, b->how == 0 ? 1 : 2, NULL, &none);
		else
			epoll_pwait(ep, &ev, 1, -1, &none);
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancelled_waits(void)
{
	struct sigaction sa = { .sa_handler = on_usr1 };
	int fd = connected(SOCK_STREAM), to = connected(SOCK_DGRAM);

	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	for (int how = 0; how < 3; how++) {
		_Atomic(bool) begins = false;
		struct blocked b = { fd, how, to, &begins };
		pthread_t t;

		CHECK(pthread_create(&t, NULL, waits_masked, &b) == 0);
		while (!begins)
			usleep(100);
		usleep(20000);
		CHECK(pthread_cancel(t) == 0);
		ends(t, PTHREAD_CANCELED);
		CHECK(waited == how + 1);
	}
	CHECK(close(fd) == 0 && close(to) == 0);
}

/* A thread that cancels itself once it has slept; nothing of what it does then is a cancellation point, up to the last. */
static void *cancels_itself(void *arg)
{
	struct blocked *b = arg;
	struct pollfd p[2] = { { .fd = b->fd, .events = POLLIN }, { .fd = b->to, .events = POLLIN } };
	int file = memfd_create("sent", 0);
	off_t at = 0;
	pid_t child;
	char c;

	CHECK(file >= 0 && write(file, "by sendfile", 11) == 11);
	CHECK(poll(p, 2, 100) == 0);
	CHECK(pthread_cancel(pthread_self()) == 0);
	CHECK(sendfile(b->fd, file, &at, 11) == 11);
	child = fork();
	if (!child)
		_exit(0);
	if (b->how)
		(void)!recv(b->to, &c, 1, 0);
	return (void *)(intptr_t)child;
}

static void cancelled_by_itself(void)
{
	int fd = connected(SOCK_STREAM), to = connected(SOCK_DGRAM), status;
	pthread_t t;
	void *child;

	for (int how = 0; how < 2; how++) {
		struct blocked b = { fd, how, to, NULL };

		CHECK(pthread_create(&t, NULL, cancels_itself, &b) == 0);
		if (how)
			ends(t, PTHREAD_CANCELED);
		else
			CHECK(pthread_join(t, &child) == 0 && child != PTHREAD_CANCELED && (intptr_t)child > 0);
		CHECK(wait(&status) > 0 && status == 0);
		expect(fd, "by sendfile");
	}
	/* Nobody holds what others wait for. */
	cancelled_in(0, 1);
	CHECK(close(fd) == 0 && close(to) == 0);
}

/* Cancellation is off: the call goes on to what it waits for, and the thread ends once cancellation is on again. */
static void *off(void *arg)
{
	struct blocked *b = arg;
	char c;
	int was;

	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was) == 0 && was == PTHREAD_CANCEL_ENABLE);
	*b->cleaned = true;
	if (b->how) {
		struct pollfd p = { .fd = b->fd, .events = POLLIN };
		struct timespec from, to;

		/* For as long as was asked, and not for that long from then on. */
		clock_gettime(CLOCK_MONOTONIC, &from);
		CHECK(poll(&p, 1, 1500) == 0);
		clock_gettime(CLOCK_MONOTONIC, &to);
		CHECK((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 2500);
	} else {
		CHECK(recv(b->fd, &c, 1, 0) == 1);
	}
	pthread_testcancel();
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &was) == 0 && was == PTHREAD_CANCEL_DISABLE);
	(void)!recv(b->fd, &c, 1, 0);
	return NULL;
}

static void cancelled_off_in(int how)
{
	_Atomic(bool) begins = false;
	struct blocked b = { connected(SOCK_STREAM), how, -1, &begins };
	pthread_t t;

	CHECK(pthread_create(&t, NULL, off, &b) == 0);
	while (!begins)
		usleep(100);
	usleep(how ? 1300000 : 20000);
	CHECK(pthread_cancel(t) == 0);
	usleep(20000);
	CHECK(pthread_kill(t, 0) == 0 && (how || send(b.fd, "x", 1, 0) == 1));
	ends(t, PTHREAD_CANCELED);
	says(b.fd, "still there");
	CHECK(close(b.fd) == 0);
}

static void cancelled_while_off(void)
{
	cancelled_off_in(0);
}

static void cancelled_while_off_in_time(void)
{
	cancelled_off_in(1);
}

/* Of the kernel's files alone; how & 1: with EPOLLEXCLUSIVE, how & 2: cancellation is off, and the wait no busier for it. */
static void *sleeps_in_set(void *arg)
{
	struct blocked *b = arg;
	struct epoll_event ev = { .events = EPOLLIN | (b->how & 1 ? EPOLLEXCLUSIVE : 0) };
	int ep = epoll_create1(0);
	struct timespec cpu;

	CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, b->fd, &ev) == 0);
	CHECK(!(b->how & 2) || pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
	*b->cleaned = true;
	CHECK(epoll_wait(ep, &ev, 1, b->how & 2 ? 500 : -1) == 0 && close(ep) == 0);
	CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) == 0 && cpu.tv_sec == 0 && cpu.tv_nsec < 100000000);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
	pthread_testcancel();
	return NULL;
}

static void cancelled_in_set(void)
{
	int to[2];

	CHECK(pipe(to) == 0);
	for (int how = 0; how < 4; how++) {
		_Atomic(bool) begins = false;
		struct blocked b = { to[0], how, -1, &begins };
		pthread_t t;

		CHECK(pthread_create(&t, NULL, sleeps_in_set, &b) == 0);
		while (!begins)
			usleep(100);
		usleep(20000);
		CHECK(pthread_cancel(t) == 0);
		ends(t, PTHREAD_CANCELED);
	}
	CHECK(close(to[0]) == 0 && close(to[1]) == 0);
}

/* Anywhere between two calls, or in one that need not wait. */
static void *passes(void *arg)
{
	struct blocked *b = arg;

	for (;;) {
		says(b->fd, "in passing");
		*b->cleaned = true;
	}
	return NULL;
}

static void cancelled_in_passing(void)
{
	_Atomic(bool) begins = false;
	struct blocked b = { connected(SOCK_STREAM), 0, -1, &begins };
	int fd = connected(SOCK_STREAM);
	pthread_t t;

	CHECK(pthread_create(&t, NULL, passes, &b) == 0);
	while (!begins)
		usleep(100);
	usleep((useconds_t)(getpid() % 97) * 30);
	CHECK(pthread_cancel(t) == 0);
	ends(t, PTHREAD_CANCELED);
	says(fd, "still there");
	CHECK(close(b.fd) == 0 && close(fd) == 0);
}

#endif
