/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The descriptor that proves a flow to the daemon. It is looked for among all of the process's, since the kernel socket beneath a socket
 * of ours may have been made, handed on or kept by any part; the one after the last that was found is most often it.
 */
#include "rt/agent.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/bytes.h"

#define FDS_LOOK 4096

static bool has_type(int fd, uint8_t proto)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == (proto == 6 ? SOCK_STREAM : SOCK_DGRAM);
}

static bool proves(int fd, const struct pv_flow *flow)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct pv_addr addr;
	uint16_t port;

	if (getsockname(fd, (struct sockaddr *)&ss, &len))
		return false;
	if (ss.ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)&ss;

		addr = pv_addr_from4(&in->sin_addr);
		port = ntohs(in->sin_port);
	} else if (ss.ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)&ss;

		addr = pv_addr_from6(&in6->sin6_addr);
		port = ntohs(in6->sin6_port);
	} else {
		return false;
	}
	/* A socket of one IPv4 address has nothing of IPv6. One of :: may have IPv4, too: the daemon looks closer. */
	return port == flow->dst_port && (pv_addr_is_any(&addr) || pv_addr_eq(&addr, &flow->dst)) && has_type(fd, flow->l4_proto);
}

int pv_agent_proof(const struct pv_flow *flow)
{
	static _Thread_local int last = -1;
	struct dirent *d;
	int found = -1;
	DIR *dir;

	for (int fd = last; last >= 0 && fd < last + 4; fd++)
		if (proves(fd, flow))
			return last = fd;
	dir = opendir("/proc/self/fd");
	while (dir && found < 0 && (d = readdir(dir)) != NULL) {
		int fd = atoi(d->d_name);

		if (*d->d_name != '.' && proves(fd, flow))
			found = fd;
	}
	if (dir)
		closedir(dir);
	/* A process that gave up its privileges may not see its own /proc. */
	for (int fd = 0; !dir && found < 0 && fd < FDS_LOOK; fd++)
		if (proves(fd, flow))
			found = fd;
	last = found;
	return found;
}
