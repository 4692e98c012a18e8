/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State by event (RFC 9293 3.10, RFC 5961): what comes back and which state follows, for all eleven states and every kind of segment and
 * call. A cell is "answer>state" or "result>state"; both families.
 *
 * Answers: - none; A an acknowledgement of what is; R a reset at the acknowledged number; r a reset that acknowledges (3.10.7.1); X a reset
 * of ours at snd_nxt; S a SYN-ACK; F our FIN; D data.
 */
#include "tcp_peer.h"

enum st { CL, LI, SS, SR, ES, F1, F2, CW, CG, LA, TW, STATES };
static const char *const st_name[STATES] = { "CL", "LI", "SS", "SR", "ES", "F1", "F2", "CW", "CG", "LA", "TW" };
static const enum pv_tcp_state st_linux[STATES] = {
	PV_TCP_CLOSED,     PV_TCP_LISTEN,     PV_TCP_SYN_SENT, PV_TCP_SYN_RCVD, PV_TCP_ESTABLISHED, PV_TCP_FIN_WAIT_1,
	PV_TCP_FIN_WAIT_2, PV_TCP_CLOSE_WAIT, PV_TCP_CLOSING,  PV_TCP_LAST_ACK, PV_TCP_TIME_WAIT,
};

/* Where both sides stand in each state, relative: the script's next number; the stack's first unacknowledged and next. */
static const struct {
	uint32_t peer, una, nxt;
} at[STATES] = {
	[CL] = { 1, 1, 1 }, [LI] = { 1, 1, 1 }, [SS] = { 0, 0, 1 }, [SR] = { 1, 0, 1 }, [ES] = { 1, 1, 1 }, [F1] = { 1, 1, 2 },
	[F2] = { 1, 2, 2 }, [CW] = { 2, 1, 1 }, [CG] = { 2, 1, 2 }, [LA] = { 2, 1, 2 }, [TW] = { 2, 2, 2 },
};

static void shut(struct peer *p)
{
	CHECK_EQ(pv_tcp_shutdown(p->c, 2, p->w.now), 0);
	peer_run(p, 0);
}

static void fin(struct peer *p, uint32_t ack)
{
	peer_send(p, "F.", 1, ack, 0);
	peer_run(p, 60 * PV_NS_PER_MS);
}

static void reach(struct peer *p, enum st s)
{
	const struct peer_seg *syn;

	switch (s) {
	case CL:
		CHECK_EQ(pv_tcp_open(p->w.host[0].tcp, peer_family(p), NULL, &p->c), 0);
		break;
	case LI:
		peer_listen(p, 4);
		break;
	case SS:
		peer_connect(p);
		break;
	case SR:
		peer_listen(p, 4);
		peer_syn(p);
		syn = peer_next(p);
		CHECK(syn);
		peer_agree(p, syn);
		break;
	default:
		peer_passive(p);
		pv_tcp_close(p->l, p->w.now);
		p->l = NULL;
	}
	if (s == CW || s == LA)
		fin(p, 1);
	if (s == F1 || s == F2 || s == CG || s == LA || s == TW)
		shut(p);
	if (s == F2 || s == TW)
		peer_ack(p, 2);
	if (s == CG)
		fin(p, 1);
	if (s == TW)
		fin(p, 2);
	peer_skip(p);
}

/* The one connection, record or socket that there is. */
static enum st observed(const struct peer *p)
{
	const struct pv_tcp_table *t = p->w.host[0].tcp;

	for (enum st s = SS; s < STATES; s++)
		if (pv_tcp_count(t, st_linux[s]))
			return s;
	return pv_tcp_count(t, PV_TCP_LISTEN) ? LI : CL;
}

/* ---- what came back ---------------------------------------------------------------------------------------------------------- */

struct sent {
	uint32_t seq, ack, space;
	bool acks;
};

static char kind(const struct peer *p, enum st s, const struct peer_seg *g, const struct sent *sent)
{
	uint32_t peer = at[s].peer + (sent->seq == at[s].peer ? sent->space : 0);

	(void)p;
	switch (g->bits & ~PV_TH_PSH) {
	case PV_TH_ACK:
		if (g->len)
			return 'D';
		/* Of what was there before, or of what this segment brought. */
		return (g->ack == at[s].peer || g->ack == peer) && (g->seq == at[s].nxt || (s == SR && g->seq == 1)) ? 'A' : '?';
	case PV_TH_ACK | PV_TH_SYN:
		return g->seq == 0 ? 'S' : '?';
	case PV_TH_SYN:
		return g->seq == 0 ? 's' : '?';
	case PV_TH_ACK | PV_TH_FIN:
		return 'F';
	case PV_TH_RST:
		return sent->acks && g->seq == sent->ack ? 'R' : '?';
	case PV_TH_RST | PV_TH_ACK:
		if (sent->space || !sent->acks)
			return g->seq + p->irs == 0 && g->ack == sent->seq + sent->space ? 'r' : g->seq == at[s].nxt ? 'X' : '?';
		return g->seq == at[s].nxt ? 'X' : '?';
	default:
		return '?';
	}
}

static uint32_t wrong;

static void compare(struct peer *p, enum st s, const char *event, const struct sent *sent, const char *want)
{
	const struct peer_seg *g = peer_next(p), *more = g ? peer_next(p) : NULL;
	char got[8];

	if (more)
		snprintf(got, sizeof(got), "%c%c>%s", kind(p, s, g, sent), peer_next(p) ? '+' : kind(p, s, more, sent),
			 st_name[observed(p)]);
	else
		snprintf(got, sizeof(got), "%c>%s", g ? kind(p, s, g, sent) : '-', st_name[observed(p)]);
	if (!strcmp(got, want))
		return;
	fprintf(stderr, "IPv%d: %s in %s: wanted %s, got %s\n", p->cfg.family, event, st_name[s], want, got);
	for (; g; g = more, more = peer_next(p))
		peer_say(g);
	wrong++;
}

static void cell_open(struct peer *p, int family, enum st s)
{
	/* Without tail loss probes: nothing but answers comes within the first 100 ms. */
	struct peer_cfg cfg = { .family = family, .seed = s + 1, .tcp = { .no_recovery_tlp = true, .sockets_hint = 16 } };

	peer_open(p, &cfg);
	reach(p, s);
	CHECK_EQ(observed(p), s);
}

/* ---- segments ------------------------------------------------------------------------------------------------------------------ */

enum where { PEER, PEER_IN, PEER_OLD, PEER_FAR };
enum acked { NO, UNA, NXT, AHEAD, BEHIND };

static const struct event {
	const char *name, *flags;
	enum where seq;
	enum acked ack;
	uint32_t len;
	bool bad_csum;
	const char *want[STATES];
} events[] = {
	/* s: the SYN once more, which Linux sends two ticks after a bad acknowledgement (tcp_rcv_synsent_state_process). */
	/*                                                 CLOSED  LISTEN  SYN_SENT SYN_RCVD ESTAB   FW_1    FW_2    CLOSE_W CLOSING LAST_A  TIME_W */
	{ "the expected RST",
	  "R.",
	  PEER,
	  NXT,
	  0,
	  false,
	  { "->CL", "->LI", "->CL", "->LI", "->CL", "->CL", "->CL", "->CL", "->CL", "->CL", "->TW" } },
	{ "a RST in the window",
	  "R.",
	  PEER_IN,
	  NXT,
	  0,
	  false,
	  { "->CL", "->LI", "->CL", "A>SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "->TW" } },
	{ "a RST before the window",
	  "R.",
	  PEER_OLD,
	  NXT,
	  0,
	  false,
	  { "->CL", "->LI", "->CL", "->SR", "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" } },
	{ "a RST far ahead",
	  "R.",
	  PEER_FAR,
	  NXT,
	  0,
	  false,
	  { "->CL", "->LI", "->CL", "->SR", "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" } },
	{ "a RST that acknowledges too much",
	  "R.",
	  PEER_IN,
	  AHEAD,
	  0,
	  false,
	  { "->CL", "->LI", "s>SS", "->SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "->TW" } },
	{ "a RST without ACK",
	  "R",
	  PEER_IN,
	  NO,
	  0,
	  false,
	  { "->CL", "->LI", "->SS", "A>SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "->TW" } },
	{ "a SYN in the window",
	  "S",
	  PEER_IN,
	  NO,
	  0,
	  false,
	  { "r>CL", "S>SR", "S>SR", "r>LI", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "A>TW" } },
	{ "an old SYN",
	  "S",
	  PEER_OLD,
	  NO,
	  0,
	  false,
	  { "r>CL", "S>SR", "S>SR", "A>SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "A>TW" } },
	{ "the awaited SYN-ACK",
	  "S.",
	  PEER,
	  NXT,
	  0,
	  false,
	  { "R>CL", "R>LI", "A>ES", "R>LI", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "A>TW" } },
	{ "a SYN-ACK of something else",
	  "S.",
	  PEER,
	  AHEAD,
	  0,
	  false,
	  { "R>CL", "R>LI", "Rs>SS", "R>SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "A>TW" } },
	{ "an ACK of nothing new",
	  ".",
	  PEER,
	  UNA,
	  0,
	  false,
	  { "R>CL", "R>LI", "Rs>SS", "R>SR", "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" } },
	{ "an ACK of all",
	  ".",
	  PEER,
	  NXT,
	  0,
	  false,
	  { "R>CL", "R>LI", "->SS", "->ES", "->ES", "->F2", "->F2", "->CW", "->TW", "->CL", "->TW" } },
	{ "an ACK of what was never sent",
	  ".",
	  PEER,
	  AHEAD,
	  0,
	  false,
	  { "R>CL", "R>LI", "Rs>SS", "R>SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "->TW" } },
	{ "an ACK of long ago",
	  ".",
	  PEER,
	  BEHIND,
	  0,
	  false,
	  { "R>CL", "R>LI", "Rs>SS", "R>SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "->TW" } },
	{ "data",
	  "P.",
	  PEER,
	  NXT,
	  10,
	  false,
	  { "R>CL", "R>LI", "->SS", "A>ES", "A>ES", "A>F2", "A>F2", "->CW", "->TW", "->CL", "A>TW" } },
	{ "data that was there",
	  "P.",
	  PEER_OLD,
	  NXT,
	  5,
	  false,
	  { "R>CL", "R>LI", "->SS", "A>SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "A>TW" } },
	{ "data beyond the window",
	  "P.",
	  PEER_FAR,
	  NXT,
	  10,
	  false,
	  { "R>CL", "R>LI", "->SS", "A>SR", "A>ES", "A>F1", "A>F2", "A>CW", "A>CG", "A>LA", "A>TW" } },
	{ "data without ACK",
	  "P",
	  PEER,
	  NO,
	  10,
	  false,
	  { "r>CL", "->LI", "->SS", "->SR", "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "A>TW" } },
	{ "a FIN",
	  "F.",
	  PEER,
	  UNA,
	  0,
	  false,
	  { "R>CL", "R>LI", "Rs>SS", "R>SR", "A>CW", "A>CG", "A>TW", "->CW", "->CG", "->LA", "A>TW" } },
	{ "a FIN that acknowledges all",
	  "F.",
	  PEER,
	  NXT,
	  0,
	  false,
	  { "R>CL", "R>LI", "->SS", "A>CW", "A>CW", "A>TW", "A>TW", "->CW", "->TW", "->CL", "A>TW" } },
	{ "data and FIN",
	  "FP.",
	  PEER,
	  NXT,
	  10,
	  false,
	  { "R>CL", "R>LI", "->SS", "A>CW", "A>CW", "A>TW", "A>TW", "->CW", "->TW", "->CL", "A>TW" } },
	{ "a FIN without ACK",
	  "F",
	  PEER,
	  NO,
	  0,
	  false,
	  { "r>CL", "->LI", "->SS", "->SR", "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "A>TW" } },
	{ "no flags at all",
	  "",
	  PEER,
	  NO,
	  0,
	  false,
	  { "r>CL", "->LI", "->SS", "->SR", "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" } },
	{ "a wrong checksum",
	  "P.",
	  PEER,
	  NXT,
	  10,
	  true,
	  { "->CL", "->LI", "->SS", "->SR", "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" } },
	{ "a wrong checksum of a RST",
	  "R.",
	  PEER,
	  NXT,
	  0,
	  true,
	  { "->CL", "->LI", "->SS", "->SR", "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" } },
};

static void segment(int family, enum st s, const struct event *e)
{
	static struct peer p;
	struct peer_seg g = { .flags = e->flags, .len = e->len, .bad_csum = e->bad_csum };
	struct sent sent;

	cell_open(&p, family, s);
	g.seq = at[s].peer + (e->seq == PEER_IN ? 10 : e->seq == PEER_OLD ? (uint32_t)-20 : e->seq == PEER_FAR ? 0x40000000 : 0);
	if (e->ack != NO)
		g.ack = e->ack == UNA     ? at[s].una
			: e->ack == NXT   ? at[s].nxt
			: e->ack == AHEAD ? at[s].nxt + 1000
					  : at[s].una - 0x40000000;
	if (strchr(e->flags, 'S')) {
		g.opt = peer_syn_opts(&p);
		g.no_ts = s <= SR;
	}
	sent =
	    (struct sent){ g.seq, g.ack, e->len + (strchr(e->flags, 'S') != NULL) + (strchr(e->flags, 'F') != NULL), e->ack != NO };
	/* Segments that PAWS would refuse are another test's matter: these carry good timestamps. */
	peer_send_seg(&p, &g);
	peer_run(&p, 60 * PV_NS_PER_MS);
	compare(&p, s, e->name, &sent, e->want[s]);
	peer_close(&p);
}

TEST(segments_in_every_state)
{
	wrong = 0;
	for (int family = 4; family <= 6; family += 2)
		for (uint32_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
			for (enum st s = CL; s < STATES; s++)
				segment(family, s, &events[i]);
	CHECK_EQ(wrong, 0);
}

/* What resets and refusals leave with the application. */
TEST(errors_that_resets_leave)
{
	static const struct {
		enum st s;
		int err;
	} cases[] = { { SS, ECONNREFUSED }, { ES, ECONNRESET }, { F1, ECONNRESET }, { F2, ECONNRESET }, { CW, EPIPE } };

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		static struct peer p;

		cell_open(&p, 4, cases[i].s);
		peer_send(&p, "R.", at[cases[i].s].peer, at[cases[i].s].nxt, 0);
		CHECK_EQ(pv_tcp_error(p.c), cases[i].err);
		CHECK_EQ(pv_tcp_error(p.c), 0);
		CHECK_EQ(pv_tcp_state(p.c), PV_TCP_CLOSED);
		peer_close(&p);
	}
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------------ */

enum call { SEND, RECV, SHUT_WR, SHUT_RD, CONNECT, LISTEN, ACCEPT, CLOSE, ABORT, CALLS };

static const struct {
	const char *name;
	const char *want[STATES]; /* "answer>state", NULL: there is no socket to call */
	int64_t rc[STATES];
} calls[CALLS] = {
	[SEND] = { "send",
		   { "->CL", "->LI", "->SS", NULL, "D>ES", "->F1", "->F2", "D>CW", "->CG", "->LA", "->TW" },
		   { -EPIPE, -EPIPE, -EAGAIN, 0, 10, -EPIPE, -EPIPE, 10, -EPIPE, -EPIPE, -EPIPE } },
	[RECV] = { "recv",
		   { "->CL", "->LI", "->SS", NULL, "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" },
		   { -ENOTCONN, -ENOTCONN, -EAGAIN, 0, -EAGAIN, -EAGAIN, -EAGAIN, 0, 0, 0, 0 } },
	[SHUT_WR] = { "shutdown(write)",
		      { "->CL", "->LI", "->CL", NULL, "F>F1", "->F1", "->F2", "F>LA", "->CG", "->LA", "->TW" },
		      { -ENOTCONN, 0, 0, 0, 0, 0, 0, 0, 0, 0, -ENOTCONN } },
	[SHUT_RD] = { "shutdown(read)",
		      { "->CL", "->CL", "->CL", NULL, "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" },
		      { -ENOTCONN, 0, 0, 0, 0, 0, 0, 0, 0, 0, -ENOTCONN } },
	[CONNECT] = { "connect",
		      { "S>SS", "->LI", "->SS", NULL, "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" },
		      { -EINPROGRESS, -EISCONN, -EALREADY, 0, -EISCONN, -EISCONN, -EISCONN, -EISCONN, -EISCONN, -EISCONN,
			-EISCONN } },
	[LISTEN] = { "listen",
		     { "->LI", "->LI", "->SS", NULL, "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" },
		     { 0, 0, -EINVAL, 0, -EINVAL, -EINVAL, -EINVAL, -EINVAL, -EINVAL, -EINVAL, -EINVAL } },
	[ACCEPT] = { "accept",
		     { "->CL", "->LI", "->SS", NULL, "->ES", "->F1", "->F2", "->CW", "->CG", "->LA", "->TW" },
		     { -EINVAL, -EAGAIN, -EINVAL, 0, -EINVAL, -EINVAL, -EINVAL, -EINVAL, -EINVAL, -EINVAL, -EINVAL } },
	[CLOSE] = { "close", { "->CL", "->CL", "->CL", NULL, "F>F1", "->F1", "->F2", "F>LA", "->CG", "->LA", "->TW" }, { 0 } },
	[ABORT] = { "close with a linger of 0",
		    { "->CL", "->CL", "->CL", NULL, "X>CL", "X>CL", "X>CL", "X>CL", "->CL", "->CL", "->TW" },
		    { 0 } },
};

static int64_t do_call(struct peer *p, enum call what, struct pv_tcp **s)
{
	struct pv_endpoint e = ep(p->addr, p->port);
	struct pv_tcp *c;
	int64_t rc;

	switch (what) {
	case SEND:
		return pv_tcp_send(*s, &(struct pv_iov){ "0123456789", 10 }, 1, 0, p->w.now);
	case RECV:
		return pv_tcp_recv(*s, &(struct pv_iov){ &(char[16]){ 0 }, 16 }, 1, 0, p->w.now);
	case SHUT_WR:
		return pv_tcp_shutdown(*s, 2, p->w.now);
	case SHUT_RD:
		return pv_tcp_shutdown(*s, 1, p->w.now);
	case CONNECT:
		rc = pv_tcp_connect(*s, &e, p->w.now);
		pv_tcp_local(*s, &e);
		p->stack_port = e.port ? e.port : p->stack_port;
		return rc;
	case LISTEN:
		return pv_tcp_listen(*s, 7);
	case ACCEPT:
		return pv_tcp_accept(*s, &c);
	case ABORT:
		pv_tcp_options(*s)->linger = true;
		break;
	default:
		break;
	}
	pv_tcp_close(*s, p->w.now);
	*s = NULL;
	return 0;
}

TEST(calls_in_every_state)
{
	wrong = 0;
	for (int family = 4; family <= 6; family += 2) {
		for (enum call what = SEND; what < CALLS; what++) {
			for (enum st s = CL; s < STATES; s++) {
				static struct peer p;
				struct sent sent = { .seq = UINT32_MAX };
				const struct peer_seg *g;
				int64_t rc;

				if (!calls[what].want[s])
					continue;
				cell_open(&p, family, s);
				rc = do_call(&p, what, s == LI ? &p.l : &p.c);
				if (rc != calls[what].rc[s]) {
					fprintf(stderr, "IPv%d: %s in %s: wanted %lld, got %lld\n", family, calls[what].name,
						st_name[s], (long long)calls[what].rc[s], (long long)rc);
					wrong++;
				}
				peer_run(&p, 60 * PV_NS_PER_MS);
				/* The SYN of a connect is no answer to anything. */
				if (what == CONNECT && s == CL) {
					g = peer_next(&p);
					CHECK(g && g->bits == PV_TH_SYN && observed(&p) == SS);
				} else {
					compare(&p, s, calls[what].name, &sent, calls[what].want[s]);
				}
				peer_close(&p);
			}
		}
	}
	CHECK_EQ(wrong, 0);
}

/* ---- time ----------------------------------------------------------------------------------------------------------------------------- */

/* What is repeated when nobody answers, and which state that leaves. */
TEST(timeouts_in_every_state)
{
	static const char repeated[STATES] = { [SS] = 's', [SR] = 'S', [F1] = 'F', [CG] = 'F', [LA] = 'F' };

	for (enum st s = CL; s < STATES; s++) {
		static struct peer p;
		const struct peer_seg *g;
		uint32_t n = 0;

		cell_open(&p, 4, s);
		peer_run(&p, 1100 * PV_NS_PER_MS);
		for (; (g = peer_next(&p)); n++) {
			uint8_t bits = g->bits;

			CHECK_EQ(bits, repeated[s] == 's'   ? PV_TH_SYN
				       : repeated[s] == 'S' ? PV_TH_SYN | PV_TH_ACK
							    : PV_TH_FIN | PV_TH_ACK);
			CHECK_EQ(g->seq, repeated[s] == 'F' ? 1 : 0);
		}
		CHECK((n > 0) == (repeated[s] != 0));
		CHECK_EQ(observed(&p), s);
		/* A minute later TIME_WAIT is over; the handshakes have not been given up. */
		peer_run(&p, 60 * PV_NS_PER_S);
		CHECK_EQ(observed(&p), s == TW ? CL : s == SR ? observed(&p) : s);
		peer_close(&p);
	}
}

/* RFC 9293 MUST-13 and 3.10.7.4: a FIN that comes again starts TIME_WAIT's time anew. */
TEST(a_repeated_fin_restarts_time_wait)
{
	static struct peer p;

	cell_open(&p, 4, TW);
	peer_run(&p, 50 * PV_NS_PER_S);
	peer_send(&p, "F.", 1, 2, 0);
	peer_expect(&p, ".", 2, 2, 0);
	peer_run(&p, 50 * PV_NS_PER_S);
	CHECK_EQ(observed(&p), TW);
	peer_run(&p, 11 * PV_NS_PER_S);
	CHECK_EQ(observed(&p), CL);
	peer_close(&p);
}

/* An orphan does not wait for the other side's FIN for ever (Linux's tcp_fin_timeout). */
TEST(an_orphan_leaves_fin_wait_2)
{
	static struct peer p;

	cell_open(&p, 6, F2);
	pv_tcp_close(p.c, p.w.now);
	p.c = NULL;
	peer_run(&p, 125 * PV_NS_PER_S);
	CHECK_EQ(observed(&p), CL);
	/* And is not known any more. */
	peer_send(&p, "F.", 1, 2, 0);
	peer_expect(&p, "R", 2, 0, 0);
	peer_close(&p);
}

/* RFC 9293 3.5 figure 7: both SYNs cross. */
TEST(simultaneous_open)
{
	for (int family = 4; family <= 6; family += 2) {
		static struct peer p;

		cell_open(&p, family, SS);
		peer_syn(&p);
		peer_agree(&p, peer_expect(&p, "S.", 0, 1, 0));
		CHECK_EQ(observed(&p), SR);
		peer_send_seg(&p, &(struct peer_seg){ .flags = "S.", .ack = 1, .opt = peer_syn_opts(&p), .no_ts = true });
		CHECK_EQ(observed(&p), ES);
		peer_skip(&p);
		peer_write(&p, 100);
		peer_expect(&p, "P.", 1, 1, 100);
		peer_send(&p, "P.", 1, 101, 50);
		peer_read(&p, 50);
		peer_close(&p);
	}
}

/* RFC 9293 3.6.2: both FINs cross. */
TEST(simultaneous_close)
{
	static struct peer p;

	cell_open(&p, 4, F1);
	peer_send(&p, "F.", 1, 1, 0);
	peer_run(&p, 60 * PV_NS_PER_MS);
	peer_expect(&p, ".", 2, 2, 0);
	CHECK_EQ(observed(&p), CG);
	peer_send(&p, ".", 2, 2, 0);
	CHECK_EQ(observed(&p), TW);
	peer_close(&p);
}

/* A connection to itself (RFC 9293 MUST-10 by one socket): what is written is read. */
TEST(a_connection_to_itself)
{
	static struct peer p;
	struct pv_endpoint e;
	char buf[16];

	peer_open(&p, &(struct peer_cfg){ 0 });
	CHECK_EQ(pv_tcp_open(p.w.host[0].tcp, PV_AF_INET, NULL, &p.c), 0);
	e = ep(p.stack_addr, 5000);
	CHECK_EQ(pv_tcp_bind(p.c, &e), 0);
	CHECK_EQ(pv_tcp_connect(p.c, &e, p.w.now), -EINPROGRESS);
	peer_run(&p, PV_NS_PER_MS);
	CHECK_EQ(observed(&p), ES);
	CHECK_EQ(pv_tcp_send(p.c, &(struct pv_iov){ "to myself", 9 }, 1, 0, p.w.now), 9);
	peer_run(&p, PV_NS_PER_MS);
	CHECK_EQ(pv_tcp_recv(p.c, &(struct pv_iov){ buf, sizeof(buf) }, 1, 0, p.w.now), 9);
	CHECK(!memcmp(buf, "to myself", 9));
	peer_close(&p);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
