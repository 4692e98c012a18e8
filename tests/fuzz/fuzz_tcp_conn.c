/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole connection in every state, fed segments whose every field the input chooses relative to where the connection stands, so that
 * they are plausible as often as not, one by one or several in one batch; options as raw bytes; calls of the application, ICMP errors and time in between. The invariants of
 * tcp_check.h hold after every step; at the end, when both sides are silent, everything fades away and every packet and byte is back.
 */
#include "fuzz.h"
#include "tcp_peer.h"

struct fuzz {
	struct peer p;
	struct script s;
};

/* Small distances mostly. */
static uint32_t offset(struct fuzz *f)
{
	uint8_t kind = script_8(&f->s);

	switch (kind & 7) {
	case 0:
	case 1:
	case 2:
		return 0;
	case 3:
		return (uint32_t)(int8_t)script_8(&f->s);
	case 4:
	case 5:
		return (uint32_t)(int16_t)script_16(&f->s);
	case 6:
		return 1448u * script_8(&f->s);
	default:
		return (uint32_t)script_16(&f->s) << 16 | script_16(&f->s);
	}
}

/* ---- where the connection stands, relative as the script counts ------------------------------------------------------------------ */

static uint32_t peer_seq(const struct fuzz *f)
{
	return f->p.c && tcp_is_sync(f->p.c) ? f->p.c->rcv_nxt.v - f->p.iss : f->p.seq_max;
}

static uint32_t stack_seq(const struct fuzz *f, bool una)
{
	const struct pv_tcp *c = f->p.c;

	if (!c || c->state == PV_TCP_LISTEN)
		return 1;
	return (una ? c->snd_una.v : c->snd_max.v) - f->p.irs;
}

static void forget(struct fuzz *f)
{
	if (f->p.c)
		pv_tcp_close(f->p.c, f->p.w.now);
	f->p.c = NULL;
}

/* A new connection: through its handshake, or only begun. */
static void begin(struct fuzz *f, uint8_t how)
{
	struct peer *p = &f->p;

	forget(f);
	p->written = p->read = 1;
	p->seq_max = 0;
	p->iss += 100000;
	/* What is left of the one before has another port. */
	p->port++;
	p->stack_port = PEER_STACK_PORT;
	p->irs = 0;
	if (how & 1) {
		peer_connect(p);
		if (how & 2)
			return;
		p->ts_on = !p->cfg.no_ts;
		peer_syn_ack(p);
		return;
	}
	peer_syn(p);
	p->ts_on = !p->cfg.no_ts;
	if (how & 2)
		return;
	peer_send(p, ".", 1, 1, 0);
	if (pv_tcp_accept(p->l, &p->c))
		p->c = NULL;
}

/* ---- what arrives --------------------------------------------------------------------------------------------------------------------- */

static void options(struct fuzz *f, struct peer_seg *g, uint8_t *raw)
{
	uint8_t kind = script_8(&f->s);

	switch (kind & 7) {
	case 0:
		g->raw_len = (uint8_t)((kind >> 3) % 11 * 4);
		for (uint32_t i = 0; i < g->raw_len; i++)
			raw[i] = script_8(&f->s);
		g->raw_opts = raw;
		break;
	case 1:
		g->no_ts = true;
		break;
	case 2:
		g->opt.has_ts = true;
		g->opt.ts_val = peer_ts_now(&f->p) + offset(f);
		g->opt.ts_ecr = f->p.ts_recent + offset(f);
		break;
	case 3:
	case 4:
		g->opt.nsack = (uint8_t)(1 + (kind >> 3) % 3);
		for (uint32_t i = 0; i < g->opt.nsack; i++) {
			g->opt.sack[i].start = stack_seq(f, true) + offset(f);
			g->opt.sack[i].end = g->opt.sack[i].start + offset(f);
		}
		break;
	default:
		break;
	}
}

static void segment(struct fuzz *f)
{
	static const uint8_t usual[] = { PV_TH_ACK,
					 PV_TH_ACK | PV_TH_PSH,
					 PV_TH_ACK | PV_TH_FIN,
					 PV_TH_RST,
					 PV_TH_SYN,
					 PV_TH_SYN | PV_TH_ACK,
					 PV_TH_ACK | PV_TH_URG,
					 PV_TH_ACK | PV_TH_ECE,
					 PV_TH_RST | PV_TH_ACK,
					 PV_TH_ACK | PV_TH_CWR };
	uint8_t raw[40], flags = script_8(&f->s), misc = script_8(&f->s);
	struct peer_seg g = { .bits = flags & 0x80 ? script_8(&f->s) : usual[flags % sizeof(usual)] };

	g.seq = peer_seq(f) + offset(f);
	g.ack = stack_seq(f, misc & 1) + offset(f);
	if (misc & 2)
		g.len = misc & 4 ? script_16(&f->s) % 1400 : script_8(&f->s);
	if (misc & 8)
		g.wnd = script_16(&f->s);
	g.zero_wnd = (misc & 0x30) == 0x30;
	if (g.bits & PV_TH_URG)
		g.urp = misc & 4 ? script_16(&f->s) : script_8(&f->s);
	g.tos = misc >> 6;
	options(f, &g, raw);
	if (g.bits & PV_TH_SYN && !g.raw_opts) {
		g.opt = peer_syn_opts(&f->p);
		g.no_ts = true;
	}
	peer_send_seg(&f->p, &g);
}

/* Several that the stack meets in one turn: what follows each other without a gap, and odd ones among it. */
static void batch(struct fuzz *f)
{
	uint8_t n = script_8(&f->s) % 32, odd = script_8(&f->s);
	uint32_t len = script_8(&f->s) * 4u, seq = peer_seq(f), ack = stack_seq(f, true), step = odd & 0x80 ? script_16(&f->s) : 0;

	f->p.hold = true;
	for (uint8_t i = 0; i < n; i++) {
		if ((odd & 31) == i) {
			segment(f);
			continue;
		}
		peer_send(&f->p, ".", seq, ack, len);
		seq += len;
		ack += step;
	}
	f->p.hold = false;
	peer_run(&f->p, 0);
}

static void icmp(struct fuzz *f)
{
	uint8_t type = script_8(&f->s), code = script_8(&f->s);
	uint32_t mtu = script_16(&f->s);

	/* What reaches a transport, mostly. */
	if (type & 0x80)
		type = f->p.cfg.family == 4 ? 3 : 1 + (type & 3);
	peer_icmp(&f->p, type, code & 15, mtu, stack_seq(f, code & 16) + offset(f));
}

/* ---- the application ----------------------------------------------------------------------------------------------------------------- */

static void set_options(struct fuzz *f)
{
	static const char *const cc[] = { "cubic", "reno", "none", "nothing" };
	struct pv_tcp_opts *o = pv_tcp_options(f->p.c);
	uint8_t v = script_8(&f->s);

	o->nodelay = v & 1;
	o->cork = v & 2;
	o->oobinline = v & 4;
	o->keepalive = v & 8;
	o->keepidle_s = 1 + (v >> 4);
	o->keepintvl_s = 1;
	switch (script_8(&f->s) & 7) {
	case 0:
		o->pacing_rate = 1000u * script_8(&f->s) + 1000;
		break;
	case 1:
		o->user_timeout_ms = script_16(&f->s);
		break;
	case 2:
		o->rcvlowat = script_16(&f->s);
		break;
	case 3:
		o->notsent_lowat = script_16(&f->s);
		break;
	case 4:
		o->rcvbuf = 2048 + script_16(&f->s);
		o->rcvbuf_locked = true;
		break;
	case 5:
		o->sndbuf = 4096 + script_16(&f->s);
		o->sndbuf_locked = true;
		break;
	case 6:
		(void)pv_tcp_congestion_set(f->p.c, cc[v & 3]);
		break;
	default:
		o->maxseg = (uint16_t)(88 + script_8(&f->s));
		break;
	}
	pv_tcp_options_changed(f->p.c, f->p.w.now);
}

static void receive(struct fuzz *f, uint32_t flags)
{
	static char buf[1 << 16];
	struct pv_iov iov = { buf, script_16(&f->s) };

	(void)pv_tcp_recv(f->p.c, &iov, 1, flags, f->p.w.now);
}

static void take(struct fuzz *f)
{
	int64_t rc;
	struct pv_pkt *pkt = pv_tcp_take(f->p.c, f->p.w.now, &rc);

	if (pkt)
		pv_pkt_put(pkt);
}

static void call(struct fuzz *f)
{
	static char buf[1 << 16];
	struct peer *p = &f->p;
	uint8_t what = script_8(&f->s);
	struct pv_iov iov = { buf, 0 };
	struct pv_tcp_info info;

	if (!p->c && pv_tcp_accept(p->l, &p->c))
		p->c = NULL;
	if (!p->c)
		return;
	switch (what % 12) {
	case 0:
	case 1:
	case 2:
		iov.len = what & 0x80 ? script_16(&f->s) : script_8(&f->s);
		(void)pv_tcp_send(p->c, &iov, 1, what >> 4 & (PV_TCP_MSG_OOB | PV_TCP_MSG_MORE), p->w.now);
		break;
	case 3:
	case 4:
		receive(f, what >> 4 & (PV_TCP_MSG_OOB | PV_TCP_MSG_PEEK | PV_TCP_MSG_TRUNC));
		break;
	case 5:
		take(f);
		break;
	case 6:
		(void)pv_tcp_shutdown(p->c, 1 + (what >> 4) % 3, p->w.now);
		break;
	case 7:
		pv_tcp_options(p->c)->linger = what & 0x80;
		forget(f);
		break;
	case 8:
		set_options(f);
		break;
	case 9:
		pv_tcp_quickack(p->c, what & 0x80, p->w.now);
		(void)pv_tcp_error(p->c);
		break;
	case 10:
		if (what & 0x80)
			(void)pv_tcp_disconnect(p->c, p->w.now);
		break;
	default:
		pv_tcp_get_info(p->c, &info, p->w.now);
		(void)pv_tcp_at_mark(p->c);
		(void)pv_tcp_ready_bits(p->c);
		break;
	}
	peer_run(p, 0);
}

static void step(struct fuzz *f)
{
	uint8_t op = script_8(&f->s);

	switch (op % 16) {
	case 0:
		begin(f, script_8(&f->s));
		break;
	case 1:
		peer_run(&f->p, (int64_t)1 << script_8(&f->s) % 36);
		break;
	case 2:
		icmp(f);
		break;
	case 3:
		/* Everything that was sent is acknowledged. */
		peer_send(&f->p, ".", peer_seq(f), stack_seq(f, false), 0);
		break;
	case 4:
		peer_send(&f->p, "P.", peer_seq(f), stack_seq(f, true), script_8(&f->s) * 4u);
		break;
	case 5:
		batch(f);
		break;
	case 6:
	case 7:
	case 8:
		call(f);
		break;
	default:
		segment(f);
		break;
	}
}

FUZZ_TARGET(fuzz_tcp_conn)

static void configure(struct fuzz *f, struct peer_cfg *cfg)
{
	uint8_t a = script_8(&f->s), b = script_8(&f->s);

	*cfg = (struct peer_cfg){ .family = a & 1 ? 6 : 4,
				  .seed = a,
				  .pool = 192,
				  .rx_depth = 32,
				  .tx_depth = 64,
				  .no_ts = a & 2,
				  .no_sack = a & 4,
				  .no_wscale = a & 8,
				  .ecn = a & 16,
				  .mss = a & 32 ? 536 : 0,
				  .csum = a & 64 ? PV_CSUM_IP4 | PV_CSUM_TCP : 0,
				  .tcp = { .sockets_hint = 8,
					   .rto_max_ns = 2 * PV_NS_PER_S,
					   .rcvbuf = b & 1 ? 4096 : 0,
					   .no_recovery_tlp = b & 2,
					   .no_timestamps = b & 4,
					   .no_syn_cookies = b & 8,
					   .no_gro = b & 0x80,
					   .ecn = b >> 4 & 3 } };
	if (b & 0x40)
		strcpy(cfg->tcp.congestion, "reno");
}

/* Nothing may stay for ever once nobody does anything any more. */
static void fade(struct fuzz *f)
{
	const struct pv_tcp_table *t = f->p.w.host[0].tcp;

	forget(f);
	pv_tcp_close(f->p.l, f->p.w.now);
	f->p.l = NULL;
	peer_run(&f->p, 400 * PV_NS_PER_S);
	for (uint32_t s = PV_TCP_ESTABLISHED; s <= PV_TCP_CLOSING; s++)
		CHECK_EQ(pv_tcp_count(t, (enum pv_tcp_state)s), 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz f;
	struct peer_cfg cfg;

	f.s = (struct script){ data, data + size };
	configure(&f, &cfg);
	peer_open(&f.p, &cfg);
	f.p.forget = true;
	peer_listen(&f.p, 2);
	begin(&f, script_8(&f.s));
	while (f.s.p < f.s.end)
		step(&f);
	fade(&f);
	peer_close(&f.p);
	return 0;
}
