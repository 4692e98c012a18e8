/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the verbs tests share: a fabric of their own, a side (one context, one raw packet QP with its queues and buffers) and frames.
 */
#ifndef SOFTNIC_VERBS_H
#define SOFTNIC_VERBS_H

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "softnic/softnic.h"
#include "test.h"

#define SIDE_WR 16
#define SIDE_BUF 2048u

struct side {
	char name[64];
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *chan;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf; /* 2 * SIDE_WR buffers: receives, then sends */
	uint8_t mac[6];
};

static __attribute__((unused)) const char *fabric_name(void)
{
	static char name[32];

	if (!name[0]) {
		struct timespec ts;

		clock_gettime(CLOCK_REALTIME, &ts);
		snprintf(name, sizeof(name), "t%d-%lx", getpid(), (unsigned long)ts.tv_nsec);
	}
	return name;
}

static __attribute__((unused)) struct ibv_context *open_port(unsigned int port, const char *options, char name[64])
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	char spec[128];

	snprintf(spec, sizeof(spec), "%s/%u%s", fabric_name(), port, options);
	CHECK_EQ(softnic_device_add(spec, name, 64), 0);
	list = ibv_get_device_list(NULL);
	CHECK(list);
	for (int i = 0; list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	}
	ibv_free_device_list(list);
	if (!ctx)
		fprintf(stderr, "%s: %s\n", name, softnic_open_error());
	CHECK(ctx);
	return ctx;
}

static __attribute__((unused)) int qp_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0));
}

static __attribute__((unused)) void qp_rts(struct ibv_qp *qp)
{
	CHECK_EQ(qp_to(qp, IBV_QPS_INIT), 0);
	CHECK_EQ(qp_to(qp, IBV_QPS_RTR), 0);
	CHECK_EQ(qp_to(qp, IBV_QPS_RTS), 0);
}

static __attribute__((unused)) enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

static __attribute__((unused)) struct ibv_flow *flow_mac(struct ibv_qp *qp, const uint8_t mac[6])
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} f = {
		.attr = { .size = sizeof(f), .num_of_specs = 1, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(f.eth) },
	};

	memcpy(f.eth.val.dst_mac, mac, 6);
	memset(f.eth.mask.dst_mac, 0xff, 6);
	return ibv_create_flow(qp, &f.attr);
}

/* A side in RTS whose rule takes all that is addressed to its port. */
static __attribute__((unused)) void side_open(struct side *s, unsigned int port)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RAW_PACKET, .cap = { SIDE_WR, SIDE_WR, 4, 4, 256 } };

	s->ctx = open_port(port, "", s->name);
	s->pd = ibv_alloc_pd(s->ctx);
	s->chan = ibv_create_comp_channel(s->ctx);
	CHECK(s->pd && s->chan);
	s->scq = ibv_create_cq(s->ctx, 2 * SIDE_WR, s, s->chan, 0);
	s->rcq = ibv_create_cq(s->ctx, 2 * SIDE_WR, s, s->chan, 0);
	CHECK(s->scq && s->rcq);
	s->buf = calloc(2 * SIDE_WR, SIDE_BUF);
	s->mr = ibv_reg_mr(s->pd, s->buf, 2 * SIDE_WR * SIDE_BUF, IBV_ACCESS_LOCAL_WRITE);
	CHECK(s->mr);
	init.send_cq = s->scq;
	init.recv_cq = s->rcq;
	s->qp = ibv_create_qp(s->pd, &init);
	CHECK(s->qp);
	qp_rts(s->qp);
	memcpy(s->mac, (uint8_t[6]){ 0x02, 0x53, 0x4e, 0, 0, (uint8_t)port }, 6);
}

static __attribute__((unused)) void side_close(struct side *s)
{
	CHECK_EQ(ibv_destroy_qp(s->qp), 0);
	CHECK_EQ(ibv_destroy_cq(s->scq), 0);
	CHECK_EQ(ibv_destroy_cq(s->rcq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(s->chan), 0);
	CHECK_EQ(ibv_dereg_mr(s->mr), 0);
	CHECK_EQ(ibv_dealloc_pd(s->pd), 0);
	CHECK_EQ(ibv_close_device(s->ctx), 0);
	free(s->buf);
}

static __attribute__((unused)) int side_post_recv(struct side *s, uint64_t wr_id, uint32_t slot, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + slot * SIDE_BUF, length, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(s->qp, &wr, &bad);
}

static __attribute__((unused)) int side_send(struct side *s, uint64_t wr_id, const void *frame, uint32_t len, unsigned int flags)
{
	struct ibv_sge sge = { (uintptr_t)frame, len, 0 };
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags }, *bad;

	if (!(flags & IBV_SEND_INLINE)) {
		memcpy(s->buf + SIDE_WR * SIDE_BUF, frame, len);
		sge.addr = (uintptr_t)s->buf + SIDE_WR * SIDE_BUF;
		sge.lkey = s->mr->lkey;
	}
	return ibv_post_send(s->qp, &wr, &bad);
}

/* One completion that must be there: sends and receives on the fabric are complete when they return. */
static __attribute__((unused)) struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	memset(&wc, 0xee, sizeof(wc));
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
	return wc;
}

static __attribute__((unused)) void poll_none(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
}

/* ---- frames -------------------------------------------------------------------------------------------------------------------- */

static __attribute__((unused)) uint16_t sum16(const uint8_t *p, uint32_t len, uint32_t sum)
{
	for (uint32_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	if (len & 1)
		sum += (uint32_t)p[len - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

struct udp4 {
	uint32_t src, dst; /* host order */
	uint16_t sport, dport;
	uint8_t proto, tos, ttl;
	uint16_t vlan; /* 0: none */
};

static __attribute__((unused)) void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static __attribute__((unused)) void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

/* Ethernet, maybe 802.1Q, IPv4, UDP (or 8 bytes that look like its header) and `len` bytes of payload, with right checksums. */
static __attribute__((unused)) uint32_t frame_udp4(uint8_t *f, const uint8_t dst[6], const uint8_t src[6], const struct udp4 *u,
						   uint32_t len)
{
	uint8_t *ip = f + 14, *l4;
	uint32_t pseudo;

	memcpy(f, dst, 6);
	memcpy(f + 6, src, 6);
	if (u->vlan) {
		put16(f + 12, 0x8100);
		put16(f + 14, u->vlan);
		ip += 4;
	}
	put16(ip - 2, 0x0800);
	memset(ip, 0, 28);
	ip[0] = 0x45;
	ip[1] = u->tos;
	put16(ip + 2, 28 + len);
	ip[8] = u->ttl ? u->ttl : 64;
	ip[9] = u->proto ? u->proto : 17;
	put32(ip + 12, u->src);
	put32(ip + 16, u->dst);
	put16(ip + 10, 0xffffu - sum16(ip, 20, 0));
	l4 = ip + 20;
	put16(l4, u->sport);
	put16(l4 + 2, u->dport);
	put16(l4 + 4, 8 + len);
	for (uint32_t i = 0; i < len; i++)
		l4[8 + i] = (uint8_t)(i * 7 + len);
	pseudo = sum16(ip + 12, 8, 0) + ip[9] + 8 + len;
	put16(l4 + 6, 0xffffu - sum16(l4, 8 + len, pseudo));
	return (uint32_t)(l4 - f) + 8 + len;
}

struct udp6 {
	uint8_t src, dst; /* last bytes of fd00::/64 */
	uint16_t sport, dport;
	uint32_t flow_label;
};

static __attribute__((unused)) uint32_t frame_udp6(uint8_t *f, const uint8_t dst[6], const uint8_t src[6], const struct udp6 *u,
						   uint32_t len)
{
	uint8_t *ip = f + 14, *l4 = ip + 40;

	memcpy(f, dst, 6);
	memcpy(f + 6, src, 6);
	put16(f + 12, 0x86dd);
	memset(ip, 0, 48);
	put32(ip, 0x60000000 | u->flow_label);
	put16(ip + 4, 8 + len);
	ip[6] = 17;
	ip[7] = 64;
	ip[8] = ip[24] = 0xfd;
	ip[23] = u->src;
	ip[39] = u->dst;
	put16(l4, u->sport);
	put16(l4 + 2, u->dport);
	put16(l4 + 4, 8 + len);
	for (uint32_t i = 0; i < len; i++)
		l4[8 + i] = (uint8_t)(i + len);
	put16(l4 + 6, 0xffffu - sum16(l4, 8 + len, sum16(ip + 8, 32, 0) + 17 + 8 + len));
	return 14 + 40 + 8 + len;
}

#endif
