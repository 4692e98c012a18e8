/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fabric whose memory is overwritten anywhere, while it is in use: every call returns, none crashes. First the file as a whole is
 * opened with a damaged header.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "softnic/fab.h"
#include "softnic_fabric_util.h"

struct input {
	const uint8_t *p;
	size_t left;
};

static uint64_t take(struct input *in, uint32_t n)
{
	uint64_t v = 0;

	for (; n && in->left; n--, in->left--)
		v = v << 8 | *in->p++;
	return v;
}

static struct fab_net net;
static struct sn_port *a, *b;
static struct sn_rxq *q, *long_q;
static struct sn_waker *w;

static void setup(void)
{
	struct sn_rule rss = { .nqueues = 2, .priority = 1, .rss_fields = 0xff, .rss_key = { 1, 2, 3 } };
	struct sn_rxq *two[2];

	fab_make(&net);
	a = fab_port(&net, 0);
	b = fab_port(&net, 1);
	two[0] = q = fab_queue(b, 16);
	two[1] = long_q = fab_queue(b, 8);
	fab_rule_all(b, q);
	rss.queues = two;
	CHECK_EQ(sn_rule_add(b, &rss, &(uint64_t){ 0 }), 0);
	CHECK_EQ(sn_waker_open(net.f, &w), 0);
}

/* One word of what is in use. */
static void damage(struct input *in)
{
	struct sn_shm *s = net.f->s;
	uint32_t where = (uint32_t)take(in, 1), at = (uint32_t)take(in, 3);
	uint8_t *base = (uint8_t *)s;
	size_t room = offsetof(struct sn_shm, tables_end) - 64;

	switch (where % 8) {
	case 0: /* all tables; the constants are only looked at when it is opened */
		base += 64;
		break;
	case 1:
		base = (uint8_t *)&s->dirty;
		room = 256;
		break;
	case 2:
		base = (uint8_t *)s->rxq;
		room = 2 * sizeof(s->rxq[0]);
		break;
	case 3:
		base = (uint8_t *)s->rule;
		room = 2 * sizeof(s->rule[0]);
		break;
	case 4:
		base = (uint8_t *)s->claim;
		room = 24 * sizeof(s->claim[0]);
		break;
	case 5:
		base = s->arena[at % 24];
		at /= 24;
		room = 64;
		break;
	case 6:
		base = (uint8_t *)s->port;
		room = 3 * sizeof(s->port[0]);
		break;
	default:
		base = (uint8_t *)s->lane_ent;
		room = 64;
	}
	at = at % (room / 4) * 4;
	*(volatile uint32_t *)(void *)(base + at) = (uint32_t)take(in, where & 0x40 ? 4 : 1);
}

static void look(struct sn_rxq *rxq)
{
	struct sn_frame f;

	for (int i = 0; i < 40 && sn_rxq_peek(rxq, &f); i++) {
		uint32_t n = 0;

		CHECK(f.nseg <= 8);
		for (uint32_t s = 0; s < f.nseg; s++) {
			for (uint32_t k = 0; k < f.seg_len[s]; k++)
				n += f.seg[s][k];
		}
		__asm__ volatile("" : : "r"(n));
		sn_rxq_pop(rxq);
	}
}

static void act(uint32_t what)
{
	static uint8_t frame[SN_FRAME_MAX];
	struct sn_port_counters c;
	struct sn_rule r = { 0 };
	struct sn_port *p;
	struct sn_rxq *new_q;
	uint64_t handle;
	uint32_t len = fab_udp4(frame, 0, 1, 1, 2, 40);

	switch (what % 10) {
	case 0:
		frame[0] |= what >> 7;
		sn_port_send(a, &(struct sn_seg){ frame, len }, 1, what >> 4 & 3);
		break;
	case 1:
		for (int i = 0; i < 20; i++)
			sn_port_send(b, &(struct sn_seg){ frame, 2500 }, 1, 0);
		break;
	case 2:
		look(q);
		break;
	case 3:
		look(long_q);
		break;
	case 4:
		sn_rxq_arm(q, w);
		break;
	case 5:
		sn_port_get_counters(a, &c);
		sn_port_set_link(b, what >> 7);
		break;
	case 6:
		if (!sn_port_attach(net.f, what >> 4, NULL, &p))
			sn_port_detach(p);
		break;
	case 7:
		if (!sn_rxq_create(a, 8, &new_q))
			sn_rxq_destroy(new_q);
		break;
	case 8:
		r.queues = &q;
		if (!sn_rule_add(b, &r, &handle))
			sn_rule_del(b, handle);
		break;
	default:
		sn_fdb_learn(net.f, 1, what, what);
		sn_fdb_age(net.f, 1, what);
	}
}

static void damaged_header(struct input *in)
{
	char path[128];
	struct sn_fabric *f;
	uint8_t *head;
	int fd;

	fab_path(net.name, path, sizeof(path));
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	head = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(head != MAP_FAILED);
	for (uint32_t n = (uint32_t)take(in, 1) % 8; n; n--)
		head[take(in, 1) % 48] = (uint8_t)take(in, 1);
	munmap(head, 4096);
	if (take(in, 1) & 1)
		CHECK_EQ(ftruncate(fd, (off_t)take(in, 4) % (off_t)(2 * sizeof(struct sn_shm))), 0);
	close(fd);
	if (!sn_fabric_open(net.name, &f))
		sn_fabric_close(f);
	unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	char path[128];

	if (take(&in, 1) & 1) {
		char other[160];

		/* A file that nobody is on: kept by another name while its only client leaves. */
		fab_make(&net);
		fab_path(net.name, path, sizeof(path));
		snprintf(other, sizeof(other), "%s.kept", path);
		CHECK_EQ(link(path, other), 0);
		sn_fabric_close(net.f);
		CHECK_EQ(rename(other, path), 0);
		damaged_header(&in);
		return 0;
	}
	setup();
	while (in.left) {
		uint32_t what = (uint32_t)take(&in, 1);

		if (what & 1)
			damage(&in);
		else
			act(what >> 1);
	}
	sn_waker_close(w);
	fab_leave(&net);
	fab_path(net.name, path, sizeof(path));
	unlink(path);
	return 0;
}
