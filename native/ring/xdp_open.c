/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening an AF_XDP ring: what the interface is, the pool as UMEM, sockets, program, capabilities; and its end. */
#include "ring/xdp_priv.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "ring/link.h"
#include "ring/own.h"

#define BUF_SMALL 2048u
#define BUF_LARGE 4096u
#define MTU_MAX 9216u
#define TX_PIECES 4u /* buffers of a frame sent: what the largest MTU needs, and one more */

void pv_xdp_release(struct xdp_ring *r)
{
	pv_xdp_socks_close(r);
	if (r->epoll_fd >= 0)
		close(r->epoll_fd);
	pv_xdp_whole_close(r);
	pv_xdp_prog_close(r);
	if (r->sock)
		r->mem->free(r->mem->ctx, r->sock, r->nsocks * sizeof(*r->sock));
	if (r->held)
		r->mem->free(r->mem->ctx, r->held, r->held_size);
	pv_ring_stat_close(&r->ring, r->mem);
	r->mem->free(r->mem->ctx, r, sizeof(*r));
}

/* The pool's first and only chunk becomes the UMEM. */
static int map_pool(void *ctx, void *base, size_t size, uint32_t *key)
{
	struct xdp_ring *r = ctx;

	if (r->umem)
		return -EOPNOTSUPP;
	r->umem = base;
	r->umem_size = size;
	*key = 0;
	return 0;
}

static void unmap_pool(void *ctx, void *base, size_t size, uint32_t key)
{
	(void)ctx;
	(void)base;
	(void)size;
	(void)key;
}

static int ask(const char *ifname, unsigned long request, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	memset(ifr, 0, sizeof(*ifr));
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", ifname);
	rc = ioctl(fd, request, ifr) ? -errno : 0;
	close(fd);
	return rc;
}

uint32_t pv_xdp_queues(const struct pv_xdp_cfg *cfg)
{
	uint32_t channels = pv_xdp_channels(cfg->ifname);

	return cfg->queues ? PV_MIN(cfg->queues, channels) : channels;
}

int pv_xdp_pool_cfg(const struct pv_xdp_cfg *cfg, struct pv_pool_cfg *out, char *err, size_t errsize)
{
	struct ifreq ifr;
	int rc = pv_link_index(cfg->ifname) ? ask(cfg->ifname, SIOCGIFMTU, &ifr) : -ENODEV;

	if (rc) {
		snprintf(err, errsize, "%s%s: %s", rc == -ENODEV ? "no interface is called " : "", cfg->ifname, strerror(-rc));
		return rc;
	}
	if ((uint32_t)ifr.ifr_mtu > MTU_MAX) {
		snprintf(err, errsize, "%s has an MTU of %d; AF_XDP carries at most %u", cfg->ifname, ifr.ifr_mtu, MTU_MAX);
		return -EOPNOTSUPP;
	}
	out->buf_size = (uint32_t)ifr.ifr_mtu + XDP_FRAME_EXTRA + XDP_RX_HEADROOM > BUF_SMALL ? BUF_LARGE : BUF_SMALL;
	out->headroom = XDP_RX_HEADROOM;
	out->chunk = 0;
	return 0;
}

static int fill_caps(struct xdp_ring *r, const struct pv_xdp_cfg *cfg)
{
	struct pv_ring_caps *c = &r->ring.caps;
	const char *csum;
	struct ifreq ifr;
	int rc = ask(cfg->ifname, SIOCGIFHWADDR, &ifr);

	if (rc)
		return rc;
	memcpy(c->mac, ifr.ifr_hwaddr.sa_data, sizeof(c->mac));
	rc = ask(cfg->ifname, SIOCGIFMTU, &ifr);
	if (rc)
		return rc;
	c->mtu = (uint32_t)ifr.ifr_mtu;
	rc = ask(cfg->ifname, SIOCGIFFLAGS, &ifr);
	if (rc)
		return rc;
	/* Frames go by an interface that is up; whether they arrive is for who follows its carrier. */
	c->link_up = ifr.ifr_flags & (r->own_link ? IFF_UP : IFF_RUNNING);
	c->rx_buf_min = (1u << r->buf_shift);
	c->rx_depth = r->sock->rx.size * r->nsocks;
	c->tx_depth = r->sock->tx.size;
	c->batch = PV_RING_BATCH_MAX;
	c->max_sge = r->pieces = r->jumbo ? TX_PIECES : 1;
	pv_xdp_whole_open(r, cfg);
	c->flow_kinds = cfg->loan ? 1u << PV_FLOW_3TUPLE | 1u << PV_FLOW_5TUPLE : (1u << PV_FLOW_KINDS) - 1;
	c->queues = r->nsocks;
	/* Generic mode sees what the kernel's offloads made of the frames, with the checksum of a packet still to be sent. */
	r->csum_partial = r->virtual_link || !r->native;
	c->host_first = true;
	c->rx_partial = r->nsocks < pv_xdp_channels(cfg->ifname);
	pv_xdp_moderation(cfg->ifname, c);
	snprintf(c->name, sizeof(c->name), "xdp:%s", cfg->ifname);
	c->tstamp = r->metadata & XDP_META_STAMP ? PV_TSTAMP_REALTIME : PV_TSTAMP_NONE;
	csum = pv_xdp_csum_decide(r, cfg->tx_csum, r->zero_copy, pv_xdp_device_csum(cfg->ifname));
	snprintf(c->mode, sizeof(c->mode), "%s %s%s%s%s", r->native ? "native" : "generic", r->zero_copy ? "zero-copy" : "copy",
		 r->metadata ? ", metadata" : "", csum ? ", checksums by " : "", csum ? csum : "");
	return 0;
}

/* One fd for several sockets. A lone socket is its own: in an epoll set it would have somebody to wake for each frame that comes and
 * each that has left, though nobody is there while the ring is polled. */
static int open_epoll(struct xdp_ring *r)
{
	if (r->nsocks == 1)
		return 0;
	r->epoll_fd = pv_ownfd(epoll_create1(EPOLL_CLOEXEC));
	if (r->epoll_fd < 0)
		return -errno;
	for (uint32_t i = 0; i < r->nsocks; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.u32 = i };

		if (epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->sock[i].fd, &ev))
			return -errno;
	}
	return 0;
}

/* The fds that somebody else made. */
static void take_loan(struct xdp_ring *r, const struct pv_xdp_cfg *cfg)
{
	if (!cfg->loan)
		return;
	for (uint32_t i = 0; i < r->nsocks; i++)
		r->sock[i].fd = cfg->loan->sock_fd[i];
	r->link_fd = pv_ownfd(cfg->loan->link_fd);
	r->native = cfg->loan->native;
	r->metadata = cfg->loan->metadata ? XDP_META_STAMP | XDP_META_HASH | XDP_META_VLAN : 0;
	if (cfg->rx_metadata && !r->metadata)
		snprintf(r->ring.caps.note, sizeof(r->ring.caps.note),
			 "no rx_metadata: pyvmad's program is not bound to the device");
	r->lent = true;
}

static int allocate(struct xdp_ring *r, const struct pv_xdp_cfg *cfg)
{
	r->nsocks = cfg->loan ? cfg->loan->queues : pv_xdp_queues(cfg);
	r->held_size = pv_pool_config(r->ring.pool)->count;
	r->sock = r->mem->alloc(r->mem->ctx, r->nsocks * sizeof(*r->sock));
	r->held = r->mem->alloc(r->mem->ctx, r->held_size);
	/* From here on release() may look at them. */
	for (uint32_t i = 0; r->sock && i < r->nsocks; i++)
		r->sock[i].fd = -1;
	if (!r->sock || !r->held)
		return -ENOMEM;
	take_loan(r, cfg);
	return 0;
}

static int bring_up(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize)
{
	const struct pv_pool_cfg *pool = pv_pool_config(r->ring.pool);
	struct ifreq ifr;
	int rc;

	if (pool->buf_size != BUF_SMALL && pool->buf_size != BUF_LARGE) {
		snprintf(err, errsize, "an AF_XDP ring needs a pool with buffers of %u or %u bytes", BUF_SMALL, BUF_LARGE);
		return -EINVAL;
	}
	r->buf_shift = pool->buf_size == BUF_SMALL ? 11 : 12;
	r->ifindex = (int)pv_link_index(cfg->ifname);
	if (!r->ifindex) {
		snprintf(err, errsize, "no interface is called %s", cfg->ifname);
		return -ENODEV;
	}
	rc = ask(cfg->ifname, SIOCGIFMTU, &ifr);
	r->jumbo = !rc && (uint32_t)ifr.ifr_mtu + XDP_FRAME_EXTRA + XDP_RX_HEADROOM > pool->buf_size;
	rc = rc ? rc : pv_xdp_know_driver(r, cfg->ifname);
	rc = rc ? rc : allocate(r, cfg);
	if (!rc)
		rc = cfg->binder ? pv_pool_bind_map(r->ring.pool, cfg->binder, map_pool, unmap_pool, r)
				 : pv_pool_bind(r->ring.pool, map_pool, unmap_pool, r);
	if (rc < 0) {
		snprintf(err, errsize, "%s: %s", cfg->ifname, strerror(-rc));
		return rc;
	}
	r->ring.binder = cfg->binder ? cfg->binder : (uint32_t)rc;
	rc = cfg->loan ? 0 : pv_xdp_prog_open(r, cfg, err, errsize);
	rc = rc ? rc : pv_xdp_socks_open(r, cfg, err, errsize);
	rc = rc || cfg->loan ? rc : pv_xdp_prog_attach(r, cfg, err, errsize);
	if (rc)
		return rc;
	rc = open_epoll(r);
	rc = rc ? rc : fill_caps(r, cfg);
	rc = rc || cfg->loan ? rc : pv_xdp_config_write(r);
	if (rc)
		snprintf(err, errsize, "%s: %s", cfg->ifname, strerror(-rc));
	return rc;
}

static void drop_loan(const struct pv_xdp_loan *loan)
{
	if (!loan)
		return;
	for (uint32_t i = 0; i < loan->queues; i++)
		close(loan->sock_fd[i]);
	close(loan->link_fd);
}

int pv_xdp_open(struct pv_ring **out, const struct pv_mem *mem, struct pv_pool *pool, const struct pv_xdp_cfg *cfg, char *err,
		size_t errsize)
{
	const struct xdp_libbpf *lib = cfg->loan ? NULL : pv_xdp_libbpf(err, errsize);
	struct xdp_ring *r;
	int rc;

	if (!lib && !cfg->loan)
		return -EOPNOTSUPP;
	r = mem->alloc(mem->ctx, sizeof(*r));
	if (r && pv_ring_stat_open(&r->ring, mem)) {
		mem->free(mem->ctx, r, sizeof(*r));
		r = NULL;
	}
	if (!r) {
		snprintf(err, errsize, "%s: %s", cfg->ifname, strerror(ENOMEM));
		drop_loan(cfg->loan);
		return -ENOMEM;
	}
	r->ring.ops = &pv_xdp_ops;
	r->ring.pool = pool;
	r->own_link = cfg->own_link;
	r->link_told = true;
	r->mem = mem;
	r->lib = lib;
	r->epoll_fd = r->link_fd = r->whole_fd = -1;
	r->free_rule = UINT32_MAX;
	pv_pktq_init(&r->done);
	rc = bring_up(r, cfg, err, errsize);
	if (rc) {
		if (!cfg->binder)
			pv_pool_unbind(pool, r->ring.binder);
		if (!r->lent)
			drop_loan(cfg->loan);
		pv_xdp_release(r);
		return rc;
	}
	if (cfg->keeper)
		r->keeper = *cfg->keeper;
	*out = &r->ring;
	return 0;
}
