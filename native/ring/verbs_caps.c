/* SPDX-License-Identifier: BSD-3-Clause */
/* What a device can do, and what a port is: asked for, never derived from a device's name. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#include "ring/verbs_priv.h"

#define ALL_CSUM (PV_CSUM_IP4 | PV_CSUM_UDP | PV_CSUM_TCP)

int pv_verbs_query(struct pv_verbs_lib *lib, struct ibv_context *ctx, struct ibv_device_attr_ex *attr)
{
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_device_ex);
	int rc = EOPNOTSUPP;

	memset(attr, 0, sizeof(*attr));
	if (vctx)
		rc = vctx->query_device_ex(ctx, NULL, attr, sizeof(*attr));
	if (rc == EOPNOTSUPP || rc == ENOSYS) {
		memset(attr, 0, sizeof(*attr));
		rc = lib->query_device(ctx, &attr->orig_attr);
	}
	return -rc;
}

static bool read_line(const char *dir, const char *entry, const char *file, char *line, int size)
{
	char path[640];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s/%s", dir, entry, file);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(line, size, f) != NULL;
	fclose(f);
	return ok;
}

/* The network interface of the port, where the kernel has one: its MAC and MTU are the truth. */
static bool query_netdev(const char *ibdev_path, uint8_t port, struct pv_verbs_info *out)
{
	char dir[320], line[64];
	struct dirent *e;
	DIR *d;
	bool found = false;

	if (!ibdev_path[0])
		return false;
	snprintf(dir, sizeof(dir), "%s/device/net", ibdev_path);
	d = opendir(dir);
	if (!d)
		return false;
	while (!found && (e = readdir(d))) {
		unsigned int m[PV_ETH_ALEN], number;

		if (e->d_name[0] == '.' || !read_line(dir, e->d_name, "dev_port", line, sizeof(line)))
			continue;
		if (sscanf(line, "%u", &number) != 1 || number + 1 != port)
			continue;
		if (!read_line(dir, e->d_name, "address", line, sizeof(line)) ||
		    sscanf(line, "%x:%x:%x:%x:%x:%x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != PV_ETH_ALEN)
			continue;
		if (!read_line(dir, e->d_name, "mtu", line, sizeof(line)) || sscanf(line, "%u", &out->mtu) != 1)
			continue;
		for (uint32_t i = 0; i < PV_ETH_ALEN; i++)
			out->mac[i] = (uint8_t)m[i];
		found = true;
	}
	closedir(d);
	return found;
}

/* Without one: the default GID of an Ethernet port is its MAC as a link-local address (RFC 4291 appendix A). */
static bool query_gid_mac(struct pv_verbs_lib *lib, struct ibv_context *ctx, uint8_t port, uint8_t mac[PV_ETH_ALEN])
{
	union ibv_gid gid;

	if (lib->query_gid(ctx, port, 0, &gid) || gid.raw[0] != 0xfe || gid.raw[1] != 0x80 || gid.raw[11] != 0xff ||
	    gid.raw[12] != 0xfe)
		return false;
	mac[0] = gid.raw[8] ^ 2;
	mac[1] = gid.raw[9];
	mac[2] = gid.raw[10];
	mac[3] = gid.raw[13];
	mac[4] = gid.raw[14];
	mac[5] = gid.raw[15];
	return true;
}

/* The port's link, MAC and MTU. -EINVAL: no such port; -EADDRNOTAVAIL: nothing tells its MAC; -EPROTONOSUPPORT: no Ethernet. */
int pv_verbs_query_port(struct pv_verbs_lib *lib, struct ibv_context *ctx, uint8_t port, struct pv_verbs_info *out)
{
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_port);
	struct ibv_port_attr attr;
	int rc;

	memset(&attr, 0, sizeof(attr));
	/* The exported symbol writes the compatibility prefix only, which holds all that is read here. */
	rc = vctx ? vctx->query_port(ctx, port, &attr, sizeof(attr))
		  : lib->query_port(ctx, port, (struct _compat_ibv_port_attr *)&attr);
	if (rc)
		return rc == ENODEV || rc == EIO ? -ENODEV : -EINVAL;
	if (attr.link_layer == IBV_LINK_LAYER_INFINIBAND)
		return -EPROTONOSUPPORT;
	out->port = port;
	out->link_up = attr.state == IBV_PORT_ACTIVE;
	if (query_netdev(ctx->device->ibdev_path, port, out))
		return 0;
	/* The largest message of a port that carries nothing but frames is the largest frame. */
	out->mtu = attr.max_msg_sz > 18 + 68 && attr.max_msg_sz <= 65535 ? attr.max_msg_sz - 18 : 1500;
	return query_gid_mac(lib, ctx, port, out->mac) ? 0 : -EADDRNOTAVAIL;
}

bool pv_verbs_has_csum(const struct ibv_device_attr_ex *attr)
{
	return attr->orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM || attr->raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM;
}

void pv_verbs_fill_caps(struct verbs_ring *v, const struct ibv_device_attr_ex *attr, const struct pv_verbs_cfg *cfg)
{
	const uint32_t raw = 1u << IBV_QPT_RAW_PACKET;
	struct pv_ring_caps *caps = &v->ring.caps;

	caps->rx_buf_min = caps->mtu + 18;
	caps->batch = PV_RING_BATCH_MAX;
	caps->queues = v->rss ? v->rss->n : 1;
	if (pv_verbs_has_csum(attr) && !cfg->no_csum) {
		caps->rx_csum = caps->tx_csum = ALL_CSUM;
		v->rx_good = PV_PKT_L3_OK | PV_PKT_L4_OK;
	}
	if (v->ask.tso)
		caps->tso_max = PV_MIN(attr->tso_caps.max_tso, 65536u);
	caps->txqs = (uint32_t)PV_MAX(0, PV_MIN(PV_RING_TXQ_MAX, PV_MIN(attr->orig_attr.max_qp, attr->orig_attr.max_cq) - 2));
	if (attr->packet_pacing_caps.supported_qpts & raw && attr->packet_pacing_caps.qp_rate_limit_max) {
		caps->pacing_min_kbps = attr->packet_pacing_caps.qp_rate_limit_min;
		caps->pacing_max_kbps = attr->packet_pacing_caps.qp_rate_limit_max;
	}
	caps->dm_bytes = (uint32_t)PV_MIN(attr->max_dm_size, (uint64_t)UINT32_MAX);
	pv_verbs_stamp_caps(v, attr);
	snprintf(caps->name, sizeof(caps->name), "verbs:%s/%u", cfg->device, v->port);
	snprintf(caps->mode, sizeof(caps->mode), "%s", v->tx.qpx ? "extended" : "legacy");
}
