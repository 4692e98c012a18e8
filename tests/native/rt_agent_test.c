/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's side of pyvmad, against a daemon of the test's own that answers as it is told to, wrongly too. */
#include "test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/agent.h"
#include "rt/agent_msg.h"
#include "rt/engine.h"
#include "rt/stats.h"

#define SEEN_MAX 256
#define WAIT_S 30

enum behave { OK, REFUSE, SHORT, NO_FDS, HANG_UP, OTHER_FIRST, NOISE_FIRST };

struct seen {
	uint16_t type;
	bool with_fd;
	bool stats; /* the descriptor is of the statistics file, for reading, and not the one that has its lock */
	struct pv_agent_flow flow;
	uint16_t flags;
};

/* The daemon. What it shares with the case is under `mutex`. */
static struct {
	char dir[64], path[96];
	int listener, stop[2];
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t more;
	enum behave behave[16];
	struct seen seen[SEEN_MAX];
	uint32_t nseen;
} d;

static struct pv_engine engine;
static struct pv_config cfg;

static void put_answer(int fd, const struct pv_agent_head *head, uint32_t id, int32_t result, uint32_t fields, uint32_t nfds)
{
	struct {
		struct pv_agent_head head;
		int32_t result;
		uint32_t body[32];
	} m = { .head = *head, .result = result };
	union {
		struct cmsghdr align;
		char b[CMSG_SPACE(sizeof(int) * 4)];
	} control = { .b = { 0 } };
	struct iovec iov = { &m, sizeof(m.head) + sizeof(m.result) + fields };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[4];

	m.head.type |= PV_AGENT_ANSWER;
	m.head.id = id;
	m.head.length = (uint32_t)iov.iov_len;
	m.body[0] = head->type == PV_AGENT_XDP ? nfds - 1 : 77;
	if (result)
		memcpy(m.body, "no, and at some length", 22);
	for (uint32_t i = 0; i < nfds; i++)
		CHECK((fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0);
	if (nfds) {
		msg.msg_control = control.b;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		control.align =
		    (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int) * nfds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * nfds);
	}
	(void)!sendmsg(fd, &msg, MSG_NOSIGNAL);
	for (uint32_t i = 0; i < nfds; i++)
		close(fds[i]);
}

/* False: hangs up. */
static bool reply(int fd, const struct pv_agent_head *head, enum behave behave)
{
	static const uint32_t fields[16] = { [PV_AGENT_HELLO] = 8, [PV_AGENT_TAP] = 20, [PV_AGENT_XDP] = 8 };
	uint32_t nfds = head->type == PV_AGENT_TAP ? 2 : head->type == PV_AGENT_XDP ? 3 : 0;

	switch (behave) {
	case HANG_UP:
		return false;
	case REFUSE:
		put_answer(fd, head, head->id, -EACCES, 22, 0);
		return true;
	case SHORT:
		put_answer(fd, head, head->id, 0, 0, nfds);
		return true;
	case NO_FDS:
		nfds = 0;
		break;
	case OTHER_FIRST:
		put_answer(fd, head, head->id + 1000, -EEXIST, 2, 0);
		break;
	case NOISE_FIRST:
		(void)!send(fd, "noise", 5, MSG_NOSIGNAL);
		break;
	case OK:
		break;
	}
	put_answer(fd, head, head->id, 0, fields[head->type], nfds);
	return true;
}

static bool is_stats(int fd)
{
	char path[512];
	struct stat want, st;

	return !pyvma_stats_path(path, sizeof(path)) && !stat(path, &want) && !fstat(fd, &st) && st.st_ino == want.st_ino &&
	       st.st_dev == want.st_dev && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

static bool serve_one(int fd)
{
	uint8_t buf[PV_AGENT_MSG_MAX + 1];
	union {
		struct cmsghdr align;
		char b[CMSG_SPACE(sizeof(int) * 4)];
	} control;
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.b, .msg_controllen = sizeof(control.b) };
	struct pv_agent_head head;
	struct seen s = { .type = 0 };
	ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	enum behave behave;

	if (n <= 0)
		return false;
	CHECK((size_t)n >= sizeof(head));
	memcpy(&head, buf, sizeof(head));
	CHECK_EQ(head.magic, PV_AGENT_MAGIC);
	CHECK_EQ(head.length, n);
	s.type = head.type;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		int got;

		memcpy(&got, CMSG_DATA(c), sizeof(got));
		s.stats = is_stats(got);
		close(got);
		s.with_fd = true;
	}
	if (head.type == PV_AGENT_FLOW_ADD || head.type == PV_AGENT_FLOW_DEL)
		memcpy(&s.flow, buf + sizeof(head), sizeof(s.flow));
	if (head.type == PV_AGENT_TAP)
		memcpy(&s.flags, buf + sizeof(head) + 6, sizeof(s.flags));
	pthread_mutex_lock(&d.mutex);
	behave = d.behave[head.type];
	if (d.nseen < SEEN_MAX)
		d.seen[d.nseen++] = s;
	pthread_cond_broadcast(&d.more);
	pthread_mutex_unlock(&d.mutex);
	return reply(fd, &head, behave);
}

static void *serve(void *arg)
{
	char c;

	(void)arg;
	for (;;) {
		int fd = accept4(d.listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return NULL;
		while (serve_one(fd))
			;
		close(fd);
		if (recv(d.stop[1], &c, 1, MSG_DONTWAIT) == 1)
			return NULL;
	}
}

static void listen_there(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	memcpy(un.sun_path, d.path, sizeof(d.path));
	unlink(d.path);
	d.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(d.listener >= 0);
	CHECK_EQ(bind(d.listener, (struct sockaddr *)&un, sizeof(un)), 0);
	CHECK_EQ(listen(d.listener, 8), 0);
}

static void begin(bool with_daemon)
{
	memset(&d, 0, sizeof(d));
	memset(&engine, 0, sizeof(engine));
	strcpy(d.dir, "/tmp/pvagentXXXXXX");
	CHECK(mkdtemp(d.dir) != NULL);
	snprintf(d.path, sizeof(d.path), "%s/s", d.dir);
	pthread_mutex_init(&d.mutex, NULL);
	pthread_cond_init(&d.more, NULL);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, d.stop), 0);
	cfg.daemon = d.path;
	engine.cfg = &cfg;
	d.listener = -1;
	if (!with_daemon)
		return;
	listen_there();
	CHECK_EQ(pthread_create(&d.thread, NULL, serve, NULL), 0);
}

static void end(bool with_daemon)
{
	pv_agent_stop(&engine);
	if (with_daemon) {
		CHECK_EQ(send(d.stop[0], "x", 1, 0), 1);
		shutdown(d.listener, SHUT_RDWR);
		pthread_join(d.thread, NULL);
		close(d.listener);
	}
	close(d.stop[0]);
	close(d.stop[1]);
	unlink(d.path);
	rmdir(d.dir);
}

static void behave(uint16_t type, enum behave how)
{
	pthread_mutex_lock(&d.mutex);
	d.behave[type] = how;
	pthread_mutex_unlock(&d.mutex);
}

/* The `n`th request of that type, from 1. */
static struct seen await(uint16_t type, uint32_t n)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&d.mutex);
	for (;;) {
		uint32_t count = 0;

		for (uint32_t i = 0; i < d.nseen; i++) {
			if (d.seen[i].type != type || ++count != n)
				continue;
			pthread_mutex_unlock(&d.mutex);
			return d.seen[i];
		}
		CHECK_EQ(pthread_cond_timedwait(&d.more, &d.mutex, &until), 0);
	}
}

static uint32_t open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t n = 0;

	CHECK(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* The daemon's thread may still have its copies of what it passed. */
static void await_fds(uint32_t n)
{
	for (int i = 0; open_fds() != n; i++) {
		CHECK(i < WAIT_S * 1000);
		usleep(1000);
	}
}

static int bound_socket(struct pv_flow *flow)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	*flow = (struct pv_flow){
		.kind = PV_FLOW_3TUPLE, .l4_proto = 17, .dst = pv_addr_from4(&in.sin_addr), .dst_port = ntohs(in.sin_port)
	};
	return fd;
}

TEST(nobody_is_there)
{
	char err[256] = "";
	struct pv_agent *a;

	begin(false);
	cfg.daemon = (char[]){ "none" };
	CHECK(pv_agent_get(&engine) == NULL);
	cfg.daemon = d.path;
	a = pv_agent_get(&engine);
	CHECK(a != NULL && pv_agent_get(&engine) == a);
	CHECK_EQ(pv_agent_deadline(a), PV_NEVER); /* nobody has asked for anything */
	CHECK_EQ(pv_agent_connect(a, err, sizeof(err)), -ENOENT);
	CHECK(strstr(err, "pyvmad is not there") && strstr(err, d.path));
	CHECK(pv_agent_deadline(a) != PV_NEVER);
	listen_there();
	close(d.listener);
	CHECK_EQ(pv_agent_connect(a, err, sizeof(err)), -ECONNREFUSED);
	CHECK(strstr(err, "pyvmad does not run"));
	end(false);
}

TEST(a_tap_and_what_is_no_answer)
{
	struct pv_agent_tap tap;
	char err[256] = "";
	struct pv_agent *a;
	uint32_t before;

	begin(true);
	a = pv_agent_get(&engine);
	CHECK_EQ(pv_agent_connect(a, err, sizeof(err)), 0);
	(void)await(PV_AGENT_HELLO, 1);
	before = open_fds();
	behave(PV_AGENT_TAP, REFUSE);
	CHECK_EQ(pv_agent_tap(a, 3, 1, &tap, err, sizeof(err)), -EACCES);
	CHECK(!strcmp(err, "pyvmad: no, and at some length"));
	behave(PV_AGENT_TAP, SHORT);
	CHECK_EQ(pv_agent_tap(a, 3, 1, &tap, err, sizeof(err)), -EPROTO);
	behave(PV_AGENT_TAP, NO_FDS);
	CHECK_EQ(pv_agent_tap(a, 3, 1, &tap, err, sizeof(err)), -EPROTO);
	await_fds(before);
	behave(PV_AGENT_TAP, OTHER_FIRST);
	CHECK_EQ(pv_agent_tap(a, 3, 2, &tap, err, sizeof(err)), 0);
	CHECK_EQ(tap.ifindex, 77);
	CHECK_EQ(tap.nfds, 2);
	await_fds(before + 3); /* one of the agent's own */
	close(tap.fd[0]);
	close(tap.fd[1]);
	pv_agent_tap_drop(a, 77);
	await_fds(before);
	behave(PV_AGENT_TAP, NOISE_FIRST);
	CHECK_EQ(pv_agent_tap(a, 0, 2, &tap, err, sizeof(err)), 0);
	close(tap.fd[0]);
	close(tap.fd[1]);
	pv_agent_tap_drop(a, tap.ifindex);
	behave(PV_AGENT_TAP, HANG_UP);
	CHECK_EQ(pv_agent_tap(a, 0, 2, &tap, err, sizeof(err)), -EAGAIN);
	CHECK(strstr(err, "went away"));
	CHECK_EQ(pv_agent_fd(a), -1);
	end(true);
}

TEST(xdp_sockets)
{
	struct pv_agent_xdp xdp = { .queues = 2 };
	char err[256] = "";
	struct pv_agent *a;
	uint32_t before;

	begin(true);
	a = pv_agent_get(&engine);
	CHECK_EQ(pv_agent_connect(a, err, sizeof(err)), 0);
	(void)await(PV_AGENT_HELLO, 1);
	before = open_fds();
	behave(PV_AGENT_XDP, NO_FDS);
	CHECK_EQ(pv_agent_xdp(a, 3, &xdp, err, sizeof(err)), -EPROTO);
	await_fds(before);
	behave(PV_AGENT_XDP, OK);
	CHECK_EQ(pv_agent_xdp(a, 3, &xdp, err, sizeof(err)), 0);
	CHECK_EQ(xdp.queues, 2);
	close(xdp.link_fd);
	close(xdp.sock_fd[0]);
	close(xdp.sock_fd[1]);
	pv_agent_xdp_drop(a, 3);
	(void)await(PV_AGENT_XDP_DROP, 1);
	await_fds(before);
	pv_agent_xdp_drop(a, 3); /* nothing more is said */
	end(true);
}

TEST(flows_and_a_daemon_that_comes_again)
{
	struct pv_agent_tap tap;
	struct pv_flow flow, other;
	char err[256] = "";
	struct pv_agent *a;
	struct seen s;
	int fd, fd2;

	begin(true);
	a = pv_agent_get(&engine);
	fd = bound_socket(&flow);
	fd2 = bound_socket(&other);
	CHECK_EQ(pv_agent_tap(a, 3, 2, &tap, err, sizeof(err)), 0);
	CHECK_EQ(pv_agent_flow_add(a, 3, 77, &flow, err, sizeof(err)), 0);
	s = await(PV_AGENT_FLOW_ADD, 1);
	CHECK(s.with_fd);
	CHECK_EQ(s.flow.dst_port, flow.dst_port);
	CHECK_EQ(s.flow.tap, 77);
	CHECK_EQ(pv_agent_flow_add(a, 3, 77, &flow, err, sizeof(err)), -EEXIST);
	behave(PV_AGENT_FLOW_ADD, REFUSE);
	CHECK_EQ(pv_agent_flow_add(a, 3, 77, &other, err, sizeof(err)), -EACCES);
	behave(PV_AGENT_FLOW_ADD, OK);
	CHECK_EQ(pv_agent_flow_del(a, 3, 77, &other), -ENOENT);
	/* It goes in the middle of a request: the rule is had by the next one. */
	behave(PV_AGENT_FLOW_ADD, HANG_UP);
	CHECK_EQ(pv_agent_flow_add(a, 3, 77, &other, err, sizeof(err)), -EAGAIN);
	behave(PV_AGENT_FLOW_ADD, OK);
	CHECK(pv_agent_deadline(a) != PV_NEVER);
	while (!pv_agent_serve(a))
		usleep(1000);
	CHECK_EQ(pv_agent_deadline(a), PV_NEVER);
	s = await(PV_AGENT_TAP, 2);
	CHECK(s.with_fd);
	CHECK_EQ(s.flags, PV_AGENT_AGAIN);
	CHECK(await(PV_AGENT_FLOW_ADD, 4).with_fd);
	CHECK(await(PV_AGENT_FLOW_ADD, 5).with_fd);
	CHECK_EQ(pv_agent_flow_del(a, 3, 77, &flow), 0);
	CHECK_EQ(await(PV_AGENT_FLOW_DEL, 1).flow.dst_port, flow.dst_port);
	CHECK_EQ(pv_agent_flow_del(a, 3, 77, &flow), -ENOENT);
	pv_agent_tap_drop(a, 77); /* with the rule that is left */
	CHECK_EQ(pv_agent_flow_del(a, 3, 77, &other), -ENOENT);
	close(tap.fd[0]);
	close(tap.fd[1]);
	close(fd);
	close(fd2);
	end(true);
}

/* Said at once, again to a daemon that is started anew, and with the file where there is one. */
TEST(peers_are_to_be_told)
{
	char dir[] = "/dev/shm/pvagentXXXXXX";
	struct seen s;
	uint32_t before;

	begin(true);
	before = open_fds();
	pv_agent_start(&engine);
	CHECK(engine.agent == NULL); /* nobody asked for it */
	cfg.crash_reset = true;
	pv_agent_start(&engine);
	s = await(PV_AGENT_CRASH, 1);
	CHECK(!s.with_fd);
	pv_agent_stop(&engine);
	await_fds(before);
	CHECK(mkdtemp(dir) != NULL);
	pv_stats_open(dir);
	before = open_fds();
	pv_agent_start(&engine);
	s = await(PV_AGENT_CRASH, 2);
	CHECK(s.with_fd && s.stats);
	pv_agent_stop(&engine);
	await_fds(before);
	behave(PV_AGENT_CRASH, REFUSE);
	pv_agent_start(&engine);
	(void)await(PV_AGENT_CRASH, 3);
	CHECK(pv_agent_fd(engine.agent) >= 0);
	pv_agent_stop(&engine);
	behave(PV_AGENT_CRASH, HANG_UP);
	pv_agent_start(&engine);
	CHECK(pv_agent_fd(engine.agent) < 0 && pv_agent_deadline(engine.agent) != PV_NEVER);
	behave(PV_AGENT_CRASH, OK);
	CHECK_EQ(pv_agent_connect(engine.agent, NULL, 0), 0);
	s = await(PV_AGENT_CRASH, 5);
	CHECK(s.with_fd && s.stats);
	cfg.crash_reset = false;
	end(true);
	pv_stats_close();
	rmdir(dir);
}

TEST(what_proves_a_flow)
{
	struct pv_flow flow;
	int fd = bound_socket(&flow);

	CHECK_EQ(pv_agent_proof(&flow), fd);
	flow.l4_proto = 6;
	CHECK_EQ(pv_agent_proof(&flow), -1);
	flow.l4_proto = 17;
	flow.dst_port ^= 1;
	CHECK_EQ(pv_agent_proof(&flow), -1);
	flow.dst_port ^= 1;
	flow.dst = pv_addr_from4("\x7f\x00\x00\x02");
	CHECK_EQ(pv_agent_proof(&flow), -1);
	close(fd);
	flow.dst = pv_addr_from4("\x7f\x00\x00\x01");
	CHECK_EQ(pv_agent_proof(&flow), -1);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
