/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receive queues beside the first ones of a verbs ring: where frames come by, in which order while rules move, what becomes of buffers, and
 * what an error on the way leaves behind. The frames are sent by another ring.
 */
#include "ring/fault.h"
#include "ring/verbs_priv.h"
#include "ring_verbs_rig.h"

#define QUEUES 8u
#define DEPTH 16u
#define PORT 53

static struct rig rig;
static uint64_t handle;

static void open_rig(struct pv_verbs_cfg cfg, uint32_t rx_queues)
{
	static const struct rig_kind kind = { .name = "rxq", .settle = settle };
	static const struct pv_pool_cfg pool = { .buf_size = 2048, .headroom = 128, .count = 256, .chunk = 128, .max = 1024 };
	static char names[2][PV_RING_NAME_MAX];
	char err[256];

	memset(&rig, 0, sizeof(rig));
	rig.kind = &kind;
	testmem_init(&rig.mem);
	devices(names, "");
	cfg.library = SOFTNIC_LIB;
	cfg.rx_depth = DEPTH * rx_queues;
	cfg.tx_depth = 256;
	for (int i = 0; i < 2; i++) {
		cfg.device = names[i];
		cfg.rx_queues = i ? rx_queues : 1;
		cfg.rxqs = i ? QUEUES : 0;
		CHECK_EQ(pv_pool_open(&rig.pool[i], &rig.mem.mem, &pool), 0);
		CHECK_EQ(pv_verbs_open(&rig.ring[i], &rig.mem.mem, rig.pool[i], &cfg, err, sizeof(err)), 0);
	}
	CHECK_EQ(rig.ring[1]->caps.rxqs, QUEUES);
	CHECK_EQ(rig.ring[1]->caps.rxq_depth, DEPTH * rx_queues);
	CHECK_EQ(rig.ring[1]->caps.rx_depth, DEPTH * rx_queues);
	rig_fill(&rig, 1);
}

static void close_all(void)
{
	for (int i = 0; i < 2; i++)
		rig_close_side(&rig, i);
	CHECK_EQ(rig.mem.blocks, 0);
	CHECK_EQ(rig.mem.bytes, 0);
}

static uint64_t rule(enum pv_flow_kind kind, uint8_t proto, uint16_t src_port)
{
	struct pv_flow f = { .kind = kind, .l4_proto = proto, .dst = contract_addr4(2), .dst_port = PORT };
	uint64_t h;

	if (kind == PV_FLOW_5TUPLE) {
		f.src = contract_addr4(3);
		f.src_port = src_port;
	}
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &h), 0);
	return h;
}

static void send_one(uint16_t src_port, uint32_t payload)
{
	const struct contract_ip d = { .proto = 17,
				       .dst = contract_addr4(2),
				       .src = contract_addr4(3),
				       .dst_port = PORT,
				       .src_port = src_port,
				       .payload = payload };

	rig_post(&rig, 0, contract_ip_frame(&rig, 0, &d));
	rig_kick(&rig, 0);
	rig_reap_all(&rig, 0, 1);
}

static uint32_t number(const struct pv_pkt *p)
{
	CHECK(p->flags & PV_PKT_QUEUE);
	return p->txq + 1u - rig.ring[1]->caps.queues;
}

/* Of the next frame: its source port, and by which queue it came. */
static uint32_t take(uint32_t *queue)
{
	struct pv_pkt *p;
	uint32_t port;

	if (!pv_ring_rx_poll(rig.ring[1], &p, 1))
		return 0;
	port = pv_get16(p->data + 14 + 20);
	*queue = number(p);
	pv_pkt_put(p);
	return port;
}

static uint32_t expect(uint16_t port)
{
	uint32_t queue;

	CHECK_EQ(take(&queue), port);
	return queue;
}

static uint32_t came_by(uint16_t port)
{
	send_one(port, 20);
	return expect(port);
}

static int move(uint64_t set)
{
	return pv_ring_flow_move(rig.ring[1], handle, set);
}

static uint64_t bit(int n)
{
	CHECK(n > 0);
	return UINT64_C(1) << n;
}

static struct verbs_ring *inside(void)
{
	return verbs_ring(rig.ring[1]);
}

/* Frames that nobody has polled yet, a few on each of the queues that the rule led to: they come in the order in which they were sent. */
static void order(struct pv_verbs_cfg cfg, uint32_t rx_queues, enum pv_flow_kind kind)
{
	uint64_t sets[5];
	uint16_t port = 1000;

	open_rig(cfg, rx_queues);
	if (cfg.stamps)
		CHECK_EQ(pv_ring_set_stamps(rig.ring[1], true, false), 0);
	handle = rule(kind, 17, port);
	sets[0] = bit(pv_ring_rxq_open(rig.ring[1]));
	sets[1] = bit(pv_ring_rxq_open(rig.ring[1]));
	sets[2] = sets[0] | sets[1];
	sets[3] = sets[0];
	sets[4] = 0;
	for (uint32_t turn = 0; turn < 40; turn++) {
		uint32_t want[] = { 20, 21, 22, 23, 24, 25 };

		for (uint32_t i = 0; i < 3; i++) {
			send_one(port, want[2 * i]);
			send_one(port, want[2 * i + 1]);
			/* Armed at times: what that finds is older than all else. */
			if (cfg.rx_interrupts && turn & 1)
				CHECK(pv_ring_arm(rig.ring[1]) >= 0);
			CHECK_EQ(move(sets[(turn + i) % 5]), 0);
		}
		for (uint32_t i = 0; i < 6; i++) {
			struct pv_pkt *p;

			CHECK_EQ(pv_ring_rx_poll(rig.ring[1], &p, 1), 1);
			CHECK_EQ(p->len, PV_MAX(60u, 14 + 20 + 8 + want[i]));
			pv_pkt_put(p);
		}
		rig_fill(&rig, 1);
	}
	close_all();
}

TEST(frames_keep_their_order)
{
	order((struct pv_verbs_cfg){ .rx_interrupts = true }, 1, PV_FLOW_3TUPLE);
	order((struct pv_verbs_cfg){ .rx_interrupts = true, .stamps = PV_VERBS_STAMPS_RAW }, 4, PV_FLOW_3TUPLE);
	order((struct pv_verbs_cfg){ .legacy = true }, 1, PV_FLOW_5TUPLE);
}

TEST(a_queue_takes_what_its_rule_names)
{
	uint64_t other;
	int q, q2;

	for (uint32_t queues = 1; queues <= 4; queues += 3) {
		open_rig((struct pv_verbs_cfg){ 0 }, queues);
		handle = rule(PV_FLOW_3TUPLE, 17, 0);
		CHECK((int32_t)came_by(7) <= 0); /* a first one: there may be several */
		q = pv_ring_rxq_open(rig.ring[1]);
		q2 = pv_ring_rxq_open(rig.ring[1]);
		CHECK_EQ(move(bit(q)), 0);
		CHECK_EQ(came_by(7), (uint32_t)q);
		/* A connected socket's rule is the tighter one, wherever it leads. */
		other = rule(PV_FLOW_5TUPLE, 17, 9);
		CHECK((int32_t)came_by(9) <= 0);
		CHECK_EQ(pv_ring_flow_move(rig.ring[1], other, bit(q2)), 0);
		CHECK_EQ(came_by(9), (uint32_t)q2);
		CHECK_EQ(came_by(8), (uint32_t)q);
		CHECK_EQ(pv_ring_flow_del(rig.ring[1], other), 0);
		CHECK_EQ(came_by(9), (uint32_t)q);
		CHECK_EQ(move(bit(q2)), 0);
		CHECK_EQ(move(bit(q2)), 0);
		CHECK_EQ(came_by(9), (uint32_t)q2);
		CHECK_EQ(move(0), 0);
		CHECK((int32_t)came_by(9) <= 0);
		rig_fill(&rig, 1);
		close_all();
	}
}

/* A socket has the same rule, which does not move. */
TEST(a_rule_is_moved_beside_its_like)
{
	uint64_t like;
	int q[2];

	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	like = rule(PV_FLOW_3TUPLE, 17, 0);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	q[0] = pv_ring_rxq_open(rig.ring[1]);
	q[1] = pv_ring_rxq_open(rig.ring[1]);
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t queue;

		CHECK_EQ(move(bit(q[i & 1])), 0);
		CHECK_EQ(came_by(7), (uint32_t)q[i & 1]);
		CHECK_EQ(take(&queue), 0); /* once */
	}
	CHECK_EQ(move(0), 0);
	CHECK_EQ(came_by(7), 0);
	CHECK_EQ(pv_ring_flow_del(rig.ring[1], like), 0);
	CHECK_EQ(came_by(7), 0);
	rig_fill(&rig, 1);
	close_all();
}

/* A rule over three queues: as even as the table of 64 entries, and a flow never on two. */
TEST(a_group_is_spread)
{
	uint32_t count[QUEUES + 1] = { 0 };
	uint64_t set = 0;

	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	for (int i = 0; i < 3; i++)
		set |= bit(pv_ring_rxq_open(rig.ring[1]));
	CHECK_EQ(move(set), 0);
	for (uint32_t i = 0; i < 3000; i++) {
		uint32_t q = came_by((uint16_t)(1000 + i));

		CHECK(set & UINT64_C(1) << q);
		CHECK_EQ(came_by((uint16_t)(1000 + i)), q);
		count[q]++;
		rig_fill(&rig, 1);
	}
	for (uint32_t q = 1; q <= 3; q++)
		CHECK(count[q] > 850 && count[q] < 1150);
	/* Its queues are in use until it leads elsewhere. */
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], 2), -EBUSY);
	CHECK_EQ(move(bit(1)), 0);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], 2), 0);
	CHECK_EQ(move(set), -ENOENT);
	CHECK_EQ(came_by(77), 1);
	close_all();
}

TEST(what_a_closed_queue_has_still_comes)
{
	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	for (uint32_t turn = 0; turn < 100; turn++) {
		int q = pv_ring_rxq_open(rig.ring[1]);
		uint32_t before = rig.pool[1]->nfree, n = turn % DEPTH, posted = 0;
		struct pv_pkt *p;

		CHECK_EQ(q, 1); /* the number is free again each time */
		CHECK_EQ(move(bit(q)), 0);
		for (uint32_t i = 0; i < n; i++)
			send_one((uint16_t)(100 + i), 20);
		CHECK_EQ(move(0), 0);
		send_one(99, 20);
		CHECK_EQ(pv_ring_rxq_close(rig.ring[1], (uint32_t)q), 0);
		for (uint32_t i = 0; i < n; i++)
			CHECK_EQ(expect((uint16_t)(100 + i)), (uint32_t)q);
		CHECK_EQ(expect(99), 0);
		/* The owner posts one for each that came; the ring takes no more than the first queue misses. */
		for (uint32_t i = 0; i < n + 1; i++) {
			p = pv_pkt_get(rig.pool[1]);
			CHECK_EQ(pv_ring_rx_post(rig.ring[1], &p, 1), 1);
			posted++;
		}
		p = pv_pkt_get(rig.pool[1]);
		CHECK_EQ(pv_ring_rx_post(rig.ring[1], &p, 1), 0);
		pv_pkt_put(p);
		CHECK_EQ(rig.pool[1]->nfree, before + DEPTH);
		CHECK_EQ(inside()->rx_outstanding, DEPTH);
	}
	close_all();
}

TEST(there_are_no_more_than_that)
{
	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	for (uint32_t i = 1; i <= QUEUES; i++)
		CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), (int)i);
	CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), -ENOSPC);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], 0), -ENOENT);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], QUEUES + 1), -ENOENT);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], UINT32_MAX), -ENOENT);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], 3), 0);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], 3), -ENOENT);
	CHECK_EQ(move(1), -ENOENT);
	CHECK_EQ(move(bit(3)), -ENOENT);
	CHECK_EQ(move(bit(2) | bit(3)), -ENOENT);
	CHECK_EQ(move(UINT64_C(1) << 63), -ENOENT);
	CHECK_EQ(pv_ring_flow_move(rig.ring[1], handle + 1, bit(2)), -ENOENT);
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &(struct pv_flow){ .kind = PV_FLOW_IP, .dst = contract_addr4(2) }, &handle), 0);
	CHECK_EQ(move(bit(2)), -EOPNOTSUPP);
	CHECK_EQ(pv_ring_rxq_open(rig.ring[0]), -EOPNOTSUPP);
	CHECK_EQ(pv_ring_flow_move(rig.ring[0], 1, 0), -EOPNOTSUPP);
	close_all();
}

/* A pool that cannot grow any more, in the middle of it all. */
TEST(without_buffers_there_is_no_queue)
{
	struct pv_pkt *kept = NULL, *p;

	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	while (!pv_pool_grow(rig.pool[1]))
		;
	while (rig.pool[1]->nfree >= DEPTH) {
		p = pv_pkt_get(rig.pool[1]);
		p->next = kept;
		kept = p;
	}
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), -ENOBUFS);
	while ((p = kept)) {
		kept = p->next;
		pv_pkt_put(p);
	}
	CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), 1);
	close_all();
}

/* Frames may wait behind a queue without buffers: the rule stays until the owner has looked after that, and nothing is opened for it. */
TEST(a_starving_queue_is_not_left)
{
	struct pv_pkt *got[DEPTH + 4];
	uint32_t queue, n = 0;
	int q;

	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	q = pv_ring_rxq_open(rig.ring[1]);
	for (uint32_t i = 0; i < DEPTH + 4; i++)
		send_one((uint16_t)(100 + i), 20);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(move(bit(q)), -EAGAIN);
	send_one(300, 20);
	n = pv_ring_rx_poll(rig.ring[1], got, DEPTH + 4);
	CHECK_EQ(n, DEPTH);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(pv_get16(got[i]->data + 34), 100 + i);
		CHECK_EQ(number(got[i]), 0);
		pv_pkt_put(got[i]);
	}
	rig_fill(&rig, 1);
	CHECK_EQ(move(bit(q)), 0);
	send_one(301, 20);
	for (uint32_t i = DEPTH; i < DEPTH + 4; i++)
		CHECK_EQ(expect((uint16_t)(100 + i)), 0);
	CHECK_EQ(take(&queue), 300);
	CHECK_EQ(expect(301), (uint32_t)q);
	rig_fill(&rig, 1);
	close_all();
}

/* ---- a device that refuses ------------------------------------------------------------------------------------------------- */

static int (*destroy_flow)(struct ibv_flow *flow);
static struct ibv_flow *(*create_flow)(struct ibv_qp *qp, struct ibv_flow_attr *attr);

static int no_destroy(struct ibv_flow *flow)
{
	(void)flow;
	return EBUSY;
}

static struct ibv_flow *no_create(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	(void)qp;
	(void)attr;
	errno = ENOMEM;
	return NULL;
}

static void refuse(bool create, bool destroy)
{
	struct verbs_context *vctx = verbs_get_ctx(inside()->ctx);

	if (!create_flow) {
		create_flow = vctx->ibv_create_flow;
		destroy_flow = vctx->ibv_destroy_flow;
	}
	vctx->ibv_create_flow = create ? no_create : create_flow;
	vctx->ibv_destroy_flow = destroy ? no_destroy : destroy_flow;
}

TEST(a_refused_move_changes_nothing)
{
	int q;

	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	q = pv_ring_rxq_open(rig.ring[1]);
	CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), 2);
	for (int i = 0; i < 3; i++) {
		refuse(true, false);
		CHECK_EQ(move(bit(q)), -ENOMEM);
		CHECK_EQ(move(bit(q) | bit(2)), -ENOMEM);
		refuse(false, false);
		CHECK_EQ(came_by(5), 0);
	}
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], (uint32_t)q), 0); /* nothing leads there */
	close_all();
}

/* The device keeps the old rule. On the way up the new one is above it: the move is made, and said to be. On the way down the old one still takes
 * the frames: it is not, and said not to be. */
TEST(an_old_rule_that_stays)
{
	int q, q2;

	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	q = pv_ring_rxq_open(rig.ring[1]);
	q2 = pv_ring_rxq_open(rig.ring[1]);
	refuse(false, true);
	CHECK_EQ(move(bit(q)), 0);
	CHECK_EQ(came_by(5), (uint32_t)q);
	CHECK_EQ(move(bit(q2)), -EBUSY);
	CHECK_EQ(came_by(6), (uint32_t)q);
	refuse(false, false);
	CHECK_EQ(move(bit(q2)), 0);
	CHECK_EQ(came_by(7), (uint32_t)q2);
	refuse(false, true);
	CHECK_EQ(move(bit(q2) | bit(q)), -EBUSY); /* down */
	CHECK_EQ(came_by(8), (uint32_t)q2);
	refuse(false, false);
	CHECK_EQ(move(bit(q)), 0);
	CHECK_EQ(came_by(9), (uint32_t)q);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], (uint32_t)q2), 0);
	CHECK_EQ(pv_ring_flow_del(rig.ring[1], handle), 0);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], (uint32_t)q), 0);
	close_all();
}

/* A queue to which only a rule leads that the device keeps is closed, but its number is free once the device has let go. */
TEST(a_queue_that_the_device_holds_on_to)
{
	int q, q2;

	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	q = pv_ring_rxq_open(rig.ring[1]);
	q2 = pv_ring_rxq_open(rig.ring[1]);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(move(0), 0);
		CHECK_EQ(move(bit(q)), 0);
		refuse(false, true);
		CHECK_EQ(move(bit(q2)), 0);
		CHECK_EQ(pv_ring_rxq_close(rig.ring[1], (uint32_t)q2), -EBUSY);
		CHECK_EQ(pv_ring_rxq_close(rig.ring[1], (uint32_t)q), 0);
		CHECK_EQ(pv_ring_rxq_close(rig.ring[1], (uint32_t)q), -ENOENT);
		CHECK_EQ(came_by(7), (uint32_t)q2);
		for (uint32_t n = 2; n < QUEUES; n++)
			CHECK(pv_ring_rxq_open(rig.ring[1]) > 0);
		CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), -ENOSPC);
		refuse(false, false);
		CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), q);
		rig_fill(&rig, 1);
		CHECK_EQ(came_by(8), (uint32_t)q2);
		for (int n = 1; n <= (int)QUEUES; n++)
			if (n != q && n != q2)
				CHECK_EQ(pv_ring_rxq_close(rig.ring[1], (uint32_t)n), 0);
		rig_fill(&rig, 1);
	}
	close_all();
}

/* ---- ends ------------------------------------------------------------------------------------------------------------------ */

TEST(closed_with_everything_in_it)
{
	open_rig((struct pv_verbs_cfg){ .rx_interrupts = true }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	for (uint32_t i = 0; i < 3; i++)
		CHECK(pv_ring_rxq_open(rig.ring[1]) > 0);
	for (uint64_t set = 0; set <= 14; set += 2) {
		CHECK_EQ(move(set), 0);
		send_one(3, 20);
	}
	CHECK_EQ(pv_ring_arm(rig.ring[1]), 1);
	send_one(4, 20);
	close_all();
}

TEST(a_fork_forgets_them)
{
	int status;
	pid_t pid;

	open_rig((struct pv_verbs_cfg){ .rx_interrupts = true }, 1);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), 1);
	CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), 2);
	CHECK_EQ(move(6), 0);
	pid = fork();
	if (!pid) {
		for (int i = 0; i < 2; i++) {
			pv_ring_forget(rig.ring[i]);
			if (pv_pool_close(rig.pool[i]))
				_exit(1);
		}
		_exit(rig.mem.blocks != 0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(bit((int)came_by(4)) & 6);
	close_all();
}

TEST(behind_the_fault_ring)
{
	const struct pv_fault_cfg cfg = { .seed = 1 };

	open_rig((struct pv_verbs_cfg){ 0 }, 1);
	CHECK_EQ(pv_fault_open(&rig.ring[1], &rig.mem.mem, rig.ring[1], &cfg), 0);
	handle = rule(PV_FLOW_3TUPLE, 17, 0);
	CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), 1);
	CHECK_EQ(move(2), 0);
	CHECK_EQ(came_by(4), 1);
	CHECK_EQ(move(0), 0);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], 1), 0);
	CHECK_EQ(came_by(4), 0);
	close_all();
}

/* A rule that leads there from the start, beside one of the first queues' that says the same: each frame comes once, before and after. */
static void from_the_start(uint32_t rx_queues, enum pv_flow_kind kind)
{
	struct pv_flow f = { .kind = kind, .l4_proto = 17, .dst = contract_addr4(2), .dst_port = PORT };
	uint64_t own, other;
	uint32_t queue;

	open_rig((struct pv_verbs_cfg){ 0 }, rx_queues);
	handle = rule(kind, 17, 4);
	f.src = kind == PV_FLOW_5TUPLE ? contract_addr4(3) : f.src;
	f.src_port = kind == PV_FLOW_5TUPLE ? 4 : 0;
	f.rxqs = bit(pv_ring_rxq_open(rig.ring[1])) | bit(pv_ring_rxq_open(rig.ring[1]));
	for (uint32_t i = 0; i < 10; i++) {
		send_one(4, 20);
		CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &own), 0);
		CHECK_EQ(inside()->rxqs->q[1].stat->rules, 1);
		send_one(4, 21);
		CHECK_EQ(pv_ring_flow_move(rig.ring[1], own, 2), 0);
		send_one(4, 22);
		CHECK_EQ(pv_ring_flow_del(rig.ring[1], own), 0);
		send_one(4, 23);
		CHECK((int)expect(4) <= 0);
		CHECK(bit((int)expect(4)) & 6);
		CHECK_EQ(expect(4), 1);
		CHECK((int)expect(4) <= 0);
		CHECK_EQ(take(&queue), 0);
		rig_fill(&rig, 1);
	}
	CHECK(inside()->rxqs->q[1].stat->packets >= 10);
	CHECK_EQ(inside()->rxqs->q[1].stat->packets + inside()->rxqs->q[2].stat->packets, 20);
	CHECK_EQ(inside()->rxqs->q[1].stat->rules, 0);
	/* What is refused leaves nothing. */
	f.rxqs = 1;
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &other), -ENOENT);
	f.rxqs = 8;
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &other), -ENOENT);
	f.rxqs = 2;
	f.kind = PV_FLOW_IP;
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &other), -EOPNOTSUPP);
	CHECK_EQ(pv_ring_flow_add(rig.ring[0], &f, &other), -EOPNOTSUPP);
	CHECK_EQ(pv_ring_rxq_close(rig.ring[1], 1), 0);
	close_all();
}

TEST(rules_that_lead_there_from_the_start)
{
	from_the_start(1, PV_FLOW_3TUPLE);
	from_the_start(4, PV_FLOW_5TUPLE);
}

/* Of two rules that say the same one leads there at a time, and frames come once. */
static void one_of_two(uint32_t rx_queues, enum pv_flow_kind kind)
{
	struct pv_flow f = { .kind = kind, .l4_proto = 17, .dst = contract_addr4(2), .dst_port = PORT, .rxqs = 4 };
	uint64_t other, third;
	uint32_t queue;

	open_rig((struct pv_verbs_cfg){ 0 }, rx_queues);
	handle = rule(kind, 17, 4);
	other = rule(kind, 17, 4);
	f.src = kind == PV_FLOW_5TUPLE ? contract_addr4(3) : f.src;
	f.src_port = kind == PV_FLOW_5TUPLE ? 4 : 0;
	memcpy(f.dst_mac, rig.ring[1]->caps.mac, sizeof(f.dst_mac)); /* which the others leave out */
	CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), 1);
	CHECK_EQ(pv_ring_rxq_open(rig.ring[1]), 2);
	CHECK_EQ(move(2), 0);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(pv_ring_flow_move(rig.ring[1], other, 4), -EEXIST);
		CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &third), -EEXIST);
		CHECK_EQ(move(i % 2 ? 2 : 4), 0);
		CHECK_EQ(came_by(4), i % 2 ? 1 : 2);
		CHECK_EQ(take(&queue), 0);
		rig_fill(&rig, 1);
	}
	CHECK_EQ(move(0), 0);
	CHECK_EQ(pv_ring_flow_move(rig.ring[1], other, 2), 0);
	CHECK_EQ(move(4), -EEXIST);
	CHECK_EQ(pv_ring_flow_del(rig.ring[1], other), 0);
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &third), 0);
	CHECK_EQ(move(2), -EEXIST);
	CHECK_EQ(came_by(4), 2);
	CHECK_EQ(take(&queue), 0);
	/* Another port, address or protocol is another match. */
	f.dst_port++;
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &third), 0);
	f.dst = contract_addr4(5);
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &third), 0);
	f.l4_proto = 6;
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &third), 0);
	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &f, &third), -EEXIST);
	close_all();
}

TEST(one_rule_of_a_match_leads_there)
{
	one_of_two(1, PV_FLOW_3TUPLE);
	one_of_two(4, PV_FLOW_5TUPLE);
}

int main(int c, char **v)
{
	return test_main(c, v);
}
