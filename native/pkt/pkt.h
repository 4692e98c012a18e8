/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets and the pool they come from.
 *
 * A packet is a descriptor (`struct pv_pkt`, 128 bytes) and a buffer of fixed size in memory that a ring may register. One pool
 * serves one ring, or the legs of a bond: a packet goes back to the pool it came from. Descriptor and buffer stay together for
 * life. Exactly one owner holds a packet; debug builds stamp it (`owner`).
 *
 * A pool grows by chunks up to its limit, between data-path calls only (pv_pool_grow), and never shrinks before it is closed. Where the
 * ring cannot be told of more memory (`fixed`) what grows is a store, a second pool that no ring knows: received packets that nobody
 * reads at once are copied there when the pool runs low, so that any number of slow readers leaves the ring its buffers. A store may grow
 * at the end of a turn that used it, too.
 */
#ifndef PV_PKT_PKT_H
#define PV_PKT_PKT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/mem.h"

struct pv_pool;

#define PV_POOL_BINDERS 10u

enum pv_pkt_owner { PV_OWNER_POOL, PV_OWNER_STACK, PV_OWNER_RING, PV_OWNER_APP };

/* Checksum verdicts of the ring, receive side. Neither bit of a pair: the ring did not look. */
#define PV_PKT_L3_OK 0x0001u /* IPv4 header checksum verified */
#define PV_PKT_L3_BAD 0x0002u
#define PV_PKT_L4_OK 0x0004u /* UDP/TCP checksum verified (never set for fragments) */
#define PV_PKT_L4_BAD 0x0008u
/* A virtual link: the field may hold the pseudo-header's sum only, which is good; any other value is to be verified. */
#define PV_PKT_L4_PARTIAL 0x0010u
#define PV_PKT_TSTAMP 0x0020u /* `tstamp` is valid, in the ring's clock units */
#define PV_PKT_VLAN 0x0040u /* `vlan_tci` was stripped by the ring */
#define PV_PKT_QUEUE 0x0080u /* `txq` is the ring's queue by which it came: set where there are several */
/* Requests to the ring, transmit side; only bits that caps.tx_csum allows. */
#define PV_PKT_TX_L3_CSUM 0x0100u /* fill the IPv4 header checksum */
#define PV_PKT_TX_L4_CSUM 0x0200u /* fill the UDP/TCP checksum (field holds 0 when posted) */
#define PV_PKT_LOOPED 0x0400u /* our own multicast or broadcast, handed back by the stack itself */
/* A transport keeps the packet, to send it again: giving it back ends this flag and nothing else. Whoever keeps it sets the flag before
 * each pv_net_tx and, when it is done with the packet, clears it (the packet is out still, and whoever has it gives it to the pool)
 * or gives it back itself (the flag was clear). Each buffer of a chain is kept or not by itself; those that are kept are single again when
 * the chain is given back. */
#define PV_PKT_KEPT 0x1000u
#define PV_PKT_GROUP 0x0800u /* set by pv_net_rx: the IP destination is a group or a broadcast address */
#define PV_PKT_LENT 0x1000u /* the application reads it in place; gone when it is given back */
/* More requests to the ring, transmit side. */
/* One TCP segment that is longer than the path's MTU, for the ring to cut (caps.tso_max): `gso_size` bytes of payload each behind the
 * `gso_hdr` bytes of headers that `data` begins with. The ring fills the checksums of all. */
#define PV_PKT_TX_TSO 0x4000u
/* Comes back by tx_reap with PV_PKT_TSTAMP and `tstamp`, when the device says when it left; without, when it does not. */
#define PV_PKT_TX_TSTAMP 0x8000u
#define PV_PKT_TX_STAMP 0x20000u /* when it leaves its paced queue its sender is told (net/stamp.h) */
#define PV_PKT_TX_PACED 0x10000u /* to pv_net_tx: by the paced queue that pv_txq_mark named (net/txq.h) */
/* Comes back by tx_reap with this when the device died with it: it may have left, or not. */
#define PV_PKT_TX_FLUSHED 0x40000u

#define PV_PKT_HASH 0x80000u /* `rss_hash` is what the device spread by */
/* By the ring's transmit queue of this number instead of its first, which is 0: pv_pkt_txq. */
#define PV_PKT_TX_QUEUE 0xff000000u
#define PV_PKT_TX_QUEUE_SHIFT 24

struct pv_pkt {
	struct pv_pkt *next; /* queue link of whoever owns the packet */
	struct pv_pkt *frag; /* next buffer of the same datagram (reassembly), NULL at the last */
	uint8_t *data; /* first valid byte */
	uint8_t *buf; /* start of the buffer */
	struct pv_pool *pool; /* where it came from and goes back to */
	uint32_t len; /* valid bytes at `data` */
	uint32_t total; /* valid bytes of the whole chain; set in the first packet only */
	uint32_t flags; /* PV_PKT_* */
	uint32_t key; /* the ring's name for the memory (lkey, UMEM offset base) */
	/* Filled by the stack on receive: offsets from `buf`. */
	uint16_t l3_off;
	uint16_t l4_off;
	uint16_t vlan_tci;
	uint8_t owner; /* enum pv_pkt_owner; kept in debug builds only */
	uint8_t iface; /* index of the interface it came by */
	/* second line: not touched by get, put and plain receive */
	uint64_t tstamp pv_aligned(PV_CACHELINE);
	uint32_t rss_hash;
	uint32_t index; /* of the descriptor in its pool, dense from 0 */
	uint32_t size; /* bytes of the buffer at `buf` */
	uint16_t gso_size; /* PV_PKT_TX_TSO */
	uint8_t gso_hdr; /* PV_PKT_TX_TSO: Ethernet, IP and TCP headers */
	uint8_t txq; /* PV_PKT_QUEUE */
	uint64_t priv[4]; /* the present owner's, meaningless after a hand-over */
	uint64_t cookie; /* PV_PKT_TX_TSTAMP: the sender's, untouched by rings */
} pv_aligned(PV_CACHELINE);

_Static_assert(sizeof(struct pv_pkt) == 128, "a packet descriptor is two cache lines");

struct pv_pool_cfg {
	uint32_t buf_size; /* bytes of a buffer, headroom included; rounded up to 64 */
	uint32_t headroom; /* bytes before `data` after pv_pkt_get */
	uint32_t count; /* packets at open */
	uint32_t chunk; /* packets added by a growth step, rounded up to a power of two; 0: never grows */
	uint32_t max; /* packets at most */
	bool fixed; /* growth is for packets that wait to be read */
};

struct pv_pool_stats {
	uint32_t total, free, low_water;
	uint64_t exhausted; /* pv_pkt_get calls that found nothing */
	uint64_t grown; /* growth steps */
};

/* Called for each chunk of buffer memory, at open and when growing; stores the ring's key of it. 0 or -errno. */
typedef int (*pv_pool_map_fn)(void *ctx, void *base, size_t size, uint32_t *key);
typedef void (*pv_pool_unmap_fn)(void *ctx, void *base, size_t size, uint32_t key);

/* 0, -ENOMEM, -EINVAL (sizes). */
int pv_pool_open(struct pv_pool **out, const struct pv_mem *mem, const struct pv_pool_cfg *cfg);
/* All packets must be back; returns how many are not (and frees nothing then). */
uint32_t pv_pool_close(struct pv_pool *pool);
/* A ring registers its interest: every present and later chunk is mapped. The binder's number, from 1 to PV_POOL_BINDERS; -EBUSY: there
 * are so many; or the first error of `map`.
 * While one is bound, `key` of every packet is its. While several are, who gives a packet to one of them sets it (pv_pool_key). */
int pv_pool_bind(struct pv_pool *pool, pv_pool_map_fn map, pv_pool_unmap_fn unmap, void *ctx);
/* Unmaps every chunk. The ring calls it when it closes. Number 0, or one that is not bound: nothing. */
void pv_pool_unbind(struct pv_pool *pool, uint32_t binder);
/* The same in pieces, for who holds a lock and does not want to hold it while a device learns of the memory. A number is kept (begin), what there
 * is is mapped by any thread, while packets come and go and the pool grows (map), and then the rest, if it has grown (end): from then on it is
 * bound. 0, -EBUSY, what `map` said: the number is kept until unbind in any case. */
int pv_pool_bind_begin(struct pv_pool *pool);
int pv_pool_bind_map(struct pv_pool *pool, uint32_t binder, pv_pool_map_fn map, pv_pool_unmap_fn unmap, void *ctx);
int pv_pool_bind_end(struct pv_pool *pool, uint32_t binder);
/* And back: no packet has its key any more (off), its chunks are unmapped by any thread (unmap), and unbind gives the number back. */
void pv_pool_bind_off(struct pv_pool *pool, uint32_t binder);
void pv_pool_unmap(struct pv_pool *pool, uint32_t binder);
/* What the binder calls the memory of this packet. */
uint32_t pv_pool_key(const struct pv_pkt *pkt, uint32_t binder);
/* One chunk more, of the store if the pool is fixed. 0, -ENOSPC at the limit, -ENOMEM, or what `map` said: then nothing was added. */
int pv_pool_grow(struct pv_pool *pool);
/* Packets that are free, or that it may grow by. */
uint32_t pv_pool_left(const struct pv_pool *pool);
/* True when fewer than a quarter is free, of a store less than half of a growth step, and it may grow: the runtime looks between polls. */
bool pv_pool_wants_growth(const struct pv_pool *pool);
void pv_pool_get_stats(const struct pv_pool *pool, struct pv_pool_stats *out);
const struct pv_pool_cfg *pv_pool_config(const struct pv_pool *pool);

/* The part of a pool that get and put touch; private to them and to pool.c. */
struct pv_pool {
	struct pv_pkt *free; /* linked by `next`; last in, first out: its buffer is still in the cache */
	uint32_t nfree, low_water;
	uint32_t headroom, total;
	uint32_t spill_at; /* pv_pool_spills: a quarter, if there is a store; else 0 */
	uint64_t exhausted;
	uint64_t grown, stored;
	struct pv_pool *store; /* NULL: there is none */
	struct pv_pkt *first; /* the packets of the open, `nfirst` of them */
	uint32_t nfirst;
	uint32_t shown; /* pv_mem_show */
	uint32_t binders; /* how many are bound */
};
extern const struct pv_stat_type pv_pool_stat_type;

#ifdef PV_DEBUG
/* Stamp the owner and end the program when a packet is handed out or given back twice; under AddressSanitizer the buffers of free
 * packets are poisoned. */
void pv_pkt_debug_get(struct pv_pkt *pkt);
void pv_pkt_debug_put(struct pv_pkt *pkt);
#else
pv_inline void pv_pkt_debug_get(struct pv_pkt *pkt)
{
	(void)pkt;
}

pv_inline void pv_pkt_debug_put(struct pv_pkt *pkt)
{
	(void)pkt;
}
#endif

/* A packet with data = buf + headroom, len 0, flags 0, frag NULL; owner STACK. NULL when the pool is empty. */
pv_inline struct pv_pkt *pv_pkt_get(struct pv_pool *pool)
{
	struct pv_pkt *p = pool->free;

	if (pv_unlikely(!p)) {
		pool->exhausted++;
		return NULL;
	}
	pool->free = p->next;
	if (--pool->nfree < pool->low_water)
		pool->low_water = pool->nfree;
	pv_pkt_debug_get(p);
	p->next = NULL;
	p->frag = NULL;
	p->data = p->buf + pool->headroom;
	p->len = 0;
	p->total = 0;
	p->flags = 0;
	return p;
}

/* `n` packets linked by `next`, all or none. */
struct pv_pkt *pv_pkt_get_bulk(struct pv_pool *pool, uint32_t n);

/* Gives back the packet and all that hang on `frag`. A ring hands over first. */
pv_inline void pv_pkt_put(struct pv_pkt *pkt)
{
	do {
		struct pv_pool *pool = pkt->pool;
		struct pv_pkt *frag = pkt->frag;

		if (pv_unlikely(pkt->flags & PV_PKT_KEPT)) {
			pkt->flags &= ~PV_PKT_KEPT;
			pkt->frag = NULL;
			pkt = frag;
			continue;
		}
		pv_pkt_debug_put(pkt);
		pkt->next = pool->free;
		pool->free = pkt;
		pool->nfree++;
		pkt = frag;
	} while (pv_unlikely(pkt != NULL));
}

/* Whether a received packet that is queued now should wait in the store. `behind`: others of its receiver wait already; that of a prompt
 * reader stays where it is for longer. Senders are content with an eighth. */
pv_inline bool pv_pool_spills(const struct pv_pool *pool, bool behind)
{
	return pv_unlikely(pool->nfree < pool->spill_at) && (behind || pool->nfree < pool->spill_at - (pool->spill_at >> 2));
}

/* The ring that takes its receive buffers from this pool goes hungry next: of what waits to be read only a bare minimum is taken. What is left
 * then is more than what modest senders must leave (packets_left): an application that reads on when its answer has gone could do neither
 * otherwise. */
pv_inline bool pv_pool_scarce(const struct pv_pool *pool)
{
	return pv_unlikely(pool->nfree < pool->total >> 4) && (!pool->store || pool->store->nfree < pool->store->total >> 4);
}

/* `pool` NULL: nobody's. */
pv_inline bool pv_pool_owns(const struct pv_pool *pool, const struct pv_pkt *pkt)
{
	return pkt->pool == pool || (pool && pool->store && pkt->pool == pool->store);
}

/* The same in a packet of another pool with buffers alike: a received packet's bytes from `at` on (l3_off, or where its payload begins), at the
 * same place of the buffer, and what is said of it. NULL: that pool is empty. */
struct pv_pkt *pv_pkt_copy(const struct pv_pkt *pkt, uint32_t at, struct pv_pool *pool);
/* Takes the packet and returns that copy in the store, or the packet itself when the store has no room. */
struct pv_pkt *pv_pkt_store(struct pv_pkt *pkt, uint32_t at);

/* The i-th piece of buffer memory; false: there are not so many. */
bool pv_pool_chunk(const struct pv_pool *pool, uint32_t i, void **base, size_t *size);

/* The packet with that index, for completions that carry only a number. The index must be below total. */
struct pv_pkt *pv_pool_pkt_grown(struct pv_pool *pool, uint32_t index); /* not of the first chunk */
pv_inline struct pv_pkt *pv_pool_pkt(struct pv_pool *pool, uint32_t index)
{
	return pv_likely(index < pool->nfirst) ? &pool->first[index] : pv_pool_pkt_grown(pool, index);
}

/* The transmit queue. */
pv_inline uint32_t pv_pkt_txq(const struct pv_pkt *p)
{
	return p->flags >> PV_PKT_TX_QUEUE_SHIFT;
}

pv_inline void pv_pkt_set_txq(struct pv_pkt *p, uint32_t txq)
{
	p->flags = (p->flags & ~PV_PKT_TX_QUEUE) | txq << PV_PKT_TX_QUEUE_SHIFT;
}

pv_inline uint32_t pv_pkt_headroom(const struct pv_pkt *p)
{
	return (uint32_t)(p->data - p->buf);
}

pv_inline uint32_t pv_pkt_tailroom(const struct pv_pkt *p)
{
	return p->size - pv_pkt_headroom(p) - p->len;
}

/* First-in first-out of packets linked by `next`. */
struct pv_pktq {
	struct pv_pkt *head, **tail;
	uint32_t count;
};

pv_inline void pv_pktq_init(struct pv_pktq *q)
{
	q->head = NULL;
	q->tail = &q->head;
	q->count = 0;
}

pv_inline void pv_pktq_push(struct pv_pktq *q, struct pv_pkt *p)
{
	p->next = NULL;
	*q->tail = p;
	q->tail = &p->next;
	q->count++;
}

/* In front: the one that was popped last. */
pv_inline void pv_pktq_unpop(struct pv_pktq *q, struct pv_pkt *p)
{
	p->next = q->head;
	if (!q->head)
		q->tail = &p->next;
	q->head = p;
	q->count++;
}

/* The first of a queue that has one. */
pv_inline struct pv_pkt *pv_pktq_take(struct pv_pktq *q)
{
	struct pv_pkt *p = q->head;

	q->head = p->next;
	if (!q->head)
		q->tail = &q->head;
	q->count--;
	return p;
}

pv_inline struct pv_pkt *pv_pktq_pop(struct pv_pktq *q)
{
	return q->head ? pv_pktq_take(q) : NULL;
}

#endif
