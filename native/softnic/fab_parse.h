/* SPDX-License-Identifier: BSD-3-Clause */
/* The switch's view of a frame's headers. Pure; any thread. */
#ifndef SN_FAB_PARSE_H
#define SN_FAB_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "softnic/fabric.h"

/* A match in words, as keys are compared. */
#define SN_KEY_WORDS 8u
#define SN_INNER_WORDS 8u
#define SN_HEAD 64u /* leading bytes of a frame that a remembered path may depend on */

/* Fields of a key, as bits: which of them a rule looks at, which a frame has. */
#define SN_FIELD_DST_MAC 0x1u
#define SN_FIELD_SRC_MAC 0x2u
#define SN_FIELD_ETHERTYPE 0x4u
#define SN_FIELD_VLAN 0x8u
#define SN_FIELD_SRC_IP 0x10u
#define SN_FIELD_DST_IP 0x20u
#define SN_FIELD_IP_VERSION 0x40u
#define SN_FIELD_IP_PROTO 0x80u
#define SN_FIELD_TOS 0x100u
#define SN_FIELD_TTL 0x200u
#define SN_FIELD_FLOW_LABEL 0x400u
#define SN_FIELD_SRC_PORT 0x800u
#define SN_FIELD_DST_PORT 0x1000u
/* The same of the frame inside a tunnel, and the tunnel's own. */
#define SN_INNER_SHIFT 13u
#define SN_FIELD_VNI (1u << (2 * SN_INNER_SHIFT))
#define SN_FIELDS_INNER (SN_FIELD_VNI | (SN_FIELD_VNI - 1) >> SN_INNER_SHIFT << SN_INNER_SHIFT)
#define SN_FIELDS_IP (SN_FIELD_SRC_IP | SN_FIELD_DST_IP | SN_FIELD_IP_VERSION | SN_FIELD_IP_PROTO | SN_FIELD_TOS | SN_FIELD_TTL)
#define SN_FIELDS_PORTS (SN_FIELD_SRC_PORT | SN_FIELD_DST_PORT)

/* Where the headers are; what the checksums need. */
struct sn_layers {
	uint16_t flags; /* SN_RX_IP4, IP6, UDP, TCP, FRAG: found, not verified */
	uint16_t l3, l4; /* offsets; l4 0: no UDP or TCP header at hand */
	bool tagged;
};

struct sn_parse {
	uint64_t key[SN_KEY_WORDS + SN_INNER_WORDS]; /* struct sn_match of the frame, struct sn_inner behind it */
	uint32_t has; /* SN_FIELD_* */
	uint32_t hlen; /* the bytes that decided and that fields lie in, 16 .. SN_HEAD; 0: not to be remembered */
	uint16_t ports; /* where they are, 0: no UDP or TCP header at hand */
	uint8_t proto;
	bool vxlan; /* UDP to VXLAN's port: what is inside may decide */
	struct sn_layers layers;
};

/* `avail` leading bytes of the frame lie at `head` (all of them, or at least 128). */
void sn_parse(const uint8_t *head, uint32_t avail, struct sn_parse *out);
/* The header bytes that a route over `fields` depends on, as a mask of out->hlen bytes. */
void sn_parse_mask(const struct sn_parse *parse, uint32_t fields, uint8_t mask[SN_HEAD]);
/* Which fields a rule looks at. */
uint32_t sn_rule_fields(const struct sn_rule *rule);
/*
 * Verifies (or, with SN_TX_*, first fills) the checksums of a whole frame: the flags of the layers, and SN_RX_L3_OK and
 * SN_RX_L4_OK where the header's lengths fit and its checksum is right. UDP without a checksum is not verified.
 */
uint32_t sn_verdict(uint8_t *frame, uint32_t len, const struct sn_layers *layers, uint32_t tx_flags);

/* Toeplitz hash over the fields in `rss_fields` (IBV_RX_HASH_*); false: the frame has none of them. */
bool sn_rss_hash(const struct sn_parse *parse, uint32_t rss_fields, const uint8_t key[40], uint32_t *hash);
uint32_t sn_toeplitz(const uint8_t key[40], const uint8_t *data, uint32_t len);
/* The fields in the terms above. */
uint32_t sn_rss_field_bits(uint32_t rss_fields);

#endif
