/* SPDX-License-Identifier: BSD-3-Clause */
/* How a program over IPv4 comes to peer.c. Whoever includes this sets `mine` and `theirs` from its command line. */
#ifndef PRELOAD_CLIENT_H
#define PRELOAD_CLIENT_H

#include <arpa/inet.h>
#include <sys/socket.h>

#include "check.h"
#include "peer.h"

static const char *mine, *theirs;

static inline struct sockaddr_in address(const char *text, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	CHECK(inet_pton(AF_INET, text, &in.sin_addr) == 1);
	return in;
}

static inline int connected(int type)
{
	struct sockaddr_in to = address(theirs, PEER_PORT);
	int fd = socket(AF_INET, type, 0);

	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	return fd;
}

/* To an address of our own; a stream listens. */
static inline int bound(int type)
{
	struct sockaddr_in at = address(mine, 0);
	int fd = socket(AF_INET, type, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	if (type == SOCK_STREAM)
		CHECK(listen(fd, 16) == 0);
	return fd;
}

#endif
