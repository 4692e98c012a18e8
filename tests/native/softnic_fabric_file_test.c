/* SPDX-License-Identifier: BSD-3-Clause */
/* The fabric's file: who may open it, what is wrong with it, several creators at once. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "softnic/fab.h"
#include "softnic_fabric_util.h"

static char name[SN_NAME_MAX + 1], path[128];

static void named(void)
{
	fab_name(name);
	fab_path(name, path, sizeof(path));
}

/* Expects an error whose text has `word` in it. */
static void refused(int want, const char *word)
{
	struct sn_fabric *f = NULL;

	CHECK_EQ(sn_fabric_open(name, &f), want);
	if (!strstr(sn_error(), word)) {
		fprintf(stderr, "%s\n", sn_error());
		CHECK(!"the text says why");
	}
	CHECK(strstr(sn_error(), name));
}

/* A fabric's file without any client. */
static void leave_file(void)
{
	pid_t pid;
	int status;

	named();
	pid = fork();
	if (!pid) {
		struct sn_fabric *f;

		CHECK_EQ(sn_fabric_open(name, &f), 0);
		kill(getpid(), SIGKILL);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(fab_exists(name));
}

static struct sn_shm *map_head(void)
{
	int fd = open(path, O_RDWR);
	struct sn_shm *s;

	CHECK(fd >= 0);
	s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(s != MAP_FAILED);
	close(fd);
	return s;
}

TEST(names)
{
	static const char *const bad[] = { "", "a/b", "..", ".x", "a b", "012345678901234567890123456789012", "\xc3\xa4" };
	struct sn_fabric *f;

	for (size_t i = 0; i < pv_array_size(bad); i++)
		CHECK_EQ(sn_fabric_open(bad[i], &f), -EINVAL);
}

TEST(dead_fabric_is_made_anew)
{
	struct sn_fabric *f;
	struct stat before, after;

	leave_file();
	CHECK_EQ(stat(path, &before), 0);
	CHECK_EQ(before.st_mode & 0777, 0600);
	CHECK_EQ(sn_fabric_open(name, &f), 0);
	CHECK_EQ(stat(path, &after), 0);
	CHECK(before.st_ino != after.st_ino || f->client == 0);
	sn_fabric_close(f);
	CHECK(!fab_exists(name));
}

TEST(another_version)
{
	struct sn_shm *s;

	leave_file();
	s = map_head();
	s->version = SN_VERSION + 1;
	refused(-EPROTO, "version");
	s->version = SN_VERSION;
	s->layout ^= 1;
	refused(-EBADMSG, "checksum");
	munmap(s, 4096);
	unlink(path);
}

/* Each bit of the header in turn. */
TEST(damaged_header)
{
	struct sn_shm *s;
	struct sn_fabric *f;
	uint8_t *bytes;

	leave_file();
	s = map_head();
	bytes = (uint8_t *)s;
	for (size_t bit = 0; bit < 8 * (offsetof(struct sn_shm, header_sum) + 4); bit++) {
		int rc;

		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		rc = sn_fabric_open(name, &f);
		CHECK(rc == -EBADMSG || rc == -EPROTO);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	memset(s, 0, 4096);
	refused(-EBADMSG, "damaged");
	munmap(s, 4096);
	unlink(path);
}

TEST(truncated)
{
	static const off_t sizes[] = { 0, 1, 4095, 4096, 65536, sizeof(struct sn_shm) - 1 };

	for (size_t i = 0; i < pv_array_size(sizes); i++) {
		leave_file();
		CHECK_EQ(truncate(path, sizes[i]), 0);
		refused(-EBADMSG, "truncated");
		unlink(path);
	}
	leave_file();
	CHECK_EQ(truncate(path, sizeof(struct sn_shm) + 1), 0);
	refused(-EBADMSG, "truncated");
	unlink(path);
}

TEST(not_ours)
{
	leave_file();
	CHECK_EQ(chmod(path, 0644), 0);
	refused(-EACCES, "this user alone");
	CHECK_EQ(chmod(path, 0600), 0);
	if (geteuid() == 0) {
		CHECK_EQ(chown(path, 1, 1), 0);
		refused(-EACCES, "this user alone");
	}
	unlink(path);
	CHECK_EQ(mkdir(path, 0700), 0);
	CHECK(sn_fabric_open(name, &(struct sn_fabric *){ NULL }) < 0);
	rmdir(path);
	CHECK_EQ(symlink("/dev/null", path), 0);
	refused(-EACCES, "");
	unlink(path);
	CHECK_EQ(mkfifo(path, 0600), 0);
	refused(-EACCES, "this user alone");
	unlink(path);
}

TEST(one_view_of_a_process)
{
	struct sn_fabric *a, *b;

	named();
	CHECK_EQ(sn_fabric_open(name, &a), 0);
	CHECK_EQ(sn_fabric_open(name, &b), 0);
	CHECK(a == b);
	sn_fabric_close(a);
	CHECK(fab_exists(name));
	sn_fabric_close(b);
	CHECK(!fab_exists(name));
}

/* Opening and closing in a hurry: never an error, never two fabrics at once, nothing left. */
TEST(races_of_creators)
{
	pid_t pid[6];

	named();
	for (size_t i = 0; i < pv_array_size(pid); i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		alarm(100);
		for (int n = 0; n < 300; n++) {
			struct sn_fabric *f;
			int rc = sn_fabric_open(name, &f);

			if (rc) {
				fprintf(stderr, "%s\n", sn_error());
				_exit(1);
			}
			/* Mine alone: nobody else may be client `f->client` of this file. */
			if (sn_get(&f->s->client[f->client].pid) != (uint32_t)getpid())
				_exit(2);
			sn_fabric_close(f);
		}
		_exit(0);
	}
	for (size_t i = 0; i < pv_array_size(pid); i++) {
		int status;

		CHECK_EQ(waitpid(pid[i], &status, 0), pid[i]);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
	}
	CHECK(!fab_exists(name));
}

/* However close together they go, the last takes the file with it. */
static void go_together(bool by_exit)
{
	for (int n = 0; n < 100; n++) {
		struct sn_fabric *f;
		int go[2], up[2];
		pid_t pid[3];
		char c = 'y';

		named();
		CHECK(!pipe(go) && !pipe(up) && !fflush(stdout));
		for (size_t i = 0; i < pv_array_size(pid); i++) {
			pid[i] = fork();
			if (pid[i])
				continue;
			close(go[1]);
			CHECK_EQ(sn_fabric_open(name, &f), 0);
			CHECK_EQ(write(up[1], &c, 1), 1);
			CHECK_EQ(read(go[0], &c, 1), 0);
			if (by_exit)
				exit(0);
			sn_fabric_close(f);
			_exit(0);
		}
		for (size_t i = 0; i < pv_array_size(pid); i++)
			CHECK_EQ(read(up[0], &c, 1), 1);
		CHECK(fab_exists(name));
		close(go[1]);
		for (size_t i = 0; i < pv_array_size(pid); i++) {
			int status;

			CHECK_EQ(waitpid(pid[i], &status, 0), pid[i]);
			CHECK_EQ(status, 0);
		}
		CHECK(!fab_exists(name));
		close(go[0]);
		close(up[0]);
		close(up[1]);
	}
}

TEST(closed_at_once)
{
	go_together(false);
}

TEST(ended_at_once)
{
	go_together(true);
}

/* More processes than the table has places. */
TEST(too_many_clients)
{
	pid_t pid[SN_CLIENTS];
	struct sn_fabric *f;
	int go[2], up[2];
	char c;

	named();
	CHECK_EQ(pipe(go), 0);
	CHECK_EQ(pipe(up), 0);
	for (size_t i = 0; i < SN_CLIENTS; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		close(go[1]);
		c = sn_fabric_open(name, &f) ? 'n' : 'y';
		CHECK_EQ(write(up[1], &c, 1), 1);
		CHECK_EQ(read(go[0], &c, 1), 0);
		_exit(0);
	}
	for (size_t i = 0; i < SN_CLIENTS; i++) {
		CHECK_EQ(read(up[0], &c, 1), 1);
		CHECK_EQ(c, 'y');
	}
	refused(-ENOSPC, "processes");
	close(go[1]);
	for (size_t i = 0; i < SN_CLIENTS; i++)
		waitpid(pid[i], NULL, 0);
	CHECK_EQ(sn_fabric_open(name, &f), 0);
	sn_fabric_close(f);
	CHECK(!fab_exists(name));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
