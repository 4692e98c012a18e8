/* SPDX-License-Identifier: BSD-3-Clause */
/* kill -9 of one process at random moments: the others lose none of their frames, and nothing of the dead one stays. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "softnic/fab.h"
#include "softnic_fabric_util.h"

#define KILLS 200
#define WINDOW 16u
#define LIMIT_S 40
enum { A_PORT, B_PORT, VICTIM_PORT };
enum { KIND_AT = 14, SEQ_AT = 15, FRAME = 64 };

static char name[SN_NAME_MAX + 1];

static void rule_mac(struct sn_port *p, struct sn_rxq *q)
{
	struct sn_rule r = { 0 };

	memset(r.mask.dst_mac, 0xff, 6);
	sn_port_mac(p, r.value.dst_mac);
	fab_rule(p, &r, q);
}

static void make(uint8_t *frame, uint32_t from, uint32_t to, uint32_t seq)
{
	fab_eth(frame, from, to, 0x88b5);
	frame[KIND_AT] = (uint8_t)from;
	pv_put32(frame + SEQ_AT, seq);
	memset(frame + 19, (int)seq, FRAME - 19);
}

/* Whole frames only, whoever died. */
static void check_whole(const struct sn_frame *f)
{
	uint32_t seq = pv_get32(f->seg[0] + SEQ_AT);

	for (uint32_t i = 19; i < f->seg_len[0]; i++)
		CHECK_EQ(f->seg[0][i], (uint8_t)seq);
	for (uint32_t k = 1; k < f->nseg; k++) {
		for (uint32_t i = 0; i < f->seg_len[k]; i++)
			CHECK_EQ(f->seg[k][i], (uint8_t)seq);
	}
}

/* ---- the peer: everything that A sends goes back ---- */

static void peer_main(int ready)
{
	struct fab_net net;
	uint8_t frame[FRAME];
	struct sn_port *p;
	struct sn_rxq *q;
	struct sn_waker *w;
	uint32_t next = 0;

	fab_join(&net, name);
	p = fab_port(&net, B_PORT);
	rule_mac(p, q = fab_queue(p, 1024));
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
	CHECK_EQ(write(ready, "r", 1), 1);
	for (;;) {
		struct sn_frame f;

		if (!sn_rxq_peek(q, &f)) {
			struct pollfd pfd = { .fd = sn_waker_fd(w), .events = POLLIN };

			if (!sn_rxq_arm(q, w)) {
				CHECK_EQ(poll(&pfd, 1, LIMIT_S * 1000), 1);
				sn_waker_clear(w);
			}
			continue;
		}
		check_whole(&f);
		if (f.seg[0][KIND_AT] == A_PORT) {
			uint32_t seq = pv_get32(f.seg[0] + SEQ_AT);

			if (seq == UINT32_MAX)
				break;
			CHECK_EQ(seq, next);
			next++;
		}
		/* To A, or to a victim, which waits for it. */
		make(frame, B_PORT, f.seg[0][KIND_AT], pv_get32(f.seg[0] + SEQ_AT));
		CHECK_EQ(fab_send(p, frame, FRAME), 0);
		sn_rxq_pop(q);
	}
	sn_waker_close(w);
	fab_leave(&net);
}

/* ---- victims ---- */

/* Bursts to both others, long frames among them, at most a window without an answer: nobody's queue is ever full. */
static void victim_send(struct fab_net *net, uint32_t port)
{
	static uint8_t frame[SN_FRAME_MAX];
	struct sn_port *p = fab_port(net, port);
	struct sn_rxq *q = fab_queue(p, 64);
	struct sn_seg seg = { frame, 0 };
	uint32_t sent = 0, answered = 0;

	rule_mac(p, q);
	for (uint32_t seq = 0;; seq++) {
		while (sent - answered >= WINDOW) {
			answered += fab_drain(q);
			sched_yield();
		}
		make(frame, port, A_PORT, seq);
		memset(frame + 19, (int)seq, sizeof(frame) - 19);
		seg.len = 64 + seq * 131 % 1400;
		CHECK_EQ(sn_port_send(p, &seg, 1, 0), 0);
		sent++;
		if (seq % 8 == 0) {
			make(frame, port, B_PORT, seq);
			CHECK_EQ(fab_send(p, frame, FRAME), 0);
			sent++;
		}
	}
}

/* Everything that changes the tables. */
static void victim_churn(struct fab_net *net, uint32_t port)
{
	for (uint32_t n = 0;; n++) {
		struct sn_rule r = { .nqueues = 1 };
		struct sn_waker *w;
		struct sn_port *p;
		struct sn_rxq *q;
		uint64_t handle;

		CHECK_EQ(sn_port_attach(net->f, port, NULL, &p), 0);
		CHECK_EQ(sn_rxq_create(p, 8u << n % 5, &q), 0);
		CHECK_EQ(sn_waker_open(net->f, &w), 0);
		r.queues = &q;
		r.mask.ethertype = 0xffff;
		CHECK_EQ(sn_rule_add(p, &r, &handle), 0);
		CHECK_EQ(sn_rxq_arm(q, w), 0);
		sn_port_set_link(p, n % 2);
		if (n % 3 == 0)
			CHECK_EQ(sn_rule_del(p, handle), 0);
		sn_rxq_destroy(q);
		sn_waker_close(w);
		sn_port_detach(p);
	}
}

static void victim_open(struct fab_net *net)
{
	for (;;) {
		sn_fabric_close(net->f);
		fab_join(net, name);
	}
}

/* Frames on their way when it dies. */
static void victim_hold(struct fab_net *net, uint32_t port)
{
	struct sn_impairments imp = { .delay_ns = 2000000, .jitter_ns = 100000, .reorder_ppm = 100000, .seed = 3 };
	struct sn_port *p = fab_port(net, port);
	uint8_t frame[FRAME];

	CHECK_EQ(sn_port_impair(p, &imp), 0);
	for (uint32_t seq = 0; seq < 200; seq++) {
		make(frame, port, A_PORT, seq);
		CHECK_EQ(fab_send(p, frame, FRAME), 0);
		usleep(100);
	}
	for (;;)
		pause();
}

static void victim_main(uint32_t kind, uint32_t port, int ready)
{
	struct fab_net net;

	alarm(2 * LIMIT_S);
	fab_join(&net, name);
	CHECK_EQ(write(ready, "r", 1), 1);
	if (kind % 4 == 0 || kind % 4 == 1)
		victim_send(&net, port);
	else if (kind % 4 == 2)
		victim_churn(&net, port);
	else if (kind % 8 == 3)
		victim_open(&net);
	else
		victim_hold(&net, port);
}

/* ---- the survivor ---- */

struct survivor {
	struct fab_net net;
	struct sn_port *p;
	struct sn_rxq *q;
	uint32_t sent, answered;
	uint64_t from_victims;
};

/* At most a window of each of four senders: victims who send as quickly as they are answered never leave the queue empty. */
static void take(struct survivor *s)
{
	uint8_t frame[FRAME];
	struct sn_frame f;

	for (uint32_t n = 0; n < 4 * WINDOW && sn_rxq_peek(s->q, &f); n++) {
		uint32_t seq = pv_get32(f.seg[0] + SEQ_AT), from = f.seg[0][KIND_AT];

		check_whole(&f);
		if (from == B_PORT) {
			CHECK_EQ(seq, s->answered);
			s->answered++;
		} else {
			make(frame, A_PORT, from, seq);
			CHECK_EQ(fab_send(s->p, frame, FRAME), 0);
			s->from_victims++;
		}
		sn_rxq_pop(s->q);
	}
}

/* One window of own traffic, answered in full and in order. */
static void exchange(struct survivor *s)
{
	uint64_t end = now_us() + LIMIT_S * UINT64_C(1000000);
	uint8_t frame[FRAME];

	for (uint32_t i = 0; i < WINDOW; i++) {
		make(frame, A_PORT, B_PORT, s->sent++);
		CHECK_EQ(fab_send(s->p, frame, FRAME), 0);
	}
	while (s->answered != s->sent) {
		take(s);
		CHECK(now_us() < end);
		sched_yield();
	}
}

static pid_t spawn(uint32_t kind, uint32_t port)
{
	int ready[2];
	pid_t pid;
	char c;

	CHECK_EQ(pipe(ready), 0);
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		close(ready[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (port == B_PORT)
			peer_main(ready[1]);
		else
			victim_main(kind, port, ready[1]);
		_exit(0);
	}
	close(ready[1]);
	CHECK_EQ(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static uint32_t live(const struct sn_shm *s, uint32_t *queues, uint32_t *rules, uint32_t *lanes, uint32_t *wakers)
{
	uint32_t clients = 0;

	*queues = *rules = *lanes = *wakers = 0;
	for (uint32_t i = 0; i < SN_CLIENTS; i++)
		clients += sn_get(&s->client[i].state) != SN_FREE;
	for (uint32_t i = 0; i < SN_RXQS; i++)
		*queues += sn_get(&s->rxq[i].state) != SN_FREE;
	for (uint32_t i = 0; i < sn_get(&s->rules_used); i++)
		*rules += sn_get(&s->rule[i].state) != 0;
	for (uint32_t i = 0; i < SN_LANES; i++)
		*lanes += sn_get(&s->lane_ent[i].state) != SN_FREE;
	for (uint32_t i = 0; i < SN_WAKERS; i++)
		*wakers += sn_get(&s->waker[i].state) != SN_FREE;
	return clients;
}

static void no_names_left(void)
{
	char path[160];

	CHECK(!fab_exists(name));
	for (int i = 0; i < 8; i++) {
		struct stat st;

		fab_path(name, path, sizeof(path) - 8);
		snprintf(path + strlen(path), 8, ".w%d", i);
		CHECK(stat(path, &st) != 0);
	}
}

static void run(uint32_t victims, uint32_t kills)
{
	uint32_t queues, rules, lanes, wakers;
	struct survivor s = { 0 };
	struct pv_rng rng;
	uint8_t frame[FRAME];
	struct sn_fabric *f;
	pid_t peer, pid[4];
	int status;

	pv_rng_seed(&rng, 99 + victims);
	fab_name(name);
	peer = spawn(0, B_PORT);
	fab_join(&s.net, name);
	s.p = fab_port(&s.net, A_PORT);
	rule_mac(s.p, s.q = fab_queue(s.p, 1024));
	for (uint32_t i = 0; i < victims; i++)
		pid[i] = spawn(i, VICTIM_PORT + i);
	for (uint32_t n = 0; n < kills; n++) {
		uint32_t i = n % victims;

		/* By the clock, not by count: how long an exchange takes is up to the scheduler, with more who spin than CPUs. */
		for (uint64_t end = now_us() + pv_rng_below(&rng, 20000); now_us() < end;)
			exchange(&s);
		for (uint64_t k = pv_rng_below(&rng, 20000); k; k--)
			pv_cpu_relax();
		CHECK_EQ(kill(pid[i], SIGKILL), 0);
		CHECK_EQ(waitpid(pid[i], &status, 0), pid[i]);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		exchange(&s);
		pid[i] = spawn(pv_rng_u32(&rng) % 8, VICTIM_PORT + i);
	}
	for (uint32_t i = 0; i < victims; i++) {
		CHECK_EQ(kill(pid[i], SIGKILL), 0);
		CHECK_EQ(waitpid(pid[i], &status, 0), pid[i]);
	}
	exchange(&s);
	CHECK(s.from_victims > kills);
	/* The next to come or go frees what is left of the dead. */
	f = s.net.f;
	CHECK_EQ(sn_lock(f), 0);
	sn_clients_reap(f);
	sn_unlock(f);
	CHECK_EQ(live(f->s, &queues, &rules, &lanes, &wakers), 2);
	CHECK_EQ(queues, 2);
	CHECK_EQ(rules, 2);
	CHECK_EQ(lanes, 2);
	CHECK_EQ(wakers, 1);
	CHECK_EQ(fab_counters(s.p).rx_queue_full, 0);
	/* B answered all of it, having seen all of it in order. */
	make(frame, A_PORT, B_PORT, UINT32_MAX);
	CHECK_EQ(fab_send(s.p, frame, FRAME), 0);
	CHECK_EQ(waitpid(peer, &status, 0), peer);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	fab_leave(&s.net);
	no_names_left();
}

TEST(one_victim)
{
	run(1, KILLS);
}

TEST(three_victims)
{
	run(3, KILLS / 2);
}

/* ---- deaths at a chosen place ---- */

/* A claim without its frame: the consumer waits while the claimant lives, and passes when it is dead. */
TEST(dead_claim_is_skipped)
{
	uint8_t frame[FRAME];
	struct fab_net net;
	struct sn_frame f;
	struct sn_waker *w;
	struct sn_port *a, *b;
	struct sn_rxq *q;
	int ready[2], status;
	pid_t pid;
	char c;

	fab_make(&net);
	a = fab_port(&net, A_PORT);
	b = fab_port(&net, B_PORT);
	rule_mac(b, q = fab_queue(b, 64));
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
	CHECK_EQ(pipe(ready), 0);
	memcpy(name, net.name, sizeof(name));
	pid = fork();
	if (!pid) {
		struct fab_net mine;
		struct sn_target t;

		fab_join(&mine, name);
		CHECK(sn_target_get(mine.f->s, 0, &t));
		/* As sn_port_send does it: three slots, and no frame. */
		sn_set(&t.claim[0], SN_CLAIM(64, 3, mine.f->client));
		CHECK_EQ(write(ready[1], "r", 1), 1);
		pause();
		_exit(0);
	}
	CHECK_EQ(read(ready[0], &c, 1), 1);
	make(frame, A_PORT, B_PORT, 7);
	CHECK_EQ(fab_send(a, frame, FRAME), 0);
	for (int i = 0; i < 20000; i++)
		CHECK(!sn_rxq_peek(q, &f));
	/* Not asleep over a frame that is being written. */
	CHECK_EQ(sn_rxq_arm(q, w), 1);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 20000 && !sn_rxq_peek(q, &f); i++)
		;
	CHECK(sn_rxq_peek(q, &f));
	CHECK_EQ(pv_get32(f.seg[0] + SEQ_AT), 7);
	sn_rxq_pop(q);
	CHECK_EQ(fab_drain(q), 0);
	for (uint32_t i = 0; i < 500; i++) {
		CHECK_EQ(fab_send(a, frame, FRAME), 0);
		CHECK_EQ(fab_drain(q), 1);
	}
	CHECK_EQ(sn_rxq_arm(q, w), 0);
	sn_waker_close(w);
	fab_done(&net);
}

/* One is dead and behind it lies a frame: that is the oldest. */
TEST(a_skipped_slot_is_no_end)
{
	uint8_t frame[FRAME];
	struct sn_target t;
	struct fab_net net;
	struct sn_port *a, *b;
	struct sn_rxq *q;

	fab_make(&net);
	a = fab_port(&net, A_PORT);
	b = fab_port(&net, B_PORT);
	rule_mac(b, q = fab_queue(b, 64));
	CHECK(sn_target_get(net.f->s, 0, &t));
	make(frame, A_PORT, B_PORT, 7);
	for (uint32_t pos = 64; pos < 64 + 15; pos += 5) {
		/* Of a number that nobody has. */
		sn_set(&t.claim[pos & t.mask], SN_CLAIM(pos, 1, SN_CLIENTS - 1));
		sn_set(&t.claim[(pos + 1) & t.mask], SN_CLAIM(pos + 1, 3, SN_CLIENTS - 1));
		CHECK_EQ(fab_send(a, frame, FRAME), 0);
	}
	CHECK_EQ(sn_lock(net.f), 0);
	sn_rxq_unclaim(net.f, 0, SN_CLIENTS - 1);
	sn_unlock(net.f);
	CHECK_EQ(fab_drain(q), 3);
	fab_done(&net);
}

/* ---- a reaper that is stopped between two looks, while the ring goes round ---- */

static struct {
	uint8_t *page;
	size_t size;
	int reached, go;
} stop;

/* The reaper may not look at the slot until it is told to; what it has seen of the queue before is old by then. */
static void on_fault(int sig, siginfo_t *info, void *ctx)
{
	const uint8_t *at = info->si_addr;
	char c;

	(void)sig;
	(void)ctx;
	if (at < stop.page || at >= stop.page + stop.size || write(stop.reached, "r", 1) != 1 || read(stop.go, &c, 1) != 1 ||
	    mprotect(stop.page, stop.size, PROT_READ | PROT_WRITE))
		_exit(3);
}

static void stop_at(struct sn_slot *slot)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	stop.size = (size_t)sysconf(_SC_PAGESIZE);
	stop.page = (uint8_t *)slot - (uintptr_t)slot % stop.size;
	CHECK_EQ(sigaction(SIGSEGV, &sa, NULL), 0);
	CHECK_EQ(mprotect(stop.page, stop.size, PROT_NONE), 0);
}

/* Sends one frame and leaves, or reaps who has died meanwhile. */
static void reaper_main(bool leaves)
{
	struct fab_net net;
	struct sn_target t;
	uint8_t frame[FRAME];
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(2 * LIMIT_S);
	fab_join(&net, name);
	CHECK(sn_target_get(net.f->s, 0, &t));
	/* Joining reaps, too: the other is to die later. */
	CHECK_EQ(write(stop.reached, "j", 1), 1);
	if (leaves) {
		make(frame, VICTIM_PORT, B_PORT, 0);
		CHECK_EQ(fab_send(fab_port(&net, VICTIM_PORT), frame, FRAME), 0);
		stop_at(&t.slot[0]);
	} else {
		CHECK_EQ(read(stop.go, &c, 1), 1);
		CHECK_EQ(sn_lock(net.f), 0);
		stop_at(&t.slot[0]);
		sn_clients_reap(net.f);
		sn_unlock(net.f);
	}
	fab_leave(&net);
}

/* Sends one frame and is killed. */
static void one_frame_and_dead(void)
{
	uint8_t frame[FRAME];
	struct fab_net net;
	int sent[2], status;
	pid_t pid;
	char c;

	CHECK_EQ(pipe(sent), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(2 * LIMIT_S);
		close(sent[0]);
		fab_join(&net, name);
		make(frame, VICTIM_PORT, B_PORT, 0);
		CHECK_EQ(fab_send(fab_port(&net, VICTIM_PORT), frame, FRAME), 0);
		CHECK_EQ(write(sent[1], "s", 1), 1);
		for (;;)
			pause();
	}
	close(sent[1]);
	CHECK_EQ(read(sent[0], &c, 1), 1);
	close(sent[0]);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
}

/*
 * A complete frame of the one who is reaped is consumed, and its slot is claimed and completed by another sender, after the reaper has read
 * the claim and before it looks whether that is complete. The other's frame is none of the reaper's business.
 */
static void lap_a_reaper(bool leaves)
{
	struct pollfd pfd = { .events = POLLIN };
	int reached[2], go[2], status;
	struct sn_port *a, *b;
	uint8_t frame[FRAME];
	struct fab_net net;
	struct sn_frame f;
	struct sn_rxq *q;
	pid_t pid;
	char c;

	fab_make(&net);
	memcpy(name, net.name, sizeof(name));
	a = fab_port(&net, A_PORT);
	b = fab_port(&net, B_PORT);
	rule_mac(b, q = fab_queue(b, 8));
	CHECK(!pipe(reached) && !pipe(go));
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		close(go[1]);
		stop.reached = reached[1];
		stop.go = go[0];
		reaper_main(leaves);
		_exit(0);
	}
	close(reached[1]);
	CHECK_EQ(read(reached[0], &c, 1), 1);
	if (!leaves) {
		one_frame_and_dead();
		CHECK_EQ(write(go[1], "d", 1), 1);
	}
	pfd.fd = reached[0];
	CHECK_EQ(poll(&pfd, 1, LIMIT_S * 1000), 1);
	CHECK_EQ(read(reached[0], &c, 1), 1);
	for (uint32_t seq = 1; seq <= 8; seq++) {
		CHECK_EQ(fab_drain(q), 1);
		make(frame, A_PORT, B_PORT, seq);
		CHECK_EQ(fab_send(a, frame, FRAME), 0);
	}
	CHECK_EQ(write(go[1], "g", 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(sn_rxq_peek(q, &f));
	CHECK_EQ(pv_get32(f.seg[0] + SEQ_AT), 8);
	check_whole(&f);
	sn_rxq_pop(q);
	for (uint32_t i = 0; i < 91; i++) {
		CHECK_EQ(fab_send(a, frame, FRAME), 0);
		CHECK_EQ(fab_drain(q), 1);
	}
	CHECK_EQ(fab_counters(b).rx_packets, 100);
	close(reached[0]);
	close(go[0]);
	close(go[1]);
	fab_done(&net);
}

TEST(the_ring_goes_round_while_one_leaves)
{
	lap_a_reaper(true);
}

TEST(the_ring_goes_round_while_a_dead_one_is_reaped)
{
	lap_a_reaper(false);
}

/* In the middle of a change, with the lock held: senders do not wait for a dead process. */
TEST(dead_in_a_change)
{
	uint8_t frame[FRAME];
	struct fab_net net;
	struct sn_port *a, *b;
	struct sn_rxq *q;
	int ready[2], status;
	pid_t pid;
	char c;

	fab_make(&net);
	a = fab_port(&net, A_PORT);
	b = fab_port(&net, B_PORT);
	rule_mac(b, q = fab_queue(b, 64));
	make(frame, A_PORT, B_PORT, 7);
	CHECK_EQ(fab_send(a, frame, FRAME), 0);
	CHECK_EQ(pipe(ready), 0);
	memcpy(name, net.name, sizeof(name));
	pid = fork();
	if (!pid) {
		struct fab_net mine;

		fab_join(&mine, name);
		fab_queue(fab_port(&mine, VICTIM_PORT), 64);
		CHECK_EQ(sn_lock(mine.f), 0);
		sn_change_begin(mine.f);
		CHECK_EQ(write(ready[1], "r", 1), 1);
		pause();
		_exit(0);
	}
	CHECK_EQ(read(ready[0], &c, 1), 1);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(fab_send(a, frame, FRAME), 0);
	CHECK_EQ(fab_drain(q), 2);
	CHECK_EQ(sn_get(&net.f->s->generation) & 1, 0);
	CHECK_EQ(sn_get(&net.f->s->rxq[1].state), SN_FREE);
	fab_done(&net);
}

/* Frames that were held back die with their process, and are counted. */
TEST(held_frames_are_counted)
{
	struct fab_net net;
	struct sn_port *a;
	int ready[2], status;
	pid_t pid;
	char c;

	fab_make(&net);
	a = fab_port(&net, A_PORT);
	CHECK_EQ(pipe(ready), 0);
	memcpy(name, net.name, sizeof(name));
	pid = fork();
	if (!pid) {
		struct sn_impairments imp = { .delay_ns = UINT64_C(50000000000) };
		uint8_t frame[FRAME];
		struct fab_net mine;
		struct sn_port *p;

		fab_join(&mine, name);
		p = fab_port(&mine, A_PORT);
		CHECK_EQ(sn_port_impair(p, &imp), 0);
		for (uint32_t i = 0; i < 25; i++) {
			make(frame, A_PORT, B_PORT, i);
			CHECK_EQ(fab_send(p, frame, FRAME), 0);
		}
		CHECK_EQ(write(ready[1], "r", 1), 1);
		pause();
		_exit(0);
	}
	CHECK_EQ(read(ready[0], &c, 1), 1);
	CHECK_EQ(fab_counters(a).tx_impaired_loss, 0);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	/* Before and after it is reaped, and when its lane belongs to another. */
	CHECK_EQ(fab_counters(a).tx_impaired_loss, 25);
	CHECK_EQ(fab_counters(a).tx_packets, 25);
	for (int i = 0; i < 3; i++)
		fab_port(&net, A_PORT);
	CHECK_EQ(fab_counters(a).tx_impaired_loss, 25);
	fab_done(&net);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
