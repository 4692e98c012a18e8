/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two stacks in real time over bonds of two ports of the software NIC each, whose links go down and up by turns every 50 ms, as an
 * 802.3ad partner that flaps would make them: TCP both ways stays intact, and of numbered datagrams none comes twice. 3 s; 60 s with
 * PYVMA_TEST_LONG=1.
 */
#include <time.h>

#include "base/rng.h"
#include "ring_bond_rig.h"
#include "stack/stack.h"

#define MS PV_NS_PER_MS
#define FLAP_NS (50 * MS)
#define CONNS 4u
#define PATTERN 65536u

static uint8_t pattern[PATTERN];

struct host {
	struct pv_stack *stack;
	struct pv_tcp *c[CONNS];
	struct pv_udp *u;
	uint64_t wrote[CONNS], got[CONNS];
	uint32_t sent, heard, last; /* datagrams; the number of the last one that came, plus 1 */
	uint32_t iface;
};

struct flap {
	struct rig rig;
	struct host host[2];
	int64_t now;
	uint32_t flaps, moves;
};

static int64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

static struct pv_addr addr(uint32_t host)
{
	return pv_addr_from4((const uint8_t[]){ 10, 0, 0, (uint8_t)(host + 1) });
}

static void events(struct flap *f)
{
	enum pv_ring_event ev;

	for (int i = 0; i < 2; i++) {
		while ((ev = pv_ring_event(f->rig.ring[i])) != PV_RING_EV_NONE) {
			if (ev != PV_RING_EV_MOVED)
				continue;
			CHECK_EQ(pv_stack_iface_moved(f->host[i].stack, f->host[i].iface, f->now), 0);
			f->moves++;
		}
	}
}

static void turn(struct flap *f)
{
	f->now = clock_ns();
	events(f);
	for (int i = 0; i < 2; i++) {
		pv_stack_poll(f->host[i].stack, f->now, 64);
		(void)pv_net_kick(pv_stack_net(f->host[i].stack));
	}
}

static void host_open(struct flap *f, uint32_t i)
{
	struct pv_stack_cfg cfg = { .mem = &f->rig.mem.mem, .seed = i + 1 };
	struct pv_iface_cfg iface = { .name = "bond0", .steer = PV_STEER_ADDRESS, .ring = f->rig.ring[i], .naddr = 1 };
	struct host *h = &f->host[i];
	int rc;

	iface.addr[0] = (struct pv_ifaddr){ addr(i), 24 };
	CHECK_EQ(pv_stack_open(&h->stack, &cfg), 0);
	rc = pv_stack_iface_add(h->stack, &iface);
	CHECK(rc > 0);
	h->iface = (uint32_t)rc;
}

/* Pools that hold the stack's headers in front. */
static void pools(struct rig *rig)
{
	const struct pv_pool_cfg cfg = { .buf_size = 2048, .headroom = PV_NET_HEADROOM, .count = 4096 };

	memset(rig, 0, sizeof(*rig));
	testmem_init(&rig->mem);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pv_pool_open(&rig->pool[i], &rig->mem.mem, &cfg), 0);
}

static void nic_open(struct rig *rig, enum pv_bond_mode mode, uint32_t policy)
{
	bond_rig_begin(rig, 2, mode, policy);
	for (uint32_t leg = 0; leg < 2; leg++) {
		devices(bond_rig(rig)->names[leg], "");
		for (int i = 0; i < 2; i++)
			bond_rig_add(rig, i, leg, bond_rig_nic_leg(rig, i, leg), bond_rig_active(mode, leg));
	}
}

static void connect_all(struct flap *f)
{
	struct pv_endpoint any = { .port = 80 }, to = { .addr = addr(1), .port = 80 }, udp = { .port = 7 };
	double until = rig_now() + RIG_PATIENCE_S;
	struct pv_tcp *l;

	any.addr = udp.addr = pv_addr_from4((const uint8_t[]){ 0, 0, 0, 0 });
	CHECK_EQ(pv_tcp_open(pv_stack_tcp(f->host[1].stack), PV_AF_INET, NULL, &l), 0);
	CHECK_EQ(pv_tcp_bind(l, &any), 0);
	CHECK_EQ(pv_tcp_listen(l, CONNS), 0);
	for (uint32_t i = 0; i < CONNS; i++) {
		CHECK_EQ(pv_tcp_open(pv_stack_tcp(f->host[0].stack), PV_AF_INET, NULL, &f->host[0].c[i]), 0);
		CHECK_EQ(pv_tcp_connect(f->host[0].c[i], &to, f->now), -EINPROGRESS);
		while (pv_tcp_accept(l, &f->host[1].c[i])) {
			CHECK(rig_now() < until);
			turn(f);
		}
	}
	pv_tcp_close(l, f->now);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pv_udp_open(pv_stack_udp(f->host[i].stack), PV_AF_INET, NULL, &f->host[i].u), 0);
		CHECK_EQ(pv_udp_bind(f->host[i].u, &udp), 0);
	}
}

static void hear(struct flap *f, struct host *h)
{
	static uint8_t in[65536];
	struct pv_iov iov = { in, sizeof(in) };
	struct pv_udp_recv msg;
	int64_t n;

	for (uint32_t i = 0; i < CONNS; i++) {
		while ((n = pv_tcp_recv(h->c[i], &iov, 1, 0, f->now)) > 0) {
			for (int64_t k = 0; k < n; k += 64)
				CHECK_EQ(in[k], pattern[(h->got[i] + (uint64_t)k) % PATTERN]);
			h->got[i] += (uint64_t)n;
		}
		CHECK_EQ(n, -EAGAIN);
	}
	for (;;) {
		uint32_t number;

		msg = (struct pv_udp_recv){ .iov = &(struct pv_iov){ &number, sizeof(number) }, .iovcnt = 1 };
		if (pv_udp_recv(h->u, &msg) <= 0)
			return;
		/* One flow goes by one leg at a time: only at a switch-over may an older one come later, and those are lost here. */
		CHECK(number != h->last - 1 || !h->last);
		h->last = number + 1;
		h->heard++;
	}
}

static void speak(struct flap *f, uint32_t i, int64_t *next)
{
	struct host *h = &f->host[i];
	struct pv_endpoint to = { .addr = addr(1 - i), .port = 7 };

	for (uint32_t k = 0; k < CONNS; k++) {
		uint32_t at = (uint32_t)(h->wrote[k] % PATTERN);
		struct pv_iov iov = { pattern + at, PV_MIN(8192u, PATTERN - at) };
		int64_t n = pv_tcp_send(h->c[k], &iov, 1, 0, f->now);

		CHECK(n > 0 || n == -EAGAIN);
		h->wrote[k] += n > 0 ? (uint64_t)n : 0;
	}
	if (f->now >= *next) {
		struct pv_iov iov = { &h->sent, sizeof(h->sent) };
		struct pv_udp_send msg = { .iov = &iov, .iovcnt = 1, .to = &to, .ttl = -1, .tos = -1 };

		if (pv_udp_send(h->u, &msg, f->now) > 0)
			h->sent++;
		*next = f->now + MS;
	}
}

/* One leg at a time loses its link, at both ends. */
static void flap_next(struct flap *f)
{
	uint32_t leg = f->flaps / 2 % 2;
	int up = (int)(f->flaps & 1);

	for (int i = 0; i < 2; i++)
		CHECK_EQ(nic.set_link(bond_rig(&f->rig)->names[leg][i], up), 0);
	f->flaps++;
}

static bool all_there(const struct flap *f)
{
	for (uint32_t k = 0; k < CONNS; k++)
		if (f->host[0].wrote[k] != f->host[1].got[k] || f->host[1].wrote[k] != f->host[0].got[k])
			return false;
	return true;
}

static void flapping(enum pv_bond_mode mode, uint32_t policy, double seconds)
{
	static const struct rig_kind kind = { .name = "flap", .rx_queues = 2, .settle = bond_rig_nic_settle };
	int64_t end, next, udp[2] = { 0 };
	static struct flap f;
	uint64_t bytes = 0;
	double until;

	memset(&f, 0, sizeof(f));
	pools(&f.rig);
	f.rig.kind = &kind;
	nic_open(&f.rig, mode, policy);
	host_open(&f, 0);
	host_open(&f, 1);
	connect_all(&f);
	end = f.now + (int64_t)(seconds * 1e9);
	next = f.now + FLAP_NS;
	while (f.now < end) {
		if (f.now >= next) {
			flap_next(&f);
			next = f.now + FLAP_NS;
		}
		for (uint32_t i = 0; i < 2; i++) {
			speak(&f, i, &udp[i]);
			hear(&f, &f.host[i]);
		}
		turn(&f);
	}
	while (f.flaps & 1)
		flap_next(&f);
	for (until = rig_now() + 3 * RIG_PATIENCE_S; !all_there(&f);) {
		CHECK(rig_now() < until);
		for (uint32_t i = 0; i < 2; i++)
			hear(&f, &f.host[i]);
		turn(&f);
	}
	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t k = 0; k < CONNS; k++) {
			bytes += f.host[i].got[k];
			CHECK_EQ(pv_tcp_state(f.host[i].c[k]), PV_TCP_ESTABLISHED);
		}
		hear(&f, &f.host[i]);
		CHECK(f.host[i].heard <= f.host[1 - i].sent);
	}
	printf("mode %d, policy %u: %.0f s, %u flaps, %u changes of way, %.1f MB by TCP intact, datagrams %u sent %u heard\n",
	       (int)mode, policy, seconds, f.flaps, f.moves, (double)bytes / 1e6, f.host[0].sent + f.host[1].sent,
	       f.host[0].heard + f.host[1].heard);
	for (int i = 0; i < 2; i++) {
		for (uint32_t k = 0; k < CONNS; k++)
			pv_tcp_close(f.host[i].c[k], f.now);
		pv_udp_close(f.host[i].u);
		pv_stack_close(f.host[i].stack);
		pv_ring_close(f.rig.ring[i]);
		CHECK_EQ(pv_pool_close(f.rig.pool[i]), 0);
	}
	bond_rig_nic_close(&f.rig);
	CHECK_EQ(f.rig.mem.blocks, 0);
}

static double seconds(void)
{
	const char *s = getenv("PYVMA_TEST_LONG");

	return s && *s == '1' ? 60 : 1.5;
}

TEST(lacp_flaps)
{
	flapping(PV_BOND_8023AD, 1, seconds());
}

TEST(active_backup_flaps)
{
	flapping(PV_BOND_ACTIVE_BACKUP, 0, seconds());
}

int main(int c, char **v)
{
	struct pv_rng rng;

	pv_rng_seed(&rng, 5);
	for (uint32_t i = 0; i < PATTERN; i++)
		pattern[i] = (uint8_t)pv_rng_u32(&rng);
	return test_main(c, v);
}
