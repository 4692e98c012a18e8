/* SPDX-License-Identifier: BSD-3-Clause */
/* The statistics file as a stranger reads it: by native/doc/stats-abi.md and the schema in it, without a header of the engine's. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "sock_env.h"

/* ---- a reader ---------------------------------------------------------------------------------------------------------- */

struct reader {
	uint8_t *at;
	size_t size;
};

static uint64_t u64(const struct reader *r, uint64_t off)
{
	uint64_t v;

	CHECK(off + sizeof(v) <= r->size);
	memcpy(&v, r->at + off, sizeof(v));
	return v;
}

static uint32_t u32(const struct reader *r, uint64_t off)
{
	uint32_t v;

	CHECK(off + sizeof(v) <= r->size);
	memcpy(&v, r->at + off, sizeof(v));
	return v;
}

static struct reader reader_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct reader r;
	struct stat st;

	CHECK(fd >= 0);
	CHECK_EQ(fstat(fd, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0400);
	r.size = (size_t)st.st_size;
	r.at = mmap(NULL, r.size, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(r.at != MAP_FAILED);
	close(fd);
	CHECK_EQ(memcmp(r.at, "PYVMASTT", 8), 0);
	CHECK_EQ(u32(&r, 8), 1);
	CHECK_EQ(u32(&r, 12), 0x01020304);
	CHECK_EQ(u64(&r, 24), r.size);
	return r;
}

static void reader_close(struct reader *r)
{
	munmap(r->at, r->size);
}

/* The text behind `"key":` in the piece of JSON from `from` on, which has no spaces. */
static const char *json(const char *from, const char *end, const char *key)
{
	char quoted[64];
	const char *p;

	snprintf(quoted, sizeof(quoted), "\"%s\":", key);
	p = memmem(from, (size_t)(end - from), quoted, strlen(quoted));
	CHECK(p != NULL);
	return p + strlen(quoted);
}

/* The schema's n-th type, from 1 on; NULL: there are not so many. *end: behind it. */
static const char *type_at(const struct reader *r, uint32_t n, const char **end)
{
	const char *p = (const char *)r->at + u64(r, 32), *last = p + u64(r, 40);

	while (p) {
		/* Its last field, its list of fields, and itself: nothing else ends so. */
		*end = memmem(p, (size_t)(last - p), "}]}", 3);
		if (!*end)
			return NULL;
		*end += 3;
		if (!--n)
			return p;
		p = *end;
	}
	return NULL;
}

/* Its number; 0: there is none of that name. */
static uint32_t type_of(const struct reader *r, const char *name)
{
	const char *end, *t;
	size_t n = strlen(name);

	for (uint32_t i = 1; (t = type_at(r, i, &end)) != NULL; i++) {
		t = json(t, end, "name");
		if (!memcmp(t + 1, name, n) && t[1 + n] == '"')
			return i;
	}
	return 0;
}

/* The offset of the i-th object of that type; 0: there are not so many, and *count is how many there are. */
static uint64_t find(const struct reader *r, uint32_t type, uint32_t i, uint32_t *count)
{
	CHECK(type != 0);
	*count = 0;
	for (uint64_t seg = u64(r, 48); seg; seg = u64(r, seg)) {
		uint32_t n = u32(r, seg + 8);

		for (uint64_t e = seg + 16; e < seg + 16 + 16 * n; e += 16) {
			CHECK_EQ(u32(r, e) % 2, 0);
			if ((u32(r, e + 4) & 0xffff) == type && (*count)++ == i)
				return u64(r, e + 8);
		}
	}
	return 0;
}

static uint64_t object(const struct reader *r, const char *type, uint32_t i)
{
	uint32_t count;

	return find(r, type_of(r, type), i, &count);
}

static uint32_t objects(const struct reader *r, const char *type)
{
	uint32_t count;

	(void)find(r, type_of(r, type), UINT32_MAX, &count);
	return count;
}

static uint64_t value(const struct reader *r, const char *type, uint32_t i, const char *name)
{
	char quoted[64];
	uint64_t at = object(r, type, i), v = 0;
	const char *end, *t, *f;
	size_t size;

	CHECK(at != 0);
	t = type_at(r, type_of(r, type), &end);
	t = json(t, end, "fields");
	snprintf(quoted, sizeof(quoted), "{\"name\":\"%s\",", name);
	f = memmem(t, (size_t)(end - t), quoted, strlen(quoted));
	CHECK(f != NULL);
	at += strtoull(json(f, end, "offset"), NULL, 10);
	size = strtoull(json(f, end, "size"), NULL, 10);
	CHECK(size <= sizeof(v) && at + size <= r->size);
	memcpy(&v, r->at + at, size);
	return v;
}

/* ---- what it reads ----------------------------------------------------------------------------------------------------- */

static char dir[64], path[256];

static void start(void)
{
	if (!*dir) {
		snprintf(dir, sizeof(dir), "/tmp/rt_stats_test.XXXXXX");
		CHECK(mkdtemp(dir) != NULL);
	}
	CHECK_EQ(pyvma_config_set("stats_dir", dir), 0);
	if (*env_fabric)
		CHECK_EQ(pyvma_start(), 0);
	else
		env_start();
	CHECK_EQ(pyvma_stats_path(path, sizeof(path)), 0);
}

static void done(void)
{
	char command[128];

	pyvma_stop();
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CHECK_EQ(system(command), 0);
	*dir = '\0';
}

static pyvma_sock *udp(const char *addr, int port)
{
	struct any_addr a = ip(addr, port);
	pyvma_sock *s;

	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0, &s), 0);
	CHECK_EQ(pyvma_sock_bind(s, (struct sockaddr *)&a.ss, a.len), 0);
	return s;
}

static void exchange(pyvma_sock *from, pyvma_sock *to, const char *addr, int port, int n)
{
	struct any_addr a = ip(addr, port);
	char buf[64] = "";

	for (int i = 0; i < n; i++) {
		CHECK_EQ(pyvma_sock_sendto(from, buf, 50, 0, (struct sockaddr *)&a.ss, a.len, LONG_NS), 50);
		CHECK_EQ(pyvma_sock_recv(to, buf, sizeof(buf), 0, LONG_NS), 50);
	}
}

TEST(counts_are_those_of_the_traffic)
{
	start();
	pyvma_sock *a = udp("10.9.0.1", 4001), *b = udp("10.9.0.1", 4002);
	struct reader r = reader_open(path);

	CHECK_EQ(u32(&r, 16), 1);
	CHECK_EQ(u64(&r, 56), (uint64_t)getpid());
	CHECK_EQ(u64(&r, 72), geteuid());
	CHECK_EQ(objects(&r, "ring"), 2);
	CHECK_EQ(objects(&r, "pool"), 2);
	CHECK_EQ(objects(&r, "socket"), 2);
	exchange(a, b, "10.9.0.1", 4002, 7);
	CHECK_EQ(objects(&r, "udp"), 2);
	for (uint32_t i = 0; i < 2; i++) {
		bool is_a = value(&r, "udp", i, "local_port") == 4001;

		CHECK_EQ(value(&r, "udp", i, "tx_datagrams"), is_a ? 7u : 0u);
		CHECK_EQ(value(&r, "udp", i, "rx_bytes"), is_a ? 0u : 350u);
		CHECK_EQ(value(&r, "udp", i, "queued"), 0);
		CHECK((value(&r, "udp", i, "rx_memory_max") != 0) == !is_a);
	}
	CHECK_EQ(value(&r, "udp_table", 0, "rx_datagrams"), 7);
	/* A link is the address of what it leads to. */
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t to = value(&r, "socket", i, "transport") - u64(&r, 264);

		CHECK(to == object(&r, "udp", 0) || to == object(&r, "udp", 1));
		CHECK_EQ(value(&r, "socket", i, "state"), 1);
	}
	CHECK_EQ(pyvma_sock_close(a), 0);
	CHECK_EQ(objects(&r, "udp"), 1);
	CHECK_EQ(objects(&r, "socket"), 1);
	CHECK_EQ(pyvma_sock_close(b), 0);
	reader_close(&r);
	done();
}

/* Calls that fail are counted by their direction, and by who refused them. */
TEST(failed_calls_have_a_direction)
{
	static const char *const names[] = { "rx_eagain", "rx_errors", "tx_eagain", "tx_errors" };
	static uint8_t big[70000];
	struct any_addr peer = ip("10.9.0.1", 4002), nobody = ip("10.9.0.1", 4999);
	struct any_addr loop = ip("127.0.0.1", 1);

	start();
	pyvma_sock *a = udp("10.9.0.1", 4001), *t, *k = udp("127.0.0.1", 0);
	struct reader r = reader_open(path);
	static const uint64_t want[4][4] = { { 2, 0, 0, 1 }, { 0, 1 }, { 0 }, { 1, 1, 0, 1 } };

	for (int i = 0; i < 2; i++)
		CHECK_EQ(pyvma_sock_recv(a, big, 100, MSG_DONTWAIT, LONG_NS), -EAGAIN);
	CHECK_EQ(pyvma_sock_sendto(a, big, sizeof(big), 0, (struct sockaddr *)&peer.ss, peer.len, LONG_NS), -EMSGSIZE);
	/* A refused connect is told by the call that receives. */
	CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &t), 0);
	CHECK_EQ(pyvma_sock_connect(t, (struct sockaddr *)&nobody.ss, nobody.len, 0), -EINPROGRESS);
	CHECK_EQ(pyvma_sock_recv(t, big, 100, 0, LONG_NS), -ECONNREFUSED);
	CHECK_EQ(pyvma_sock_recv(k, big, 100, MSG_DONTWAIT, 0), -EAGAIN);
	CHECK_EQ(pyvma_sock_sendto(k, big, sizeof(big), 0, (struct sockaddr *)&loop.ss, loop.len, LONG_NS), -EMSGSIZE);
	CHECK_EQ(pyvma_sock_sendto(k, big, 10, 0, (struct sockaddr *)&loop.ss, loop.len, LONG_NS), 10);
	CHECK_EQ(pyvma_sock_connect(k, (struct sockaddr *)&loop.ss, loop.len, LONG_NS), 0);
	CHECK_EQ(pyvma_sock_send(k, big, 10, 0, LONG_NS), 10);
	CHECK_EQ(pyvma_sock_recv(k, big, 100, MSG_DONTWAIT, 0), -ECONNREFUSED);
	for (uint32_t i = 0; i < objects(&r, "socket"); i++) {
		uint64_t state = value(&r, "socket", i, "state");
		const uint64_t *row = want[state == 2 ? 2 : value(&r, "socket", i, "type") == SOCK_STREAM];

		for (size_t n = 0; n < 4; n++)
			CHECK_EQ(value(&r, "socket", i, names[n]), row[n]);
		CHECK((value(&r, "socket", i, "kernel") != 0) == (state == 2));
	}
	/* The kernel did something for one of them alone. */
	CHECK_EQ(objects(&r, "kernel"), 1);
	for (size_t n = 0; n < 4; n++)
		CHECK_EQ(value(&r, "kernel", 0, names[n]), want[3][n]);
	CHECK_EQ(pyvma_sock_close(a), 0);
	CHECK_EQ(pyvma_sock_close(t), 0);
	CHECK_EQ(pyvma_sock_close(k), 0);
	reader_close(&r);
	done();
}

#define MS INT64_C(1000000)

static void *wait_in_vain(void *arg)
{
	char c;

	CHECK_EQ(pyvma_sock_recv(arg, &c, 1, 0, 100 * MS), -EAGAIN);
	return NULL;
}

/* The time in which a wait polls is counted, that in which it sleeps is not; a follower's as well. */
TEST(polling_is_counted)
{
	static const struct {
		const char *rx_poll;
		int64_t least, most;
	} cases[] = { { "0", 0, 50 * MS }, { "20000", 18 * MS, 80 * MS }, { "-1", 90 * MS, INT64_MAX } };

	for (uint32_t i = 0; i < 6; i++) {
		uint64_t took, threads = 1 + i % 2;
		struct reader r;
		pyvma_sock *a;
		pthread_t t;

		CHECK_EQ(pyvma_config_set("rx_poll", cases[i / 2].rx_poll), 0);
		start();
		a = udp("10.9.0.1", 4001);
		r = reader_open(path);
		if (threads == 2)
			CHECK_EQ(pthread_create(&t, NULL, wait_in_vain, a), 0);
		wait_in_vain(a);
		if (threads == 2)
			CHECK_EQ(pthread_join(t, NULL), 0);
		took = value(&r, "engine", 0, "polling") / threads;
		CHECK(took >= (uint64_t)cases[i / 2].least);
		CHECK(took <= (uint64_t)cases[i / 2].most);
		CHECK_EQ(pyvma_sock_close(a), 0);
		reader_close(&r);
		done();
	}
	CHECK_EQ(pyvma_config_set("rx_poll", "1000"), 0);
}

/* Many objects: the file is longer then, and the first ones are where they were. */
TEST(grows)
{
	enum { MANY = 3000 };
	static pyvma_sock *s[MANY];

	start();
	pyvma_sock *a = udp("10.9.0.1", 4001), *b = udp("10.9.0.1", 4002);
	struct reader r = reader_open(path), longer;

	exchange(a, b, "10.9.0.1", 4002, 3);
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &s[i]), 0);
	longer = reader_open(path);
	CHECK(longer.size > r.size);
	CHECK_EQ(objects(&longer, "socket"), MANY + 2);
	CHECK_EQ(u64(&longer, 96), 0);
	exchange(a, b, "10.9.0.1", 4002, 2);
	CHECK_EQ(value(&longer, "udp_table", 0, "rx_datagrams"), 5);
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(pyvma_sock_close(s[i]), 0);
	CHECK_EQ(objects(&longer, "socket"), 2);
	reader_close(&r);
	reader_close(&longer);
	CHECK_EQ(pyvma_sock_close(a), 0);
	CHECK_EQ(pyvma_sock_close(b), 0);
	done();
}

/* A child neither writes there nor needs it. */
TEST(a_child_leaves_it_alone)
{
	start();
	pyvma_sock *a = udp("10.9.0.1", 4001), *b = udp("10.9.0.1", 4002), *k = udp("127.0.0.1", 0);
	struct reader r = reader_open(path);
	uint64_t before;
	int status;

	exchange(a, b, "10.9.0.1", 4002, 3);
	CHECK_EQ(pyvma_sock_recv(k, &(char){ 0 }, 1, MSG_DONTWAIT, 0), -EAGAIN);
	before = value(&r, "kernel", 0, "rx_eagain");
	CHECK_EQ(before, 1);
	pid_t pid = fork();

	if (!pid) {
		char buf[8];
		pyvma_sock *own = udp("127.0.0.1", 0);

		CHECK_EQ(pyvma_stats_path(buf, sizeof(buf)), -ENOENT);
		CHECK_EQ(pyvma_sock_recv(k, buf, sizeof(buf), MSG_DONTWAIT, 0), -EAGAIN);
		CHECK_EQ(pyvma_sock_close(own), 0);
		CHECK_EQ(pyvma_sock_close(k), 0);
		CHECK_EQ(pyvma_sock_close(a), 0);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(objects(&r, "socket"), 3);
	CHECK_EQ(objects(&r, "kernel"), 1);
	CHECK_EQ(value(&r, "kernel", 0, "rx_eagain"), before);
	exchange(a, b, "10.9.0.1", 4002, 1);
	CHECK_EQ(value(&r, "udp_table", 0, "rx_datagrams"), 4);
	reader_close(&r);
	CHECK_EQ(pyvma_sock_close(a), 0);
	CHECK_EQ(pyvma_sock_close(b), 0);
	CHECK_EQ(pyvma_sock_close(k), 0);
	done();
}

static void leave(const char *name, const char *text)
{
	char full[256];
	int fd;

	snprintf(full, sizeof(full), "%s/%s", dir, name);
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static bool there(const char *name)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", dir, name);
	return access(full, F_OK) == 0;
}

/* What nobody has any more goes, also under our own number; what somebody has, and what is no such file, stays. */
TEST(stale_files_go)
{
	char own[64], full[256];
	int fd;

	snprintf(dir, sizeof(dir), "/tmp/rt_stats_test.XXXXXX");
	CHECK(mkdtemp(dir) != NULL);
	snprintf(own, sizeof(own), "pyvma-stats.%d", (int)getpid());
	leave(own, "PYVMASTT and no more");
	leave("pyvma-stats.1", "");
	leave("pyvma-stats.2", "");
	leave("pyvma-stats.x", "");
	snprintf(full, sizeof(full), "%s/pyvma-stats.3", dir);
	CHECK_EQ(symlink("pyvma-stats.x", full), 0);
	snprintf(full, sizeof(full), "%s/pyvma-stats.2", dir);
	fd = open(full, O_RDONLY | O_CLOEXEC);
	CHECK_EQ(flock(fd, LOCK_EX), 0);
	start();
	struct reader r = reader_open(path);

	CHECK(there(own) && !there("pyvma-stats.1") && there("pyvma-stats.2") && there("pyvma-stats.x") && there("pyvma-stats.3"));
	close(fd);
	pyvma_stop();
	CHECK(!there(own));
	/* Final, as who has it open still sees. */
	CHECK_EQ(u32(&r, 16), 2);
	reader_close(&r);
	start();
	CHECK(there(own) && !there("pyvma-stats.2"));
	done();
}

/* Sockets outlive the engine, and are shown again with the next one. */
TEST(a_second_engine)
{
	start();
	pyvma_sock *k = udp("127.0.0.1", 0);

	CHECK_EQ(pyvma_sock_recv(k, &(char){ 0 }, 1, MSG_DONTWAIT, 0), -EAGAIN);
	pyvma_stop();
	CHECK_EQ(pyvma_stats_path(path, sizeof(path)), -ENOENT);
	CHECK_EQ(pyvma_sock_recv(k, &(char){ 0 }, 1, MSG_DONTWAIT, 0), -EAGAIN);
	start();
	struct reader r = reader_open(path);

	CHECK_EQ(objects(&r, "socket"), 1);
	CHECK_EQ(value(&r, "kernel", 0, "rx_eagain"), 2);
	CHECK_EQ(objects(&r, "engine"), 1);
	reader_close(&r);
	CHECK_EQ(pyvma_sock_close(k), 0);
	done();
}

/* Killed in the middle of it: the file is there, whole, and says so. */
TEST(a_killed_process_leaves_it)
{
	int fds[2], status;
	char told[256] = "";
	struct reader r;

	CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (!pid) {
		start();
		pyvma_sock *a = udp("10.9.0.1", 4001), *b = udp("10.9.0.1", 4002);

		exchange(a, b, "10.9.0.1", 4002, 1);
		CHECK(write(fds[1], path, sizeof(path)) > 0);
		for (;;) {
			pyvma_sock *s = udp("10.9.0.1", 0);

			exchange(a, b, "10.9.0.1", 4002, 1);
			CHECK_EQ(pyvma_sock_close(s), 0);
		}
	}
	CHECK(read(fds[0], told, sizeof(told)) > 0);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status));
	r = reader_open(told);
	CHECK_EQ(u32(&r, 16), 1);
	CHECK_EQ(u64(&r, 56), (uint64_t)pid);
	CHECK(value(&r, "udp_table", 0, "rx_datagrams") >= 1);
	CHECK(objects(&r, "udp") >= 2);
	reader_close(&r);
	*strrchr(told, '/') = '\0';
	CHECK(snprintf(dir, sizeof(dir), "%.*s", (int)sizeof(dir) - 1, told) < (int)sizeof(dir));
	done();
	close(fds[0]);
	close(fds[1]);
}

/* No file can be made: one line in the log, and all works. */
TEST(without_a_file)
{
	CHECK_EQ(pyvma_config_set("stats_dir", "/nowhere/at/all"), 0);
	if (*env_fabric)
		CHECK_EQ(pyvma_start(), 0);
	else
		env_start();
	CHECK_EQ(pyvma_stats_path(path, sizeof(path)), -ENOENT);
	pyvma_sock *a = udp("10.9.0.1", 4001), *b = udp("10.9.0.1", 4002);

	exchange(a, b, "10.9.0.1", 4002, 3);
	CHECK_EQ(pyvma_sock_close(a), 0);
	CHECK_EQ(pyvma_sock_close(b), 0);
	pyvma_stop();
}

/* The limit on files is reached: no signal, objects without a place are counted, and everything works. The last case: sockets that found
 * no place keep none. */
TEST(no_room_left)
{
	enum { MANY = 12000 };
	static pyvma_sock *s[MANY];
	struct rlimit was, now;
	struct reader r;

	start();
	pyvma_sock *a = udp("10.9.0.1", 4001), *b = udp("10.9.0.1", 4002);

	r = reader_open(path);
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &was), 0);
	now = (struct rlimit){ r.size, was.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(pyvma_sock_open(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, &s[i]), 0);
	exchange(a, b, "10.9.0.1", 4002, 2);
	CHECK(u64(&r, 96) > 0);
	CHECK_EQ(u64(&r, 96) + objects(&r, "socket"), MANY + 2);
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(pyvma_sock_close(s[i]), 0);
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &was), 0);
	CHECK_EQ(u64(&r, 96), 0);
	CHECK_EQ(value(&r, "udp_table", 0, "rx_datagrams"), 2);
	reader_close(&r);
	CHECK_EQ(pyvma_sock_close(a), 0);
	CHECK_EQ(pyvma_sock_close(b), 0);
	done();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
