/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any frames under any rules. A remembered path must lead where a lookup does, the description must agree with the bytes, and no
 * frame may disappear uncounted.
 */
#include <stdlib.h>

#include "softnic/fab.h"
#include "softnic_fabric_util.h"

#define QUEUES 4u

static struct fab_net net;
static struct sn_port *tx, *rx;

static void ready(void)
{
	struct sn_port_cfg cfg = { .mtu = 3000 };

	if (tx)
		return;
	fab_make(&net);
	CHECK_EQ(sn_port_attach(net.f, 0, &cfg, &tx), 0);
	CHECK_EQ(sn_port_attach(net.f, 1, &cfg, &rx), 0);
	for (uint32_t i = 0; i < QUEUES; i++)
		fab_queue(rx, 16);
}

struct input {
	const uint8_t *p;
	size_t left;
};

static uint32_t byte(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->p++;
}

static void bytes(struct input *in, void *to, size_t n)
{
	size_t have = n < in->left ? n : in->left;

	memset(to, 0, n);
	memcpy(to, in->p, have);
	in->p += have;
	in->left -= have;
}

static uint64_t add_rule(struct input *in)
{
	uint32_t flags = byte(in), fields = byte(in) | byte(in) << 8;
	struct sn_rule r = { .priority = flags & 3, .sniffer = (flags & 0x1c) == 0x1c, .all_default = flags & 0x20, .nqueues = 1 };
	uint8_t *mask = (uint8_t *)&r.mask;
	uint64_t handle = 0;

	bytes(in, &r.value, sizeof(r.value));
	/* Four bytes of the match a bit. */
	for (uint32_t i = 0; i < sizeof(r.mask); i++)
		mask[i] = fields >> i / 4 & 1 ? (flags & 0x40 ? 0xff : (uint8_t)(r.value.ttl | 1)) : 0;
	/* Inside a tunnel: any bytes under a mask of every other. */
	if ((flags & 0x18) == 0x08 && !r.all_default) {
		uint8_t *inner = (uint8_t *)&r.inner_mask;
		uint32_t which = byte(in);

		r.vxlan = true;
		bytes(in, &r.inner_value, sizeof(r.inner_value));
		for (uint32_t i = 0; i < sizeof(r.inner_mask); i++)
			inner[i] = which >> i % 8 & 1 ? 0xff : 0;
		r.drop = which == 0xaa;
		r.tagged = which & 1;
		r.tag = which;
	}
	if (flags & 0x80) {
		r.nqueues = QUEUES;
		r.rss_fields = byte(in);
		bytes(in, r.rss_key, sizeof(r.rss_key));
	}
	r.queues = &net.queue[r.nqueues == 1 ? flags & 3 : 0];
	CHECK_EQ(sn_rule_add(rx, &r, &handle), 0);
	return handle;
}

static uint64_t outcome(const uint8_t *frame, uint32_t len, uint32_t tx_flags, bool pieces)
{
	struct sn_seg seg[3] = { { frame, len } };
	uint64_t h = 0;

	if (pieces) {
		seg[0].len = len / 3;
		seg[1] = (struct sn_seg){ frame + len / 3, 0 };
		seg[2] = (struct sn_seg){ frame + len / 3, len - len / 3 };
	}
	CHECK_EQ(sn_port_send(tx, seg, pieces ? 3 : 1, tx_flags), len < 14 || len > 3018 ? -EMSGSIZE : 0);
	for (uint32_t q = 0; q < QUEUES; q++) {
		struct sn_frame f;

		while (sn_rxq_peek(net.queue[q], &f)) {
			uint32_t at = 0;

			CHECK_EQ(f.len, len);
			for (uint32_t s = 0; s < f.nseg; s++) {
				if (!tx_flags)
					CHECK(!memcmp(f.seg[s], frame + at, f.seg_len[s]));
				at += f.seg_len[s];
			}
			CHECK_EQ(at, len);
			h = (h ^ (q + 1) ^ (uint64_t)f.flags << 8 ^ (uint64_t)f.rss_hash << 24) * UINT64_C(0x9e3779b97f4a7c15);
			sn_rxq_pop(net.queue[q]);
		}
	}
	return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint64_t rule[4];
	uint32_t nrules;

	ready();
	nrules = byte(&in) % 5;
	for (uint32_t i = 0; i < nrules; i++)
		rule[i] = add_rule(&in);
	while (in.left) {
		uint32_t len = byte(&in), how = byte(&in);
		uint64_t looked_up, remembered;
		uint8_t *frame;

		if (how & 0x80)
			len = len << 4 | (how & 15);
		frame = malloc(len ? len : 1);
		CHECK(frame);
		bytes(&in, frame, len);
		if (len >= 6 && !(how & 0x40))
			memcpy(frame, "\x02\x53\x4e\0\0\1", 6);
		/* A tunnel, which bytes at random hardly ever are. */
		if (len >= 50 && how & 0x20) {
			static const uint8_t head[] = { 0x08, 0x00, 0x45 };

			memcpy(frame + 12, head, sizeof(head));
			memset(frame + 20, 0, 2);
			frame[23] = 17;
			pv_put16(frame + 36, 4789);
			frame[42] |= 0x08;
		}
		/* By whatever earlier frames left behind; by a lookup; by what that left. */
		remembered = outcome(frame, len, how & 3, how & 4);
		for (uint32_t i = 0; i < SN_PATHS; i++)
			tx->path[i].hlen = 0;
		looked_up = outcome(frame, len, how & 3, how & 4);
		CHECK_EQ(remembered, looked_up);
		CHECK_EQ(outcome(frame, len, how & 3, how & 4), looked_up);
		free(frame);
	}
	for (uint32_t i = 0; i < nrules; i++)
		CHECK_EQ(sn_rule_del(rx, rule[i]), 0);
	return 0;
}
