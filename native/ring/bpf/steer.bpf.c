// SPDX-License-Identifier: BSD-3-Clause
/*
 * Steers the flows of the map to the AF_XDP socket of the queue they came by, and passes everything else to the kernel: other
 * protocols, fragments, what it cannot parse, and queues that have no socket.
 *
 * Besides a flow's datagrams that need more than delivery: IPv4 options, routing headers, IPv6 options but padding. Some of them want
 * an ICMP message in answer, others an entry made on the way or a look at the host's settings, and that is the kernel's to do.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "ring/bpf/steer.h"

#define QUEUES_MAX 256
#define RULES_MAX 65536
#define EXT_MAX 4

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

/* Options of the least length; `len8` 0. */
struct ext_options {
	__u8 next;
	__u8 len8;
	__u8 option[6];
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
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_config);
} config SEC(".maps");

/* What the headers say, as far as they go. */
struct parsed {
	struct steer_key key; /* a 5-tuple's when `ports` */
	bool ip, ports;
};

/* Skips one VLAN tag, of a customer's VLAN; `proto` becomes the ethertype of what follows. NULL: the frame is too short. */
static __always_inline void *link_header(void *data, void *end, __be16 *proto, __u16 *vlan)
{
	struct ethhdr *eth = data;
	struct vlan_tag *tag = (void *)(eth + 1);

	if ((void *)(eth + 1) > end)
		return 0;
	*proto = eth->h_proto;
	*vlan = 0;
	if (*proto != bpf_htons(ETH_P_8021Q))
		return eth + 1;
	if ((void *)(tag + 1) > end)
		return 0;
	*proto = tag->proto;
	*vlan = bpf_ntohs(tag->tci) & 0xfff;
	return tag + 1;
}

/* The L4 header, or NULL: malformed, a fragment, or with options. */
static __always_inline void *ip4_header(void *at, void *end, struct parsed *p)
{
	struct iphdr *ip = at;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return 0;
	p->ip = true;
	p->key.dst[10] = p->key.dst[11] = p->key.src[10] = p->key.src[11] = 0xff;
	__builtin_memcpy(&p->key.dst[12], &ip->daddr, 4);
	__builtin_memcpy(&p->key.src[12], &ip->saddr, 4);
	p->key.proto = ip->protocol;
	if (ip->ihl > 5 || ip->frag_off & bpf_htons(0x3fff))
		return 0;
	return ip + 1;
}

/* Six times Pad1, or PadN (RFC 8200 4.2), with zeroes as Linux wants it. */
static __always_inline bool padding(const __u8 *option)
{
	return (!option[0] || (option[0] == 1 && option[1] == 4)) && (option[0] || !option[1]) && !option[2] && !option[3] &&
	       !option[4] && !option[5];
}

/* The L4 header, or NULL: malformed, or something in front of it that is the kernel's. The protocol of what is not walked, fragments
 * and routing headers among it, is nobody's flow. */
static __always_inline void *ip6_header(void *at, void *end, struct parsed *p)
{
	struct ipv6hdr *ip = at;
	__u8 next;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return 0;
	p->ip = true;
	__builtin_memcpy(p->key.dst, &ip->daddr, 16);
	__builtin_memcpy(p->key.src, &ip->saddr, 16);
	next = ip->nexthdr;
	at = ip + 1;
	for (int i = 0; i < EXT_MAX; i++) {
		struct ext_options *ext = at;

		if (next != IPPROTO_DSTOPTS && (next != IPPROTO_HOPOPTS || i))
			break;
		if ((void *)(ext + 1) > end || ext->len8 || !padding(ext->option))
			return 0;
		next = ext->next;
		at = ext + 1;
	}
	p->key.proto = next;
	return at;
}

static __always_inline void parse(void *at, void *end, __be16 proto, struct parsed *p)
{
	__u16 *ports;

	if (proto == bpf_htons(ETH_P_IP))
		at = ip4_header(at, end, p);
	else if (proto == bpf_htons(ETH_P_IPV6))
		at = ip6_header(at, end, p);
	else
		return;
	if (!at || (p->key.proto != IPPROTO_UDP && p->key.proto != IPPROTO_TCP))
		return;
	ports = at;
	if ((void *)(ports + 2) > end)
		return;
	p->key.sport = ports[0];
	p->key.dport = ports[1];
	p->ports = true;
}

static __always_inline bool for_us(const struct ethhdr *eth, const struct steer_config *c)
{
	__u8 differs = 0;

	if (eth->h_dest[0] & 1)
		return true;
	for (int i = 0; i < ETH_ALEN; i++)
		differs |= eth->h_dest[i] ^ c->mac[i];
	return !differs;
}

/* 5-tuple first: a connected socket goes before one that is only bound. */
static __always_inline bool tuples(const struct steer_config *c, struct parsed *p)
{
	if (c->kinds & 1 << STEER_5TUPLE) {
		p->key.kind = STEER_5TUPLE;
		if (bpf_map_lookup_elem(&rules, &p->key))
			return true;
	}
	if (!(c->kinds & 1 << STEER_3TUPLE))
		return false;
	p->key.kind = STEER_3TUPLE;
	p->key.sport = 0;
	__builtin_memset(p->key.src, 0, sizeof(p->key.src));
	return bpf_map_lookup_elem(&rules, &p->key);
}

static __always_inline bool by_mac(const struct steer_config *c, const struct ethhdr *eth, __be16 proto, const struct parsed *p)
{
	struct steer_key key = { .vlan = p->key.vlan };

	__builtin_memcpy(key.src, eth->h_dest, ETH_ALEN);
	if (c->kinds & 1 << STEER_ETHER) {
		key.kind = STEER_ETHER;
		key.dport = proto;
		if (bpf_map_lookup_elem(&rules, &key))
			return true;
		key.dport = 0;
		if (bpf_map_lookup_elem(&rules, &key))
			return true;
	}
	if (!(c->kinds & 1 << STEER_IP) || !p->ip)
		return false;
	key.kind = STEER_IP;
	key.dport = 0;
	__builtin_memcpy(key.dst, p->key.dst, sizeof(key.dst));
	return bpf_map_lookup_elem(&rules, &key);
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	void *data = (void *)(long)ctx->data;
	struct parsed p = {};
	struct steer_config *c;
	__u32 zero = 0;
	__be16 proto;
	bool take;
	void *at;

	c = bpf_map_lookup_elem(&config, &zero);
	at = link_header(data, end, &proto, &p.key.vlan);
	if (!c || !at)
		return XDP_PASS;
	take = c->kinds & 1 << STEER_ALL;
	if (!take) {
		parse(at, end, proto, &p);
		if (c->kinds & (1 << STEER_ETHER | 1 << STEER_IP))
			take = by_mac(c, data, proto, &p);
		if (!take && p.ports && for_us(data, c))
			take = tuples(c, &p);
	}
	if (!take)
		return XDP_PASS;
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

char _license[] SEC("license") = "BSD";
