/* SPDX-License-Identifier: BSD-3-Clause */
/* Ethernet, IPv4 and UDP headers by hand, for the transports that have no stack. UDP checksum 0: none, as IPv4 allows (RFC 768). */
#ifndef BENCH_FRAME_H
#define BENCH_FRAME_H

#include "bench/bench.h"

#define FRAME_HLEN (14u + 20u + 8u)
#define FRAME_MESSAGE_MAX (1500u - 28u)

/* The headers of every message from o->local to o->remote. */
static inline void frame_make(uint8_t *f, const struct bench_opts *o, const uint8_t *mac)
{
	const struct sockaddr_in *src = (const struct sockaddr_in *)(const void *)&o->local;
	const struct sockaddr_in *dst = (const struct sockaddr_in *)(const void *)&o->remote;
	uint32_t sum = 0;

	memset(f, 0, FRAME_HLEN);
	memcpy(f, o->peer_mac, 6);
	memcpy(f + 6, mac, 6);
	pv_put16(f + 12, 0x0800);
	pv_put16(f + 14, 0x4500);
	pv_put16(f + 16, (uint16_t)(28 + o->size));
	pv_put16(f + 20, 0x4000);
	pv_put16(f + 22, 64 << 8 | 17);
	memcpy(f + 26, &src->sin_addr, 4);
	memcpy(f + 30, &dst->sin_addr, 4);
	for (int i = 14; i < 34; i += 2)
		sum += pv_get16(f + i);
	sum = (sum & 0xffff) + (sum >> 16);
	pv_put16(f + 24, (uint16_t) ~(sum + (sum >> 16)));
	memcpy(f + 34, &src->sin_port, 2);
	memcpy(f + 36, &dst->sin_port, 2);
	pv_put16(f + 38, (uint16_t)(8 + o->size));
}

/* `out`: the received frame `f` turned round: addresses and ports change places, which leaves the header's checksum as it is. */
static inline void frame_turn(uint8_t *out, const uint8_t *f, const uint8_t *mac, const uint8_t *msg, uint32_t len)
{
	memcpy(out, f + 6, 6);
	memcpy(out + 6, mac, 6);
	memcpy(out + 12, f + 12, 14);
	memcpy(out + 26, f + 30, 4);
	memcpy(out + 30, f + 26, 4);
	memcpy(out + 34, f + 36, 2);
	memcpy(out + 36, f + 34, 2);
	memcpy(out + 38, f + 38, 2);
	memset(out + 40, 0, 2);
	memcpy(out + FRAME_HLEN, msg, len);
}

/* Length of the message in a frame of `have` bytes; 0 when it is none of ours. */
static inline uint32_t frame_message(const uint8_t *f, uint32_t have)
{
	uint32_t want;

	if (pv_unlikely(have < FRAME_HLEN || pv_get16(f + 12) != 0x0800 || f[14] != 0x45 || f[23] != 17 || pv_get16(f + 38) < 8))
		return 0;
	want = pv_get16(f + 38) - 8u;
	return PV_MIN(want, have - FRAME_HLEN);
}

#endif
