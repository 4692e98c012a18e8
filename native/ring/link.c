/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/link.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Linux 5.1 */
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif

uint32_t pv_link_of(int fd, const char *name)
{
	size_t len = strnlen(name, IFNAMSIZ);
	socklen_t size = sizeof(int);
	struct ifreq req;
	int index = 0;

	if (!len || len >= IFNAMSIZ)
		return 0;
	if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)len)) {
		/* Before Linux 5.7 only the privileged may, and for others no module is loaded. */
		if (errno == ENODEV)
			return 0;
	} else if (!getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, &size) && index > 0) {
		return (uint32_t)index;
	}
	memset(&req, 0, sizeof(req));
	memcpy(req.ifr_name, name, len);
	return ioctl(fd, SIOCGIFINDEX, &req) < 0 ? 0 : (uint32_t)req.ifr_ifindex;
}

uint32_t pv_link_index(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint32_t index = fd < 0 ? 0 : pv_link_of(fd, name);

	if (fd >= 0)
		close(fd);
	return index;
}
