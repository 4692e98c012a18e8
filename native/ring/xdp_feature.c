/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a driver offers to XDP, by generic netlink: Documentation/netlink/specs/netdev.yaml of Linux. Its header is younger than the
 * systems that this is built on, so the few numbers stand here.
 */
#include "ring/xdp_priv.h"

#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define FAMILY "netdev"
#define DEV_GET 1
#define DEV_IFINDEX 1
#define DEV_RX_METADATA 5
#define DEV_XSK 6
#define PATIENCE_S 1

struct request {
	struct nlmsghdr nh;
	struct genlmsghdr gh;
	struct nlattr attr;
	char value[16];
};

/* The attribute at `at`, of `len` bytes that are left; NULL: no more. Its length includes its header. */
static const struct nlattr *attribute(const uint8_t *at, size_t len)
{
	const struct nlattr *a = (const void *)at;

	return len >= sizeof(*a) && a->nla_len >= sizeof(*a) && a->nla_len <= len ? a : NULL;
}

static uint64_t number(const struct nlattr *a)
{
	size_t len = a->nla_len - sizeof(*a);
	uint64_t v = 0;
	uint32_t half;
	uint16_t quarter;

	if (len == sizeof(v)) {
		memcpy(&v, a + 1, sizeof(v));
	} else if (len == sizeof(half)) {
		memcpy(&half, a + 1, sizeof(half));
		v = half;
	} else if (len == sizeof(quarter)) {
		memcpy(&quarter, a + 1, sizeof(quarter));
		v = quarter;
	}
	return v;
}

/* Calls `take` with each attribute of one answer. */
static int walk(const void *msg, size_t len, void (*take)(void *ctx, uint32_t type, uint64_t value), void *ctx)
{
	const struct nlmsghdr *nh = msg;
	const struct nlattr *a;
	const uint8_t *at;
	int32_t error;

	if (len < sizeof(*nh) || nh->nlmsg_len < sizeof(*nh))
		return -EPROTO;
	if (nh->nlmsg_len > len)
		return -EAGAIN;
	if (nh->nlmsg_type == NLMSG_ERROR) {
		if (nh->nlmsg_len < sizeof(*nh) + sizeof(error))
			return -EPROTO;
		memcpy(&error, nh + 1, sizeof(error));
		return error < 0 && error > -4096 ? error : -EPROTO;
	}
	if (nh->nlmsg_len < sizeof(*nh) + sizeof(struct genlmsghdr))
		return -EPROTO;
	at = (const uint8_t *)msg + sizeof(*nh) + sizeof(struct genlmsghdr);
	len = nh->nlmsg_len - sizeof(*nh) - sizeof(struct genlmsghdr);
	while ((a = attribute(at, len)) != NULL) {
		size_t step = PV_MIN((size_t)NLA_ALIGN(a->nla_len), len);

		take(ctx, a->nla_type & NLA_TYPE_MASK, number(a));
		at += step;
		len -= step;
	}
	return 0;
}

static void take_family(void *ctx, uint32_t type, uint64_t value)
{
	if (type == CTRL_ATTR_FAMILY_ID)
		*(uint16_t *)ctx = (uint16_t)value;
}

struct taken {
	struct pv_xdp_features f;
	bool told;
};

static void take_feature(void *ctx, uint32_t type, uint64_t value)
{
	struct taken *t = ctx;

	if (type == DEV_RX_METADATA)
		t->f.rx_metadata = value;
	else if (type == DEV_XSK)
		t->f.xsk = value;
	t->told |= type == DEV_RX_METADATA;
}

int pv_xdp_features_parse(const void *msg, size_t len, struct pv_xdp_features *out)
{
	struct taken t = { .told = false };
	int rc = walk(msg, len, take_feature, &t);

	if (rc)
		return rc;
	*out = t.f;
	return t.told ? 0 : -EOPNOTSUPP;
}

/* One question of one attribute, one answer. Its length or -errno. */
static ssize_t ask(int fd, struct request *q, size_t len, void *answer, size_t size)
{
	q->attr.nla_len = (uint16_t)(sizeof(q->attr) + len);
	q->nh.nlmsg_len = (uint32_t)(sizeof(*q) - sizeof(q->value) + NLA_ALIGN(len));
	q->nh.nlmsg_flags = NLM_F_REQUEST;
	if (send(fd, q, q->nh.nlmsg_len, 0) < 0)
		return -errno;
	ssize_t n = recv(fd, answer, size, 0);

	return n < 0 ? -errno : n;
}

int pv_xdp_features(int ifindex, struct pv_xdp_features *out)
{
	struct request family = { .nh.nlmsg_type = GENL_ID_CTRL,
				  .gh = { .cmd = CTRL_CMD_GETFAMILY, .version = 1 },
				  .attr.nla_type = CTRL_ATTR_FAMILY_NAME,
				  .value = FAMILY };
	struct request device = { .gh = { .cmd = DEV_GET, .version = 1 }, .attr.nla_type = DEV_IFINDEX };
	const struct timeval patience = { .tv_sec = PATIENCE_S };
	_Alignas(struct nlmsghdr) uint8_t answer[8192];
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC), rc;
	uint16_t id = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	memcpy(device.value, &ifindex, sizeof(ifindex));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	n = ask(fd, &family, sizeof(FAMILY), answer, sizeof(answer));
	rc = n < 0 ? (int)n : walk(answer, (size_t)n, take_family, &id);
	if (rc == -ENOENT || (!rc && !id))
		rc = -EOPNOTSUPP;
	if (!rc) {
		device.nh.nlmsg_type = id;
		n = ask(fd, &device, sizeof(ifindex), answer, sizeof(answer));
		rc = n < 0 ? (int)n : pv_xdp_features_parse(answer, (size_t)n, out);
	}
	close(fd);
	return rc;
}
