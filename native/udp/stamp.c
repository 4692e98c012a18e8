/* SPDX-License-Identifier: BSD-3-Clause */
/* Stamps of datagrams sent. Numbers count the datagrams that were to be stamped (__ip_append_data in Linux). */
#include "udp/udp_int.h"

static void tell(void *owner)
{
	pv_udp_wake(owner, PV_EV_ERR);
}

static int open_queue(struct pv_udp *u)
{
	struct pv_stampq *q = pv_udp_alloc(u->t, sizeof(*q));
	int rc;

	if (!q)
		return -ENOMEM;
	*q = (struct pv_stampq){ .net = u->t->net, .used = &u->rx_bytes, .limit = &u->rx_limit, .tell = tell, .owner = u };
	rc = pv_stampq_open(q);
	if (rc)
		pv_udp_free(u->t, q, sizeof(*q));
	else
		u->stamps = q;
	return rc;
}

int pv_udp_stamps_set(struct pv_udp *u, uint32_t flags)
{
	int rc = flags && !u->stamps ? open_queue(u) : 0;

	if (rc || !u->stamps)
		return rc;
	if (flags & ~u->stamps->flags & PV_STAMP_OPT_ID)
		u->stamp_key = 0;
	/* The straight line of sending is for datagrams that nobody asks about. */
	if ((flags ^ u->stamps->flags) & PV_STAMP_TX)
		pv_udp_options_changed(u);
	u->stamps->flags = flags;
	return 0;
}

struct pv_stampq *pv_udp_stamps(const struct pv_udp *u)
{
	return u->stamps;
}

void pv_udp_stamps_close(struct pv_udp *u)
{
	if (!u->stamps)
		return;
	pv_stampq_close(u->stamps);
	pv_udp_free(u->t, u->stamps, sizeof(*u->stamps));
	u->stamps = NULL;
}

bool pv_udp_stamp_ask(struct pv_udp *u, const struct pv_udp_send *msg, struct pv_stamp_ask *ask)
{
	uint32_t what = msg->stamp;

	if (!(what & PV_UDP_STAMP_MSG))
		what = u->stamps ? u->stamps->flags : 0;
	what &= PV_STAMP_TX_POST;
	/* Without memory it is not stamped, as Linux. */
	if (!what || (!u->stamps && open_queue(u)))
		return false;
	*ask = (struct pv_stamp_ask){ .q = u->stamps, .what = what };
	if (u->stamps->flags & PV_STAMP_OPT_ID)
		ask->key = msg->stamp & PV_UDP_STAMP_KEY ? msg->stamp_key : u->stamp_key;
	return true;
}

/* It has been sent. */
void pv_udp_stamp_sent(struct pv_udp *u, const struct pv_udp_send *msg)
{
	if ((u->stamps->flags & PV_STAMP_OPT_ID) && !(msg->stamp & PV_UDP_STAMP_KEY))
		u->stamp_key++;
}
