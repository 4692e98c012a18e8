// SPDX-License-Identifier: BSD-3-Clause
/*
 * Steers the flows of the map to the AF_XDP socket of the queue they came by, and passes everything else to the kernel: other
 * protocols, fragments, what it cannot parse, and queues that have no socket.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer.h"

#define QUEUES_MAX 256
#define RULES_MAX 65536
#define EXT_MAX 6

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

struct ext_head {
	__u8 next;
	__u8 len8;
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, RULES_MAX);
	__type(key, struct steer_key);
	__type(value, __u32);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STEER_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int pass(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		++*n;
	return XDP_PASS;
}

/* Skips one VLAN tag; `proto` becomes the ethertype of what follows. NULL: the frame is too short. */
static __always_inline void *link_header(void *data, void *end, __be16 *proto, __u16 *vlan)
{
	struct ethhdr *eth = data;
	struct vlan_tag *tag = (void *)(eth + 1);

	if ((void *)(eth + 1) > end)
		return 0;
	*proto = eth->h_proto;
	*vlan = 0;
	if (*proto != bpf_htons(ETH_P_8021Q) && *proto != bpf_htons(ETH_P_8021AD))
		return eth + 1;
	if ((void *)(tag + 1) > end)
		return 0;
	*proto = tag->proto;
	*vlan = bpf_ntohs(tag->tci) & 0xfff;
	return tag + 1;
}

/* NULL: malformed or a fragment. Options are skipped. */
static __always_inline void *ip4_header(void *at, void *end, struct steer_key *key)
{
	struct iphdr *ip = at;
	__u32 len;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return 0;
	if (ip->frag_off & bpf_htons(0x3fff))
		return 0;
	key->dst[10] = key->dst[11] = key->src[10] = key->src[11] = 0xff;
	__builtin_memcpy(&key->dst[12], &ip->daddr, 4);
	__builtin_memcpy(&key->src[12], &ip->saddr, 4);
	key->proto = ip->protocol;
	len = ip->ihl * 4;
	return at + len;
}

/* NULL: malformed, a fragment, or more extension headers than are walked. */
static __always_inline void *ip6_header(void *at, void *end, struct steer_key *key)
{
	struct ipv6hdr *ip = at;
	__u8 next;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return 0;
	__builtin_memcpy(key->dst, &ip->daddr, 16);
	__builtin_memcpy(key->src, &ip->saddr, 16);
	next = ip->nexthdr;
	at = ip + 1;
	for (int i = 0; i < EXT_MAX; i++) {
		struct ext_head *ext = at;

		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS)
			break;
		if ((void *)(ext + 1) > end)
			return 0;
		next = ext->next;
		at += (ext->len8 + 1) * 8;
	}
	key->proto = next;
	return at;
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	void *at = (void *)(long)ctx->data;
	struct steer_key key = {};
	__be16 proto;
	__u16 *ports;
	__u64 *taken;
	__u32 what = STEER_TAKEN;

	at = link_header(at, end, &proto, &key.vlan);
	if (!at)
		return pass(STEER_PASSED);
	if (proto == bpf_htons(ETH_P_IP))
		at = ip4_header(at, end, &key);
	else if (proto == bpf_htons(ETH_P_IPV6))
		at = ip6_header(at, end, &key);
	else
		return pass(STEER_PASSED);
	if (!at || (key.proto != IPPROTO_UDP && key.proto != IPPROTO_TCP))
		return pass(STEER_PASSED);
	ports = at;
	if ((void *)(ports + 2) > end)
		return pass(STEER_PASSED);
	key.sport = ports[0];
	key.dport = ports[1];
	if (!bpf_map_lookup_elem(&rules, &key)) {
		__builtin_memset(key.src, 0, sizeof(key.src));
		key.sport = 0;
		if (!bpf_map_lookup_elem(&rules, &key))
			return pass(STEER_PASSED);
	}
	taken = bpf_map_lookup_elem(&counts, &what);
	if (taken)
		++*taken;
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

char _license[] SEC("license") = "BSD";
