/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP ring's data path over a socket pair in the device's place: any vnet header, any frame of any length, in any order with posting,
 * polling and sending. Nothing may crash, what is handed out hangs together, every buffer is accounted for, and all is back at the end.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ring/tapdev_priv.h"
#include "testmem.h"

#define DEPTH 96u
#define PACKETS 400u
#define LONGEST (TAPDEV_VNET + TAPDEV_FRAME_MAX + 4000u)

struct world {
	struct testmem mem;
	struct pv_pool *pool;
	struct tapdev *t;
	int host; /* the other end */
	uint32_t inside; /* buffers that the ring should have */
};

static void open_world(struct world *w, struct script *s)
{
	const struct pv_pool_cfg pc = { .buf_size = script_8(s) & 1 ? 512 : 2048, .headroom = 128, .count = PACKETS };
	struct tapdev *t;
	int pair[2];

	memset(w, 0, sizeof(*w));
	testmem_init(&w->mem);
	REQUIRE(!pv_pool_open(&w->pool, &w->mem.mem, &pc));
	REQUIRE(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
	w->t = t = w->mem.mem.alloc(w->mem.mem.ctx, sizeof(*t));
	REQUIRE(t);
	w->host = pair[1];
	t->fd[0] = t->send_fd = pair[0];
	t->epoll_fd = -1;
	t->mem = &w->mem.mem;
	t->ring.ops = &pv_tapdev_ops;
	t->ring.pool = w->pool;
	t->ring.caps = (struct pv_ring_caps){ .mtu = 1500,
					      .rx_depth = DEPTH,
					      .tx_depth = 32,
					      .batch = PV_RING_BATCH_MAX,
					      .max_sge = TAPDEV_PIECES_MAX,
					      .tso_max = UINT16_MAX };
	t->nqueues = 1;
	t->offload = true;
	t->rx_size = 128;
	t->spill_size = TAPDEV_VNET + TAPDEV_FRAME_MAX;
	t->posted = t->mem->alloc(t->mem->ctx, t->rx_size * sizeof(struct pv_pkt *));
	t->spill = t->mem->alloc(t->mem->ctx, t->spill_size);
	REQUIRE(t->posted && t->spill && !pv_ring_stat_open(&t->ring, t->mem));
	pv_pktq_init(&t->ready);
	pv_pktq_init(&t->done);
}

static void close_world(struct world *w)
{
	pv_ring_close(&w->t->ring);
	close(w->host);
	REQUIRE(!pv_pool_close(w->pool));
	REQUIRE(!w->mem.blocks);
}

/* As many buffers as are missing, and the ring takes them all. */
static void fill(struct world *w, uint32_t most)
{
	struct pv_pkt *p;

	while (w->inside < DEPTH && most-- && (p = pv_pkt_get(w->pool)) != NULL) {
		REQUIRE(pv_ring_rx_post(&w->t->ring, &p, 1) == 1);
		w->inside++;
	}
}

/* A header of sense or of none, and a frame that begins with what the script says. */
static void host_sends(struct world *w, struct script *s)
{
	static uint8_t frame[LONGEST];
	struct virtio_net_hdr h = { .flags = script_8(s), .gso_type = script_8(s) & 0x87 };
	uint32_t len = script_16(s) % (LONGEST + 1), head = script_8(s) % 121, ip_len;

	if (script_8(s) & 3)
		len %= 3000;
	h.gso_size = script_16(s);
	h.csum_start = script_16(s);
	memset(frame, 0x5a, sizeof(frame));
	memcpy(frame, &h, sizeof(h));
	/* IPv4 or IPv6 with UDP, and then what the script makes of it. */
	ip_len = len > TAPDEV_VNET + 14 ? len - TAPDEV_VNET - 14 : 0;
	memcpy(frame + TAPDEV_VNET + 12, h.csum_start & 1 ? "\x08\x00\x45" : "\x86\xdd\x60", 3);
	frame[TAPDEV_VNET + (h.csum_start & 1 ? 16 : 18)] = (uint8_t)(ip_len >> 8);
	frame[TAPDEV_VNET + (h.csum_start & 1 ? 17 : 19)] = (uint8_t)ip_len;
	frame[TAPDEV_VNET + (h.csum_start & 1 ? 23 : 20)] = 17;
	frame[TAPDEV_VNET + 20] &= h.csum_start & 1 ? 0 : 0xff;
	frame[TAPDEV_VNET + 21] &= h.csum_start & 1 ? 0 : 0xff;
	for (uint32_t i = 0; i < head; i++) {
		uint8_t b = script_8(s);

		if (b)
			frame[TAPDEV_VNET + i] = b;
	}
	(void)!send(w->host, frame, len, MSG_DONTWAIT);
}

static void poll_ring(struct world *w, uint32_t n)
{
	struct pv_pkt *pkts[PV_RING_BATCH_MAX];
	struct pv_ring *r = &w->t->ring;
	uint32_t got = pv_ring_rx_poll(r, pkts, 1 + n % PV_RING_BATCH_MAX);

	REQUIRE(got + r->rx_more <= w->inside);
	w->inside -= got + r->rx_more;
	r->rx_more = 0;
	for (uint32_t i = 0; i < got; i++) {
		uint32_t sum = 0;

		for (const struct pv_pkt *p = pkts[i]; p; p = p->frag) {
			REQUIRE(p->data >= p->buf && p->data + p->len <= p->buf + p->size);
			sum += p->len;
		}
		REQUIRE(sum == pkts[i]->total && sum >= 14);
		pv_pkt_put(pkts[i]);
	}
}

/* A packet as no stack would make it. */
static void ring_sends(struct world *w, struct script *s)
{
	static uint8_t sink[LONGEST];
	struct pv_pkt *head = pv_pkt_get(w->pool), *p = head, *out[PV_RING_BATCH_MAX];
	uint32_t pieces = script_8(s) % 70, n;

	if (!head)
		return;
	head->flags = script_16(s) & (PV_PKT_TX_L3_CSUM | PV_PKT_TX_L4_CSUM | PV_PKT_TX_TSO);
	head->gso_size = script_16(s) % 2000;
	head->gso_hdr = script_8(s);
	for (;;) {
		p->len = script_8(s) * 8u % (pv_pkt_tailroom(p) + 1);
		head->total += p->len;
		if (!pieces-- || !(p->frag = pv_pkt_get(w->pool)))
			break;
		p = p->frag;
	}
	memset(head->data, 0x45, PV_MIN(head->len, 80u));
	for (uint32_t i = 0; i < head->len && i < 80; i++)
		head->data[i] = script_8(s);
	if (!pv_ring_tx_post(&w->t->ring, &head, 1))
		pv_pkt_put(head);
	(void)pv_ring_tx_kick(&w->t->ring);
	while (recv(w->host, sink, sizeof(sink), MSG_DONTWAIT) >= 0)
		;
	n = pv_ring_tx_reap(&w->t->ring, out, PV_RING_BATCH_MAX);
	for (uint32_t i = 0; i < n; i++)
		pv_pkt_put(out[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = { data, data + size };
	struct world w;

	open_world(&w, &s);
	for (uint32_t turn = 0; turn < 200 && s.p < s.end; turn++) {
		switch (script_8(&s) % 5) {
		case 0:
			fill(&w, script_8(&s));
			break;
		case 1:
		case 2:
			host_sends(&w, &s);
			break;
		case 3:
			poll_ring(&w, script_8(&s));
			break;
		default:
			ring_sends(&w, &s);
		}
	}
	close_world(&w);
	return 0;
}
