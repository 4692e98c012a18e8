/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The error queue (ip(7) IP_RECVERR, socket(7) SO_TIMESTAMPING): ICMP errors and stamps of what was sent, in the order of their coming,
 * then what the kernel's half has (ip_recv_error, ipv6_recv_error in Linux).
 *
 * A stamp brings the frame as it went to the ring, or of an acknowledged stream the payload. Reading never waits.
 */
#include <time.h> /* before the next one, which lacks it */

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>

#include "sock/stamp.h"
#include "sock/stream.h"
#include "wire/eth.h"

#define VLAN_AT 12u

static struct pv_stampq *stamps_of(const struct pv_sock *so)
{
	return so->u ? pv_udp_stamps(so->u) : so->tc ? pv_tcp_stamps(so->tc) : NULL;
}

bool pv_errq_any(const struct pv_sock *so)
{
	const struct pv_stampq *q = stamps_of(so);

	return (q && q->count) || (so->u && pv_udp_errq_count(so->u));
}

/* ---- a stamp ------------------------------------------------------------------------------------------------------------- */

/* Copies a chain into the message; what does not fit is cut. */
static int64_t give_data(const struct pv_pkt *pkt, struct msghdr *msg)
{
	size_t at = 0, off = 0, i = 0;
	int64_t done = 0;

	while (pkt && i < msg->msg_iovlen) {
		size_t n = PV_MIN(pkt->len - off, msg->msg_iov[i].iov_len - at);

		if (n)
			memcpy((char *)msg->msg_iov[i].iov_base + at, pkt->data + off, n);
		done += (int64_t)n;
		at += n;
		off += n;
		if (off == pkt->len) {
			pkt = pkt->frag;
			off = 0;
		}
		if (pkt && at == msg->msg_iov[i].iov_len) {
			i++;
			at = 0;
		}
	}
	return done;
}

/* The IP header of a frame of ours, as what a receiver would be told of it. False: the stamp brings none. */
static bool read_frame(const struct pv_stamp *s, struct pv_udp_recv *m)
{
	const uint8_t *ip;

	if (!s->pkt || !s->frame)
		return false;
	ip = s->pkt->data + PV_ETH_HLEN;
	if (pv_get16(s->pkt->data + VLAN_AT) == PV_ETHERTYPE_VLAN)
		ip += PV_VLAN_HLEN;
	*m = (struct pv_udp_recv){ .iface = s->iface };
	if (*ip >> 4 == 4) {
		m->from.addr = pv_addr_from4(ip + 12);
		m->dst = pv_addr_from4(ip + 16);
		m->ttl = ip[8];
		m->tos = ip[1];
	} else {
		m->from.addr = pv_addr_from6(ip + 8);
		m->dst = pv_addr_from6(ip + 24);
		m->ttl = ip[7];
		m->tos = (uint8_t)(pv_get16(ip) >> 4);
	}
	return true;
}

static void put_error(const struct pv_sock *so, const struct pv_stamp *s, const struct pv_endpoint *from, struct msghdr *msg,
		      size_t *used)
{
	struct {
		struct sock_extended_err ee;
		struct sockaddr_storage offender;
	} rec;
	socklen_t len = so->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

	memset(&rec, 0, sizeof(rec));
	rec.ee.ee_errno = ENOMSG;
	rec.ee.ee_origin = SO_EE_ORIGIN_TIMESTAMPING;
	rec.ee.ee_info = s->type;
	rec.ee.ee_data = s->key;
	if (from)
		(void)pv_addr_format(so->family, from, &rec.offender, sizeof(rec.offender));
	if (so->family == AF_INET)
		pv_cmsg_put(msg, used, IPPROTO_IP, IP_RECVERR, &rec, sizeof(rec.ee) + len);
	else
		pv_cmsg_put(msg, used, IPPROTO_IPV6, IPV6_RECVERR, &rec, sizeof(rec.ee) + len);
}

static int64_t give_stamp(struct pv_sock *so, const struct pv_stamp *s, struct msghdr *msg)
{
	struct pv_stamp_told t = {
		.ns = s->ns, .raw = s->raw, .iface = s->iface, .is_raw = s->is_raw, .sent = true, .stats = s->stats ? s->pkt : NULL
	};
	int64_t full = s->pkt ? s->pkt->total : 0, n = give_data(s->pkt, msg);
	bool cmsgs = so->family == AF_INET6 || so->st->tsflags & PV_STAMP_OPT_CMSG;
	struct pv_udp_recv m;
	size_t used = 0;

	msg->msg_flags = MSG_ERRQUEUE | (n < full ? MSG_TRUNC : 0);
	msg->msg_namelen = 0;
	pv_stamp_put(so, &t, msg, &used);
	/* Of IPv4 only when that is asked for. */
	cmsgs = cmsgs && read_frame(s, &m);
	if (cmsgs)
		pv_cmsg_put_sent(so, &m, msg, &used);
	put_error(so, s, cmsgs ? &m.from : NULL, msg, &used);
	msg->msg_controllen = used;
	return n;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

/* What comes first of a datagram socket's two queues. */
static bool stamp_first(const struct pv_sock *so, const struct pv_stampq *q)
{
	if (!q || !q->count)
		return false;
	return !so->u || !pv_udp_errq_count(so->u) || (int32_t)(pv_stampq_serial(q) - pv_udp_errq_serial(so->u)) < 0;
}

static int64_t recv_kernel(struct pv_sock *so, struct msghdr *msg)
{
	ssize_t n = recvmsg(pv_sock_kfd(so), msg, MSG_ERRQUEUE | MSG_DONTWAIT);

	if (n < 0)
		return -errno;
	pv_leg_saw_queue(so, msg);
	return n;
}

/* The payload of an ICMP error is not kept; the address is where the datagram went. */
static int64_t recv_icmp(struct pv_sock *so, struct msghdr *msg)
{
	struct pv_udp_errq e;
	int64_t n = so->u ? pv_udp_errq_get(so->u, &e) : -EAGAIN;

	if (!n)
		pv_cmsg_put_error(so, &e, msg);
	return n == -EAGAIN && so->u && so->kernel_leg ? recv_kernel(so, msg) : n;
}

static int64_t recv_locked(struct pv_sock *so, struct msghdr *msg)
{
	struct pv_stampq *q = stamps_of(so);
	int64_t n, now = pv_clock_now(&pv_engine.clock);
	struct pv_stamp s;

	/* The device's stamps come when its ring is asked, and so do errors of datagrams. */
	if (so->u ? !pv_udp_errq_count(so->u) && !(q && q->count) : q && !q->count && pv_net_stamps_due(pv_engine.net, now))
		(void)pv_engine_poll(&pv_engine, now);
	if (!stamp_first(so, q))
		return recv_icmp(so, msg);
	(void)pv_stampq_get(q, &s);
	n = give_stamp(so, &s, msg);
	if (s.pkt)
		pv_pkt_put(s.pkt);
	return n;
}

int64_t pv_errq_recv(struct pyvma_sock *h, struct pv_sock *so, struct msghdr *msg)
{
	int64_t n = so->stream ? pv_stream_lock(h, so) : pv_sock_lock(h, so);

	if (n)
		return n;
	n = recv_locked(so, msg);
	pv_ready_update(so);
	pv_sock_unlock();
	return n;
}
