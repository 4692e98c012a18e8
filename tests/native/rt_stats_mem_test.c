/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory behind the statistics file: what a child finds in it, and what happens when there is no more. */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "rt/engine.h"
#include "rt/stats.h"
#include "sock_env.h"

static char dir[64], path[256];

static void start(void)
{
	snprintf(dir, sizeof(dir), "/tmp/rt_stats_mem.XXXXXX");
	CHECK(mkdtemp(dir) != NULL);
	CHECK_EQ(pyvma_config_set("stats_dir", dir), 0);
	if (*env_fabric)
		CHECK_EQ(pyvma_start(), 0);
	else
		env_start();
	CHECK_EQ(pyvma_stats_path(path, sizeof(path)), 0);
}

static void done(void)
{
	pyvma_stop();
	CHECK_EQ(rmdir(dir), 0);
}

/* As the file's head says. */
static uint64_t not_shown(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t v;

	CHECK(fd >= 0);
	CHECK_EQ(pread(fd, &v, sizeof(v), 96), sizeof(v));
	close(fd);
	return v;
}

/* It finds what there was when its parent forked, whatever the parent does with it afterwards. */
TEST(a_child_has_what_there_was)
{
	uint64_t *o;
	int fds[2], status;
	char c = 0;

	start();
	o = pv_stats_alloc(NULL, 64);
	CHECK(o != NULL);
	o[0] = 1;
	CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (!pid) {
		bool same;

		CHECK_EQ(read(fds[0], &c, 1), 1);
		same = __atomic_load_n(&o[0], __ATOMIC_RELAXED) == 1;
		o[1] = 3;
		/* And so does a child of its own. */
		pid = fork();
		if (!pid)
			_exit(o[0] == 1 && o[1] == 3 ? 0 : 1);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		_exit(same && !status ? 0 : 1);
	}
	__atomic_store_n(&o[0], 2, __ATOMIC_RELAXED);
	CHECK_EQ(write(fds[1], &c, 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(o[1], 0);
	pv_stats_free(NULL, o, 64);
	close(fds[0]);
	close(fds[1]);
	done();
}

static long address_space(void)
{
	char text[64];
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && read(fd, text, sizeof(text)) > 0);
	close(fd);
	return atol(text) * sysconf(_SC_PAGESIZE);
}

/* What the parent's grows into is not charged to a child that bounds its address space. */
TEST(a_child_has_no_reservation)
{
	int status;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return; /* they have reservations of their own */
#endif
	start();
	pid_t pid = fork();

	if (!pid)
		_exit(address_space() < 4L << 30 ? 0 : 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	done();
}

/* No memory to go back to when the engine stops: what is there stays the file's, and a child has a copy of that too. */
TEST(stopped_without_memory)
{
	struct rlimit was, now;
	uint64_t *o;
	int status;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return; /* they need memory of their own at any time */
#endif
	start();
	o = pv_stats_alloc(NULL, 64);
	CHECK(o != NULL);
	*o = 1;
	CHECK_EQ(getrlimit(RLIMIT_AS, &was), 0);
	now = (struct rlimit){ 1 << 20, was.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_AS, &now), 0);
	pv_lock_get(&pv_engine.lock);
	pv_stats_close();
	pv_lock_put(&pv_engine.lock);
	CHECK_EQ(setrlimit(RLIMIT_AS, &was), 0);
	CHECK_EQ(pyvma_stats_path(path, sizeof(path)), -ENOENT);
	CHECK_EQ(*o, 1);
	pid_t pid = fork();

	if (!pid) {
		bool same = *o == 1;

		*o = 2;
		_exit(same ? 0 : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(*o, 1);
	pv_stats_free(NULL, o, 64);
	done();
}

/* What never was shown is not among those that found no place. */
TEST(hidden_before_shown)
{
	uint32_t id;

	start();
	CHECK_EQ(not_shown(), 0);
	pv_stats_hide(NULL, 0);
	CHECK_EQ(not_shown(), 0);
	/* It does not lie in the memory that is shown. */
	id = pv_stats_show(NULL, &pv_engine_stat_type, &id);
	CHECK(id != 0);
	CHECK_EQ(not_shown(), 1);
	pv_stats_hide(NULL, id);
	CHECK_EQ(not_shown(), 0);
	done();
}

/* After a refusal it grows again, if not at once. */
TEST(grows_again)
{
	enum { SIZE = 4096, MANY = 4096 };
	static void *o[MANY];
	struct rlimit was, now;
	uint32_t n = 0;
	size_t before;

	start();
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &was), 0);
	now = (struct rlimit){ 4096, was.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
	do {
		before = pv_stats_used();
		o[n] = pv_stats_alloc(NULL, SIZE);
		CHECK(o[n] != NULL);
	} while (++n < MANY / 2 && pv_stats_used() > before);
	CHECK_EQ(pv_stats_used(), before);
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &was), 0);
	for (int i = 0; i < 3000 && pv_stats_used() == before; i++) {
		void *p = pv_stats_alloc(NULL, SIZE);

		if (pv_stats_used() == before) {
			pv_stats_free(NULL, p, SIZE);
			usleep(10000);
		} else {
			o[n++] = p;
		}
	}
	CHECK(pv_stats_used() > before);
	while (n)
		pv_stats_free(NULL, o[--n], SIZE);
	done();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
