/* SPDX-License-Identifier: BSD-3-Clause */
/* What the XDP program and its loader share: the key of the rules' map, the configuration. */
#ifndef PV_RING_BPF_STEER_H
#define PV_RING_BPF_STEER_H

#include <linux/types.h>

/* The kinds of enum pv_flow_kind, as bits of steer_config.kinds and as `kind` of a key. */
enum { STEER_ALL, STEER_ETHER, STEER_IP, STEER_3TUPLE, STEER_5TUPLE };

/* Values of the map. SOLE: the kernel has no connection that the rule matches. GATED: connections that begin come by the gate. */
enum { STEER_RULE = 1, STEER_SOLE, STEER_GATED };

/*
 * The gate, one for all rules: shut, connections that begin are the kernel's; open, the next one is ours. Then the program has written that
 * flow's mark, MARK or above, by which it knows its SYN when it comes again, and the gate is shut.
 */
enum { STEER_GATE_SHUT, STEER_GATE_OPEN, STEER_GATE_MARK = 0x100 };

/*
 * One rule. IPv4 addresses are IPv4-mapped; addresses, ports and ethertype in network byte order; what a kind does not look at is
 * zero. ETHER and IP have the destination MAC in `src`, ETHER the ethertype (0: any) in `dport`.
 */
struct steer_key {
	__u8 dst[16];
	__u8 src[16];
	__u16 dport, sport;
	__u16 vlan; /* VLAN id in host order; 0: untagged */
	__u8 proto;
	__u8 kind;
} __attribute__((aligned(8)));

struct steer_config {
	__u32 kinds; /* of which there are rules */
	__u8 mac[6]; /* of the interface: tuples are for it or a group */
	__u16 few; /* every rule for a tuple is in struct steer_few, too */
};

/*
 * So many rules for tuples are compared one by one, which takes less time than the map's hash. A place whose kind is 0 is free; a rule
 * keeps its place, so that one that is written while frames are looked at is not seen in two halves of different rules.
 */
#define STEER_FEW 4

struct steer_few {
	struct steer_key key[STEER_FEW];
	__u32 value[STEER_FEW];
};

/*
 * What the driver said of a frame (Linux 6.8: Documentation/networking/xdp-rx-metadata.rst), as the program that is bound to the device
 * leaves it in front of the frame: its last byte is the one before the Ethernet header. `mark` is STEER_META_MARK and bits.
 */
struct steer_meta {
	__u64 stamp_ns; /* when the frame came, by the device's clock */
	__u32 hash;
	__u16 vlan_tci; /* of a tag that the device took off */
	__u16 vlan_proto; /* network byte order */
	__u32 zero;
	__u32 mark;
};

#define STEER_META_MARK 0x6d657400u
#define STEER_META_STAMP 0x1u
#define STEER_META_HASH 0x2u
#define STEER_META_VLAN 0x4u
#define STEER_META_BITS 0xffu

#endif
