/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No stack and no ring: a TAP device read and written by itself, one frame a call, with the vnet header in front. A server only, whose
 * client is the kernel on the device's other end. It answers datagrams, and with --tcp one connection at a time by the least that a
 * peer has to say: whatever comes is copied once and acknowledged. What a TAP device gives at most.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cksum.h"
#include "bench/bench.h"
#include "bench/frame.h"

#define VNET ((uint32_t)sizeof(struct virtio_net_hdr))
#define SLOT 2048u
#define FRAME_MAX 65553u

static const uint8_t own_mac[6] = { 0x02, 0x54, 0x41, 0x50, 0x00, 0x02 };

struct tr {
	int fd;
	uint8_t rx[BENCH_BATCH_MAX][SLOT], tx[SLOT];
	uint32_t len[BENCH_BATCH_MAX];
};

/* ---- datagrams --------------------------------------------------------------------------------------------------------- */

static inline int read_slot(struct tr *t, uint32_t i)
{
	ssize_t n = read(t->fd, t->rx[i], SLOT);

	if (n < 0)
		return -errno;
	t->len[i] = n > VNET ? (uint32_t)n - VNET : 0;
	return 1;
}

static inline uint8_t *tr_msg(struct tr *t, uint32_t i, uint32_t *len)
{
	*len = frame_message(t->rx[i] + VNET, t->len[i]);
	return t->rx[i] + VNET + FRAME_HLEN;
}

static inline int tr_recv(struct tr *t, bool wait, uint8_t **msg, uint32_t *len)
{
	int rc = read_slot(t, 0);

	(void)wait;
	if (rc > 0)
		*msg = tr_msg(t, 0, len);
	return rc;
}

static inline int tr_recv_batch(struct tr *t, uint32_t max)
{
	uint32_t n = 0;
	int rc = 1;

	while (n < max && (rc = read_slot(t, n)) > 0)
		n++;
	return n ? (int)n : rc;
}

static inline int tr_reply(struct tr *t, int i, uint8_t *msg, uint32_t len)
{
	(void)i;
	memset(t->tx, 0, VNET);
	frame_turn(t->tx + VNET, msg - FRAME_HLEN, own_mac, msg, len);
	return write(t->fd, t->tx, VNET + FRAME_HLEN + len) < 0 ? -errno : 0;
}

static inline void tr_done(struct tr *t, uint32_t n)
{
	(void)t;
	(void)n;
}

static inline uint8_t *tr_slot(struct tr *t, uint32_t i)
{
	(void)i;
	return t->tx + VNET + FRAME_HLEN;
}

static inline int tr_flush(struct tr *t, uint32_t n)
{
	(void)t;
	(void)n;
	return -EOPNOTSUPP;
}

#include "bench/loops.h"

/* ---- one connection ---------------------------------------------------------------------------------------------------- */

#define ETH_IP_TCP 54u
#define PIECE 30000u /* of a reply: a segment that is well within any window */

struct sink {
	int fd;
	uint16_t port; /* network order */
	uint32_t size; /* of a message */
	uint32_t snd_nxt, rcv_nxt;
	uint64_t bytes;
	uint32_t owed; /* of a reply, bytes that were not sent yet */
	uint8_t head[MSG_HLEN]; /* of the message that is coming */
	uint8_t in[VNET + FRAME_MAX], out[VNET + FRAME_MAX];
};

/* What was received turned round, with `len` bytes of payload behind it. */
static int answer(struct sink *s, uint8_t flags, uint32_t len)
{
	struct virtio_net_hdr *h = (struct virtio_net_hdr *)(void *)s->out;
	uint8_t *f = s->out + VNET, *tcp = f + 34;
	const uint8_t *in = s->in + VNET;
	uint32_t opts = flags & 2 ? 8 : 0, src, dst;

	memset(h, 0, VNET);
	memcpy(f, in + 6, 6);
	memcpy(f + 6, own_mac, 6);
	memcpy(f + 12, in + 12, 14);
	pv_put16(f + 16, (uint16_t)(40 + opts + len));
	pv_put16(f + 18, 0);
	pv_put16(f + 20, 0x4000);
	memcpy(f + 26, in + 30, 4);
	memcpy(f + 30, in + 26, 4);
	pv_cksum_put(f + 24, 0);
	pv_cksum_put(f + 24, pv_cksum_finish(pv_cksum_ip4_header(f + 14)));
	memcpy(tcp, in + 36, 2);
	memcpy(tcp + 2, in + 34, 2);
	pv_put32(tcp + 4, s->snd_nxt);
	pv_put32(tcp + 8, s->rcv_nxt);
	tcp[12] = (uint8_t)((20 + opts) / 4 << 4);
	tcp[13] = flags;
	pv_put16(tcp + 14, 0xffff);
	pv_put32(tcp + 16, 0);
	if (opts)
		memcpy(tcp + 20, "\x02\x04\x05\xb4\x01\x03\x03\x08", 8); /* MSS 1460, window scale 8 */
	memcpy(&src, f + 26, 4);
	memcpy(&dst, f + 30, 4);
	pv_cksum_put(tcp + 16, pv_cksum_fold(pv_cksum_pseudo4(src, dst, 6, 20 + opts + len)));
	h->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	h->csum_start = 34;
	h->csum_offset = 16;
	if (len > 1460) {
		h->gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
		h->gso_size = 1460;
		h->hdr_len = ETH_IP_TCP;
	}
	s->snd_nxt += len + (flags & 3 ? 1 : 0);
	return write(s->fd, s->out, VNET + ETH_IP_TCP + opts + len) < 0 ? -errno : 0;
}

/* A piece more of the reply, each once the one before is acknowledged. */
static int reply(struct sink *s)
{
	uint32_t n = PV_MIN(s->owed, PIECE);

	memset(s->out + VNET + ETH_IP_TCP, 0, n);
	if (s->owed == s->size)
		memcpy(s->out + VNET + ETH_IP_TCP, s->head, MSG_HLEN);
	s->owed -= n;
	return answer(s, 0x18, n);
}

/* The stream is messages of one size; what is in their headers is looked at. */
static int stream(struct sink *s, const uint8_t *data, uint32_t len, struct bench_result *r)
{
	int rc = 0;

	r->end = bench_ticks();
	if (!r->start)
		r->start = r->end;
	while (len && !rc) {
		uint32_t at = (uint32_t)(s->bytes % s->size), n = PV_MIN(len, s->size - at);

		for (uint32_t i = at; i < MSG_HLEN && i < at + n; i++)
			s->head[i] = data[i - at];
		data += n;
		len -= n;
		s->bytes += n;
		if (s->bytes % s->size)
			break;
		r->received++;
		seen_add(&r->seen, msg_seq(s->head));
		if (pv_get16(s->head + 8) & MSG_PONG) {
			s->head[9] &= (uint8_t)~MSG_CLIENT;
			s->owed = s->size;
			rc = reply(s);
		}
	}
	return rc;
}

static int segment(struct sink *s, uint32_t have, struct bench_result *r)
{
	const uint8_t *f = s->in + VNET, *tcp = f + 34;
	uint32_t len, hlen;
	uint8_t flags;
	int rc = 0;

	if (have < ETH_IP_TCP || pv_get16(f + 12) != 0x0800 || f[14] != 0x45 || f[23] != 6 || memcmp(tcp + 2, &s->port, 2) != 0)
		return 0;
	hlen = (tcp[12] >> 4) * 4u;
	if (pv_get16(f + 16) < 20 + hlen || 14u + pv_get16(f + 16) > have)
		return 0;
	len = pv_get16(f + 16) - 20u - hlen;
	flags = tcp[13];
	if (flags & 2) {
		s->rcv_nxt = pv_get32(tcp + 4) + 1;
		s->snd_nxt = 1;
		s->bytes = s->owed = 0;
		seen_restart(&r->seen);
		return answer(s, 0x12, 0);
	}
	if (pv_get32(tcp + 4) != s->rcv_nxt)
		return len ? answer(s, 0x10, 0) : 0;
	s->rcv_nxt += len;
	if (s->owed && pv_get32(tcp + 8) == s->snd_nxt)
		rc = reply(s);
	if (len && !rc)
		rc = stream(s, tcp + hlen, len, r);
	if (flags & 1) {
		s->rcv_nxt++;
		return rc ? rc : answer(s, 0x11, 0);
	}
	return rc || !len ? rc : answer(s, 0x10, 0);
}

static int run_sink(int fd, const struct bench_opts *o, struct bench_result *r)
{
	static struct sink s;

	s.fd = fd;
	s.size = o->size;
	s.port = ((const struct sockaddr_in *)(const void *)&o->local)->sin_port;
	while (!bench_stop) {
		ssize_t n = read(fd, s.in, sizeof(s.in));
		int rc = n > VNET ? segment(&s, (uint32_t)n - VNET, r) : n < 0 && errno != EAGAIN && errno != EINTR ? -errno : 0;

		if (rc)
			return bench_fail("tap", rc);
	}
	return 0;
}

/* ---- the device -------------------------------------------------------------------------------------------------------- */

static int open_tap(const char *name)
{
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), size = (int)VNET;
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };

	if (fd < 0)
		return -errno;
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	if (!ioctl(fd, TUNSETIFF, &ifr) && !ioctl(fd, TUNSETVNETHDRSZ, &size) &&
	    !ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6))
		return fd;
	size = -errno;
	close(fd);
	return size;
}

int bench_run_tap(const struct bench_opts *o, struct bench_result *r)
{
	static struct tr t;
	int rc;

	if (!o->device || o->role != ROLE_SERVER || o->local.ss_family != AF_INET)
		return bench_fail("raw: of a TAP device there is a server only: --device and --local (IPv4) are needed", 0);
	t.fd = open_tap(o->device);
	if (t.fd < 0)
		return bench_fail(o->device, t.fd);
	bench_ready(o, own_mac);
	rc = o->tcp ? run_sink(t.fd, o, r) : run_role(&t, o, r);
	close(t.fd);
	return rc;
}
