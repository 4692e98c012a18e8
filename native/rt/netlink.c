/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two sockets: one asks and waits for its answers, one is told of changes. Asking on the socket that is told would mix answers with
 * changes, and a dump that meets a full receive buffer would lose both.
 */
#include "rt/netlink.h"

#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/ownfd.h"
#include "rt/netlink_lib.h"
#include "rt/sysctl.h"

#define BUF_SIZE 32768
#define READ_MAX 32 /* packets of changes read at once */
#define RCVBUF (1 << 20)
#define ATTR_MAX 64
#define NEIGH_USABLE (NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE)
/* A request is answered by the kernel at once; only a broken kernel lets us wait. */
#define ANSWER_LIMIT_S 5

struct pv_nl {
	struct mnl_socket *ask, *told, *pass;
	uint32_t seq;
	uint8_t buf[BUF_SIZE]; /* answers */
	uint8_t news[BUF_SIZE]; /* changes: who is told of one may ask meanwhile */
};

static const struct pv_mnl *mnl;

struct attrs {
	const struct nlattr *at[ATTR_MAX];
};

/* Not mnl_nlmsg_ok, which takes a length above INT_MAX for a short one and then never moves on. */
static bool whole(const struct nlmsghdr *nh, int left)
{
	return left >= (int)sizeof(*nh) && nh->nlmsg_len >= sizeof(*nh) && nh->nlmsg_len <= (uint32_t)left;
}

static int collect(const struct nlattr *attr, void *data)
{
	struct attrs *a = data;
	uint16_t type = mnl->mnl_attr_get_type(attr);

	if (type < ATTR_MAX)
		a->at[type] = attr;
	return MNL_CB_OK;
}

static bool get_u32(const struct attrs *a, int type, uint32_t *out)
{
	if (!a->at[type] || mnl->mnl_attr_get_payload_len(a->at[type]) != sizeof(*out))
		return false;
	memcpy(out, mnl->mnl_attr_get_payload(a->at[type]), sizeof(*out));
	return true;
}

/* False: absent, or not of the family's length. */
static bool get_addr(const struct attrs *a, int type, uint8_t family, struct pv_addr *out)
{
	const struct nlattr *attr = a->at[type];
	uint16_t len = attr ? mnl->mnl_attr_get_payload_len(attr) : 0;

	if (family == AF_INET && len == 4)
		*out = pv_addr_from4(mnl->mnl_attr_get_payload(attr));
	else if (family == AF_INET6 && len == 16)
		*out = pv_addr_from6(mnl->mnl_attr_get_payload(attr));
	else
		return false;
	return true;
}

static void get_mac(const struct attrs *a, int type, uint8_t mac[PV_ETH_ALEN])
{
	if (a->at[type] && mnl->mnl_attr_get_payload_len(a->at[type]) == PV_ETH_ALEN)
		memcpy(mac, mnl->mnl_attr_get_payload(a->at[type]), PV_ETH_ALEN);
}

static bool parse_attrs(const struct nlmsghdr *nh, size_t header, struct attrs *a)
{
	memset(a, 0, sizeof(*a));
	return mnl->mnl_nlmsg_get_payload_len(nh) >= header && mnl->mnl_attr_parse(nh, (unsigned int)header, collect, a) >= 0;
}

static int collect_link_info(const struct nlattr *attr, void *data)
{
	static const char vrf[] = "vrf";
	struct pv_nl_msg *msg = data;

	if (mnl->mnl_attr_get_type(attr) == IFLA_INFO_SLAVE_KIND && mnl->mnl_attr_get_payload_len(attr) == sizeof(vrf))
		msg->vrf = !memcmp(mnl->mnl_attr_get_payload(attr), vrf, sizeof(vrf));
	return MNL_CB_OK;
}

static bool parse_link(const struct nlmsghdr *nh, struct pv_nl_msg *msg)
{
	const struct ifinfomsg *ifi = mnl->mnl_nlmsg_get_payload(nh);
	struct attrs a;

	if (!parse_attrs(nh, sizeof(*ifi), &a) || ifi->ifi_family == AF_BRIDGE)
		return false;
	msg->kind = PV_NL_LINK;
	msg->deleted = nh->nlmsg_type == RTM_DELLINK;
	msg->ifindex = (uint32_t)ifi->ifi_index;
	msg->up = ifi->ifi_flags & IFF_UP;
	msg->running = ifi->ifi_flags & IFF_RUNNING;
	msg->loopback = ifi->ifi_flags & IFF_LOOPBACK;
	if (a.at[IFLA_IFNAME]) {
		uint16_t len = mnl->mnl_attr_get_payload_len(a.at[IFLA_IFNAME]);

		memcpy(msg->name, mnl->mnl_attr_get_payload(a.at[IFLA_IFNAME]), PV_MIN(len, IFNAMSIZ - 1));
	}
	get_mac(&a, IFLA_ADDRESS, msg->mac);
	get_u32(&a, IFLA_MTU, &msg->mtu);
	if (a.at[IFLA_LINKINFO])
		mnl->mnl_attr_parse_nested(a.at[IFLA_LINKINFO], collect_link_info, msg);
	return true;
}

static bool parse_addr(const struct nlmsghdr *nh, struct pv_nl_msg *msg)
{
	const struct ifaddrmsg *ifa = mnl->mnl_nlmsg_get_payload(nh);
	uint32_t flags;
	struct attrs a;

	if (!parse_attrs(nh, sizeof(*ifa), &a))
		return false;
	msg->kind = PV_NL_ADDR;
	msg->deleted = nh->nlmsg_type == RTM_DELADDR;
	msg->ifindex = ifa->ifa_index;
	msg->prefix_len = ifa->ifa_prefixlen;
	flags = ifa->ifa_flags;
	get_u32(&a, IFA_FLAGS, &flags);
	msg->usable = !(flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) || flags & IFA_F_OPTIMISTIC;
	/* On a point-to-point link IFA_ADDRESS is the peer; ours is IFA_LOCAL. */
	return get_addr(&a, IFA_LOCAL, ifa->ifa_family, &msg->addr) || get_addr(&a, IFA_ADDRESS, ifa->ifa_family, &msg->addr);
}

static bool parse_neigh(const struct nlmsghdr *nh, struct pv_nl_msg *msg)
{
	const struct ndmsg *nd = mnl->mnl_nlmsg_get_payload(nh);
	struct attrs a;

	if (!parse_attrs(nh, sizeof(*nd), &a) || !get_addr(&a, NDA_DST, nd->ndm_family, &msg->addr))
		return false;
	msg->kind = PV_NL_NEIGH;
	msg->deleted = nh->nlmsg_type == RTM_DELNEIGH;
	msg->ifindex = (uint32_t)nd->ndm_ifindex;
	get_mac(&a, NDA_LLADDR, msg->mac);
	msg->usable =
	    nd->ndm_state & NEIGH_USABLE && a.at[NDA_LLADDR] && mnl->mnl_attr_get_payload_len(a.at[NDA_LLADDR]) == PV_ETH_ALEN;
	msg->failed = nd->ndm_state & NUD_FAILED;
	msg->permanent = nd->ndm_state & NUD_PERMANENT;
	return true;
}

static bool parse_one(const struct nlmsghdr *nh, struct pv_nl_msg *msg)
{
	memset(msg, 0, sizeof(*msg));
	switch (nh->nlmsg_type) {
	case RTM_NEWLINK:
	case RTM_DELLINK:
		return parse_link(nh, msg);
	case RTM_NEWADDR:
	case RTM_DELADDR:
		return parse_addr(nh, msg);
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		return parse_neigh(nh, msg);
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
	case RTM_NEWRULE:
	case RTM_DELRULE:
	case RTM_NEWNEXTHOP:
	case RTM_DELNEXTHOP:
		msg->kind = PV_NL_ROUTE;
		msg->rule = nh->nlmsg_type == RTM_NEWRULE || nh->nlmsg_type == RTM_DELRULE;
		return true;
	default:
		return false;
	}
}

int pv_nl_parse(const void *buf, size_t len, pv_nl_fn fn, void *ctx)
{
	const struct nlmsghdr *nh = buf;
	struct pv_nl_msg msg;
	char err[160];
	int left = (int)len, count = 0;

	if (!mnl && !(mnl = pv_mnl_load(err, sizeof(err))))
		return -EOPNOTSUPP;
	for (; whole(nh, left); nh = mnl->mnl_nlmsg_next(nh, &left)) {
		if (parse_one(nh, &msg)) {
			fn(ctx, &msg);
			count++;
		}
	}
	return left > 0 ? -EBADMSG : count;
}

static struct mnl_socket *open_socket(uint32_t groups)
{
	struct mnl_socket *s = mnl->mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | (groups ? SOCK_NONBLOCK : 0));
	struct timeval limit = { .tv_sec = ANSWER_LIMIT_S };
	int size = RCVBUF, strict = 1;

	if (!s)
		return NULL;
	(void)setsockopt(mnl->mnl_socket_get_fd(s), SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	(void)setsockopt(mnl->mnl_socket_get_fd(s), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	(void)mnl->mnl_socket_setsockopt(s, NETLINK_GET_STRICT_CHK, &strict, sizeof(strict));
	if (mnl->mnl_socket_bind(s, groups, MNL_SOCKET_AUTOPID) < 0) {
		mnl->mnl_socket_close(s);
		return NULL;
	}
	(void)pv_ownfd(mnl->mnl_socket_get_fd(s));
	return s;
}

static void close_socket(struct mnl_socket *s)
{
	if (!s)
		return;
	pv_ownfd_not(mnl->mnl_socket_get_fd(s));
	mnl->mnl_socket_close(s);
}

int pv_nl_open(struct pv_nl **out, char *err, size_t errsize)
{
	const uint32_t groups = RTMGRP_LINK | RTMGRP_NEIGH | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE |
				RTMGRP_IPV6_ROUTE | RTMGRP_IPV4_RULE | 1u << (RTNLGRP_IPV6_RULE - 1) | 1u << (RTNLGRP_NEXTHOP - 1);
	struct pv_nl *nl;
	int rc;

	mnl = pv_mnl_load(err, errsize);
	if (!mnl)
		return -EOPNOTSUPP;
	nl = calloc(1, sizeof(*nl));
	if (!nl)
		return -ENOMEM;
	nl->told = open_socket(groups);
	nl->ask = nl->told ? open_socket(0) : NULL;
	nl->pass = nl->ask ? open_socket(0) : NULL;
	if (!nl->pass) {
		rc = -errno;
		snprintf(err, errsize, "rtnetlink: %s", strerror(errno));
		pv_nl_close(nl);
		return rc;
	}
	*out = nl;
	return 0;
}

void pv_nl_close(struct pv_nl *nl)
{
	close_socket(nl->told);
	close_socket(nl->ask);
	close_socket(nl->pass);
	free(nl);
}

int pv_nl_fd(const struct pv_nl *nl)
{
	return mnl->mnl_socket_get_fd(nl->told);
}

static struct nlmsghdr *request(struct pv_nl *nl, void *buf, uint16_t type, uint16_t flags)
{
	struct nlmsghdr *nh = mnl->mnl_nlmsg_put_header(buf);

	nh->nlmsg_type = type;
	nh->nlmsg_flags = NLM_F_REQUEST | flags;
	nh->nlmsg_seq = ++nl->seq;
	return nh;
}

typedef void (*answer_fn)(void *ctx, const struct nlmsghdr *nh);

/* What the end of a dump, or an error in place of an answer, says: both begin with the number. */
static int verdict(const struct nlmsghdr *nh)
{
	int error;

	if (mnl->mnl_nlmsg_get_payload_len(nh) < sizeof(error))
		return nh->nlmsg_type == NLMSG_DONE ? 0 : -EBADMSG;
	memcpy(&error, mnl->mnl_nlmsg_get_payload(nh), sizeof(error));
	return PV_MIN(error, 0);
}

/* Reads until the end of the answer to the last request, also when it is worth nothing any more: the kernel begins no other dump before.
 * 0, the kernel's -errno, or -EINTR. */
static int answers(struct pv_nl *nl, bool dump, answer_fn fn, void *ctx)
{
	bool interrupted = false;

	for (;;) {
		ssize_t n = mnl->mnl_socket_recvfrom(nl->ask, nl->buf, sizeof(nl->buf));
		const struct nlmsghdr *nh = (const void *)nl->buf;
		int left = (int)n;

		/* A signal's handler ran: the answer is still on its way. */
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		for (; whole(nh, left); nh = mnl->mnl_nlmsg_next(nh, &left)) {
			if (nh->nlmsg_seq != nl->seq)
				continue; /* of an earlier request that timed out */
			interrupted |= nh->nlmsg_flags & NLM_F_DUMP_INTR;
			if (nh->nlmsg_type == NLMSG_DONE || nh->nlmsg_type == NLMSG_ERROR)
				return interrupted ? -EINTR : verdict(nh);
			fn(ctx, nh);
			if (!dump)
				return 0;
		}
	}
}

static int ask(struct pv_nl *nl, const struct nlmsghdr *nh, bool dump, answer_fn fn, void *ctx)
{
	int rc;

	if (mnl->mnl_socket_sendto(nl->ask, nh, nh->nlmsg_len) < 0)
		return -errno;
	rc = answers(nl, dump, fn, ctx);
	/* A dump that was not read to its end goes on, and the kernel refuses the next one (EBUSY). Reading is what ends it. */
	while (rc && dump && recv(mnl->mnl_socket_get_fd(nl->ask), nl->buf, sizeof(nl->buf), MSG_DONTWAIT) > 0)
		;
	return rc;
}

struct pass_on {
	pv_nl_fn fn;
	void *ctx;
};

static void pass_on(void *ctx, const struct nlmsghdr *nh)
{
	struct pass_on *to = ctx;
	struct pv_nl_msg msg;

	if (parse_one(nh, &msg))
		to->fn(to->ctx, &msg);
}

int pv_nl_dump(struct pv_nl *nl, enum pv_nl_kind kind, pv_nl_fn fn, void *ctx)
{
	/* Strict checking wants the whole header of the kind. */
	static const struct {
		uint16_t type;
		size_t header;
	} of[] = {
		[PV_NL_LINK] = { RTM_GETLINK, sizeof(struct ifinfomsg) },
		[PV_NL_ADDR] = { RTM_GETADDR, sizeof(struct ifaddrmsg) },
		[PV_NL_NEIGH] = { RTM_GETNEIGH, sizeof(struct ndmsg) },
	};
	struct pass_on to = { fn, ctx };
	uint8_t buf[256] = { 0 };
	struct nlmsghdr *nh;

	if ((size_t)kind >= pv_array_size(of))
		return -EINVAL;
	nh = request(nl, buf, of[kind].type, NLM_F_DUMP);
	mnl->mnl_nlmsg_put_extra_header(nh, of[kind].header);
	return ask(nl, nh, true, pass_on, &to);
}

int pv_nl_read(struct pv_nl *nl, pv_nl_fn fn, void *ctx)
{
	int total = 0, lost = 0;

	/* Once some were lost the kernel adds none, and tells of no further loss, before all that it kept are read; what these say is older
	 * than what the tables say now. */
	for (int packets = 0; lost || packets < READ_MAX; packets++) {
		ssize_t n = mnl->mnl_socket_recvfrom(nl->told, nl->news, sizeof(nl->news));
		int count;

		if (n < 0 && (errno == ENOBUFS || errno == ENOSPC)) {
			lost = -ENOBUFS;
			continue;
		}
		if (n < 0)
			return lost ? lost : errno == EAGAIN || errno == EINTR ? total : -errno;
		count = pv_nl_parse(nl->news, (size_t)n, fn, ctx);
		if (count > 0)
			total += count;
	}
	return total;
}

static void rule_by_ports(void *ctx, const struct nlmsghdr *nh)
{
	bool *by_ports = ctx;
	struct attrs a;

	*by_ports |= !parse_attrs(nh, sizeof(struct fib_rule_hdr), &a) || a.at[FRA_IP_PROTO] || a.at[FRA_SPORT_RANGE] ||
		     a.at[FRA_DPORT_RANGE];
}

int pv_nl_route_by_ports(struct pv_nl *nl)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	/* Only 0 leaves the ports out. A family that is not there has no such file. */
	bool by_ports = pv_sysctl("net/ipv4/fib_multipath_hash_policy", 0) || pv_sysctl("net/ipv6/fib_multipath_hash_policy", 0);

	for (size_t i = 0; i < pv_array_size(families) && !by_ports; i++) {
		uint8_t buf[256] = { 0 };
		struct nlmsghdr *nh = request(nl, buf, RTM_GETRULE, NLM_F_DUMP);
		struct fib_rule_hdr *hdr = mnl->mnl_nlmsg_put_extra_header(nh, sizeof(*hdr));
		int rc;

		hdr->family = families[i];
		rc = ask(nl, nh, true, rule_by_ports, &by_ports);
		if (rc && rc != -EAFNOSUPPORT)
			return rc;
	}
	return by_ports;
}

static void put_addr(struct nlmsghdr *nh, uint16_t type, const struct pv_addr *addr)
{
	if (pv_addr_is4(addr))
		mnl->mnl_attr_put(nh, type, 4, &addr->b[12]);
	else
		mnl->mnl_attr_put(nh, type, 16, addr->b);
}

static int collect_metric(const struct nlattr *attr, void *data)
{
	struct pv_nl_answer *out = data;

	if (mnl->mnl_attr_get_type(attr) == RTAX_MTU && mnl->mnl_attr_get_payload_len(attr) == sizeof(out->mtu))
		memcpy(&out->mtu, mnl->mnl_attr_get_payload(attr), sizeof(out->mtu));
	return MNL_CB_OK;
}

/* RTA_VIA: an IPv4 route through an IPv6 gateway (RFC 5549): the family goes before the address. */
static void get_via(const struct attrs *a, struct pv_addr *out)
{
	const struct nlattr *attr = a->at[RTA_VIA];
	const uint8_t *via = attr ? mnl->mnl_attr_get_payload(attr) : NULL;
	uint16_t len = attr ? mnl->mnl_attr_get_payload_len(attr) : 0, family;

	if (len < sizeof(family))
		return;
	memcpy(&family, via, sizeof(family));
	if (family == AF_INET6 && len == sizeof(family) + 16)
		*out = pv_addr_from6(via + sizeof(family));
	else if (family == AF_INET && len == sizeof(family) + 4)
		*out = pv_addr_from4(via + sizeof(family));
}

static bool parse_route(const struct nlmsghdr *nh, struct pv_nl_answer *out)
{
	const struct rtmsg *rtm = mnl->mnl_nlmsg_get_payload(nh);
	struct attrs a;

	memset(out, 0, sizeof(*out));
	if (nh->nlmsg_type != RTM_NEWROUTE || !parse_attrs(nh, sizeof(*rtm), &a))
		return false;
	out->local = rtm->rtm_type == RTN_LOCAL;
	out->broadcast = rtm->rtm_type == RTN_BROADCAST;
	out->multicast = rtm->rtm_type == RTN_MULTICAST;
	get_u32(&a, RTA_OIF, &out->oif);
	get_addr(&a, RTA_PREFSRC, rtm->rtm_family, &out->src);
	get_addr(&a, RTA_GATEWAY, rtm->rtm_family, &out->gateway);
	get_via(&a, &out->gateway);
	if (a.at[RTA_METRICS])
		mnl->mnl_attr_parse_nested(a.at[RTA_METRICS], collect_metric, out);
	return true;
}

static void read_route(void *ctx, const struct nlmsghdr *nh)
{
	(void)parse_route(nh, ctx);
}

int pv_nl_parse_route(const void *buf, size_t len, struct pv_nl_answer *out)
{
	const struct nlmsghdr *nh = buf;
	char err[160];

	if (!mnl && !(mnl = pv_mnl_load(err, sizeof(err))))
		return -EOPNOTSUPP;
	return whole(nh, (int)len) && parse_route(nh, out) ? 0 : -EBADMSG;
}

static void put_ports(struct nlmsghdr *nh, const struct pv_nl_query *q)
{
	uint16_t port;

	if (q->proto != 6 && q->proto != 17)
		return;
	mnl->mnl_attr_put(nh, RTA_IP_PROTO, sizeof(q->proto), &q->proto);
	port = __builtin_bswap16(q->src_port);
	if (port)
		mnl->mnl_attr_put(nh, RTA_SPORT, sizeof(port), &port);
	port = __builtin_bswap16(q->dst_port);
	if (port)
		mnl->mnl_attr_put(nh, RTA_DPORT, sizeof(port), &port);
}

int pv_nl_route_get(struct pv_nl *nl, const struct pv_nl_query *q, struct pv_nl_answer *out)
{
	bool four = pv_addr_is4(&q->dst);
	uint8_t buf[512] = { 0 };
	struct nlmsghdr *nh = request(nl, buf, RTM_GETROUTE, 0);
	struct rtmsg *rtm = mnl->mnl_nlmsg_put_extra_header(nh, sizeof(*rtm));

	memset(out, 0, sizeof(*out));
	rtm->rtm_family = four ? AF_INET : AF_INET6;
	rtm->rtm_dst_len = four ? 32 : 128;
	rtm->rtm_tos = q->tos & 0x1c;
	put_addr(nh, RTA_DST, &q->dst);
	if (!pv_addr_is_any(&q->src)) {
		rtm->rtm_src_len = four ? 32 : 128;
		put_addr(nh, RTA_SRC, &q->src);
	}
	if (q->oif)
		mnl->mnl_attr_put(nh, RTA_OIF, sizeof(q->oif), &q->oif);
	if (q->mark)
		mnl->mnl_attr_put(nh, RTA_MARK, sizeof(q->mark), &q->mark);
	put_ports(nh, q);
	return ask(nl, nh, false, read_route, out);
}

void pv_nl_pass(struct pv_nl *nl)
{
	const struct {
		struct nlmsghdr nlh;
		struct rtmsg rtm;
		struct rtattr dst;
		uint8_t addr[4];
	} loopback = { .nlh = { .nlmsg_len = sizeof(loopback), .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST },
		       .rtm = { .rtm_family = AF_INET, .rtm_dst_len = 32 },
		       .dst = { .rta_len = RTA_LENGTH(4), .rta_type = RTA_DST },
		       .addr = { 127, 0, 0, 1 } };
	int fd = mnl->mnl_socket_get_fd(nl->pass);
	char answer[1024];

	if (send(fd, &loopback, sizeof(loopback), 0) < 0)
		return;
	while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT | MSG_TRUNC) > 0)
		;
}

struct one_neigh {
	struct pv_nl_msg *out;
	bool found;
};

static void read_neigh(void *ctx, const struct nlmsghdr *nh)
{
	struct one_neigh *one = ctx;

	one->found = parse_one(nh, one->out) && one->out->kind == PV_NL_NEIGH;
}

int pv_nl_neigh_get(struct pv_nl *nl, uint32_t ifindex, const struct pv_addr *addr, struct pv_nl_msg *out)
{
	struct one_neigh one = { .out = out };
	uint8_t buf[256] = { 0 };
	struct nlmsghdr *nh = request(nl, buf, RTM_GETNEIGH, 0);
	struct ndmsg *nd = mnl->mnl_nlmsg_put_extra_header(nh, sizeof(*nd));
	int rc;

	nd->ndm_family = pv_addr_is4(addr) ? AF_INET : AF_INET6;
	nd->ndm_ifindex = (int)ifindex;
	put_addr(nh, NDA_DST, addr);
	rc = ask(nl, nh, false, read_neigh, &one);
	return rc || one.found ? rc : -ENOENT;
}

static void ignore(void *ctx, const struct nlmsghdr *nh)
{
	(void)ctx;
	(void)nh;
}

int pv_nl_neigh_use(struct pv_nl *nl, uint32_t ifindex, const struct pv_addr *addr)
{
	uint8_t buf[256] = { 0 };
	struct nlmsghdr *nh = request(nl, buf, RTM_NEWNEIGH, NLM_F_ACK | NLM_F_CREATE);
	struct ndmsg *nd = mnl->mnl_nlmsg_put_extra_header(nh, sizeof(*nd));

	nd->ndm_family = pv_addr_is4(addr) ? AF_INET : AF_INET6;
	nd->ndm_ifindex = (int)ifindex;
	nd->ndm_state = NUD_NONE;
	nd->ndm_flags = NTF_USE;
	put_addr(nh, NDA_DST, addr);
	return ask(nl, nh, false, ignore, NULL);
}
