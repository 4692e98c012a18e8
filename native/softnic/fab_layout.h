/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What lies in the fabric's file. Plain numbers only, no pointers: every process maps it where it likes, and whoever reads an index
 * or a length from it checks the range, so that a damaged file is a wrong delivery at worst, never a crash.
 *
 * Who may write: tables (ports, clients, rules, queue and waker entries, foreign MACs) only with the fabric's lock; a lane's words
 * only its owner; claims and slots the claimant; `head` and `armed` the queue's owner (senders take `armed` back to 0).
 */
#ifndef SN_FAB_LAYOUT_H
#define SN_FAB_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/compiler.h"
#include "softnic/fab_parse.h"
#include "softnic/fabric.h"

#define SN_MAGIC UINT64_C(0x6362616665616d76)
#define SN_VERSION 3u

#define SN_CLIENTS 128u
#define SN_LANES 512u
#define SN_RXQS 512u
#define SN_RULES 2048u
#define SN_WAKERS 256u
#define SN_FDB 512u
#define SN_RULE_QUEUES 128u
#define SN_SLOT 2048u
#define SN_SLOT_HEAD 20u
#define SN_SLOT_DATA (SN_SLOT - SN_SLOT_HEAD)
#define SN_FRAME_SLOTS ((SN_FRAME_MAX + SN_SLOT_DATA - 1) / SN_SLOT_DATA)
#define SN_ARENA_SLOTS 262144u
#define SN_QUEUE_MIN 8u
#define SN_QUEUE_MAX 65536u

/* Bytes of the file on which locks are taken: the fabric's own, and one a client for as long as its process lives. */
#define SN_LOCK_TABLES 0
#define SN_LOCK_CLIENT 16

enum { SN_FREE, SN_LIVE, SN_DYING };

struct sn_client_ent {
	_Atomic uint32_t state, pid;
};

struct sn_port_ent {
	_Atomic uint32_t state;
	_Atomic uint32_t mtu;
	_Atomic uint64_t mac; /* first byte lowest */
	_Atomic uint32_t link, link_events;
	_Atomic uint32_t uplink; /* foreign MACs are learned from what it sends */
	_Atomic uint32_t impaired;
	_Atomic uint64_t loss_ppm, duplicate_ppm, corrupt_ppm, reorder_ppm, delay_ns, jitter_ns, rate_kbps, seed;
	_Atomic uint64_t wire_free_ns; /* when the last rated frame has left */
	_Atomic uint64_t dm_bytes; /* device memory */
	_Atomic uint32_t plug, spare32; /* odd: the device is taken out; who attached under another number has a dead one */
	uint64_t spare;
} pv_aligned(128);

/* Counters of one lane for one port; they only grow, whoever owns the lane, so that a total is the plain sum over all lanes. */
struct sn_lane_count {
	_Atomic uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes;
	_Atomic uint64_t rx_no_rule, rx_queue_full, rx_too_long, rx_link_down;
	_Atomic uint64_t tx_loss, tx_duplicated, tx_corrupted, tx_reordered, tx_link_down;
	_Atomic uint64_t held_in, held_out, held_lost; /* frames held back: taken in, let out, lost with their process */
	_Atomic uint64_t tx_too_long;
	_Atomic uint64_t rx_rule_drop;
	uint64_t spare[6];
} pv_aligned(64);

/* What one sender writes. `busy` is the generation by which it is sending right now, or 0. */
struct sn_lane {
	_Atomic uint64_t busy;
	_Atomic uint64_t dm_bytes; /* device memory that the owner holds; with the lock */
	uint64_t spare[14];
	struct sn_lane_count count[SN_PORTS];
} pv_aligned(128);

struct sn_lane_ent {
	_Atomic uint32_t state, client, port, watch; /* `watch`: waker + 1 of link changes */
};

struct sn_rxq_ent {
	_Atomic uint32_t state, client, lane, port;
	_Atomic uint32_t first, slots; /* in the arena */
	_Atomic uint32_t stamped; /* the owner wants timestamps */
	uint32_t pad;
	_Atomic uint64_t dead_gen; /* senders of an older generation may still write into it */
	_Atomic uint64_t head pv_aligned(128); /* frames before it are consumed; told lazily */
	_Atomic uint64_t tail pv_aligned(128); /* a hint for senders: everything before it is claimed */
	_Atomic uint64_t armed pv_aligned(128); /* SN_ARMED */
} pv_aligned(128);

/* A rule as it is compared: 64 bytes laid out as struct sn_match, 64 as struct sn_inner. */
enum { SN_RULE_NORMAL, SN_RULE_SNIFFER, SN_RULE_ALL, SN_RULE_MC };
/* Flags of a rule. */
#define SN_RULE_DROP 0x1u
#define SN_RULE_TAG 0x2u
struct sn_rule_ent {
	_Atomic uint64_t state; /* 0 free, else handle */
	_Atomic uint32_t client, lane;
	_Atomic uint32_t port, kind;
	_Atomic uint32_t priority, need;
	_Atomic uint32_t nqueues, rss_fields;
	_Atomic uint32_t flags, tag;
	_Atomic uint64_t value[SN_KEY_WORDS + SN_INNER_WORDS], mask[SN_KEY_WORDS + SN_INNER_WORDS];
	_Atomic uint64_t key[5];
	_Atomic uint32_t queue[SN_RULE_QUEUES];
} pv_aligned(64);

struct sn_waker_ent {
	_Atomic uint32_t state, client;
};

/* A port's clocks: see fab_clock.c, which alone knows the words. */
#define SN_CLOCK_WORDS 22u
struct sn_clock_ent {
	_Atomic uint32_t seq;
	_Atomic uint64_t word[2][SN_CLOCK_WORDS];
} pv_aligned(64);

/* A MAC that was seen behind an uplink. */
struct sn_fdb_ent {
	_Atomic uint64_t mac; /* 0: free */
	_Atomic uint32_t port, seen_s;
};

struct sn_shm {
	/* Constant. */
	uint64_t magic;
	uint32_t version, layout;
	uint64_t size;
	uint64_t id; /* random */
	uint32_t fences; /* senders execute full fences since sleepers cannot use membarrier(2) */
	uint32_t header_sum;
	/* Changed with the lock. */
	_Atomic uint32_t dirty pv_aligned(64); /* the lock's holder is, or died, in the middle of it */
	_Atomic uint32_t ports_used, lanes_used, rxqs_used, rules_used, fdb_used; /* high-water marks */
	_Atomic uint64_t next_handle;
	/* Even; changes with every table that a sender's path was found in. Odd while one is being changed. */
	_Atomic uint64_t generation pv_aligned(128);

	struct sn_port_ent port[SN_PORTS];
	struct sn_clock_ent clock[SN_PORTS];
	struct sn_client_ent client[SN_CLIENTS];
	struct sn_lane_ent lane_ent[SN_LANES];
	struct sn_waker_ent waker[SN_WAKERS];
	struct sn_fdb_ent fdb[SN_FDB];
	struct sn_rxq_ent rxq[SN_RXQS];
	uint8_t tables_end[0] pv_aligned(4096); /* memory is reserved up to here at once, behind it as it is used */
	struct sn_rule_ent rule[SN_RULES];
	struct sn_lane lane[SN_LANES] pv_aligned(4096);
	/* Position, slots and client of the last claim of each slot: see fab_send.c. */
	_Atomic uint64_t claim[SN_ARENA_SLOTS] pv_aligned(4096);
	uint8_t arena[SN_ARENA_SLOTS][SN_SLOT] pv_aligned(4096);
};

/*
 * A slot. `seq` becomes the low half of the position when the frame is complete; it, the description and the frame's first 44
 * bytes share a cache line, the next 64 bytes are the second.
 */
struct sn_slot {
	_Atomic uint32_t seq;
	uint16_t len, flags;
	uint32_t tstamp_lo, tstamp_hi;
	uint32_t hash; /* of a slot to be skipped: how many slots */
	uint8_t data[SN_SLOT_DATA];
};
#define SN_RX_SKIP 0x8000u

_Static_assert(sizeof(struct sn_slot) == SN_SLOT, "slot");
_Static_assert(sizeof(struct sn_match) <= SN_KEY_WORDS * 8, "key");
_Static_assert(sizeof(struct sn_inner) <= SN_INNER_WORDS * 8, "key");
_Static_assert(sizeof(struct sn_lane_count) == 192, "counters");

/* An armed queue: which arming of its owner's, and the waker. */
#define SN_ARMED(count, waker) ((uint64_t)(count) << 16 | ((waker) + 1))
#define SN_ARMED_WAKER(v) (((uint32_t)(v)&0xffffu) - 1)

/* A claim word. */
#define SN_CLAIM(pos, n, client) ((uint64_t)(pos) << 11 | (uint64_t)(n) << 8 | (client))
#define SN_CLAIM_POS(w) ((w) >> 11)
#define SN_CLAIM_N(w) ((uint32_t)((w) >> 8) & 7u)
#define SN_CLAIM_CLIENT(w) ((uint32_t)(w)&0xffu)

pv_inline uint64_t sn_mac_u64(const uint8_t *m)
{
	return (uint64_t)m[0] | (uint64_t)m[1] << 8 | (uint64_t)m[2] << 16 | (uint64_t)m[3] << 24 | (uint64_t)m[4] << 32 |
	       (uint64_t)m[5] << 40;
}

#define sn_get(p) atomic_load_explicit((p), memory_order_acquire)
#define sn_set(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define sn_get_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define sn_set_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
/* Of a word that only the caller writes. */
#define sn_count(p, n) sn_set_relaxed((p), sn_get_relaxed(p) + (n))

#endif
