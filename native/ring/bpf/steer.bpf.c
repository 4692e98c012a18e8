// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Steers the flows of the map to the AF_XDP socket of the queue they came by, and passes everything else to the kernel: other
 * protocols, fragments, what it cannot parse, and queues that have no socket.
 *
 * Besides a flow's datagrams that need more than delivery: IPv4 options, routing headers, IPv6 options but padding. Some of them want
 * an ICMP message in answer, others an entry made on the way or a look at the host's settings, and that is the kernel's to do.
 *
 * TCP is different in that the kernel knows nothing of a connection of ours, and would reset it. So segments with IPv4 options are taken,
 * and so are ICMP errors about our segments, which tell the path MTU. And of what comes to a listener's port the kernel may have some
 * connections, older than the rule or of another process: those it keeps.
 *
 * With STEER_METADATA it is the program for drivers that tell of a frame what is not in it: it must be bound to the device then.
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
#define ICMP_HLEN 8
#define TCP_FLAGS_AT 13

/* Of a TCP header's flags, those that tell what begins and ends. */
enum { TCP_FIN = 0x1, TCP_SYN = 0x2, TCP_RST = 0x4, TCP_ACK = 0x10 };
/* ICMP's errors but source quench; ICMPv6's are the types below that of the first information message. */
enum { ICMP4_UNREACH = 3, ICMP4_TIME_EXCEEDED = 11, ICMP4_PARAM_PROBLEM = 12, ICMP6_INFO = 128 };

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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_few);
} few SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} gate SEC(".maps");

#ifdef STEER_METADATA
enum xdp_rss_hash_type { STEER_RSS_NONE };

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash, enum xdp_rss_hash_type *type) __ksym;
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *proto, __u16 *tci) __ksym;

/* What a driver does not offer it refuses; a stamp of 0 is none (veth's of a frame that no NIC stamped). */
static __always_inline void metadata(struct xdp_md *ctx, struct steer_meta *meta)
{
	enum xdp_rss_hash_type type;

	meta->mark = STEER_META_MARK;
	if (!bpf_xdp_metadata_rx_timestamp(ctx, &meta->stamp_ns) && meta->stamp_ns)
		meta->mark |= STEER_META_STAMP;
	if (!bpf_xdp_metadata_rx_hash(ctx, &meta->hash, &type))
		meta->mark |= STEER_META_HASH;
	if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &meta->vlan_proto, &meta->vlan_tci))
		meta->mark |= STEER_META_VLAN;
}

static __always_inline void put_metadata(struct xdp_md *ctx, const struct steer_meta *meta)
{
	struct steer_meta *at;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*at)))
		return;
	at = (void *)(long)ctx->data_meta;
	if ((void *)(at + 1) <= (void *)(long)ctx->data)
		*at = *meta;
}
#else
static __always_inline void metadata(struct xdp_md *ctx, struct steer_meta *meta)
{
}

static __always_inline void put_metadata(struct xdp_md *ctx, const struct steer_meta *meta)
{
}
#endif

/* What the headers say, as far as they go. */
struct parsed {
	struct steer_key key; /* a 5-tuple's when `ports` */
	bool ip, ports;
	bool begins; /* a TCP connection, by its SYN */
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
	if ((ip->ihl > 5 && ip->protocol != IPPROTO_TCP) || ip->frag_off & bpf_htons(0x3fff))
		return 0;
	return at + ip->ihl * 4;
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

/* The TCP header in what an ICMP error quotes; NULL: it quotes something else. The flow is then what the answers to the segment have. */
static __always_inline void *quote4(void *at, void *end, struct parsed *p)
{
	__u8 *type = at;
	struct iphdr *ip = at + ICMP_HLEN;

	if ((void *)(ip + 1) > end || (*type != ICMP4_UNREACH && *type != ICMP4_TIME_EXCEEDED && *type != ICMP4_PARAM_PROBLEM))
		return 0;
	if (ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_TCP || ip->frag_off & bpf_htons(0x1fff))
		return 0;
	__builtin_memcpy(&p->key.dst[12], &ip->saddr, 4);
	__builtin_memcpy(&p->key.src[12], &ip->daddr, 4);
	return (void *)ip + ip->ihl * 4;
}

static __always_inline void *quote6(void *at, void *end, struct parsed *p)
{
	__u8 *type = at;
	struct ipv6hdr *ip = at + ICMP_HLEN;

	if ((void *)(ip + 1) > end || !*type || *type >= ICMP6_INFO || ip->version != 6 || ip->nexthdr != IPPROTO_TCP)
		return 0;
	__builtin_memcpy(p->key.dst, &ip->saddr, 16);
	__builtin_memcpy(p->key.src, &ip->daddr, 16);
	return ip + 1;
}

static __always_inline void parse(void *at, void *end, __be16 proto, struct parsed *p)
{
	bool quoted = false;
	__u16 *ports;
	__u8 *flags;

	if (proto == bpf_htons(ETH_P_IP))
		at = ip4_header(at, end, p);
	else if (proto == bpf_htons(ETH_P_IPV6))
		at = ip6_header(at, end, p);
	else
		return;
	if (at && (p->key.proto == IPPROTO_ICMP || p->key.proto == IPPROTO_ICMPV6)) {
		quoted = true;
		at = proto == bpf_htons(ETH_P_IP) ? quote4(at, end, p) : quote6(at, end, p);
		p->key.proto = IPPROTO_TCP;
	}
	if (!at || (p->key.proto != IPPROTO_UDP && p->key.proto != IPPROTO_TCP))
		return;
	ports = at;
	if ((void *)(ports + 2) > end)
		return;
	p->key.sport = ports[quoted];
	p->key.dport = ports[!quoted];
	p->ports = true;
	flags = at + TCP_FLAGS_AT;
	if (p->key.proto == IPPROTO_TCP && !quoted && (void *)(flags + 1) <= end)
		p->begins = (*flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) == TCP_SYN;
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

/* Has the kernel a connection with that peer, one that begins or one that has ended? What is bound or listens is no connection. */
static __always_inline bool kernels(struct xdp_md *ctx, const struct steer_key *key)
{
	bool v4 = !(*(__u64 *)key->dst | *(__u16 *)(key->dst + 8)) && *(__u16 *)(key->dst + 10) == 0xffff;
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	bool its;

	if (v4) {
		__builtin_memcpy(&tuple.ipv4.saddr, key->src + 12, 4);
		__builtin_memcpy(&tuple.ipv4.daddr, key->dst + 12, 4);
		tuple.ipv4.sport = key->sport;
		tuple.ipv4.dport = key->dport;
		sk = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, key->src, 16);
		__builtin_memcpy(tuple.ipv6.daddr, key->dst, 16);
		tuple.ipv6.sport = key->sport;
		tuple.ipv6.dport = key->dport;
		sk = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return false;
	its = sk->state != BPF_TCP_LISTEN;
	bpf_sk_release(sk);
	return its;
}

/* As they were stored: a wider load would wait for what was stored in pieces. */
static __always_inline bool same_addr(const __u8 *a, const __u8 *b)
{
	const __u32 *x = (const void *)a, *y = (const void *)b;

	return x[3] == y[3] && x[2] == y[2] && x[1] == y[1] && x[0] == y[0];
}

/* The value of the rule of that kind for these ports and addresses; 0: there is none. */
static __always_inline __u32 one_of_few(const struct steer_few *f, const struct steer_key *key, __u8 kind)
{
	for (int i = 0; i < STEER_FEW; i++) {
		const struct steer_key *k = &f->key[i];

		if (k->kind == kind && k->dport == key->dport && k->proto == key->proto && k->vlan == key->vlan &&
		    same_addr(k->dst, key->dst) &&
		    (kind == STEER_3TUPLE || (k->sport == key->sport && same_addr(k->src, key->src))))
			return f->value[i];
	}
	return 0;
}

static __always_inline __u32 rule5(const struct steer_few *f, struct steer_key *key)
{
	__u32 *rule;

	if (f)
		return one_of_few(f, key, STEER_5TUPLE);
	key->kind = STEER_5TUPLE;
	rule = bpf_map_lookup_elem(&rules, key);
	return rule ? *rule : 0;
}

static __always_inline __u32 rule3(const struct steer_few *f, const struct steer_key *key)
{
	struct steer_key only;
	__u32 *rule;

	if (f)
		return one_of_few(f, key, STEER_3TUPLE);
	only = *key;
	only.kind = STEER_3TUPLE;
	only.sport = 0;
	__builtin_memset(only.src, 0, sizeof(only.src));
	rule = bpf_map_lookup_elem(&rules, &only);
	return rule ? *rule : 0;
}

/* Of two that come at once, by two queues, both may. */
static __always_inline bool let_in(const struct steer_key *key)
{
	const __u32 *src = (const void *)key->src;
	__u32 zero = 0, *at = bpf_map_lookup_elem(&gate, &zero), mark;

	if (!at)
		return false;
	mark = (src[0] ^ src[1] ^ src[2] ^ src[3]) * 2654435761u ^ ((__u32)key->sport << 16 | key->dport);
	mark |= STEER_GATE_MARK;
	if (*at == STEER_GATE_OPEN)
		*at = mark;
	return *at == mark;
}

/* 5-tuple first: a connected socket goes before one that is only bound. */
static __always_inline bool tuples(struct xdp_md *ctx, const struct steer_config *c, struct parsed *p)
{
	struct steer_few *f = 0;
	__u32 zero = 0, rule;

	if (c->few)
		f = bpf_map_lookup_elem(&few, &zero);
	if (c->kinds & 1 << STEER_5TUPLE && rule5(f, &p->key))
		return true;
	if (!(c->kinds & 1 << STEER_3TUPLE))
		return false;
	rule = rule3(f, &p->key);
	if (!rule || p->key.proto != IPPROTO_TCP || rule == STEER_SOLE)
		return rule;
	return !kernels(ctx, &p->key) && (rule != STEER_GATED || !p->begins || let_in(&p->key));
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
	struct steer_meta meta = {};
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
	metadata(ctx, &meta);
	/* A tag that the device took off is the outer one; behind it another may stand, which is nobody's flow. */
	if (meta.mark & STEER_META_VLAN)
		p.key.vlan = meta.vlan_proto == bpf_htons(ETH_P_8021Q) && !p.key.vlan ? meta.vlan_tci & 0xfff : 0xffff;
	take = c->kinds & 1 << STEER_ALL;
	if (!take) {
		parse(at, end, proto, &p);
		if (c->kinds & (1 << STEER_ETHER | 1 << STEER_IP))
			take = by_mac(c, data, proto, &p);
		if (!take && p.ports && for_us(data, c))
			take = tuples(ctx, c, &p);
	}
	if (!take)
		return XDP_PASS;
	put_metadata(ctx, &meta);
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

/* The kernel lets only such a program ask drivers. */
char _license[] SEC("license") = "Dual BSD/GPL";
