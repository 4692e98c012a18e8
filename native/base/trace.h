/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder: the last events of a stack, in a ring of records that other processes may read, also after this one died.
 *
 * Always recorded is what is rare and tells something; where every packet passes, only when that is switched on (`packets`). One
 * writer at a time: the stack's owner. A record is a cache line. `seq` is 0 while it changes and else the event's number, counted from 1,
 * so that a reader sees what it must not believe. Repetitions of the last event within 10 ms are one record with a count; of
 * drops those for the same reason at the same interface, whomever they came from, so that one kind of flood does not wash away what led to
 * it. Several that alternate do.
 *
 * Memory, time and thread come from the runtime (rt/recorder.h). A NULL recorder records nothing.
 */
#ifndef PV_BASE_TRACE_H
#define PV_BASE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/compiler.h"
#include "base/probe.h"

/*
 * X(name, a, b, text): every event; a and b name the two numbers of the record, "name:list" where they are of a list of PV_TRACE_LISTS.
 * From ring_in on: stations of packets.
 */
#define PV_TRACE_EVENTS(X)                                                                                                         \
	X(engine, "what:engine", "", "the engine itself")                                                                          \
	X(drop, "reason:reason", "bytes", "a packet ended here, or was refused; the reason is a counter's name")                   \
	X(error, "errno:errno", "", "an error became a socket's or a connection's")                                                \
	X(socket, "what:socket", "fd",                                                                                             \
	  "a socket of the stack; offloaded and kernel: what was decided of one of the application's")                             \
	X(tcp_state, "old:tcp_state", "new:tcp_state",                                                                             \
	  "a connection, or the record of one that is over (old: -), changed its state")                                           \
	X(retransmit, "seq", "bytes", "a segment was sent again")                                                                  \
	X(timeout, "rto_us", "times", "nothing was acknowledged within the retransmission timeout")                                \
	X(recovery, "old:recovery", "new:recovery", "loss recovery began, changed or ended")                                       \
	X(neighbour, "old:neighbour", "new:neighbour", "a neighbour's state")                                                      \
	X(paths, "", "generation", "addresses, routes or neighbours changed: paths are looked up again")                           \
	X(ring, "what:ring", "", "an interface's ring")                                                                            \
	X(starved, "", "missing", "the pool is empty: a ring has fewer receive buffers than it should")                            \
	X(wake, "who:waiter", "", "a thread that slept was woken")                                                                 \
	X(ring_in, "bytes", "", "a frame came out of a ring")                                                                      \
	X(queued, "bytes", "", "payload is in the socket's receive queue")                                                         \
	X(delivered, "bytes", "", "a receive call gave payload to the application")                                                \
	X(send, "bytes", "", "a send call took payload from the application")                                                      \
	X(posted, "bytes", "", "a frame was given to a ring")                                                                      \
	X(completed, "", "", "the ring gave a sent packet back")

enum pv_trace_kind {
	PV_TRACE_NONE,
#define PV_TRACE_ENUM(name, a, b, text) PV_TRACE_##name,
	PV_TRACE_EVENTS(PV_TRACE_ENUM)
};

/* X(name, values): what numbers mean, from 0; `reason` and `errno` are made by the runtime. */
#define PV_TRACE_LISTS(X)                                                                                                          \
	X(engine, "started,stopped,fork,packets_on,packets_off")                                                                   \
	X(socket, "opened,closed,offloaded,kernel,connected")                                                                      \
	X(tcp_state, "-,ESTABLISHED,SYN_SENT,SYN_RECV,FIN_WAIT1,FIN_WAIT2,TIME_WAIT,CLOSE,CLOSE_WAIT,LAST_ACK,LISTEN,CLOSING")     \
	X(recovery, "open,disorder,cwr,recovery,loss")                                                                             \
	X(neighbour, "free,none,incomplete,failed,stale,reachable,delay,probe,permanent")                                          \
	X(ring, "opened,closed,link_up,link_down,gone,error,moved")                                                                \
	X(waiter, "thread,progress")

enum pv_trace_engine { PV_TRACE_STARTED, PV_TRACE_STOPPED, PV_TRACE_FORK, PV_TRACE_PACKETS_ON, PV_TRACE_PACKETS_OFF };
enum pv_trace_socket { PV_TRACE_OPENED, PV_TRACE_CLOSED, PV_TRACE_OFFLOADED, PV_TRACE_KERNEL, PV_TRACE_CONNECTED };
enum pv_trace_ring {
	PV_TRACE_RING_OPENED,
	PV_TRACE_RING_CLOSED,
	PV_TRACE_LINK_UP,
	PV_TRACE_LINK_DOWN,
	PV_TRACE_RING_GONE,
	PV_TRACE_RING_ERROR,
	PV_TRACE_RING_MOVED
};

/* A reason: whose counter (enum pv_trace_layer) and which of them, from 0. */
enum pv_trace_layer { PV_TRACE_NET = 1, PV_TRACE_UDP, PV_TRACE_TCP };
#define PV_TRACE_REASON(layer, index) ((uint32_t)(layer) << 8 | (uint32_t)(index))

struct pv_trace_event {
	uint32_t seq; /* lowest 32 bits of the event's number, never 0 but while it changes */
	uint32_t span_us; /* of `count` repetitions: from the first to the last */
	int64_t when_ns; /* CLOCK_MONOTONIC, of the first */
	uint64_t id; /* a socket, connection or packet; 0: none */
	uint32_t tid, count;
	uint16_t kind; /* enum pv_trace_kind */
	uint8_t iface, proto; /* 0: none */
	uint16_t lport, rport; /* host order; 0: none */
	uint32_t a, b;
	struct pv_addr peer; /* zeroes: none */
} pv_aligned(PV_CACHELINE);
_Static_assert(sizeof(struct pv_trace_event) == PV_CACHELINE, "an event is a cache line");

struct pv_trace {
	struct pv_trace_event *ring; /* `mask` + 1 of them, a power of two */
	uint64_t *head; /* events ever written; shared with readers */
	uint64_t mask;
	int64_t last_ns; /* of the last repetition */
	bool packets; /* who keeps a copy of it is told by pv_stack_trace_packets */
	/* Now, and the calling thread. */
	int64_t (*now)(struct pv_trace *t, uint32_t *tid);
};

/* Writes `e`, of which it fills seq, span, time, thread and count. */
void pv_trace_put(struct pv_trace *t, const struct pv_trace_event *e);
/* A packet of `e` was dropped or refused: the probe, and a record. `name` is its reason's. */
void pv_trace_drop(struct pv_trace *t, const struct pv_trace_event *e, const char *name);

/* Makes a record of the last arguments, unless there is no recorder. */
#define pv_trace_note(t, ...)                                                                                                      \
	do {                                                                                                                       \
		struct pv_trace *pv_trace_to = (t);                                                                                \
		if (pv_trace_to)                                                                                                   \
			pv_trace_put(pv_trace_to, &(struct pv_trace_event){ __VA_ARGS__ });                                        \
	} while (0)

#endif
