/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When to acknowledge (RFC 9293 3.8.6.3, RFC 5681 4.2), what window to offer (RFC 9293 3.8.6.2.2, RFC 7323 2), and how large the buffer
 * should be (dynamic right-sizing, as Linux does it).
 *
 * The buffer is counted in bytes of memory, the window in payload. `rcv_ratio` is how much of the former the latter comes to, measured at
 * the largest segment so far; the rest is what headers and the unused ends of buffers cost.
 */
#include "tcp/conn.h"
#include "tcp/gro.h"
#include "tcp/rcv.h"

#define ATO_MIN_US 40000u /* Linux's TCP_ATO_MIN and TCP_DELACK_MIN */
#define RATIO_DEFAULT 128u
#define CLAMP_MIN 1152u /* half of the smallest receive buffer */
#define WSCALE_MAX 14u
#define WND_MAX 65535u
#define GROW_MIN 128u /* shorter segments do not open the window */
#define BUSY_SEGS 16u /* segments with data after which a connection is worth a rule of its own */

#define OWN_MEM 131072u /* what a connection with a prompt reader may have in any case: tcp_rmem's default */

/* ---- window ------------------------------------------------------------------------------------------------------------ */

pv_inline uint32_t win_of(const struct pv_tcp *c, uint32_t mem)
{
	return (uint32_t)((uint64_t)mem * c->rcv_ratio >> 8);
}

pv_inline uint32_t full_space(const struct pv_tcp *c)
{
	return win_of(c, c->opts.rcvbuf);
}

pv_inline uint32_t free_space(const struct pv_tcp *c)
{
	return c->rcv_mem < c->opts.rcvbuf ? win_of(c, c->opts.rcvbuf - c->rcv_mem) : 0;
}

static void set_clamp(struct pv_tcp *c, uint32_t clamp)
{
	clamp = PV_MIN(clamp, WND_MAX << c->rcv_wscale);
	c->window_clamp = c->opts.window_clamp ? PV_MIN(clamp, PV_MAX(c->opts.window_clamp, CLAMP_MIN)) : clamp;
}

/*
 * What all senders were promised together must fit the pool that it is received into: what finds no room there is lost, and they learn of it
 * by timeouts. Only windows larger than every connection has are counted, and those of connections that hold much unread already: any number
 * of idle ones, or of such as exchange messages, takes nothing from the others.
 */
pv_inline bool counts(const struct pv_tcp *c, uint32_t wnd)
{
	return c->rcv_mem > PV_RCV_FAIR_MEM || wnd > (OWN_MEM >> 8) * c->rcv_ratio;
}

/* Of what is free, not promised to others, or its own already, a connection may have three quarters: one alone has these, of n in the same
 * state each 3 / (3n + 1), and something is left for the next one. What it may have in any case opens a closed window again. */
static pv_noinline uint32_t share(const struct pv_tcp *c, uint32_t space)
{
	const struct pv_pool *pool = c->path.gen ? c->path.ring->pool : NULL;
	uint32_t least = OWN_MEM;
	int64_t left;

	if (!pool)
		return space;
	/* As little as is taken when the pool has run low nevertheless: more would be lost. */
	if (c->rcv_mem > PV_RCV_FAIR_MEM || pv_pool_scarce(pool))
		least = PV_RCV_FAIR_MEM;
	/* What it may grow by is as good as free. */
	left = (int64_t)pv_pool_left(pool) - (pool->total >> 4);
	left = left * pv_pool_config(pool)->buf_size + c->rcv_mem - (c->t->rcv_promised[c->path.iface] - c->rcv_promised);
	left = PV_MAX(left - (left >> 2), (int64_t)least) - c->rcv_mem;
	space = left > 0 ? PV_MIN(space, win_of(c, (uint32_t)PV_MIN(left, (int64_t)UINT32_MAX))) : 0;
	/* Less than a segment is not worth an offer. */
	return space < c->rcv_mss && c->rcv_mem ? 0 : space;
}

/* Whether a window of so much has to be looked at like that. */
pv_inline bool is_shared(const struct pv_tcp *c, uint32_t wnd)
{
	return pv_unlikely(counts(c, wnd)) || (c->rcv_mem && c->rcvq.head && pv_unlikely(pv_pool_scarce(c->rcvq.head->pool)));
}

void pv_tcp_promise_end(struct pv_tcp *c)
{
	c->t->rcv_promised[c->promised_iface] -= c->rcv_promised;
	c->rcv_promised = 0;
}

static pv_noinline void promise(struct pv_tcp *c, uint32_t wnd)
{
	pv_tcp_promise_end(c);
	if (!c->path.gen || (c->flags & (PV_TF_FIN_RCVD | PV_TF_ORPHAN)) || !counts(c, wnd))
		return;
	c->promised_iface = (uint8_t)c->path.iface;
	c->rcv_promised = (uint32_t)PV_MIN(((uint64_t)wnd << 8) / c->rcv_ratio, (uint64_t)UINT32_MAX);
	c->t->rcv_promised[c->promised_iface] += c->rcv_promised;
}

/* As Linux's __tcp_select_window: not scaled, not yet held against what was promised. Silly windows are avoided by offering either what
 * was offered, or a segment (a sixteenth of the buffer) more, or nothing. */
pv_inline uint32_t wanted_of(struct pv_tcp *c, bool shared)
{
	uint32_t unit = 1u << c->rcv_wscale, allowed = full_space(c), space = free_space(c);
	uint32_t full = PV_MIN(c->window_clamp, allowed), mss = PV_MIN(c->rcv_mss, full), wnd;

	if (pv_unlikely(!mss))
		return 0;
	if (pv_unlikely(space < full >> 1)) {
		c->quickacks = 0;
		space &= ~(unit - 1);
		if (space < allowed >> 4 || space < mss)
			return 0;
	}
	space = PV_MIN(space, c->rcv_ssthresh);
	if (shared)
		space = share(c, space);
	if (c->rcv_wscale)
		return (space + unit - 1) & ~(unit - 1);
	/* A peer whose segments are longer than what may be offered at all sends in pieces: half of it is worth an offer. */
	if (pv_unlikely(mss > space))
		mss = PV_MAX(space >> 1, 1u);
	/* Whole segments, without dividing while the offer is still about right. */
	wnd = pv_seq_dist(c->rcv_wup, c->rcv_adv);
	if (wnd + mss <= space || wnd > space)
		return space - space % mss;
	if (mss == full && space > wnd + (full >> 1))
		return space;
	return wnd;
}

static pv_noinline uint32_t wanted_shared(struct pv_tcp *c)
{
	return wanted_of(c, true);
}

static uint32_t wanted(struct pv_tcp *c)
{
	return is_shared(c, c->rcv_ssthresh) ? wanted_shared(c) : wanted_of(c, false);
}

static pv_noinline uint32_t select_any(struct pv_tcp *c)
{
	bool shared = is_shared(c, c->rcv_ssthresh);
	uint32_t now = pv_rcv_window(c), wnd = shared ? wanted_shared(c) : wanted_of(c, false), unit = 1u << c->rcv_wscale;

	if (wnd < now)
		wnd = (now + unit - 1) & ~(unit - 1); /* what was promised stays promised (RFC 9293 3.8.6.2.1) */
	wnd = PV_MIN(wnd, WND_MAX << c->rcv_wscale);
	c->rcv_adv = pv_seq_add(c->rcv_nxt, wnd);
	if (pv_unlikely(shared || c->rcv_promised))
		promise(c, wnd);
	return wnd;
}

uint32_t pv_tcp_select_window(struct pv_tcp *c)
{
	uint32_t now, wnd, mask;

	if (pv_unlikely(c->rcv_mem || !c->rcv_wscale || c->rcv_promised || !c->window_clamp || counts(c, c->rcv_ssthresh)))
		return select_any(c);
	/* The same of a window that is scaled and not shared, while nothing waits to be read: there is room for all of it. */
	now = pv_rcv_window(c);
	mask = (1u << c->rcv_wscale) - 1;
	wnd = PV_MIN(full_space(c), c->rcv_ssthresh);
	wnd = (PV_MAX(wnd, now) + mask) & ~mask;
	wnd = PV_MIN(wnd, WND_MAX << c->rcv_wscale);
	c->rcv_adv = pv_seq_add(c->rcv_nxt, wnd);
	return wnd;
}

uint8_t pv_tcp_rcv_wscale(const struct pv_tcp_cfg *cfg, const struct pv_tcp_opts *opts)
{
	uint32_t space = PV_MAX(cfg->rcvbuf_max, opts->rcvbuf);
	uint8_t scale = 0;

	if (cfg->no_window_scaling)
		return 0;
	if (opts->window_clamp)
		space = PV_MIN(space, opts->window_clamp);
	while (space > WND_MAX && scale < WSCALE_MAX) {
		space >>= 1;
		scale++;
	}
	return scale;
}

uint32_t pv_tcp_rcv_window0(const struct pv_tcp_cfg *cfg, const struct pv_tcp_opts *opts)
{
	uint32_t space = (uint32_t)((uint64_t)(opts->rcvbuf ? opts->rcvbuf : cfg->rcvbuf) * RATIO_DEFAULT >> 8);

	if (opts->window_clamp)
		space = PV_MIN(space, PV_MAX(opts->window_clamp, CLAMP_MIN));
	return PV_MIN(space, WND_MAX);
}

void pv_tcp_rcv_init(struct pv_tcp *c)
{
	uint32_t full, mss = c->advmss ? c->advmss : PV_TCP_MSS_DEFAULT;

	if (!c->opts.rcvbuf)
		c->opts.rcvbuf = c->t->cfg.rcvbuf;
	if (!c->rcvq.head)
		pv_pktq_init(&c->rcvq);
	c->rcv_ratio = RATIO_DEFAULT;
	c->rcv_wscale = pv_tcp_rcv_wscale(&c->t->cfg, &c->opts);
	full = full_space(c);
	/* A segment is kept in reserve. */
	set_clamp(c, full > 3 * mss ? full - mss : full);
	c->rcv_ssthresh = PV_MIN(c->window_clamp, pv_tcp_rcv_window0(&c->t->cfg, &c->opts));
	c->rcv_space = PV_MIN(c->rcv_ssthresh, PV_TCP_INIT_CWND * mss);
	c->rcv_mss = (uint16_t)PV_MAX(PV_MIN(PV_MIN(mss, c->rcv_ssthresh / 2), PV_TCP_MSS_DEFAULT), PV_RCV_MSS_MIN);
	c->last_seg_len = 0;
	c->ato_us = 0;
	c->quickacks = c->pingpong = c->ack_pend = 0;
	c->rcv_rtt_ns = c->rcv_rtt_start_ns = 0;
	c->rcv_last_tsecr = 0;
	c->compact_mem = 0;
	c->nsack = 0;
}

void pv_tcp_rcv_start(struct pv_tcp *c, pv_seq irs, int64_t now_ns)
{
	c->irs = irs;
	c->rcv_nxt = c->rcv_wup = c->copied_seq = pv_seq_add(irs, 1);
	c->rcv_adv = pv_seq_add(c->rcv_nxt, PV_MIN(c->rcv_ssthresh, WND_MAX));
	c->rcv_space_seq = c->copied_seq;
	c->rcv_space_ns = now_ns;
	c->dsack.start = c->dsack.end = c->rcv_nxt;
}

/* A listener has no ratio of its own: its connections begin with the default. */
static uint32_t most_unread(const struct pv_tcp *c)
{
	uint32_t rcvbuf = c->opts.rcvbuf ? c->opts.rcvbuf : c->t->cfg.rcvbuf;

	return (uint32_t)((uint64_t)rcvbuf * (c->rcv_ratio ? c->rcv_ratio : RATIO_DEFAULT) >> 8);
}

void pv_tcp_rcv_opts_changed(struct pv_tcp *c, int64_t now_ns)
{
	uint32_t max = (c->opts.rcvbuf_locked ? c->opts.rcvbuf : c->t->cfg.rcvbuf_max) >> 1;

	(void)now_ns;
	c->opts.rcvlowat = PV_MIN(c->opts.rcvlowat, max);
	/* So much has to fit (Linux's tcp_set_rcvlowat). */
	if (!c->opts.rcvbuf_locked && c->opts.rcvlowat > most_unread(c))
		c->opts.rcvbuf = PV_MIN(c->opts.rcvlowat * 2, c->t->cfg.rcvbuf_max);
	if (!c->rcv_ratio)
		return; /* before pv_tcp_rcv_init */
	set_clamp(c, full_space(c));
	c->rcv_ssthresh = PV_MIN(c->rcv_ssthresh, c->window_clamp);
	if (pv_tcp_readable(c))
		pv_tcp_tell(c, PV_EV_IN);
}

/* ---- auto-tuning ------------------------------------------------------------------------------------------------------- */

void pv_rcv_clamp_window(struct pv_tcp *c)
{
	uint32_t max = c->t->cfg.rcvbuf_max;

	c->quickacks = 0;
	if (!c->opts.rcvbuf_locked && c->opts.rcvbuf < max && !(c->rcvq.head && pv_rcv_pool_low(c->rcvq.head->pool)))
		c->opts.rcvbuf = PV_MAX(c->opts.rcvbuf, PV_MIN(c->rcv_mem, max));
	if (c->rcv_mem > c->opts.rcvbuf)
		c->rcv_ssthresh = PV_MIN(c->window_clamp, 2u * c->advmss);
}

/* How much the window may open after a segment that costs more memory than the ratio says. */
static uint32_t careful_step(const struct pv_tcp *c, uint32_t len, uint32_t mem)
{
	uint32_t cost = win_of(c, mem) >> 1, window = win_of(c, c->t->cfg.rcvbuf_max) >> 1;

	while (c->rcv_ssthresh <= window) {
		if (cost <= len)
			return 2u * c->rcv_mss;
		cost >>= 1;
		window >>= 1;
	}
	return 0;
}

void pv_rcv_grow_window(struct pv_tcp *c, uint32_t len, uint32_t mem)
{
	uint32_t space, shared, step;

	if (pv_likely(c->rcv_ssthresh >= c->window_clamp))
		return;
	space = PV_MIN(c->window_clamp, free_space(c));
	shared = is_shared(c, space) ? share(c, space) : space;
	/* Something is kept for what waits to be read: a window that shrank with each segment would be the reader's to move on. */
	if (pv_unlikely(shared < space))
		space = shared - (shared >> 3);
	if (space <= c->rcv_ssthresh)
		return;
	step = win_of(c, mem) <= len ? 2u * c->advmss : careful_step(c, len, mem);
	if (!step)
		return;
	step = PV_MAX(step, 2 * len);
	c->rcv_ssthresh += PV_MIN(step, space - c->rcv_ssthresh);
	c->quickacks |= 1;
}

/* win_dep: the sample spans a whole window, which is never less than a round trip; so the smallest counts, and is not smoothed. */
static void rtt_update(struct pv_tcp *c, int64_t sample_ns, bool win_dep)
{
	if (!c->rcv_rtt_ns || (win_dep && sample_ns < c->rcv_rtt_ns))
		c->rcv_rtt_ns = sample_ns;
	else if (!win_dep)
		c->rcv_rtt_ns += (sample_ns - c->rcv_rtt_ns) >> 3;
}

static void rtt_window(struct pv_tcp *c, int64_t now_ns)
{
	if (c->rcv_rtt_start_ns) {
		if (pv_seq_lt(c->rcv_nxt, c->rcv_rtt_seq))
			return;
		rtt_update(c, PV_MAX(now_ns - c->rcv_rtt_start_ns, PV_NS_PER_US), true);
	}
	c->rcv_rtt_seq = pv_seq_add(c->rcv_nxt, pv_rcv_window(c));
	c->rcv_rtt_start_ns = PV_MAX(now_ns, 1);
}

void pv_rcv_rtt_ts(struct pv_tcp *c, uint32_t ts_ecr, uint32_t len, int64_t now_ns)
{
	uint32_t delta;

	if (ts_ecr == c->rcv_last_tsecr)
		return;
	c->rcv_last_tsecr = ts_ecr;
	if (len < c->rcv_mss)
		return;
	delta = pv_tcp_ts_now(c, now_ns) - ts_ecr;
	if (delta < INT32_MAX / 1000)
		rtt_update(c, PV_MAX(delta, 1) * PV_NS_PER_MS, false);
}

/* What the application read in a round trip, and as much again for a sender that doubles, must fit (Linux's tcp_rcv_space_adjust). */
static void space_adjust(struct pv_tcp *c, int64_t now_ns)
{
	uint32_t copied, rcvbuf;
	uint64_t wnd;

	if (!c->rcv_rtt_ns || now_ns - c->rcv_space_ns < c->rcv_rtt_ns)
		return;
	copied = pv_seq_dist(c->rcv_space_seq, c->copied_seq);
	if (copied > c->rcv_space) {
		if (!c->opts.rcvbuf_locked && !(c->rcvq.head && pv_rcv_pool_low(c->rcvq.head->pool))) {
			wnd = ((uint64_t)copied << 1) + 16u * c->advmss;
			wnd += (wnd * (copied - c->rcv_space) / PV_MAX(c->rcv_space, 1)) << 1;
			rcvbuf = (uint32_t)PV_MIN((wnd << 8) / c->rcv_ratio, c->t->cfg.rcvbuf_max);
			if (rcvbuf > c->opts.rcvbuf) {
				c->opts.rcvbuf = rcvbuf;
				set_clamp(c, full_space(c));
			}
		}
		c->rcv_space = copied;
	}
	c->rcv_space_seq = c->copied_seq;
	c->rcv_space_ns = now_ns;
}

/* ---- what has come ----------------------------------------------------------------------------------------------------- */

/* Acknowledgements that go at once: enough to open the peer's window to where delaying does not hurt, at most `max`. */
static void add_quick(struct pv_tcp *c, uint32_t max)
{
	uint32_t n = pv_seq_dist(c->rcv_wup, c->rcv_adv) / (2u * c->rcv_mss);

	n = PV_MIN(n ? n : 2, max);
	if (n > c->quickacks)
		c->quickacks = (uint16_t)n;
}

static uint32_t quick_max(const struct pv_tcp *c)
{
	return PV_MIN(c->t->cfg.quickack_segs, UINT16_MAX);
}

void pv_tcp_quick_mode(struct pv_tcp *c)
{
	add_quick(c, quick_max(c));
	c->pingpong = 0;
	c->ato_us = ATO_MIN_US;
}

/* The size of the peer's segments, which is what "every second full segment" means (Linux's tcp_measure_rcv_mss). */
static void measure(struct pv_tcp *c, uint32_t len, uint32_t mem, bool psh)
{
	uint16_t last = c->last_seg_len;

	c->last_seg_len = 0;
	if (len >= c->rcv_mss) {
		if (pv_unlikely(len != c->rcv_mss)) {
			uint32_t ratio = (len << 8) / mem;

			c->rcv_ratio = (uint8_t)PV_MAX(PV_MIN(ratio, 255u), 1u);
			set_clamp(c, full_space(c));
			c->rcv_space = PV_MIN(c->rcv_space, c->window_clamp);
			c->rcv_mss = (uint16_t)PV_MAX(PV_MIN(len, c->advmss), PV_RCV_MSS_MIN);
		}
		if (psh)
			c->ack_pend |= PV_ACK_PUSHED;
		return;
	}
	/* Shorter, twice alike, and not the end of something: the path may have become narrower. */
	if (len >= PV_TCP_MSS_DEFAULT || (len >= PV_RCV_MSS_MIN && !psh)) {
		c->last_seg_len = (uint16_t)len;
		if (len == last) {
			c->rcv_mss = (uint16_t)len;
			return;
		}
	}
	if (c->ack_pend & PV_ACK_PUSHED)
		c->ack_pend |= PV_ACK_PUSHED2;
	c->ack_pend |= PV_ACK_PUSHED;
}

static void estimate_ato(struct pv_tcp *c, int64_t now_ns)
{
	int64_t gap_us;

	if (pv_unlikely(!c->ato_us)) {
		add_quick(c, quick_max(c));
		c->ato_us = ATO_MIN_US;
	} else if (now_ns != c->ack_data_ns) {
		gap_us = (now_ns - c->ack_data_ns) / PV_NS_PER_US;
		if (gap_us <= ATO_MIN_US / 2)
			c->ato_us = (c->ato_us >> 1) + ATO_MIN_US / 2;
		else if (gap_us < c->ato_us)
			c->ato_us = (uint32_t)PV_MIN((c->ato_us >> 1) + gap_us, PV_MAX(c->rto_ns / PV_NS_PER_US, ATO_MIN_US));
		else if (now_ns - c->ack_data_ns > c->rto_ns)
			add_quick(c, quick_max(c)); /* a pause: the peer may be slow-starting again */
	}
	c->ack_data_ns = now_ns;
}

void pv_rcv_data_event(struct pv_tcp *c, uint32_t len, uint32_t mem, bool psh, int64_t now_ns)
{
	c->ack_pend |= PV_ACK_SCHED;
	measure(c, len, mem, psh);
	if (!(c->flags & PV_TF_TS))
		rtt_window(c, now_ns);
	estimate_ato(c, now_ns);
	if (len >= GROW_MIN)
		pv_rcv_grow_window(c, len, mem);
}

/* The third of the same length finds everything as the second has left it. */
#define ALIKE_MAX 3u

void pv_rcv_run_event(struct pv_tcp *c, const struct pv_tcp_run *run)
{
	const struct pv_tcp_in *in = &run->in;

	c->ack_pend |= PV_ACK_SCHED;
	for (uint32_t i = PV_MIN(run->segs - 1, ALIKE_MAX); i; i--)
		measure(c, run->seg_len, run->seg_mem, false);
	measure(c, run->last_len, run->seg_mem, in->flags & PV_TH_PSH);
	if (!(c->flags & PV_TF_TS))
		rtt_window(c, in->now_ns);
	estimate_ato(c, in->now_ns);
	if (run->seg_len >= GROW_MIN)
		pv_rcv_grow_window(c, in->len, run->mem);
}

/* ---- when to acknowledge ----------------------------------------------------------------------------------------------- */

void pv_rcv_ack_now(struct pv_tcp *c)
{
	c->ack_pend |= PV_ACK_SCHED;
	c->flags |= PV_TF_ACK_NOW;
	pv_tcp_owe(c);
}

pv_inline bool is_quick(const struct pv_tcp *c)
{
	return c->quickacks && !c->pingpong;
}

static void delay(struct pv_tcp *c, int64_t now_ns)
{
	int64_t ato = c->ato_us * PV_NS_PER_US, old = c->deadline_ns[PV_TT_DELACK], max;

	if (ato > ATO_MIN_US * PV_NS_PER_US) {
		max = c->pingpong || (c->ack_pend & PV_ACK_PUSHED) ? 200 * PV_NS_PER_MS : 500 * PV_NS_PER_MS;
		if (c->srtt_ns)
			max = PV_MIN(max, PV_MAX(c->srtt_ns, ATO_MIN_US * PV_NS_PER_US));
		ato = PV_MIN(ato, max);
	}
	/* Nothing has set it, as before any data: a FIN alone is acknowledged with Linux's next tick. */
	if (!ato)
		ato = PV_NS_PER_MS;
	ato = PV_MIN(ato, c->t->cfg.delack_max_ns);
	if (old != PV_NEVER) {
		if (old <= now_ns + (ato >> 2))
			pv_rcv_ack_now(c);
		if (old <= now_ns + ato)
			return;
	}
	pv_tcp_timer_set(c, PV_TT_DELACK, now_ns + ato);
}

void pv_rcv_ack_check(struct pv_tcp *c, int64_t now_ns)
{
	if (!(c->ack_pend & PV_ACK_SCHED))
		return;
	if ((c->flags & PV_TF_ACK_NOW) || is_quick(c) || c->ooo.head) {
		pv_rcv_ack_now(c);
		return;
	}
	/* More than a segment, and the window moves on with it (else the reader's acknowledgement will do). */
	if (pv_seq_dist(c->rcv_wup, c->rcv_nxt) > c->rcv_mss &&
	    (c->rcvq_bytes < c->opts.rcvlowat || wanted(c) >= pv_seq_dist(c->rcv_wup, c->rcv_adv))) {
		pv_rcv_ack_now(c);
		return;
	}
	delay(c, now_ns);
}

void pv_tcp_ack_sent(struct pv_tcp *c)
{
	c->rcv_wup = c->rcv_nxt;
	c->flags &= ~PV_TF_ACK_NOW;
	if (!(c->ack_pend & PV_ACK_SCHED))
		return;
	c->ack_pend = 0;
	if (c->quickacks && !--c->quickacks)
		c->ato_us = ATO_MIN_US;
	if (pv_unlikely(c->t->hosted) && c->data_segs_in >= BUSY_SEGS && !(c->sock & PV_SK_BUSY))
		pv_tcp_steer_busy(c);
	if (c->deadline_ns[PV_TT_DELACK] != PV_NEVER)
		pv_tcp_timer_set(c, PV_TT_DELACK, PV_NEVER);
}

void pv_tcp_delack_fired(struct pv_tcp *c, int64_t now_ns)
{
	if (!(c->ack_pend & PV_ACK_SCHED))
		return;
	if (c->pingpong) {
		c->pingpong = 0; /* it found no data to ride on */
		c->ato_us = ATO_MIN_US;
	} else {
		c->ato_us = (uint32_t)PV_MIN((int64_t)c->ato_us << 1, PV_MAX(c->rto_ns / PV_NS_PER_US, ATO_MIN_US));
	}
	c->t->c.delayed_acks++;
	pv_tcp_send_ack(c, now_ns);
	if (c->ack_pend & PV_ACK_SCHED)
		pv_tcp_timer_set(c, PV_TT_DELACK, now_ns + c->t->cfg.delack_max_ns); /* no packet, or the ring is full */
}

/* After a read (Linux's tcp_cleanup_rbuf): the acknowledgement that arrival left to us, or a window that has at least doubled. */
static bool due_by_reading(struct pv_tcp *c)
{
	uint32_t now, wnd;

	if (c->ack_pend & PV_ACK_SCHED) {
		if (pv_seq_dist(c->rcv_wup, c->rcv_nxt) > c->rcv_mss)
			return true;
		if (!c->rcv_mem && ((c->ack_pend & PV_ACK_PUSHED2) || ((c->ack_pend & PV_ACK_PUSHED) && !c->pingpong)))
			return true;
	}
	if (c->flags & (PV_TF_FIN_RCVD | PV_TF_SHUT_RD))
		return false;
	now = pv_rcv_window(c);
	/* No offer exceeds rcv_ssthresh, rounded up. While something waits to be read it ends quick acknowledgements as well. */
	if (pv_likely((uint64_t)now * 2 > (uint64_t)c->rcv_ssthresh + (1u << c->rcv_wscale) && !c->rcv_mem))
		return false;
	if ((uint64_t)now * 2 > c->window_clamp)
		return false;
	wnd = wanted(c);
	return wnd && wnd >= 2 * now;
}

uint32_t pv_rcv_read_done(struct pv_tcp *c, uint32_t n, int64_t now_ns)
{
	PV_PROBE3(delivered, PV_PROTO_TCP, c, n);
	if (pv_unlikely(c->t->head.stations != NULL))
		pv_tcp_traced(c, PV_TRACE_delivered, n, 0);
	space_adjust(c, now_ns);
	if (pv_unlikely(due_by_reading(c)) && c->state != PV_TCP_CLOSED) {
		pv_tcp_send_ack(c, now_ns);
		pv_net_kick(c->t->net);
	}
	return n;
}

/* __tcp_sock_set_quickack */
void pv_tcp_quickack(struct pv_tcp *c, int val, int64_t now_ns)
{
	c->pingpong = val == 0;
	if (!val || !(c->ack_pend & PV_ACK_SCHED) || (c->state != PV_TCP_ESTABLISHED && c->state != PV_TCP_CLOSE_WAIT))
		return;
	pv_tcp_send_ack(c, now_ns);
	pv_net_kick(c->t->net);
	c->pingpong = !(val & 1);
}

bool pv_tcp_is_quickack(const struct pv_tcp *c)
{
	return !c->pingpong;
}
