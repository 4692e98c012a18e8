/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder's ring: order, wrap, repetitions, and what a reader sees of a record that is being written. */
#include "base/trace.h"

#include "test.h"

#define EVENTS 8u

static struct pv_trace_event ring[EVENTS];
static uint64_t head;
static int64_t time_ns;

static int64_t now(struct pv_trace *t, uint32_t *tid)
{
	(void)t;
	*tid = 77;
	return time_ns;
}

static struct pv_trace fresh(void)
{
	memset(ring, 0, sizeof(ring));
	head = 0;
	time_ns = 1000;
	return (struct pv_trace){ .ring = ring, .head = &head, .mask = EVENTS - 1, .now = now };
}

TEST(no_recorder_records_nothing)
{
	struct pv_trace *none = NULL;

	pv_trace_put(none, &(struct pv_trace_event){ .kind = PV_TRACE_drop });
	pv_trace_drop(none, &(struct pv_trace_event){ .kind = PV_TRACE_drop }, "name");
	pv_trace_note(none, .kind = PV_TRACE_ring);
}

TEST(events_stay_in_order_and_the_oldest_go)
{
	struct pv_trace t = fresh();

	for (uint32_t i = 0; i < 3 * EVENTS + 3; i++) {
		time_ns += 5;
		pv_trace_note(&t, .kind = PV_TRACE_retransmit, .id = 1000 + i, .a = i, .b = 2 * i);
	}
	CHECK_EQ(head, 3 * EVENTS + 3);
	for (uint64_t n = head - EVENTS; n < head; n++) {
		const struct pv_trace_event *e = &ring[n % EVENTS];

		CHECK_EQ(e->seq, n + 1);
		CHECK_EQ(e->id, 1000 + n);
		CHECK_EQ(e->a, n);
		CHECK_EQ(e->b, 2 * n);
		CHECK_EQ(e->tid, 77);
		CHECK_EQ(e->count, 1);
		CHECK_EQ(e->when_ns, 1000 + 5 * (int64_t)(n + 1));
	}
}

TEST(repetitions_are_one_record)
{
	struct pv_trace t = fresh();

	for (uint32_t i = 0; i < 100000; i++) {
		pv_trace_note(&t, .kind = PV_TRACE_drop, .a = 0x201, .b = i, .lport = 7);
		time_ns += PV_NS_PER_US;
	}
	CHECK_EQ(head, 1);
	CHECK_EQ(ring[0].count, 100000);
	CHECK_EQ(ring[0].span_us, 99999);
	CHECK_EQ(ring[0].b, 99999);
	CHECK_EQ(ring[0].seq, 1);
	/* Another error, socket or peer, or a pause: another record. */
	pv_trace_note(&t, .kind = PV_TRACE_error, .a = 1, .lport = 7);
	pv_trace_note(&t, .kind = PV_TRACE_error, .a = 1, .lport = 8);
	pv_trace_note(&t, .kind = PV_TRACE_error, .a = 1, .lport = 8, .peer = { .b = { 1 } });
	CHECK_EQ(head, 4);
	time_ns += 11 * PV_NS_PER_MS;
	pv_trace_note(&t, .kind = PV_TRACE_error, .a = 1, .lport = 8, .peer = { .b = { 1 } });
	CHECK_EQ(head, 5);
}

/* A scan: each packet from another address, to another port. */
TEST(drops_are_told_apart_by_reason_and_interface)
{
	struct pv_trace t = fresh();

	pv_trace_note(&t, .kind = PV_TRACE_ring, .a = 1);
	for (uint32_t i = 0; i < 1000; i++)
		pv_trace_note(&t, .kind = PV_TRACE_drop, .id = i, .a = 0x201, .iface = 1, .proto = i & 1 ? 6 : 17,
			      .lport = (uint16_t)i, .rport = (uint16_t)(i * 7), .peer = { .b = { (uint8_t)i, (uint8_t)(i >> 8) } });
	CHECK_EQ(head, 2);
	CHECK_EQ(ring[0].kind, PV_TRACE_ring);
	CHECK_EQ(ring[1].count, 1000);
	CHECK_EQ(ring[1].lport, 0);
	pv_trace_note(&t, .kind = PV_TRACE_drop, .a = 0x201, .iface = 2);
	pv_trace_note(&t, .kind = PV_TRACE_drop, .a = 0x202, .iface = 2);
	CHECK_EQ(head, 4);
}

TEST(stations_of_packets_are_told_one_by_one)
{
	struct pv_trace t = fresh();

	for (int i = 0; i < 3; i++)
		pv_trace_note(&t, .kind = PV_TRACE_queued, .id = 5, .a = 100);
	CHECK_EQ(head, 3);
	CHECK_EQ(ring[2].count, 1);
}

/* A number of 32 bits is never 0, so that no finished record looks like one that is being written. */
TEST(numbers_come_round_without_zero)
{
	struct pv_trace t = fresh();

	head = UINT64_C(0xfffffffe);
	for (uint32_t i = 0; i < 4; i++)
		pv_trace_note(&t, .kind = PV_TRACE_retransmit, .a = i);
	for (uint64_t n = UINT64_C(0xfffffffe); n < head; n++)
		CHECK(ring[n % EVENTS].seq != 0);
	CHECK_EQ(ring[0xfffffffe % EVENTS].seq, 0xffffffff);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
