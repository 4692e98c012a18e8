// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A segment of the wanted connection, as it comes by the loopback interface, is to the kernel what a SYN cookie that comes back is: its
 * listener has a connection more on its queue, of the numbers that the segment has and with the options that we say (Linux 6.9,
 * bpf_sk_assign_tcp_reqsk). Whether it had room for that the same segment shows when it comes once more.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "ring/bpf/enqueue.h"

/* libbpf compares the kinds of what the kernel names. */
struct sock {
};

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk, struct enqueue_attrs *attrs, int attrs__sz) __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct enqueue_conn);
} wanted SEC(".maps");

static __always_inline bool same(const __u8 *a, const __u8 *b)
{
	const __u32 *x = (const void *)a, *y = (const void *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

static __always_inline bool same4(const __u8 *mapped, __be32 addr)
{
	return *(const __be32 *)(mapped + 12) == addr;
}

/* The ports, source first, of a TCP segment between the wanted addresses. */
static __always_inline __u16 *segment(struct __sk_buff *skb, const struct enqueue_conn *c, struct bpf_sock_tuple *tuple,
				      __u32 *size)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip4 = data + ETH_HLEN;
	struct ipv6hdr *ip6 = data + ETH_HLEN;
	__u16 *ports = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP) && (void *)(ip4 + 1) <= end && ip4->ihl == 5 && ip4->protocol == IPPROTO_TCP &&
	    same4(c->remote, ip4->saddr) && same4(c->local, ip4->daddr)) {
		ports = (void *)(ip4 + 1);
		tuple->ipv4.saddr = ip4->saddr;
		tuple->ipv4.daddr = ip4->daddr;
		tuple->ipv4.sport = c->rport;
		tuple->ipv4.dport = c->lport;
		*size = sizeof(tuple->ipv4);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= end && ip6->nexthdr == IPPROTO_TCP &&
		   same(c->remote, ip6->saddr.in6_u.u6_addr8) && same(c->local, ip6->daddr.in6_u.u6_addr8)) {
		ports = (void *)(ip6 + 1);
		__builtin_memcpy(tuple->ipv6.saddr, &ip6->saddr, 16);
		__builtin_memcpy(tuple->ipv6.daddr, &ip6->daddr, 16);
		tuple->ipv6.sport = c->rport;
		tuple->ipv6.dport = c->lport;
		*size = sizeof(tuple->ipv6);
	}
	return ports && (void *)(ports + 2) <= end ? ports : 0;
}

SEC("tc")
int enqueue(struct __sk_buff *skb)
{
	struct bpf_sock_tuple tuple = {};
	struct enqueue_attrs attrs;
	struct enqueue_conn *c;
	struct bpf_sock *sk;
	__u32 zero = 0, size = 0;
	__u16 *ports;

	c = bpf_map_lookup_elem(&wanted, &zero);
	if (!c || (c->state != ENQUEUE_WANTED && c->state != ENQUEUE_TOLD))
		return TC_ACT_UNSPEC;
	ports = segment(skb, c, &tuple, &size);
	if (!ports || ports[0] != c->rport || ports[1] != c->lport)
		return TC_ACT_UNSPEC;
	/* Of the size in a register the verifier would not know enough. */
	if (size == sizeof(tuple.ipv4))
		sk = bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return TC_ACT_UNSPEC;
	attrs = c->attrs;
	if (sk->state != BPF_TCP_LISTEN)
		c->state = c->state == ENQUEUE_TOLD ? ENQUEUE_DONE : ENQUEUE_NONE;
	else if (c->state == ENQUEUE_WANTED && !bpf_sk_assign_tcp_reqsk(skb, (struct sock *)sk, &attrs, sizeof(attrs)))
		c->state = ENQUEUE_TOLD;
	else
		c->state = ENQUEUE_NONE;
	bpf_sk_release(sk);
	return TC_ACT_UNSPEC;
}

/* The kernel lets only such a program call it. */
char _license[] SEC("license") = "Dual BSD/GPL";
