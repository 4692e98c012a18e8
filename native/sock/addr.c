/* SPDX-License-Identifier: BSD-3-Clause */
/* Socket addresses and the stack's endpoints. IPv6 sockets see IPv4 peers as mapped addresses (RFC 3493 3.7). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "sock/sock.h"

/* Linux accepts a sockaddr_in6 without the scope id (RFC 2133's). */
#define SIN6_SHORT 24u

static uint32_t kernel_index(uint32_t core)
{
	return core <= PV_IFACE_MAX ? atomic_load_explicit(&pv_engine.kernel_index[core], memory_order_relaxed) : 0;
}

/* Without the lock: an address is read before it is taken. */
uint32_t pv_ifindex_core(uint32_t index)
{
	if (index > PV_IFINDEX_BASE && index <= PV_IFINDEX_BASE + PV_IFACE_MAX)
		return index - PV_IFINDEX_BASE;
	for (uint32_t i = 1; index && i <= PV_IFACE_MAX; i++)
		if (kernel_index(i) == index)
			return i;
	return 0;
}

uint32_t pv_ifindex_public(uint32_t core)
{
	uint32_t index = core ? kernel_index(core) : 0;

	return index ? index : core ? core + PV_IFINDEX_BASE : 0;
}

bool pv_iface_is_host(uint32_t core)
{
	return core && kernel_index(core);
}

static bool parse4(const struct sockaddr *addr, socklen_t len, struct pv_endpoint *out)
{
	struct sockaddr_in in;

	if (len < sizeof(in))
		return false;
	memcpy(&in, addr, sizeof(in));
	out->addr = pv_addr_from4(&in.sin_addr);
	out->port = ntohs(in.sin_port);
	out->iface = 0;
	return true;
}

bool pv_addr_parse(const struct pv_sock *so, const struct sockaddr *addr, socklen_t len, struct pv_endpoint *out)
{
	struct sockaddr_in6 in6 = { 0 };

	if (!addr || len < sizeof(sa_family_t))
		return false;
	if (addr->sa_family == AF_INET)
		return parse4(addr, len, out);
	if (so->family != AF_INET6 || addr->sa_family != AF_INET6 || len < SIN6_SHORT)
		return false;
	memcpy(&in6, addr, PV_MIN((size_t)len, sizeof(in6)));
	out->addr = pv_addr_from6(&in6.sin6_addr);
	out->port = ntohs(in6.sin6_port);
	out->iface = 0;
	if (in6.sin6_scope_id && pv_addr_is_linklocal6(&out->addr)) {
		out->iface = pv_ifindex_core(in6.sin6_scope_id);
		return out->iface != 0;
	}
	return true;
}

socklen_t pv_addr_format(int family, const struct pv_endpoint *ep, void *addr, socklen_t size)
{
	if (family == AF_INET) {
		struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(ep->port) };

		memcpy(&in.sin_addr, &ep->addr.w[3], 4);
		if (pv_likely(size >= sizeof(in)))
			memcpy(addr, &in, sizeof(in));
		else
			memcpy(addr, &in, size);
		return sizeof(in);
	}
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(ep->port) };

	memcpy(&in6.sin6_addr, ep->addr.b, 16);
	if (ep->iface && pv_addr_is_linklocal6(&ep->addr))
		in6.sin6_scope_id = pv_ifindex_public(ep->iface);
	memcpy(addr, &in6, PV_MIN((size_t)size, sizeof(in6)));
	return sizeof(in6);
}

void pv_addr_text(const struct pv_addr *addr, char *buf, size_t size)
{
	const char *s = pv_addr_is4(addr) ? inet_ntop(AF_INET, &addr->w[3], buf, (socklen_t)size)
					  : inet_ntop(AF_INET6, addr->b, buf, (socklen_t)size);

	if (!s && size)
		*buf = '\0';
}
