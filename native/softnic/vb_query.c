/* SPDX-License-Identifier: BSD-3-Clause */
/* What the device says about itself. Every capability listed here has code behind it; the rest is zero. */
#include <string.h>
#include <time.h>

#include "softnic/vb.h"

#define VB_VENDOR_ID 0x534e00u
#define VB_PART_ID 1u

/* Modified EUI-64 of the MAC address (RFC 4291, appendix A), in network byte order. */
__be64 vb_guid(const uint8_t mac[6])
{
	uint8_t b[8] = { mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5] };
	__be64 guid;

	memcpy(&guid, b, sizeof(guid));
	return guid;
}

static void query_attr(const struct vb_ctx *ctx, struct ibv_device_attr *a)
{
	memset(a, 0, sizeof(*a));
	strcpy(a->fw_ver, PYVMA_VERSION);
	a->node_guid = a->sys_image_guid = vb_guid(ctx->mac);
	a->max_mr_size = UINT64_C(1) << 40;
	a->page_size_cap = 0xfffff000;
	a->vendor_id = VB_VENDOR_ID;
	a->vendor_part_id = VB_PART_ID;
	a->max_qp = VB_MAX_QP;
	a->max_qp_wr = VB_MAX_WR;
	a->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID;
	if (!(ctx->off & VB_CAP_CSUM))
		a->device_cap_flags |= IBV_DEVICE_RAW_IP_CSUM;
	if (!(ctx->off & VB_CAP_FLOW))
		a->device_cap_flags |= IBV_DEVICE_MANAGED_FLOW_STEERING;
	a->max_sge = VB_MAX_SGE;
	a->max_cq = 4096;
	a->max_cqe = VB_MAX_CQE;
	a->max_mr = VB_MAX_MR;
	a->max_pd = 4096;
	a->atomic_cap = IBV_ATOMIC_NONE;
	a->max_raw_ethy_qp = a->max_qp;
	a->max_pkeys = 1;
	a->phys_port_cnt = 1;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (!vb_ours(context))
		return VB_FORWARD_INT(ibv_query_device, context, attr);
	query_attr(vb_ctx(context), attr);
	return 0;
}

static void query_rss(struct ibv_device_attr_ex *a)
{
	a->rss_caps.supported_qpts = 1u << IBV_QPT_RAW_PACKET;
	a->rss_caps.max_rwq_indirection_tables = VB_MAX_WQ;
	a->rss_caps.max_rwq_indirection_table_size = 1u << VB_MAX_IND_LOG;
	a->rss_caps.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 |
					  IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP |
					  IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
	a->rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
	a->max_wq_type_rq = VB_MAX_WQ;
}

static void query_offloads(const struct vb_ctx *ctx, struct ibv_device_attr_ex *a)
{
	if (!(ctx->off & VB_CAP_CSUM))
		a->raw_packet_caps |= IBV_RAW_PACKET_CAP_IP_CSUM;
	if (!(ctx->off & VB_CAP_VLAN_STRIP))
		a->raw_packet_caps |= IBV_RAW_PACKET_CAP_CVLAN_STRIPPING;
	if (!(ctx->off & VB_CAP_TSO)) {
		a->tso_caps.max_tso = VB_MAX_TSO;
		a->tso_caps.supported_qpts = 1u << IBV_QPT_RAW_PACKET;
	}
	if (!(ctx->off & VB_CAP_PACING)) {
		a->packet_pacing_caps.qp_rate_limit_min = VB_MIN_RATE_KBPS;
		a->packet_pacing_caps.qp_rate_limit_max = VB_MAX_RATE_KBPS;
		a->packet_pacing_caps.supported_qpts = 1u << IBV_QPT_RAW_PACKET;
	}
	if (!(ctx->off & VB_CAP_DM))
		a->max_dm_size = ctx->dm_bytes;
}

int vb_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr,
		       size_t size)
{
	const struct vb_ctx *ctx = vb_ctx(context);
	struct ibv_device_attr_ex a;

	if (size < sizeof(a.orig_attr) || (input && input->comp_mask))
		return EINVAL;
	memset(&a, 0, sizeof(a));
	query_attr(ctx, &a.orig_attr);
	if (!(ctx->off & VB_CAP_TIMESTAMPS) && !ctx->gone) {
		uint32_t khz;

		sn_clock_facts(ctx->port, &khz, &a.completion_timestamp_mask);
		a.hca_core_clock = khz;
	}
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
	query_offloads(ctx, &a);
	if (!(ctx->off & VB_CAP_RSS))
		query_rss(&a);
	a.phys_port_cnt_ex = 1;
	memset(attr, 0, size);
	memcpy(attr, &a, PV_MIN(size, sizeof(a)));
	return 0;
}

static enum ibv_mtu mtu_enum(uint32_t mtu)
{
	return mtu >= 4096   ? IBV_MTU_4096
	       : mtu >= 2048 ? IBV_MTU_2048
	       : mtu >= 1024 ? IBV_MTU_1024
	       : mtu >= 512  ? IBV_MTU_512
			     : IBV_MTU_256;
}

int vb_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t size)
{
	const struct vb_ctx *ctx = vb_ctx(context);
	struct ibv_port_attr a;
	bool up;

	if (port_num != 1)
		return EINVAL;
	if (ctx->gone)
		return ENODEV;
	up = sn_port_link(ctx->port);
	memset(&a, 0, sizeof(a));
	a.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a.max_mtu = IBV_MTU_4096;
	a.active_mtu = mtu_enum(sn_port_mtu(ctx->port));
	a.gid_tbl_len = 2;
	a.port_cap_flags = IBV_PORT_CM_SUP;
	a.max_msg_sz = sn_port_mtu(ctx->port) + 18; /* the longest frame: softnic.h promises it */
	a.pkey_tbl_len = 1;
	a.max_vl_num = 1;
	a.active_width = 2; /* 4X */
	a.active_speed = 32; /* EDR: 4 x 25 Gbit/s */
	a.phys_state = up ? 5 : 3; /* LinkUp, Disabled */
	a.link_layer = IBV_LINK_LAYER_ETHERNET;
	memset(attr, 0, size);
	memcpy(attr, &a, PV_MIN(size, sizeof(a)));
	return 0;
}

/* The symbol's caller may have only the members of the first ABI; programs reach the rest by the context's own slot. */
int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *attr)
{
	if (!vb_ours(context))
		return VB_FORWARD_INT(ibv_query_port, context, port_num, attr);
	return vb_query_port(context, port_num, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* One GID, the link-local address of the port, in a table of two: a free entry is a case that programs have to handle. */
static int gid_get(struct ibv_context *context, uint32_t port_num, uint32_t index, union ibv_gid *gid)
{
	if (port_num != 1)
		return EINVAL;
	if (index != 0)
		return index < 2 ? ENODATA : EINVAL;
	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	gid->global.interface_id = vb_guid(vb_ctx(context)->mac);
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	int err;

	if (!vb_ours(context))
		return VB_FORWARD_INT(ibv_query_gid, context, port_num, index, gid);
	memset(gid, 0, sizeof(*gid));
	err = gid_get(context, port_num, (uint32_t)index, gid);
	/* A free entry reads as zeroes here. */
	if (err && !(err == ENODATA && index == 1)) {
		errno = err;
		return -1;
	}
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
		      size_t entry_size)
{
	struct ibv_gid_entry e;
	int err;

	if (!vb_ours(context))
		return VB_FORWARD_INT(_ibv_query_gid_ex, context, port_num, index, entry, flags, entry_size);
	if (flags)
		return EINVAL;
	memset(&e, 0, sizeof(e));
	err = gid_get(context, port_num, index, &e.gid);
	if (err)
		return err;
	e.gid_index = index;
	e.port_num = port_num;
	e.gid_type = IBV_GID_TYPE_ROCE_V1;
	memset(entry, 0, entry_size);
	memcpy(entry, &e, PV_MIN(entry_size, sizeof(e)));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
			     size_t entry_size)
{
	int err;

	if (!vb_ours(context)) {
		if (!vb_real()->_ibv_query_gid_table)
			return -EOPNOTSUPP;
		return vb_real()->_ibv_query_gid_table(context, entries, max, flags, entry_size);
	}
	if (max < 1)
		return -EINVAL;
	err = _ibv_query_gid_ex(context, 1, 0, entries, flags, entry_size);
	return err ? -err : 1;
}

/* Private to rdma-core, used by ibv_devinfo and pyverbs. 0 is "IB or RoCE v1" in this call's own numbering. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index, unsigned int *type)
{
	if (!vb_ours(context))
		return VB_FORWARD_INT(ibv_query_gid_type, context, port_num, index, type);
	if (port_num != 1 || index > 1) {
		errno = EINVAL;
		return -1;
	}
	*type = 0;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	if (!vb_ours(context))
		return VB_FORWARD_INT(ibv_query_pkey, context, port_num, index, pkey);
	if (port_num != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	if (!vb_ours(context))
		return vb_real()->ibv_get_pkey_index ? vb_real()->ibv_get_pkey_index(context, port_num, pkey) : -1;
	return port_num == 1 && pkey == 0xffff ? 0 : -1;
}

/* Raw clock in the way of mlx5: a count of hca_core_clock ticks, all of it in tv_nsec. */
int vb_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;

	values->comp_mask = 0;
	if (vb_ctx(context)->gone)
		return ENODEV;
	if (!vb_has(context, VB_CAP_CLOCK))
		return EOPNOTSUPP;
	if (asked & IBV_VALUES_MASK_RAW_CLOCK) {
		values->raw_clock.tv_sec = 0;
		values->raw_clock.tv_nsec = (long)sn_clock_ticks(vb_ctx(context)->port, sn_true_ns());
		values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	}
	return 0;
}
