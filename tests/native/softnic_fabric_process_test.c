/* SPDX-License-Identifier: BSD-3-Clause */
/* Several processes on one fabric: sharing a port, sleeping and waking, joining and leaving, forking. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "softnic_fabric_util.h"

#define LIMIT_MS (FAB_LIMIT_S * 1000)

/* A child process and a channel of messages to it. */
struct peer {
	pid_t pid;
	int fd;
};

static struct peer peer_start(void (*fn)(int fd, const char *name), const char *name)
{
	struct peer p;
	int sv[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	fflush(NULL);
	p.pid = fork();
	CHECK(p.pid >= 0);
	if (!p.pid) {
		close(sv[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(2 * LIMIT_MS / 1000);
		fn(sv[1], name);
		fflush(NULL);
		_exit(0);
	}
	close(sv[1]);
	p.fd = sv[0];
	return p;
}

static void tell(int fd, uint64_t v)
{
	CHECK_EQ(send(fd, &v, sizeof(v), MSG_NOSIGNAL), sizeof(v));
}

static uint64_t hear(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	uint64_t v;

	CHECK_EQ(poll(&pfd, 1, LIMIT_MS), 1);
	CHECK_EQ(recv(fd, &v, sizeof(v), 0), sizeof(v));
	return v;
}

static void peer_end(struct peer *p)
{
	int status;

	CHECK_EQ(waitpid(p->pid, &status, 0), p->pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(p->fd);
}

/* ---- an echo between two processes, and one port shared by three ---- */

static void echo_main(int fd, const char *name)
{
	struct fab_net net;
	struct sn_frame f;
	struct sn_port *p;
	struct sn_rxq *q;
	uint8_t frame[2048];

	fab_join(&net, name);
	p = fab_port(&net, 1);
	fab_rule_all(p, q = fab_queue(p, 64));
	tell(fd, 1);
	for (;;) {
		await(q, &f);
		memcpy(frame, f.seg[0], f.len);
		sn_rxq_pop(q);
		if (frame[60] == 0xff)
			break;
		frame[5] = 0;
		CHECK_EQ(fab_send(p, frame, f.len), 0);
	}
	fab_leave(&net);
}

TEST(echo)
{
	char name[SN_NAME_MAX + 1];
	struct fab_net net;
	struct sn_frame f;
	struct peer peer;
	struct sn_rxq *q;
	struct sn_port *p;
	uint8_t frame[128];
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 64);

	fab_name(name);
	peer = peer_start(echo_main, name);
	fab_join(&net, name);
	p = fab_port(&net, 0);
	fab_rule_all(p, q = fab_queue(p, 64));
	hear(peer.fd);
	for (uint32_t i = 0; i < 20000; i++) {
		pv_put32(frame + 70, i);
		CHECK_EQ(fab_send(p, frame, len), 0);
		await(q, &f);
		CHECK_EQ(f.len, len);
		CHECK_EQ(pv_get32(f.seg[0] + 70), i);
		sn_rxq_pop(q);
	}
	frame[60] = 0xff;
	CHECK_EQ(fab_send(p, frame, len), 0);
	peer_end(&peer);
	CHECK_EQ(fab_counters(p).tx_packets, 20001);
	/* Of a process that has left. */
	{
		struct sn_port *one = fab_port(&net, 1);

		CHECK_EQ(fab_counters(one).tx_packets, 20000);
		CHECK_EQ(fab_counters(one).rx_packets, 20001);
	}
	fab_done(&net);
}

static void shared_main(int fd, const char *name)
{
	uint32_t me = (uint32_t)hear(fd), own = 0, group = 0;
	struct sn_rule r = { 0 };
	struct fab_net net;
	struct sn_frame f;
	struct sn_port *p;
	struct sn_rxq *q;

	fab_join(&net, name);
	p = fab_port(&net, 1);
	q = fab_queue(p, 1024);
	r.value.dst_port = __builtin_bswap16((uint16_t)(100 + me));
	r.mask.dst_port = 0xffff;
	fab_rule(p, &r, q);
	memset(&r, 0, sizeof(r));
	r.value.dst_mac[0] = r.mask.dst_mac[0] = 1;
	r.priority = 7;
	fab_rule(p, &r, q);
	tell(fd, me);
	hear(fd);
	while (sn_rxq_peek(q, &f)) {
		if (f.seg[0][0] & 1)
			group++;
		else if (pv_get16(f.seg[0] + 36) == 100 + me)
			own++;
		else
			CHECK(!"a frame of another's");
		sn_rxq_pop(q);
	}
	tell(fd, (uint64_t)own << 32 | group);
	fab_leave(&net);
}

/* Told apart by rules: each gets its own port's datagrams and one copy of a group's frame. */
TEST(three_processes_on_one_port)
{
	char name[SN_NAME_MAX + 1];
	struct fab_net net;
	struct peer peer[3];
	struct sn_port *p;
	uint8_t frame[128];

	fab_name(name);
	for (int i = 0; i < 3; i++)
		peer[i] = peer_start(shared_main, name);
	fab_join(&net, name);
	p = fab_port(&net, 0);
	for (uint32_t i = 0; i < 3; i++) {
		tell(peer[i].fd, i);
		hear(peer[i].fd);
	}
	for (uint32_t n = 0; n < 600; n++) {
		uint32_t len = fab_udp4(frame, 0, 1, 1, (uint16_t)(100 + n % 4), 20);

		CHECK_EQ(fab_send(p, frame, len), 0);
		if (n % 6 == 0) {
			pv_put16(frame + 36, 999);
			frame[0] |= 1;
			CHECK_EQ(fab_send(p, frame, len), 0);
		}
	}
	for (int i = 0; i < 3; i++) {
		tell(peer[i].fd, 0);
		CHECK_EQ(hear(peer[i].fd), UINT64_C(150) << 32 | 100);
		peer_end(&peer[i]);
	}
	{
		struct sn_port_counters c = fab_counters(fab_port(&net, 1));

		CHECK_EQ(c.rx_no_rule, 150);
		CHECK_EQ(c.rx_packets, 450 + 300);
		CHECK_EQ(c.rx_queue_full, 0);
	}
	fab_done(&net);
}

/* ---- sleeping ---- */

static void doze(struct sn_rxq *q, struct sn_waker *w)
{
	struct pollfd pfd = { .fd = sn_waker_fd(w), .events = POLLIN };

	if (sn_rxq_arm(q, w))
		return;
	CHECK_EQ(poll(&pfd, 1, LIMIT_MS), 1);
	sn_waker_clear(w);
}

#define WAKES 100000u

static void sleeper_main(int fd, const char *name)
{
	struct fab_net net;
	struct sn_frame f;
	struct sn_waker *w;
	struct sn_port *p;
	struct sn_rxq *q;
	uint8_t frame[128];
	uint32_t len = fab_udp4(frame, 1, 0, 1, 2, 64);

	fab_join(&net, name);
	p = fab_port(&net, 1);
	fab_rule_all(p, q = fab_queue(p, 64));
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
	tell(fd, 1);
	for (uint32_t i = 0; i < WAKES; i++) {
		while (!sn_rxq_peek(q, &f))
			doze(q, w);
		CHECK_EQ(pv_get32(f.seg[0] + 70), i);
		sn_rxq_pop(q);
		pv_put32(frame + 70, i);
		CHECK_EQ(fab_send(p, frame, len), 0);
	}
	sn_waker_close(w);
	fab_leave(&net);
}

/* Both sleep before every frame, or look a random while before they do: a lost wake-up would end it. */
static void wake_stress(void)
{
	char name[SN_NAME_MAX + 1];
	struct fab_net net;
	struct sn_frame f;
	struct sn_waker *w;
	struct peer peer;
	struct sn_rxq *q;
	struct sn_port *p;
	struct pv_rng rng;
	uint8_t frame[128];
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 64);

	pv_rng_seed(&rng, 7);
	fab_name(name);
	peer = peer_start(sleeper_main, name);
	fab_join(&net, name);
	p = fab_port(&net, 0);
	fab_rule_all(p, q = fab_queue(p, 64));
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
	hear(peer.fd);
	for (uint32_t i = 0; i < WAKES; i++) {
		pv_put32(frame + 70, i);
		CHECK_EQ(fab_send(p, frame, len), 0);
		for (uint64_t spin = pv_rng_below(&rng, 200); spin && !sn_rxq_peek(q, &f); spin--)
			;
		while (!sn_rxq_peek(q, &f))
			doze(q, w);
		CHECK_EQ(pv_get32(f.seg[0] + 70), i);
		sn_rxq_pop(q);
	}
	peer_end(&peer);
	sn_waker_close(w);
	fab_done(&net);
}

TEST(no_wake_is_lost)
{
	wake_stress();
}

TEST(no_wake_is_lost_with_fences)
{
	CHECK_EQ(setenv("PYVMA_SOFTNIC_FENCES", "1", 1), 0);
	wake_stress();
	unsetenv("PYVMA_SOFTNIC_FENCES");
}

TEST(arming)
{
	struct fab_net net;
	struct sn_waker *w;
	struct sn_port *a, *b;
	struct sn_rxq *q;
	uint8_t frame[128];
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 64);
	struct pollfd pfd = { .events = POLLIN };

	fab_make(&net);
	a = fab_port(&net, 0);
	b = fab_port(&net, 1);
	fab_rule_all(b, q = fab_queue(b, 64));
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
	pfd.fd = sn_waker_fd(w);
	CHECK_EQ(sn_rxq_arm(q, w), 0);
	CHECK(sn_rxq_armed(q));
	CHECK_EQ(poll(&pfd, 1, 0), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(fab_send(a, frame, len), 0);
	CHECK(!sn_rxq_armed(q));
	CHECK_EQ(poll(&pfd, 1, 0), 1);
	sn_waker_clear(w);
	CHECK_EQ(poll(&pfd, 1, 0), 0);
	/* One is there: not armed, and no wake for the next. */
	CHECK_EQ(sn_rxq_arm(q, w), 1);
	CHECK(!sn_rxq_armed(q));
	CHECK_EQ(fab_send(a, frame, len), 0);
	CHECK_EQ(poll(&pfd, 1, 0), 0);
	CHECK_EQ(fab_drain(q), 4);
	sn_waker_wake(w);
	CHECK_EQ(poll(&pfd, 1, 0), 1);
	/* More wakes than the socket holds. */
	for (int i = 0; i < 2000; i++)
		sn_waker_wake(w);
	sn_waker_clear(w);
	CHECK_EQ(poll(&pfd, 1, 0), 0);
	sn_waker_close(w);
	fab_done(&net);
}

#define MEETINGS_LEAST 300u
#define MEETINGS_MOST 30000u
#define MEETINGS_US 3000000u /* where others have the CPUs, each waits for two processes' turns */

/* Memory that two processes share beside the fabric. */
struct meeting {
	_Atomic uint32_t go, sent, end;
};

static void *shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void meeting_sender(struct meeting *m, const char *name)
{
	struct pv_rng rng;
	struct fab_net net;
	struct sn_port *p;
	uint8_t frame[128];
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 20);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(2 * LIMIT_MS / 1000);
	pv_rng_seed(&rng, 3);
	fab_join(&net, name);
	p = fab_port(&net, 0);
	CHECK_EQ(fab_send(p, frame, len), 0);
	for (uint32_t turn = 1;; turn++) {
		uint32_t go;

		atomic_store(&m->sent, turn);
		for (uint32_t i = 1; (go = atomic_load(&m->go)) != turn && !atomic_load(&m->end); i++) {
			if (i % 1000 == 0)
				sched_yield();
		}
		if (go != turn)
			break;
		for (uint64_t spin = pv_rng_below(&rng, 60); spin; spin--)
			pv_cpu_relax();
		CHECK_EQ(fab_send(p, frame, len), 0);
	}
	fab_leave(&net);
}

/*
 * One arms just when the other sends, from far before to far behind. If the queue was armed and the frame is there and its sender is
 * through, the sender must have taken `armed` back.
 */
static void arm_against_send(void)
{
	struct meeting *m = shared(sizeof(*m));
	char name[SN_NAME_MAX + 1];
	uint32_t armed = 0, refused = 0;
	struct fab_net net;
	struct sn_waker *w;
	struct sn_frame f;
	struct sn_port *p;
	struct sn_rxq *q;
	struct pv_rng rng;
	uint64_t end;
	int status;
	pid_t pid;

	pv_rng_seed(&rng, 4);
	fab_make(&net);
	memcpy(name, net.name, sizeof(name));
	p = fab_port(&net, 1);
	fab_rule_all(p, q = fab_queue(p, 64));
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		meeting_sender(m, name);
		_exit(0);
	}
	await(q, &f);
	sn_rxq_pop(q);
	end = now_us() + MEETINGS_US;
	for (uint32_t turn = 1; turn <= MEETINGS_LEAST || (turn <= MEETINGS_MOST && now_us() < end); turn++) {
		int rc;

		for (uint32_t i = 1; atomic_load(&m->sent) != turn; i++) {
			if (i % 1000 == 0)
				sched_yield();
		}
		atomic_store(&m->go, turn);
		for (uint64_t spin = pv_rng_below(&rng, 60); spin; spin--)
			pv_cpu_relax();
		rc = sn_rxq_arm(q, w);
		CHECK(rc == 0 || rc == 1);
		armed += rc == 0;
		refused += rc == 1;
		for (uint32_t i = 1; atomic_load(&m->sent) != turn + 1; i++) {
			if (i % 1000 == 0)
				sched_yield();
		}
		await(q, &f);
		CHECK(!sn_rxq_armed(q));
		sn_rxq_pop(q);
		sn_waker_clear(w);
	}
	printf("# armed %u, refused %u\n", armed, refused);
	atomic_store(&m->end, 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	sn_waker_close(w);
	fab_done(&net);
	munmap(m, sizeof(*m));
}

TEST(arming_meets_sending)
{
	arm_against_send();
	CHECK_EQ(setenv("PYVMA_SOFTNIC_FENCES", "1", 1), 0);
	arm_against_send();
	unsetenv("PYVMA_SOFTNIC_FENCES");
}

/* ---- counters ---- */

#define SENDERS 8
#define TURNS 30
#define BURST 200u

static void burst_main(int fd, const char *name)
{
	uint8_t frame[128];
	uint32_t len = fab_udp4(frame, 2, 1, 1, 2, 20);
	struct fab_net net;

	hear(fd);
	for (int turn = 0; turn < TURNS; turn++) {
		struct sn_port *p;

		fab_join(&net, name);
		p = fab_port(&net, 2 + (uint32_t)turn % 3);
		for (uint32_t i = 0; i < BURST; i++)
			CHECK_EQ(fab_send(p, frame, len), 0);
		fab_leave(&net);
	}
}

/* Processes come and go all the time while another reads the sums: they never fall, and in the end nothing is missing. */
TEST(counters_are_exact)
{
	char name[SN_NAME_MAX + 1];
	const uint64_t want = SENDERS * TURNS * BURST;
	uint64_t seen = 0, popped = 0, sent = 0;
	struct peer peer[SENDERS];
	struct sn_port_counters c;
	struct fab_net net;
	struct sn_port *p;
	struct sn_rxq *q;

	fab_name(name);
	for (int i = 0; i < SENDERS; i++)
		peer[i] = peer_start(burst_main, name);
	fab_join(&net, name);
	p = fab_port(&net, 1);
	fab_rule_all(p, q = fab_queue(p, 1024));
	for (int i = 0; i < SENDERS; i++)
		tell(peer[i].fd, 1);
	do {
		popped += fab_drain(q);
		c = fab_counters(p);
		CHECK(c.rx_packets + c.rx_queue_full >= seen);
		seen = c.rx_packets + c.rx_queue_full;
	} while (seen < want);
	for (int i = 0; i < SENDERS; i++)
		peer_end(&peer[i]);
	popped += fab_drain(q);
	c = fab_counters(p);
	CHECK_EQ(c.rx_packets + c.rx_queue_full, want);
	CHECK_EQ(c.rx_packets, popped);
	for (uint32_t i = 2; i < 5; i++) {
		c = fab_counters(fab_port(&net, i));
		CHECK_EQ(c.tx_packets, want / 3);
		sent += c.tx_packets;
	}
	CHECK_EQ(sent, want);
	fab_done(&net);
}

/* ---- many senders into one small queue, long frames among short ones ---- */

static void flood_main(int fd, const char *name)
{
	uint32_t me = (uint32_t)hear(fd);
	struct sn_port_cfg cfg = { .mtu = 9000 };
	static uint8_t frame[9014];
	struct fab_net net;
	struct sn_port *p;

	fab_join(&net, name);
	CHECK_EQ(sn_port_attach(net.f, me + 2, &cfg, &p), 0);
	fab_eth(frame, me + 2, 1, 0x88b5);
	frame[14] = (uint8_t)me;
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t len = 19 + (i * 7919 + me) % (i % 5 ? 100 : 8995);

		pv_put32(frame + 15, i);
		memset(frame + 19, (int)(i + me), len - 19);
		CHECK_EQ(fab_send(p, frame, len), 0);
	}
	sn_port_detach(p);
	fab_leave(&net);
}

TEST(many_senders_one_queue)
{
	char name[SN_NAME_MAX + 1];
	struct sn_port_cfg cfg = { .mtu = 9000 };
	uint32_t last[4] = { 0 }, done = 0;
	struct peer peer[4];
	uint64_t got = 0;
	struct fab_net net;
	struct sn_frame f;
	struct sn_port *p;
	struct sn_rxq *q;

	fab_name(name);
	for (uint32_t i = 0; i < 4; i++)
		peer[i] = peer_start(flood_main, name);
	fab_join(&net, name);
	CHECK_EQ(sn_port_attach(net.f, 1, &cfg, &p), 0);
	fab_rule_all(p, q = fab_queue(p, 32));
	for (uint32_t i = 0; i < 4; i++)
		tell(peer[i].fd, i);
	while (done < 4) {
		uint32_t from, n, at;
		const uint8_t *h;

		if (!sn_rxq_peek(q, &f)) {
			struct sn_port_counters c;

			sched_yield();
			sn_port_get_counters(p, &c);
			if (c.rx_packets + c.rx_queue_full == 80000 && c.rx_packets == got)
				break;
			continue;
		}
		h = f.seg[0];
		from = h[14];
		n = pv_get32(h + 15);
		CHECK(from < 4);
		CHECK_EQ(f.len, 19 + (n * 7919 + from) % (n % 5 ? 100 : 8995));
		/* Whole, and in the sender's order. */
		CHECK(!last[from] || n > last[from]);
		last[from] = n;
		at = 0;
		for (uint32_t s = 0; s < f.nseg; s++) {
			for (uint32_t k = s ? 0 : 19; k < f.seg_len[s]; k++)
				CHECK_EQ(f.seg[s][k], (uint8_t)(n + from));
			at += f.seg_len[s];
		}
		CHECK_EQ(at, f.len);
		sn_rxq_pop(q);
		got++;
	}
	CHECK(got > 0);
	for (uint32_t i = 0; i < 4; i++)
		peer_end(&peer[i]);
	sn_rxq_destroy(q);
	net.nqueues = 0;
	sn_port_detach(p);
	fab_done(&net);
}

/* ---- fork ---- */

TEST(fork_forgets)
{
	uint8_t frame[128];
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 20);
	struct sn_port *a, *b;
	struct fab_net net;
	struct sn_rxq *q;
	int status, sv[2], left[2];
	pid_t pid;
	char c = 'x';

	CHECK_EQ(pipe(sv), 0);
	CHECK_EQ(pipe(left), 0);
	fab_make(&net);
	a = fab_port(&net, 0);
	b = fab_port(&net, 1);
	fab_rule_all(b, q = fab_queue(b, 64));
	pid = fork();
	if (!pid) {
		struct fab_net mine;

		/* As a client of its own, with nothing of the parent's. */
		sn_fabric_forget(net.f);
		fab_join(&mine, net.name);
		a = fab_port(&mine, 2);
		CHECK_EQ(fab_send(a, frame, len), 0);
		fab_leave(&mine);
		CHECK_EQ(write(left[1], &c, 1), 1);
		/* Stays, as a worker would, while the parent dies. */
		close(sv[1]);
		CHECK_EQ(read(sv[0], &c, 1), 0);
		_exit(0);
	}
	close(left[1]);
	close(sv[0]);
	CHECK_EQ(fab_send(a, frame, len), 0);
	for (int got = 0; got < 2;) {
		got += (int)fab_drain(q);
		sched_yield();
	}
	/* The child holds nothing any more: the last process to leave is this one. */
	CHECK_EQ(read(left[0], &c, 1), 1);
	fab_done(&net);
	close(left[0]);
	close(sv[1]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void exit_main(int fd, const char *name)
{
	struct sn_waker *w;
	struct fab_net net;

	fab_join(&net, name);
	fab_port(&net, 1);
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
	tell(fd, 1);
	hear(fd);
	exit(0);
}

/* Without closing anything. */
TEST(exit_removes_the_file)
{
	char name[SN_NAME_MAX + 1], path[160];
	struct peer peer;
	struct stat st;

	fab_name(name);
	peer = peer_start(exit_main, name);
	hear(peer.fd);
	CHECK(fab_exists(name));
	fab_path(name, path, sizeof(path) - 8);
	strcat(path, ".w0");
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 0777, 0600);
	tell(peer.fd, 1);
	peer_end(&peer);
	CHECK(!fab_exists(name));
	CHECK(stat(path, &st) != 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
