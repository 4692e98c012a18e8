/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several receive queues of a verbs ring: each frame comes by the queue that the published hash says, flows are spread evenly and stay
 * where they are, and rules that overlap agree. The frames are sent by another ring.
 */
#include <dlfcn.h>

#include "ring/verbs.h"
#include "ring_contract.h"

#define QUEUES 4u
#define FLOWS 10000u

static char names[2][PV_RING_NAME_MAX];
static struct rig rig;
/* "Verifying the RSS Hash Calculation", Microsoft's documentation of receive-side scaling. */
static const uint8_t ms_key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

/* Bit by bit as the document has it, and independent of the device's. */
static uint32_t toeplitz(const uint8_t *data, uint32_t len)
{
	uint32_t hash = 0;

	for (uint32_t bit = 0; bit < len * 8; bit++) {
		uint32_t window = 0;

		if (!(data[bit / 8] & 0x80u >> bit % 8))
			continue;
		for (uint32_t i = 0; i < 32; i++) {
			uint32_t at = bit + i;

			window = window << 1 | (ms_key[at / 8] >> (7 - at % 8) & 1u);
		}
		hash ^= window;
	}
	return hash;
}

static void settle(struct rig *r)
{
	(void)r; /* the fabric delivers within the doorbell */
}

static void rss_open(bool legacy)
{
	int (*device_add)(const char *, char *, size_t);
	static unsigned int number;
	static const struct rig_kind kind = { .name = "spread", .settle = settle };
	static const struct pv_pool_cfg pool = { .buf_size = 2048, .headroom = 128, .count = 512, .max = 512 };
	void *h = dlopen(SOFTNIC_LIB, RTLD_NOW | RTLD_LOCAL);
	char spec[128], err[256];

	CHECK(h != NULL);
	device_add = (int (*)(const char *, char *, size_t))dlsym(h, "softnic_device_add");
	memset(&rig, 0, sizeof(rig));
	rig.kind = &kind;
	testmem_init(&rig.mem);
	number++;
	for (int i = 0; i < 2; i++) {
		uint8_t mac[PV_ETH_ALEN];
		struct pv_verbs_cfg cfg = { .library = SOFTNIC_LIB,
					    .device = names[i],
					    .rx_depth = 64,
					    .rx_queues = i ? QUEUES + 1 : 1,
					    .legacy = legacy };
		int rc;

		rig_mac(i, mac);
		snprintf(spec, sizeof(spec), "rss%d-%u/%d,mac=%02x:%02x:%02x:%02x:%02x:%02x", (int)getpid(), number, i, mac[0],
			 mac[1], mac[2], mac[3], mac[4], mac[5]);
		CHECK_EQ(device_add(spec, names[i], PV_RING_NAME_MAX), 0);
		CHECK_EQ(pv_pool_open(&rig.pool[i], &rig.mem.mem, &pool), 0);
		rc = pv_verbs_open(&rig.ring[i], &rig.mem.mem, rig.pool[i], &cfg, err, sizeof(err));
		if (rc)
			fprintf(stderr, "%s\n", err);
		CHECK_EQ(rc, 0);
	}
	CHECK_EQ(rig.ring[0]->caps.queues, 1);
	CHECK_EQ(rig.ring[1]->caps.queues, QUEUES); /* the power of two below */
	CHECK_EQ(rig.ring[1]->caps.rx_depth, 64);
	rig_fill(&rig, 1);
}

static void rss_close(void)
{
	for (int i = 0; i < 2; i++)
		rig_close_side(&rig, i);
	CHECK_EQ(rig.mem.blocks, 0);
}

static void rule(struct pv_flow flow)
{
	uint64_t handle;

	CHECK_EQ(pv_ring_flow_add(rig.ring[1], &flow, &handle), 0);
}

/* Sends one frame: by which queue it came; -1: not at all. That it came once. */
static int queue_of(const struct contract_ip *d)
{
	struct pv_pkt *p = contract_ip_frame(&rig, 0, d), *got[2];
	uint32_t n;
	int queue;

	rig_post(&rig, 0, p);
	rig_kick(&rig, 0);
	rig_reap_all(&rig, 0, 1);
	n = pv_ring_rx_poll(rig.ring[1], got, 2);
	if (!n)
		return -1;
	CHECK_EQ(n, 1);
	CHECK(got[0]->flags & PV_PKT_QUEUE);
	queue = got[0]->txq;
	CHECK(queue < (int)QUEUES);
	pv_pkt_put(got[0]);
	rig_fill(&rig, 1);
	return queue;
}

/* What the document says of the same frame. */
static int expected(const struct contract_ip *d, bool ports)
{
	bool ip4 = pv_addr_is4(&d->dst);
	uint32_t n = ip4 ? 4 : 16;
	uint8_t data[36];

	memcpy(data, ip4 ? (const void *)&d->src.w[3] : d->src.b, n);
	memcpy(data + n, ip4 ? (const void *)&d->dst.w[3] : d->dst.b, n);
	pv_put16(data + 2 * n, d->src_port);
	pv_put16(data + 2 * n + 2, d->dst_port);
	return (int)(toeplitz(data, 2 * n + (ports ? 4 : 0)) & (QUEUES - 1));
}

static struct contract_ip flow_no(uint32_t i, bool v6, uint8_t proto)
{
	struct contract_ip d = { .proto = proto, .dst_port = 53, .src_port = (uint16_t)(i % 50000 + 1000), .payload = 20 };

	d.src = v6 ? contract_addr6((uint8_t)(3 + i % 7)) : contract_addr4((uint8_t)(3 + i % 7));
	d.dst = v6 ? contract_addr6(2) : contract_addr4(2);
	return d;
}

/* Ten thousand flows to one socket's rule, each sent twice. */
static void spread(bool v6, uint8_t proto, bool address)
{
	uint32_t count[QUEUES] = { 0 };
	struct contract_ip first = flow_no(0, v6, proto);

	rule(address ? (struct pv_flow){ .kind = PV_FLOW_IP, .dst = first.dst }
		     : (struct pv_flow){ .kind = PV_FLOW_3TUPLE, .l4_proto = proto, .dst = first.dst, .dst_port = 53 });
	for (uint32_t i = 0; i < FLOWS; i++) {
		struct contract_ip d = flow_no(i, v6, proto);
		int q = queue_of(&d);

		CHECK_EQ(q, expected(&d, true));
		CHECK_EQ(queue_of(&d), q);
		count[q]++;
	}
	printf("%u flows of %s over IPv%d:", FLOWS, proto == 6 ? "TCP" : "UDP", v6 ? 6 : 4);
	for (uint32_t q = 0; q < QUEUES; q++)
		printf(" %u", count[q]);
	printf("\n");
	for (uint32_t q = 0; q < QUEUES; q++)
		CHECK(count[q] > FLOWS / QUEUES * 9 / 10 && count[q] < FLOWS / QUEUES * 11 / 10);
}

TEST(flows_of_a_socket_are_spread)
{
	for (int k = 0; k < 4; k++) {
		rss_open(k == 3);
		spread(k & 1, k & 2 ? 6 : 17, false);
		rss_close();
	}
}

TEST(flows_of_an_address_are_spread)
{
	for (int k = 0; k < 2; k++) {
		rss_open(false);
		spread(k, k ? 6 : 17, true);
		rss_close();
	}
}

/* An address, a listener on it and a connection: the tighter rule takes the frame, and all agree on the queue. */
TEST(overlapping_rules_agree)
{
	struct contract_ip d = flow_no(1, false, 6);

	rss_open(false);
	rule((struct pv_flow){ .kind = PV_FLOW_IP, .dst = d.dst });
	rule((struct pv_flow){ .kind = PV_FLOW_3TUPLE, .l4_proto = 6, .dst = d.dst, .dst_port = 53 });
	for (uint32_t i = 0; i < 200; i++) {
		d = flow_no(i, false, 6);
		CHECK_EQ(queue_of(&d), expected(&d, true));
		rule((struct pv_flow){
		    .kind = PV_FLOW_5TUPLE, .l4_proto = 6, .dst = d.dst, .src = d.src, .dst_port = 53, .src_port = d.src_port });
		CHECK_EQ(queue_of(&d), expected(&d, true));
	}
	/* Another protocol of the address goes by its addresses alone. */
	d.proto = 132;
	CHECK_EQ(queue_of(&d), expected(&d, false));
	rss_close();
}

/* Rules for a group's address and for a socket on it both take the frame: they must not take it twice. */
TEST(a_group_is_spread_by_addresses)
{
	static const uint8_t group[4] = { 239, 1, 2, 3 };
	struct contract_ip d = flow_no(1, false, 17);

	d.dst = pv_addr_from4(group);
	rss_open(false);
	rule((struct pv_flow){ .kind = PV_FLOW_IP, .dst = d.dst });
	rule((struct pv_flow){ .kind = PV_FLOW_3TUPLE, .l4_proto = 17, .dst = d.dst, .dst_port = 53 });
	for (uint32_t i = 0; i < 200; i++) {
		struct contract_ip from = flow_no(i, false, 17);

		d.src = from.src;
		d.src_port = from.src_port;
		CHECK_EQ(queue_of(&d), expected(&d, false));
	}
	rss_close();
}

/* Buffers go back to the queue that lost them, however unevenly frames come. */
TEST(one_busy_queue_does_not_starve)
{
	struct contract_ip d = flow_no(7, false, 17);
	int q;

	rss_open(false);
	rule((struct pv_flow){ .kind = PV_FLOW_3TUPLE, .l4_proto = 17, .dst = d.dst, .dst_port = 53 });
	q = expected(&d, true);
	for (uint32_t i = 0; i < 500; i++)
		CHECK_EQ(queue_of(&d), q);
	for (uint32_t i = 0; i < 100; i++) {
		struct contract_ip other = flow_no(i, false, 17);

		CHECK_EQ(queue_of(&other), expected(&other, true));
	}
	rss_close();
}

int main(int c, char **v)
{
	return test_main(c, v);
}
