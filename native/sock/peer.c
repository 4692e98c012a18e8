/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments in a peer's name, which the kernel gets by the loopback interface: from a raw socket, as if they had come late. */
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "sock/handback.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"

static int send_raw(const struct pv_tcp_export *x, const uint8_t *packet, uint32_t len)
{
	bool v4 = pv_addr_is4(&x->local.addr);
	struct sockaddr_storage ss;
	struct pv_endpoint to = { .addr = x->local.addr };
	socklen_t size = pv_addr_format(v4 ? AF_INET : AF_INET6, &to, &ss, sizeof(ss));
	int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW), rc;

	if (fd < 0)
		return -errno;
	rc = sendto(fd, packet, len, MSG_DONTWAIT, (struct sockaddr *)&ss, size) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

int pv_peer_segment(const struct pv_tcp_export *x, uint8_t flags, uint32_t seq, uint32_t ack, const void *data, uint32_t len)
{
	struct pv_wire_tcp h = { .src_port = x->remote.port,
				 .dst_port = x->local.port,
				 .seq = seq,
				 .ack = ack,
				 .wnd = (uint16_t)PV_MIN(x->snd_wnd >> x->snd_wscale, UINT16_MAX),
				 .hlen = PV_TCP_HLEN,
				 .flags = flags | PV_TH_ACK };
	bool v4 = pv_addr_is4(&x->local.addr);
	uint32_t ip = v4 ? PV_IP4_HLEN : PV_IP6_HLEN, segment = PV_TCP_HLEN + len;
	uint8_t packet[PV_IP6_HLEN + PV_TCP_HLEN + PV_PEER_SEGMENT_MAX];
	uint64_t sum;

	if (v4)
		pv_wire_ip4_emit(packet, &(struct pv_wire_ip4){ .src = x->remote.addr.w[3],
								.dst = x->local.addr.w[3],
								.total_len = (uint16_t)(ip + segment),
								.hdr_len = (uint8_t)ip,
								.ttl = 64,
								.proto = IPPROTO_TCP });
	else
		pv_wire_ip6_emit(packet, &(struct pv_wire_ip6){ .src = x->remote.addr.b,
								.dst = x->local.addr.b,
								.payload_len = (uint16_t)segment,
								.hops = 64,
								.next = IPPROTO_TCP });
	if (v4)
		pv_wire_ip4_csum_fill(packet, ip);
	memset(packet + ip, 0, PV_TCP_HLEN);
	pv_wire_tcp_emit(packet + ip, &h);
	if (len)
		memcpy(packet + ip + PV_TCP_HLEN, data, len);
	sum = pv_cksum_pseudo(&x->remote.addr, &x->local.addr, IPPROTO_TCP, segment);
	pv_cksum_put(packet + ip + PV_TCP_CSUM_OFF, pv_cksum_finish(pv_cksum_add(packet + ip, segment, sum)));
	return send_raw(x, packet, ip + segment);
}
