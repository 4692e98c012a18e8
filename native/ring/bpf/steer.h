/* SPDX-License-Identifier: BSD-3-Clause */
/* The steering map's key and the program's counters: shared by the XDP program and its loader. */
#ifndef PV_RING_BPF_STEER_H
#define PV_RING_BPF_STEER_H

#include <linux/types.h>

/* One flow. IPv4 addresses are IPv4-mapped; ports and addresses in network byte order. src and sport zero: a 3-tuple. */
struct steer_key {
	__u8 dst[16];
	__u8 src[16];
	__u16 dport, sport;
	__u16 vlan; /* VLAN id in host order; 0: untagged */
	__u8 proto;
	__u8 zero;
};

enum steer_count { STEER_TAKEN, STEER_PASSED, STEER_COUNTS };

#endif
