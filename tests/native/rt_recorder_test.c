/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder of an engine: its file while it runs, after it stopped, after it was killed; forked children; packets on and off. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "rt/recorder.h"
#include "sock_env.h"

static char dir[64];

/* Each case runs in a child, with a directory of its own and an engine that was never there before. */
static int in_child(void (*fn)(void))
{
	int status;
	pid_t pid;

	snprintf(dir, sizeof(dir), "/tmp/pyvma-recorder-XXXXXX");
	CHECK(mkdtemp(dir) != NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		fn();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return status;
}

static int count_files(void)
{
	DIR *d = opendir(dir);
	struct dirent *it;
	int n = 0;

	CHECK(d != NULL);
	while ((it = readdir(d)))
		n += !strncmp(it->d_name, PV_RECORDER_PREFIX, sizeof(PV_RECORDER_PREFIX) - 1);
	closedir(d);
	return n;
}

static void empty_dir(void)
{
	DIR *d = opendir(dir);
	struct dirent *it;

	CHECK(d != NULL);
	while ((it = readdir(d)))
		unlinkat(dirfd(d), it->d_name, 0);
	closedir(d);
	CHECK(rmdir(dir) == 0);
}

/* What another process sees of the file of `pid`; to be unmapped. */
static const struct pv_recorder_head *look(pid_t pid, size_t *size)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s%d", dir, PV_RECORDER_PREFIX, pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
	*size = (size_t)st.st_size;
	void *p = mmap(NULL, *size, PROT_READ, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	close(fd);
	const struct pv_recorder_head *h = p;

	CHECK(!memcmp(h->magic, PV_RECORDER_MAGIC, 8) && h->version == PV_RECORDER_VERSION && h->order == 0x01020304);
	CHECK_EQ(h->pid, pid);
	CHECK_EQ(h->event_size, sizeof(struct pv_trace_event));
	CHECK(h->events_at % 4096 == 0 && h->events_at + h->events * h->event_size == *size);
	CHECK(h->schema_at + h->schema_size <= h->events_at);
	return h;
}

static uint32_t events(const struct pv_recorder_head *h, uint32_t kind, uint32_t a)
{
	const struct pv_trace_event *ring = (const void *)((const char *)h + h->events_at);
	uint64_t first = h->head > h->events ? h->head - h->events : 0;
	uint32_t found = 0;

	for (uint64_t n = first; n < h->head; n++) {
		const struct pv_trace_event *e = &ring[n % h->events];

		CHECK_EQ(e->seq, (uint32_t)(n + 1));
		found += e->kind == kind && (a == UINT32_MAX || e->a == a) ? e->count : 0;
	}
	return found;
}

static void start(const char *entries)
{
	CHECK_EQ(pyvma_config_set("stats_dir", dir), 0);
	CHECK_EQ(pyvma_config_set("trace_events", entries), 0);
	env_start();
}

static uint32_t reason_no_port(void)
{
	return PV_TRACE_REASON(PV_TRACE_UDP, offsetof(struct pv_udp_counters, rx_no_port) / 8);
}

/* A datagram to a port that nobody has, from our one interface to our other. */
static void send_to_nobody(void)
{
	struct any_addr aa;
	struct sk a = sk_bound(&our_side, AF_INET, &aa);
	char buf[8];

	CHECK_EQ(sk_connect(a, ip("10.9.0.1", 9)), 0);
	CHECK_EQ(sk_send(a, "x", 1, 0), 1);
	/* The refusal comes back as the socket's error. */
	CHECK_EQ(pyvma_sock_recv(a.h, buf, sizeof(buf), 0, LONG_NS), -ECONNREFUSED);
	CHECK_EQ(sk_close(a), 0);
}

static void live_and_stopped(void)
{
	const struct pv_recorder_head *h;
	size_t size;

	start("1000");
	h = look(getpid(), &size);
	CHECK_EQ(h->state, 1);
	CHECK_EQ(h->events, 512); /* down to a power of two */
	send_to_nobody();
	CHECK_EQ(events(h, PV_TRACE_engine, PV_TRACE_STARTED), 1);
	CHECK_EQ(events(h, PV_TRACE_ring, PV_TRACE_RING_OPENED), 2);
	CHECK_EQ(events(h, PV_TRACE_drop, reason_no_port()), 1);
	CHECK_EQ(events(h, PV_TRACE_socket, PV_TRACE_OPENED), 1);
	CHECK_EQ(events(h, PV_TRACE_socket, PV_TRACE_OFFLOADED), 1);
	CHECK_EQ(events(h, PV_TRACE_socket, PV_TRACE_CLOSED), 1);
	CHECK_EQ(events(h, PV_TRACE_error, ECONNREFUSED), 1);
	CHECK_EQ(events(h, PV_TRACE_send, UINT32_MAX), 0);
	pyvma_stop();
	CHECK_EQ(h->state, 2);
	CHECK_EQ(events(h, PV_TRACE_engine, PV_TRACE_STOPPED), 1);
	CHECK_EQ(count_files(), 0);
	munmap((void *)(uintptr_t)h, size);
}

TEST(a_file_while_the_engine_runs)
{
	CHECK_EQ(in_child(live_and_stopped), 0);
	empty_dir();
}

static void switched_off(void)
{
	start("0");
	CHECK_EQ(count_files(), 0);
	send_to_nobody();
	CHECK_EQ(pyvma_config_set("stats_dir", "/nonexistent/place"), -EBUSY);
	pyvma_stop();
	/* A directory that is not there is no error of the engine's. */
	CHECK_EQ(pyvma_config_set("stats_dir", "/nonexistent/place"), 0);
	CHECK_EQ(pyvma_config_set("trace_events", "64"), 0);
	CHECK_EQ(pyvma_config_set("log_level", "none"), 0);
	CHECK_EQ(pyvma_start(), 0);
	send_to_nobody();
	pyvma_stop();
}

TEST(an_engine_without)
{
	CHECK_EQ(in_child(switched_off), 0);
	empty_dir();
}

/* Nobody is left to take the fabric away: its name is kept for the parent. */
static void killed(void)
{
	char path[128];

	start("256");
	send_to_nobody();
	snprintf(path, sizeof(path), "%s/fabric", dir);
	FILE *f = fopen(path, "w");

	CHECK(f && fputs(env_fabric, f) >= 0 && fclose(f) == 0);
	raise(SIGKILL);
}

static void remove_fabric(void)
{
	char path[128], name[64] = "", at[512];
	struct dirent *it;

	snprintf(path, sizeof(path), "%s/fabric", dir);
	FILE *f = fopen(path, "r");

	CHECK(f && fgets(name, sizeof(name), f) && fclose(f) == 0);
	DIR *d = opendir("/dev/shm");

	CHECK(d != NULL);
	while ((it = readdir(d))) {
		if (!strstr(it->d_name, name))
			continue;
		snprintf(at, sizeof(at), "/dev/shm/%s", it->d_name);
		unlink(at);
	}
	closedir(d);
}

TEST(what_a_killed_process_left)
{
	const struct pv_recorder_head *h;
	struct dirent *it;
	size_t size;
	pid_t pid = 0;
	int status = in_child(killed);

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK_EQ(count_files(), 1);
	DIR *d = opendir(dir);

	while ((it = readdir(d)))
		if (!strncmp(it->d_name, PV_RECORDER_PREFIX, sizeof(PV_RECORDER_PREFIX) - 1))
			pid = (pid_t)atoi(it->d_name + sizeof(PV_RECORDER_PREFIX) - 1);
	closedir(d);
	h = look(pid, &size);
	CHECK_EQ(h->state, 1);
	CHECK_EQ(events(h, PV_TRACE_drop, reason_no_port()), 1);
	CHECK_EQ(events(h, PV_TRACE_engine, PV_TRACE_STOPPED), 0);
	munmap((void *)(uintptr_t)h, size);
	remove_fabric();
	empty_dir();
}

/* Files of the dead: the newest stay, and what is no such file or locked by who has it. */
static void sweeps(void)
{
	char path[128];

	for (int i = 0; i < 20; i++) {
		/* No process has such a number: the kernel's limit is 2^22. */
		snprintf(path, sizeof(path), "%s/%s%d", dir, PV_RECORDER_PREFIX, 900000000 + i);
		int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		struct timespec when[2] = { { .tv_sec = 1000 + i }, { .tv_sec = 1000 + i } };

		CHECK(fd >= 0 && futimens(fd, when) == 0);
		close(fd);
	}
	/* One that somebody has whose process id means nothing here: the oldest of all, and it stays. */
	snprintf(path, sizeof(path), "%s/%s%d", dir, PV_RECORDER_PREFIX, 910000000);
	int held = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	struct timespec long_ago[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

	CHECK(held >= 0 && flock(held, LOCK_EX | LOCK_NB) == 0 && futimens(held, long_ago) == 0);
	snprintf(path, sizeof(path), "%s/%sx12", dir, PV_RECORDER_PREFIX);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	start("64");
	CHECK_EQ(count_files(), PV_RECORDER_KEEP + 2 + 1);
	for (int i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "%s/%s%d", dir, PV_RECORDER_PREFIX, 900000000 + i);
		CHECK_EQ(access(path, F_OK) == 0, i >= 20 - PV_RECORDER_KEEP);
	}
	pyvma_stop();
	close(held);
}

TEST(old_files_go)
{
	CHECK_EQ(in_child(sweeps), 0);
	empty_dir();
}

/* A process that had our number: what it left is kept, what it still has is left alone, and so is what took our name meanwhile. */
static void same_number(void)
{
	struct pv_recorder_head h = { .start_ticks = 4711 };
	char path[128], other[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s%d", dir, PV_RECORDER_PREFIX, getpid());
	snprintf(other, sizeof(other), "%s.4711", path);
	memcpy(h.magic, PV_RECORDER_MAGIC, sizeof(h.magic));
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK_EQ(write(fd, &h, sizeof(h)), (ssize_t)sizeof(h));
	CHECK_EQ(flock(fd, LOCK_EX), 0);
	CHECK_EQ(pyvma_config_set("log_level", "none"), 0);
	start("64");
	CHECK_EQ(count_files(), 1);
	CHECK(!pv_engine.trace);
	pyvma_stop();
	CHECK_EQ(access(path, F_OK), 0);
	close(fd);
	CHECK_EQ(pyvma_start(), 0);
	CHECK(pv_engine.trace != NULL);
	CHECK_EQ(count_files(), 2);
	CHECK_EQ(access(other, F_OK), 0);
	CHECK_EQ(unlink(path), 0);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	pyvma_stop();
	CHECK_EQ(access(path, F_OK), 0);
	CHECK_EQ(count_files(), 2);
}

TEST(a_predecessor_of_the_same_number)
{
	CHECK_EQ(in_child(same_number), 0);
	empty_dir();
}

static void forks(void)
{
	const struct pv_recorder_head *h;
	uint64_t before;
	size_t size;
	int status;
	pid_t pid;

	start("256");
	h = look(getpid(), &size);
	before = h->head;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		pyvma_sock *s;

		/* Its sockets are the kernel's, and nothing of them is in the parent's file. */
		CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_DGRAM, 0, &s), 0);
		CHECK_EQ(pyvma_sock_close(s), 0);
		pyvma_stop();
		_exit(count_files() == 1 ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(events(h, PV_TRACE_engine, PV_TRACE_FORK), 1);
	CHECK(h->head > before);
	send_to_nobody();
	CHECK_EQ(events(h, PV_TRACE_drop, reason_no_port()), 1);
	pyvma_stop();
	CHECK_EQ(count_files(), 0);
	munmap((void *)(uintptr_t)h, size);
}

TEST(a_forked_child_leaves_the_file_alone)
{
	CHECK_EQ(in_child(forks), 0);
	empty_dir();
}

static void one_datagram(void)
{
	struct any_addr aa, bb;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_bound(&our_side, AF_INET, &bb);
	char buf[64];

	CHECK_EQ(sk_sendto(a, "0123456789", 10, 0, bb), 10);
	CHECK_EQ(pyvma_sock_recv(b.h, buf, sizeof(buf), 0, LONG_NS), 10);
	CHECK_EQ(sk_close(a), 0);
	CHECK_EQ(sk_close(b), 0);
}

static void with_packets(void)
{
	const struct pv_recorder_head *h;
	uint64_t before;
	size_t size;

	CHECK_EQ(pyvma_config_set("trace_packets", "1"), 0);
	start("1024");
	h = look(getpid(), &size);
	CHECK_EQ(h->packets, 1);
	one_datagram();
	CHECK_EQ(events(h, PV_TRACE_send, 10), 1);
	CHECK_EQ(events(h, PV_TRACE_queued, 10), 1);
	CHECK_EQ(events(h, PV_TRACE_delivered, 10), 1);
	pv_lock_get(&pv_engine.lock);
	pv_recorder_packets(&pv_engine, false);
	pv_lock_put(&pv_engine.lock);
	before = events(h, PV_TRACE_send, UINT32_MAX);
	one_datagram();
	CHECK_EQ(events(h, PV_TRACE_send, UINT32_MAX), before);
	CHECK_EQ(h->packets, 0);
	pyvma_stop();
	munmap((void *)(uintptr_t)h, size);
}

TEST(packets_on_and_off)
{
	CHECK_EQ(in_child(with_packets), 0);
	empty_dir();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
