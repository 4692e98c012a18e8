/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments that follow each other: whose they are is known by the one before (is_last in tcp/input.c), and where that says nothing it is not. */
#include "tcp/conn.h"
#include "tcp_peer.h"

static struct peer p;

/* What the last segment was of is found by it: not what differs in one of addresses and ports, nor once the connection is over. */
TEST(next_to_the_last_one)
{
	for (int family = 4; family <= 6; family += 2) {
		struct peer_seg s = { .flags = "P.", .seq = 11, .ack = 1, .len = 10, .no_ts = true };

		peer_begin(&p, (struct peer_cfg){ .family = family, .no_ts = true });
		peer_send(&p, "P.", 1, 1, 10);
		peer_read(&p, 10);
		peer_skip(&p);
		s.src = p.addr;
		s.src.b[15] ^= 1;
		peer_send_seg(&p, &s);
		s.src = p.addr;
		s.sport = p.port ^ 1;
		peer_send_seg(&p, &s);
		s.sport = 0;
		s.dport = p.stack_port ^ 1;
		peer_send_seg(&p, &s);
		CHECK_EQ(pv_tcp_inq(p.c), 0);
		peer_skip(&p);
		peer_send(&p, "P.", 11, 1, 10);
		peer_read(&p, 10);
		peer_send(&p, "R", 21, 0, 0);
		CHECK_EQ(peer_state(&p), PV_TCP_CLOSED);
		peer_skip(&p);
		peer_send(&p, "P.", 21, 1, 10);
		peer_expect(&p, "R", 1, 0, 0);
		peer_send_seg(&p, &(struct peer_seg){ .flags = "S", .seq = 5000 });
		CHECK_EQ(pv_tcp_count(peer_table(&p), PV_TCP_SYN_RCVD), 1);
		peer_close(&p);
	}
}

/* A byte for p.c's flow that came by that interface, which no ring has seen. */
static void came_by(uint8_t iface, pv_seq seq, pv_seq ack)
{
	struct pv_wire_tcp h = { .src_port = p.port,
				 .dst_port = p.stack_port,
				 .seq = seq.v,
				 .ack = ack.v,
				 .hlen = PV_TCP_HLEN,
				 .flags = PV_TH_ACK,
				 .wnd = 65535 };
	struct pv_pkt *pkt = pv_pkt_get(p.c->path.ring->pool);
	uint8_t *ip = pkt->data;

	(void)peer_ip(ip, &p.addr, &p.stack_addr, PV_PROTO_TCP, 0);
	pkt->l3_off = (uint16_t)(ip - pkt->buf);
	pkt->l4_off = (uint16_t)(pkt->l3_off + PV_IP4_HLEN);
	pkt->data = ip + PV_IP4_HLEN;
	pv_wire_tcp_emit(pkt->data, &h);
	pkt->len = pkt->total = PV_TCP_HLEN + 1;
	pkt->flags = PV_PKT_L4_OK;
	pkt->iface = iface;
	pv_tcp_rx(peer_table(&p), pkt, p.w.now);
}

/* Of two connections of one name, one is bound to another interface. */
TEST(one_name_on_two_interfaces)
{
	struct pv_tcp *bound;

	peer_begin(&p, (struct peer_cfg){ .no_ts = true });
	CHECK_EQ(pv_tcp_open(peer_table(&p), PV_AF_INET, NULL, &bound), 0);
	bound->laddr = p.c->laddr;
	bound->raddr = p.c->raddr;
	bound->lport = p.c->lport;
	bound->rport = p.c->rport;
	bound->opts.bound_iface = 2;
	CHECK_EQ(pv_tcp_hash(bound), 0);
	pv_tcp_set_state(bound, PV_TCP_SYN_SENT); /* which counts what comes, and has no more to it yet */
	for (uint32_t i = 1; i <= 3; i++) {
		came_by(1, p.c->rcv_nxt, p.c->snd_una);
		CHECK_EQ(pv_tcp_inq(p.c), i);
		came_by(2, bound->rcv_nxt, bound->snd_una);
		CHECK_EQ(bound->segs_in, i);
	}
	pv_tcp_unhash(bound);
	pv_tcp_set_state(bound, PV_TCP_CLOSED);
	(void)pv_tcp_close(bound, p.w.now);
	peer_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
