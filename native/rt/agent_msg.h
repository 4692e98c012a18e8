/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages to and from pyvmad (native/doc/netvsc.md). Little endian, as are the machines that the daemon runs on. */
#ifndef PV_RT_AGENT_MSG_H
#define PV_RT_AGENT_MSG_H

#include <stddef.h>
#include <stdint.h>

#define PV_AGENT_MAGIC 0x444d5650u /* "PVMD" */
#define PV_AGENT_VERSION 1u
#define PV_AGENT_MSG_MAX 512u
#define PV_AGENT_ANSWER 0x8000u

enum pv_agent_type {
	PV_AGENT_HELLO = 1,
	PV_AGENT_TAP,
	PV_AGENT_FLOW_ADD,
	PV_AGENT_FLOW_DEL,
	PV_AGENT_XDP,
	PV_AGENT_XDP_DROP,
	PV_AGENT_STATUS,
	PV_AGENT_CRASH,
	PV_AGENT_BYE,
	PV_AGENT_NEIGH,
};

#define PV_AGENT_FLOW_SOLE 1u /* struct pv_flow.sole */
#define PV_AGENT_XDP_MODE 3u /* enum pv_xdp_mode */
#define PV_AGENT_AGAIN 0x100u /* TAP, XDP: the process has it from an earlier daemon; a descriptor of it comes along */
#define PV_AGENT_CRASH_RST 1u /* CRASH: peers of connections are told; the statistics file may come along */
#define PV_AGENT_XDP_IS_NATIVE 1u /* `mode` of the answer */

struct pv_agent_head {
	uint32_t magic;
	uint16_t version, type;
	uint32_t length; /* of the whole message */
	uint32_t id;
};

struct pv_agent_flow {
	uint32_t ifindex, tap;
	uint8_t family, proto, flags, zero;
	uint16_t dst_port, src_port; /* host order */
	uint8_t dst[16], src[16]; /* IPv4: the first four bytes */
};

struct pv_agent_tap_ask {
	uint32_t ifindex;
	uint16_t queues, flags;
};
struct pv_agent_tap_answer {
	uint32_t ifindex;
	char name[16];
};
struct pv_agent_neigh {
	uint32_t ifindex, family;
	uint8_t addr[16];
};
struct pv_agent_xdp_ask {
	uint32_t ifindex, queues, flags;
};
struct pv_agent_xdp_answer {
	uint32_t queues, mode;
};

/* An answer of `len` bytes taken apart: its id, and where the body is. 0: it is none. */
uint32_t pv_agent_parse(const void *data, size_t len, int32_t *result, const uint8_t **body, size_t *body_len);

#endif
