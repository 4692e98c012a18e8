/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the receive side share: rcvq.c, ooo.c, delack.c, urg.c. */
#ifndef PV_TCP_RCV_H
#define PV_TCP_RCV_H

#include <string.h>

#include "tcp/tcp_int.h"

#define PV_RCV_MSS_MIN 88u /* Linux's TCP_MIN_MSS */
#define PV_RCV_COPYBREAK 256u /* payloads up to this are copied behind what waits, to give their buffers back */

pv_inline pv_seq pv_rcv_seq(const struct pv_pkt *pkt)
{
	return pv_seq_of((uint32_t)PV_TCP_PKT_SEQ(pkt));
}

pv_inline pv_seq pv_rcv_end(const struct pv_pkt *pkt)
{
	return pv_seq_add(pv_rcv_seq(pkt), pkt->len);
}

pv_inline void pv_rcv_trim_front(struct pv_pkt *pkt, uint32_t n)
{
	pkt->data += n;
	pkt->len -= n;
	PV_TCP_PKT_SEQ(pkt) = (uint32_t)PV_TCP_PKT_SEQ(pkt) + n;
}

#define PV_RCV_FAIR_MEM 16384u /* what a connection may hold while the pool is nearly empty */

/* Bytes that the peer may still send by what it was promised. */
pv_inline uint32_t pv_rcv_window(const struct pv_tcp *c)
{
	int32_t n = pv_seq_diff(c->rcv_adv, c->rcv_nxt);

	return n > 0 ? (uint32_t)n : 0;
}

/* The ring that takes its receive buffers from this pool is about to go hungry: payloads are put together, windows kept small. Not as long
 * as what waits can do so in the pool's store. */
pv_inline bool pv_rcv_pool_low(const struct pv_pool *pool)
{
	return pv_unlikely(pool->nfree < pool->total >> 3) && (!pool->store || pool->store->nfree < pool->store->total >> 3);
}

/* ---- rcvq.c ------------------------------------------------------------------------------------------------------------ */

/* Copies `pkt` behind the payload of `tail` and gives it back, when it is small, or memory is short, and there is room. */
bool pv_rcv_coalesce(struct pv_pkt *tail, struct pv_pkt *pkt);
/* Whether a packet may be queued, perhaps after making room for it. */
bool pv_rcv_admit(struct pv_tcp *c, const struct pv_pkt *pkt, pv_seq seq);
/* Puts payloads of a list of neighbours together. Returns the last packet; what was given back is taken off *count and *mem. */
struct pv_pkt *pv_rcv_compact(struct pv_pkt *first, uint32_t *count, uint32_t *mem);

/* The next `n` bytes, which the head packet holds, are done with. */
void pv_rcv_skip(struct pv_tcp *c, uint32_t n);

/* ---- ooo.c ------------------------------------------------------------------------------------------------------------- */

enum pv_ooo_verdict { PV_OOO_QUEUED, PV_OOO_NEW_RANGE, PV_OOO_DUPLICATE, PV_OOO_FULL };

/* Takes a packet with its sequence number in place, ahead of rcv_nxt. */
enum pv_ooo_verdict pv_ooo_insert(struct pv_tcp *c, struct pv_pkt *pkt);
/* The next packet that rcv_nxt has reached, trimmed to what is new (which is never nothing); NULL: none. */
struct pv_pkt *pv_ooo_pull(struct pv_tcp *c);
void pv_ooo_drop(struct pv_tcp *c);
/* Gives back at least `goal` bytes of memory from the end, but nothing before `keep`. */
void pv_ooo_prune(struct pv_tcp *c, uint32_t goal, pv_seq keep);
void pv_ooo_compact(struct pv_tcp *c);
/* rcv_nxt has moved: blocks that it passed are not reported any more. */
void pv_ooo_sack_advance(struct pv_tcp *c);
/* A duplicate, to be reported by the next acknowledgement (RFC 2883). */
void pv_ooo_dsack(struct pv_tcp *c, pv_seq start, pv_seq end);

/* ---- delack.c ---------------------------------------------------------------------------------------------------------- */

/* New data in order: `len` payload bytes in `mem` bytes of memory. */
void pv_rcv_data_event(struct pv_tcp *c, uint32_t len, uint32_t mem, bool psh, int64_t now_ns);
void pv_rcv_rtt_ts(struct pv_tcp *c, uint32_t ts_ecr, uint32_t len, int64_t now_ns);
void pv_rcv_grow_window(struct pv_tcp *c, uint32_t len, uint32_t mem);
/* Over the buffer: lets it grow when it may, else offers less. */
void pv_rcv_clamp_window(struct pv_tcp *c);
/* Now, by the end of the batch, or by the timer. */
void pv_rcv_ack_check(struct pv_tcp *c, int64_t now_ns);
void pv_rcv_ack_now(struct pv_tcp *c);
/* The application has read `n` bytes, which is what it returns: auto-tuning, and the acknowledgement or window update that reading makes due. */
uint32_t pv_rcv_read_done(struct pv_tcp *c, uint32_t n, int64_t now_ns);

/* ---- urg.c ------------------------------------------------------------------------------------------------------------- */

/* The urgent byte is kept aside when it is in this payload. */
void pv_rcv_urg_catch(struct pv_tcp *c, const struct pv_pkt *pkt, pv_seq seq);
int64_t pv_rcv_urg_recv(struct pv_tcp *c, const struct pv_iov *iov, uint32_t iovcnt, uint32_t flags);

#endif
