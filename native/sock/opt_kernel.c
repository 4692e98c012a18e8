/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options that only the kernel can carry out. Whether one is in force the kernel socket itself says, after it was set.
 *
 * A socket on interfaces that the kernel owns: set before it is decided, it stays on the kernel for that reason. Set later, one that
 * concerns sending alone moves the sending to the kernel socket, and back when it is taken off; any other leaves the whole socket to
 * the kernel. On an interface of our own there is no kernel to go to: some are refused, the others say nothing to us.
 */
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>

#include "sock/sock.h"

/* Numbers of the kernel's headers, which older ones lack. */
enum {
	K_SO_TXTIME = 61,
	K_SO_RCVMARK = 75,
	K_SO_RCVPRIORITY = 82,
	K_UDP_CORK = 1,
	K_UDP_ENCAP = 100,
	K_UDP_NO_CHECK6_TX = 101,
	K_UDP_GRO = 104,
	K_IP_CHECKSUM = 23,
	K_IP_BIND_ADDRESS_NO_PORT = 24,
	K_IPV6_FLOWINFO = 11,
	K_IPV6_FLOWINFO_SEND = 33,
	K_IPV6_ADDR_PREFERENCES = 72,
	K_IPV6_TRANSPARENT = 75,
	K_IPV6_UNICAST_IF = 76,
};

enum how {
	BY_INT, /* in force while it is another value than `off` */
	BY_LENGTH, /* while there is something to read */
	BY_SETTING, /* for good once it was set */
};

#define TX false
#define RX true /* receiving, or both */

struct row {
	int level, name;
	enum how how;
	int off;
	bool receives;
	bool refused; /* by sockets on interfaces of our own */
	const char *text;
};

static const struct row rows[] = {
	{ SOL_SOCKET, SO_MARK, BY_INT, 0, TX, false, "SO_MARK" },
	{ SOL_SOCKET, SO_PRIORITY, BY_INT, 0, TX, false, "SO_PRIORITY" },
	{ SOL_SOCKET, SO_DONTROUTE, BY_INT, 0, TX, false, "SO_DONTROUTE" },
	{ SOL_SOCKET, K_SO_TXTIME, BY_SETTING, 0, TX, true, "SO_TXTIME" },
	{ SOL_SOCKET, SO_ATTACH_FILTER, BY_SETTING, 0, RX, true, "SO_ATTACH_FILTER" },
	{ SOL_SOCKET, SO_ATTACH_BPF, BY_SETTING, 0, RX, true, "SO_ATTACH_BPF" },
	{ SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, BY_SETTING, 0, RX, true, "SO_ATTACH_REUSEPORT_CBPF" },
	{ SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, BY_SETTING, 0, RX, true, "SO_ATTACH_REUSEPORT_EBPF" },
	{ SOL_SOCKET, SO_PEEK_OFF, BY_INT, -1, RX, true, "SO_PEEK_OFF" },
	{ SOL_SOCKET, K_SO_RCVMARK, BY_INT, 0, RX, false, "SO_RCVMARK" },
	{ SOL_SOCKET, K_SO_RCVPRIORITY, BY_INT, 0, RX, false, "SO_RCVPRIORITY" },
	{ IPPROTO_UDP, K_UDP_CORK, BY_INT, 0, TX, true, "UDP_CORK" },
	{ IPPROTO_UDP, K_UDP_ENCAP, BY_INT, 0, RX, true, "UDP_ENCAP" },
	{ IPPROTO_UDP, K_UDP_NO_CHECK6_TX, BY_INT, 0, TX, false, "UDP_NO_CHECK6_TX" },
	{ IPPROTO_UDP, K_UDP_GRO, BY_INT, 0, RX, false, "UDP_GRO" },
	{ IPPROTO_IP, IP_OPTIONS, BY_LENGTH, 0, TX, false, "IP_OPTIONS" },
	{ IPPROTO_IP, IP_HDRINCL, BY_INT, 0, TX, true, "IP_HDRINCL" },
	{ IPPROTO_IP, IP_TRANSPARENT, BY_INT, 0, RX, true, "IP_TRANSPARENT" },
	{ IPPROTO_IP, IP_UNICAST_IF, BY_INT, 0, TX, false, "IP_UNICAST_IF" },
	{ IPPROTO_IP, K_IP_BIND_ADDRESS_NO_PORT, BY_INT, 0, TX, false, "IP_BIND_ADDRESS_NO_PORT" },
	{ IPPROTO_IP, IP_RECVOPTS, BY_INT, 0, RX, false, "IP_RECVOPTS" },
	{ IPPROTO_IP, IP_RETOPTS, BY_INT, 0, RX, false, "IP_RETOPTS" },
	{ IPPROTO_IP, IP_PASSSEC, BY_INT, 0, RX, false, "IP_PASSSEC" },
	{ IPPROTO_IP, K_IP_CHECKSUM, BY_INT, 0, RX, false, "IP_CHECKSUM" },
	{ IPPROTO_IPV6, IPV6_HOPOPTS, BY_LENGTH, 0, TX, false, "IPV6_HOPOPTS" },
	{ IPPROTO_IPV6, IPV6_RTHDRDSTOPTS, BY_LENGTH, 0, TX, false, "IPV6_RTHDRDSTOPTS" },
	{ IPPROTO_IPV6, IPV6_RTHDR, BY_LENGTH, 0, TX, false, "IPV6_RTHDR" },
	{ IPPROTO_IPV6, IPV6_DSTOPTS, BY_LENGTH, 0, TX, false, "IPV6_DSTOPTS" },
	{ IPPROTO_IPV6, IPV6_NEXTHOP, BY_SETTING, 0, TX, false, "IPV6_NEXTHOP" },
	{ IPPROTO_IPV6, K_IPV6_FLOWINFO_SEND, BY_INT, 0, TX, false, "IPV6_FLOWINFO_SEND" },
	{ IPPROTO_IPV6, IPV6_MTU, BY_SETTING, 0, TX, false, "IPV6_MTU" },
	{ IPPROTO_IPV6, IPV6_DONTFRAG, BY_INT, 0, TX, false, "IPV6_DONTFRAG" },
	{ IPPROTO_IPV6, K_IPV6_ADDR_PREFERENCES, BY_INT, 0x100, TX, false, "IPV6_ADDR_PREFERENCES" },
	{ IPPROTO_IPV6, K_IPV6_UNICAST_IF, BY_INT, 0, TX, false, "IPV6_UNICAST_IF" },
	{ IPPROTO_IPV6, IPV6_RECVHOPOPTS, BY_INT, 0, RX, false, "IPV6_RECVHOPOPTS" },
	{ IPPROTO_IPV6, IPV6_RECVRTHDR, BY_INT, 0, RX, false, "IPV6_RECVRTHDR" },
	{ IPPROTO_IPV6, IPV6_RECVDSTOPTS, BY_INT, 0, RX, false, "IPV6_RECVDSTOPTS" },
	{ IPPROTO_IPV6, IPV6_RECVPATHMTU, BY_INT, 0, RX, false, "IPV6_RECVPATHMTU" },
	{ IPPROTO_IPV6, K_IPV6_FLOWINFO, BY_INT, 0, RX, false, "IPV6_FLOWINFO" },
	{ IPPROTO_IPV6, K_IPV6_TRANSPARENT, BY_INT, 0, RX, false, "IPV6_TRANSPARENT" },
};
_Static_assert(pv_array_size(rows) <= 64, "one bit each");

static const struct row *find(int level, int name)
{
	for (size_t i = 0; i < pv_array_size(rows); i++)
		if (rows[i].level == level && rows[i].name == name)
			return &rows[i];
	return NULL;
}

static bool in_force(const struct pv_sock *so, const struct row *row)
{
	union {
		int number;
		char bytes[256];
	} val = { .number = 0 };
	socklen_t len = row->how == BY_INT ? sizeof(val.number) : sizeof(val);

	if (row->how == BY_SETTING)
		return true;
	if (getsockopt(pv_sock_kfd(so), row->level, row->name, &val, &len) < 0)
		return false;
	return row->how == BY_LENGTH ? len > 0 : val.number != row->off;
}

void pv_opt_kernel_note(struct pv_sock *so, int level, int name)
{
	const struct row *row = find(level, name);

	/* The kernel takes an option off by another name. */
	if (level == SOL_SOCKET && name == SO_DETACH_FILTER) {
		so->kernel_opts &= ~(UINT64_C(1) << (find(SOL_SOCKET, SO_ATTACH_FILTER) - rows));
		so->kernel_opts &= ~(UINT64_C(1) << (find(SOL_SOCKET, SO_ATTACH_BPF) - rows));
		return;
	}
	if (!row)
		return;
	uint64_t bit = UINT64_C(1) << (row - rows);

	so->kernel_opts = in_force(so, row) ? so->kernel_opts | bit : so->kernel_opts & ~bit;
}

bool pv_opt_kernel_is(int level, int name, bool *receives)
{
	const struct row *row = find(level, name);

	*receives = row && row->receives;
	return row != NULL;
}

bool pv_opt_kernel_refused(int level, int name)
{
	const struct row *row = find(level, name);

	return row && row->refused;
}

const char *pv_opt_kernel_reason(const struct pv_sock *so)
{
	return so->kernel_opts ? rows[__builtin_ctzll(so->kernel_opts)].text : NULL;
}
