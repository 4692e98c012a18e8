/* SPDX-License-Identifier: BSD-3-Clause */
/* Ancillary data, in the order and with the types that Linux uses (ip(7), ipv6(7), socket(7)). */
#include <time.h> /* before the next one, which lacks it */

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>

#include "sock/stamp.h"
#include "wire/eth.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/udp.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* As the kernel's put_cmsg: what does not fit is cut and MSG_CTRUNC says so; with no room for a header nothing is written. */
void pv_cmsg_put(struct msghdr *msg, size_t *used, int level, int type, const void *data, size_t len)
{
	size_t room = msg->msg_controllen > *used ? msg->msg_controllen - *used : 0, want = CMSG_LEN(len);
	struct cmsghdr c = { .cmsg_level = level, .cmsg_type = type };
	char *at = (char *)msg->msg_control + *used;

	if (!msg->msg_control || room < sizeof(c)) {
		msg->msg_flags |= MSG_CTRUNC;
		return;
	}
	if (room < want) {
		msg->msg_flags |= MSG_CTRUNC;
		want = room;
	}
	c.cmsg_len = want;
	memcpy(at, &c, sizeof(c));
	memcpy(at + CMSG_LEN(0), data, want - CMSG_LEN(0));
	*used += PV_MIN(CMSG_SPACE(len), room);
}

static void put_int(struct msghdr *msg, size_t *used, int level, int type, int val)
{
	pv_cmsg_put(msg, used, level, type, &val, sizeof(val));
}

static void put_tstamp(const struct pv_sock *so, const struct pv_udp_recv *m, struct msghdr *msg, size_t *used)
{
	uint32_t ip = pv_addr_is4(&m->dst) ? PV_IP4_HLEN : PV_IP6_HLEN;
	struct pv_stamp_told t = { .ns = m->arrival_ns,
				   .raw = m->tstamp,
				   .iface = m->iface,
				   .frame_len = PV_ETH_HLEN + ip + PV_UDP_HLEN + m->full_len,
				   .is_raw = m->flags & PV_PKT_TSTAMP };

	pv_stamp_put(so, &t, msg, used);
}

/* The local address of the packet: an answer leaves from it. For a group that is the interface's. */
static struct in_addr local4(const struct pv_udp_recv *m)
{
	const struct pv_iface *ifp;
	const struct pv_iface_cfg *ic;
	struct in_addr in = { 0 };

	if (!pv_addr_is_mcast(&m->dst) && !pv_net_is_broadcast(pv_engine.net, &m->dst)) {
		memcpy(&in, &m->dst.w[3], 4);
		return in;
	}
	ifp = pv_net_iface(pv_engine.net, m->iface); /* NULL: it is gone */
	ic = ifp ? pv_iface_config(ifp) : NULL;
	for (uint32_t i = 0; ic && i < ic->naddr; i++)
		if (pv_addr_is4(&ic->addr[i].addr)) {
			memcpy(&in, &ic->addr[i].addr.w[3], 4);
			break;
		}
	return in;
}

/* `sent`: of a packet of ours. */
static void put4(struct pv_sock *so, const struct pv_udp_recv *m, bool sent, struct msghdr *msg, size_t *used)
{
	if (so->rx_flags & PV_RX_PKTINFO4) {
		struct in_pktinfo pi = { .ipi_ifindex = (int)pv_ifindex_public(m->iface) };

		memcpy(&pi.ipi_addr, &m->dst.w[3], 4);
		if (sent)
			memcpy(&pi.ipi_spec_dst, &m->from.addr.w[3], 4);
		else
			pi.ipi_spec_dst = local4(m);
		pv_cmsg_put(msg, used, IPPROTO_IP, IP_PKTINFO, &pi, sizeof(pi));
	}
	if (so->rx_flags & PV_RX_TTL)
		put_int(msg, used, IPPROTO_IP, IP_TTL, m->ttl);
	if (so->rx_flags & PV_RX_TOS)
		pv_cmsg_put(msg, used, IPPROTO_IP, IP_TOS, &m->tos, 1);
	if ((so->rx_flags & PV_RX_ORIGDST4) && !sent) {
		struct pv_endpoint local;
		struct sockaddr_in in;

		pv_udp_local(so->u, &local);
		local.addr = m->dst;
		pv_addr_format(AF_INET, &local, &in, sizeof(in));
		pv_cmsg_put(msg, used, IPPROTO_IP, IP_ORIGDSTADDR, &in, sizeof(in));
	}
}

static void put6(struct pv_sock *so, const struct pv_udp_recv *m, bool sent, struct msghdr *msg, size_t *used)
{
	bool mapped = pv_addr_is4(&m->dst);

	if (so->rx_flags & PV_RX_PKTINFO6) {
		struct in6_pktinfo pi = { .ipi6_ifindex = pv_ifindex_public(m->iface) };

		memcpy(&pi.ipi6_addr, m->dst.b, 16);
		pv_cmsg_put(msg, used, IPPROTO_IPV6, IPV6_PKTINFO, &pi, sizeof(pi));
	}
	if (mapped) {
		put4(so, m, sent, msg, used);
		return;
	}
	if (so->rx_flags & PV_RX_HOPLIMIT)
		put_int(msg, used, IPPROTO_IPV6, IPV6_HOPLIMIT, m->ttl);
	if (so->rx_flags & PV_RX_TCLASS)
		put_int(msg, used, IPPROTO_IPV6, IPV6_TCLASS, m->tos);
	if ((so->rx_flags & PV_RX_ORIGDST6) && !sent) {
		struct pv_endpoint local;
		struct sockaddr_in6 in6;

		pv_udp_local(so->u, &local);
		local.addr = m->dst;
		pv_addr_format(AF_INET6, &local, &in6, sizeof(in6));
		pv_cmsg_put(msg, used, IPPROTO_IPV6, IPV6_ORIGDSTADDR, &in6, sizeof(in6));
	}
}

void pv_cmsg_put_all(struct pv_sock *so, const struct pv_udp_recv *m, struct msghdr *msg)
{
	size_t used = 0;

	if (so->rx_flags & (PV_RX_TSTAMP | PV_RX_TSTAMPNS | PV_RX_STAMPING))
		put_tstamp(so, m, msg, &used);
	if (so->rx_flags & PV_RX_OVERFLOW) {
		uint32_t drops = (uint32_t)pv_udp_counters(so->u)->rx_queue_full;

		if (drops)
			pv_cmsg_put(msg, &used, SOL_SOCKET, SO_RXQ_OVFL, &drops, sizeof(drops));
	}
	if (so->family == AF_INET)
		put4(so, m, false, msg, &used);
	else
		put6(so, m, false, msg, &used);
	msg->msg_controllen = used;
}

void pv_cmsg_put_sent(struct pv_sock *so, const struct pv_udp_recv *m, struct msghdr *msg, size_t *used)
{
	if (so->family == AF_INET)
		put4(so, m, true, msg, used);
	else
		put6(so, m, true, msg, used);
}

void pv_cmsg_put_error(struct pv_sock *so, const struct pv_udp_errq *q, struct msghdr *msg)
{
	struct {
		struct sock_extended_err ee;
		struct sockaddr_storage offender;
	} rec;
	bool is4 = pv_addr_is4(&q->to.addr);
	struct pv_endpoint off = { .addr = q->err.offender };
	size_t used = 0, len;

	memset(&rec, 0, sizeof(rec));
	rec.ee.ee_errno = (uint32_t)q->err.err;
	rec.ee.ee_origin = pv_addr_is_any(&q->err.offender) ? SO_EE_ORIGIN_LOCAL : is4 ? SO_EE_ORIGIN_ICMP : SO_EE_ORIGIN_ICMP6;
	rec.ee.ee_type = q->err.type;
	rec.ee.ee_code = q->err.code;
	rec.ee.ee_info = q->err.mtu;
	len = sizeof(rec.ee) + pv_addr_format(is4 ? AF_INET : AF_INET6, &off, &rec.offender, sizeof(rec.offender));
	msg->msg_flags = MSG_ERRQUEUE;
	if (msg->msg_name)
		msg->msg_namelen = pv_addr_format(so->family, &q->to, msg->msg_name, msg->msg_namelen);
	if (is4)
		pv_cmsg_put(msg, &used, IPPROTO_IP, IP_RECVERR, &rec, len);
	else
		pv_cmsg_put(msg, &used, IPPROTO_IPV6, IPV6_RECVERR, &rec, len);
	msg->msg_controllen = used;
}

/* ---- sending ----------------------------------------------------------------------------------------------------------- */

static int cmsg_int(const struct cmsghdr *c, int *out)
{
	if (c->cmsg_len != CMSG_LEN(sizeof(*out)))
		return -EINVAL;
	memcpy(out, CMSG_DATA(c), sizeof(*out));
	return 0;
}

static int parse_iface(uint32_t index, struct pv_udp_send *m)
{
	if (!index)
		return 0;
	m->iface = pv_ifindex_core(index);
	return m->iface ? 0 : -ENODEV;
}

static int parse4(const struct cmsghdr *c, struct pv_udp_send *m, struct pv_cmsg_send *aux)
{
	struct in_pktinfo pi;
	int val;

	switch (c->cmsg_type) {
	case IP_PKTINFO:
		if (c->cmsg_len != CMSG_LEN(sizeof(pi)))
			return -EINVAL;
		memcpy(&pi, CMSG_DATA(c), sizeof(pi));
		if (pi.ipi_spec_dst.s_addr) {
			aux->src = pv_addr_from4(&pi.ipi_spec_dst);
			m->src = &aux->src;
		}
		return parse_iface((uint32_t)pi.ipi_ifindex, m);
	case IP_TTL:
		if (cmsg_int(c, &val) || val < 1 || val > 255)
			return -EINVAL;
		m->ttl = (int16_t)val;
		return 0;
	case IP_TOS:
		if (c->cmsg_len == CMSG_LEN(1))
			val = *CMSG_DATA(c);
		else if (cmsg_int(c, &val))
			return -EINVAL;
		if (val < 0 || val > 255)
			return -EINVAL;
		m->tos = (int16_t)val;
		return 0;
	}
	return -EINVAL;
}

static int parse6(const struct cmsghdr *c, struct pv_udp_send *m, struct pv_cmsg_send *aux)
{
	struct in6_pktinfo pi;
	int val;

	switch (c->cmsg_type) {
	case IPV6_PKTINFO:
		if (c->cmsg_len < CMSG_LEN(sizeof(pi)))
			return -EINVAL;
		memcpy(&pi, CMSG_DATA(c), sizeof(pi));
		aux->src = pv_addr_from6(&pi.ipi6_addr);
		if (!pv_addr_is_any(&aux->src))
			m->src = &aux->src;
		return parse_iface(pi.ipi6_ifindex, m);
	case IPV6_HOPLIMIT:
	case IPV6_TCLASS:
		if (cmsg_int(c, &val) || val < -1 || val > 255)
			return -EINVAL;
		if (c->cmsg_type == IPV6_HOPLIMIT)
			m->ttl = (int16_t)val;
		else
			m->tos = (int16_t)val;
		return 0;
	}
	return -EINVAL;
}

int pv_cmsg_parse(const struct pv_sock *so, const struct msghdr *msg, struct pv_udp_send *m, struct pv_cmsg_send *aux)
{
	/* CMSG_NXTHDR wants a header that it may write to. */
	struct msghdr own = *msg;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&own); c; c = CMSG_NXTHDR(&own, c)) {
		int rc = 0;

		if (c->cmsg_len < sizeof(*c) || c->cmsg_len > own.msg_controllen - (size_t)((char *)c - (char *)own.msg_control))
			return -EINVAL;
		if (c->cmsg_level == IPPROTO_IP)
			rc = parse4(c, m, aux);
		else if (c->cmsg_level == IPPROTO_IPV6 && so->family == AF_INET6)
			rc = parse6(c, m, aux);
		else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT &&
			 c->cmsg_len == CMSG_LEN(sizeof(aux->segment)))
			memcpy(&aux->segment, CMSG_DATA(c), sizeof(aux->segment));
		else if (pv_stamp_is_cmsg(c))
			rc = pv_stamp_cmsg(so, c, &m->stamp, &m->stamp_key);
		else if (c->cmsg_level == IPPROTO_UDP || c->cmsg_level == SOL_SOCKET)
			rc = -EINVAL;
		if (rc)
			return rc;
	}
	return 0;
}

/* Other levels are nobody's business, as in Linux's sock_cmsg_send; what neither means anything nor harms is let pass. */
int pv_cmsg_parse_stream(const struct pv_sock *so, const struct msghdr *msg, uint32_t *stamp)
{
	struct msghdr own = *msg;
	uint32_t key;
	int rc = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&own); c && !rc; c = CMSG_NXTHDR(&own, c)) {
		if (c->cmsg_len < sizeof(*c) || c->cmsg_len > own.msg_controllen - (size_t)((char *)c - (char *)own.msg_control))
			return -EINVAL;
		if (pv_stamp_is_cmsg(c))
			rc = pv_stamp_cmsg(so, c, stamp, &key);
		else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type != SCM_RIGHTS && c->cmsg_type != SCM_CREDENTIALS &&
			 c->cmsg_type != SO_MARK && c->cmsg_type != SO_PRIORITY)
			rc = -EINVAL;
	}
	return rc;
}
