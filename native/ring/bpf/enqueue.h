/* SPDX-License-Identifier: BSD-3-Clause */
/* What the program that puts connections on a listener's queue and its loader share. */
#ifndef PV_RING_BPF_ENQUEUE_H
#define PV_RING_BPF_ENQUEUE_H

#include <linux/types.h>

/* TOLD: the listener was; it may have no room. DONE: the connection is there. */
enum { ENQUEUE_NONE, ENQUEUE_WANTED, ENQUEUE_TOLD, ENQUEUE_DONE };

/* The kernel's struct bpf_tcp_req_attrs (Linux 6.9, include/net/tcp.h): what it would know from a handshake of its own. */
struct enqueue_attrs {
	__u32 rcv_tsval, rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale, snd_wscale;
	__u8 ecn_ok, wscale_ok, sack_ok, tstamp_ok, usec_ts_ok;
	__u8 reserved[3];
};

/* One connection. IPv4 addresses are IPv4-mapped; addresses and ports in network byte order. */
struct enqueue_conn {
	__u8 local[16], remote[16];
	__u16 lport, rport;
	__u32 state;
	struct enqueue_attrs attrs;
};

#endif
