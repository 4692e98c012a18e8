/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls.c asks of peer.c, a kernel program on the other end: an echo by UDP and TCP at PEER_PORT, for both families, and orders by a TCP
 * connection to PEER_PORT + 1, one a connection: a struct order.
 */
#ifndef PRELOAD_PEER_H
#define PRELOAD_PEER_H

#include <netinet/in.h>
#include <stdint.h>

#define PEER_PORT 7400

struct order {
	uint8_t kind; /* 'c': connect, send `text`, echo to the end; 'u': send `text` as a datagram */
	uint8_t pad[3];
	uint32_t delay_ms;
	struct sockaddr_in6 to; /* mapped for IPv4 */
	char text[64];
};

#endif
