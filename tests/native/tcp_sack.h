/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scoreboard against a model that looks at every block for every segment. What happens is told by a string of bytes: of a random
 * generator (tcp_sack_test.c) or of a fuzzer (fuzz_tcp_sack.c). The invariants of tcp_check.h are looked at all the time.
 */
#ifndef TCP_SACK_H
#define TCP_SACK_H

#include "tcp_rec.h"

#define SACK_SEGS 400u

struct sack_run {
	const uint8_t *data;
	size_t size, at;
	struct peer p;
	bool sacked[SACK_SEGS + 1]; /* by number of the segment */
	uint64_t steps, marked; /* done; that a SACK was seen on a segment */
};

static inline uint32_t sack_num(struct sack_run *r, uint32_t below)
{
	uint32_t v;

	if (r->at + 2 > r->size) {
		r->at = r->size;
		return 0;
	}
	v = (uint32_t)r->data[r->at] << 8 | r->data[r->at + 1];
	r->at += 2;
	return v % below;
}

static inline uint32_t sack_off(const struct sack_run *r, pv_seq s)
{
	return s.v - r->p.irs;
}

/* RFC 2883: the first block may tell of a duplicate. */
static inline bool sack_is_dup(const struct peer_seg *s)
{
	int32_t below = (int32_t)(s->opt.sack[0].start - s->ack);

	return below < 0 || (s->opt.nsack > 1 && (int32_t)(s->opt.sack[0].end - s->opt.sack[1].end) <= 0 &&
			     (int32_t)(s->opt.sack[0].start - s->opt.sack[1].start) >= 0);
}

static inline void sack_model(struct sack_run *r, const struct peer_seg *s)
{
	const struct pv_tcp *c = r->p.c;
	uint32_t max = sack_off(r, c->snd_max), una = PV_MAX(s->ack, sack_off(r, c->snd_una));

	for (uint32_t k = sack_is_dup(s) ? 1 : 0; k < s->opt.nsack; k++) {
		uint32_t start = s->opt.sack[k].start, end = s->opt.sack[k].end;

		if ((int32_t)(end - start) <= 0 || (int32_t)(end - max) > 0 || (int32_t)(start - una) <= 0)
			continue;
		for (uint32_t i = 1; i <= SACK_SEGS; i++)
			if (rec_seq(i) >= start && rec_seq(i) + REC_LEN <= end)
				r->sacked[i] = true;
	}
}

static inline void sack_compare(struct sack_run *r)
{
	const struct pv_tcp *c = r->p.c;

	pv_list_for_each(it, &c->sndq) {
		const struct pv_tcp_seg *s = pv_list_entry(it, struct pv_tcp_seg, link);
		uint32_t i = (sack_off(r, s->seq) - 1) / REC_LEN;

		if (!(s->board & PV_SEG_SENT))
			break;
		if (((s->board & PV_SEG_SACKED) != 0) != r->sacked[i])
			tcp_say(c);
		CHECK_EQ((s->board & PV_SEG_SACKED) != 0, r->sacked[i]);
		r->marked += r->sacked[i];
	}
}

static inline void sack_ack(struct sack_run *r)
{
	struct peer *p = &r->p;
	uint32_t una = sack_off(r, p->c->snd_una), max = sack_off(r, p->c->snd_max), kind = sack_num(r, 16);
	struct peer_seg s = { .flags = ".", .seq = p->seq_max, .ack = una };

	if (kind < 4)
		s.ack = una + sack_num(r, max - una + 1) / REC_LEN * REC_LEN;
	else if (kind == 4)
		s.ack = una + sack_num(r, max - una + 1);
	s.opt.nsack = (uint8_t)sack_num(r, 5);
	for (uint32_t k = 0; k < s.opt.nsack; k++) {
		uint32_t how = sack_num(r, 16);

		/* As receivers say it, seldom as they do not. */
		s.opt.sack[k].start = rec_seq((s.ack - 1) / REC_LEN + sack_num(r, 40));
		s.opt.sack[k].end = s.opt.sack[k].start + REC_LEN * (1 + sack_num(r, 12));
		if (how == 0)
			s.opt.sack[k].start -= sack_num(r, 30000);
		else if (how == 1)
			s.opt.sack[k].end += sack_num(r, 3000) - 1500;
	}
	sack_model(r, &s);
	peer_send_seg(p, &s);
}

/* Timeouts forget SACKs when the receiver seems to have (RFC 2018 8): the model believes that, having seen one. */
static inline void sack_timeouts(struct sack_run *r, uint64_t *rto)
{
	const struct pv_tcp *c = r->p.c;

	if (c->t->c.rto != *rto && !c->sacked)
		memset(r->sacked, 0, sizeof(r->sacked));
	*rto = c->t->c.rto;
}

static inline void sack_run(struct sack_run *r, const uint8_t *data, size_t size)
{
	uint32_t written = 0;
	uint64_t rto = 0;

	*r = (struct sack_run){ .data = data, .size = size };
	rec_open(&r->p, &(struct rec){ .cwnd = 60 });
	r->p.forget = true;
	while (r->at < r->size && peer_state(&r->p) == PV_TCP_ESTABLISHED) {
		uint32_t what = sack_num(r, 16);

		r->steps++;
		if (what < 3 && written < SACK_SEGS - 20 && r->p.c->sndq_bytes < 60 * REC_LEN) {
			uint32_t n = 1 + sack_num(r, 20);

			rec_write(&r->p, n);
			written += n;
		} else if (what < 5) {
			peer_run(&r->p, (int64_t)sack_num(r, 60) * MS);
		} else if (what == 5) {
			peer_run(&r->p, (int64_t)sack_num(r, 600) * MS);
		} else if (r->p.c->in_flight) {
			sack_ack(r);
		}
		sack_timeouts(r, &rto);
		sack_compare(r);
	}
	rec_close(&r->p);
}

#endif
