/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Urgent data as Linux has it: one byte, the one before that which the pointer names (RFC 6093 explains the disagreement and why nobody
 * mends it). It is kept aside for MSG_OOB, and left out of the stream unless SO_OOBINLINE is set; reads stop in front of it.
 */
#include "tcp/rcv.h"

#define URG_ALL (PV_TF_URG_RCVD | PV_TF_URG_VALID | PV_TF_URG_READ)

void pv_tcp_urgent(struct pv_tcp *c, const struct pv_tcp_in *in)
{
	pv_seq up = pv_seq_add(in->seq, in->urp ? in->urp - 1u : 0);

	if (!(in->flags & PV_TH_URG))
		return;
	/* What was read already, or came already, is no news; of two pointers the later one counts. */
	if (pv_seq_lt(up, c->copied_seq) || pv_seq_lt(up, c->rcv_nxt))
		return;
	if ((c->flags & PV_TF_URG_RCVD) && !pv_seq_gt(up, c->rcv_up))
		return;
	/* The last urgent byte is next to be read, and stays out of the stream although another one has taken its place. */
	if ((c->flags & PV_TF_URG_RCVD) && pv_seq_eq(c->rcv_up, c->copied_seq) && !c->opts.oobinline && c->rcvq_bytes)
		pv_rcv_skip(c, 1);
	c->rcv_up = up;
	c->flags = (c->flags & ~URG_ALL) | PV_TF_URG_RCVD;
}

void pv_rcv_urg_catch(struct pv_tcp *c, const struct pv_pkt *pkt, pv_seq seq)
{
	uint32_t off = pv_seq_dist(seq, c->rcv_up);

	if (off >= pkt->len)
		return;
	c->urg_byte = pkt->data[off];
	c->flags |= PV_TF_URG_VALID;
	pv_tcp_tell(c, PV_EV_PRI | PV_EV_IN);
}

bool pv_tcp_at_mark(const struct pv_tcp *c)
{
	return (c->flags & PV_TF_URG_RCVD) && pv_seq_eq(c->rcv_up, c->copied_seq);
}

bool pv_tcp_mark_after(const struct pv_tcp *c, uint32_t n)
{
	return (c->flags & PV_TF_URG_RCVD) && pv_seq_dist(c->copied_seq, c->rcv_up) == n;
}

int64_t pv_rcv_urg_recv(struct pv_tcp *c, const struct pv_iov *iov, uint32_t iovcnt, uint32_t flags)
{
	if (c->opts.oobinline || !(c->flags & PV_TF_URG_RCVD) || (c->flags & PV_TF_URG_READ))
		return -EINVAL;
	if (c->state == PV_TCP_CLOSED && !(c->flags & PV_TF_FIN_RCVD))
		return -ENOTCONN;
	if (!(c->flags & PV_TF_URG_VALID))
		return c->state == PV_TCP_CLOSED || (c->flags & (PV_TF_FIN_RCVD | PV_TF_SHUT_RD)) ? 0 : -EAGAIN;
	if (!(flags & PV_TCP_MSG_PEEK))
		c->flags |= PV_TF_URG_READ;
	for (uint32_t i = 0; i < iovcnt; i++) {
		if (!iov[i].len)
			continue;
		if (!(flags & PV_TCP_MSG_TRUNC))
			memcpy((void *)(uintptr_t)iov[i].base, &c->urg_byte, 1);
		return 1;
	}
	return 0;
}
