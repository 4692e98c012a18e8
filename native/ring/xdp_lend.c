/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The privileged half of an AF_XDP ring, without the ring: the program in force and sockets in its map. Who gets the sockets registers
 * the UMEM, makes the queues and binds, which takes no privileges; until then the program's redirects to them find nobody.
 */
#include "ring/xdp_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/ownfd.h"
#include "ring/link.h"

static int know_link(struct xdp_ring *r, const struct pv_xdp_cfg *cfg)
{
	struct ifreq ifr = { .ifr_name = { 0 } };
	struct pv_pool_cfg pool;
	char text[8];
	int fd, rc;

	r->ifindex = (int)pv_link_index(cfg->ifname);
	if (!r->ifindex)
		return -ENODEV;
	rc = pv_xdp_pool_cfg(cfg, &pool, text, sizeof(text));
	rc = rc ? rc : pv_xdp_know_driver(r, cfg->ifname);
	if (rc)
		return rc;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", cfg->ifname);
	rc = ioctl(fd, SIOCGIFHWADDR, &ifr) ? -errno : 0;
	memcpy(r->ring.caps.mac, ifr.ifr_hwaddr.sa_data, sizeof(r->ring.caps.mac));
	if (!rc)
		rc = ioctl(fd, SIOCGIFMTU, &ifr) ? -errno : 0;
	/* As the ring finds it: a frame that is longer than a buffer. */
	r->jumbo = !rc && (uint32_t)ifr.ifr_mtu + XDP_FRAME_EXTRA + XDP_RX_HEADROOM > pool.buf_size;
	close(fd);
	return rc;
}

static int make_sockets(struct xdp_ring *r)
{
	for (uint32_t i = 0; i < r->nsocks; i++) {
		r->sock[i].queue_id = i;
		r->sock[i].fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
		if (r->sock[i].fd < 0)
			return -errno;
	}
	return 0;
}

static void pass_on(struct xdp_ring *r, struct pv_xdp_loan *out)
{
	for (uint32_t i = 0; i < r->nsocks; i++) {
		out->sock_fd[i] = r->sock[i].fd;
		pv_ownfd_not(out->sock_fd[i]);
		r->sock[i].fd = -1;
	}
	out->queues = r->nsocks;
	out->link_fd = r->link_fd;
	pv_ownfd_not(out->link_fd);
	r->link_fd = -1;
	out->native = r->native;
	out->metadata = r->metadata;
	memcpy(out->mac, r->ring.caps.mac, sizeof(out->mac));
}

/* The map's fds are closed with the object. */
static int keep_maps(const struct xdp_ring *r, struct pv_xdp_loan *out)
{
	out->rules_fd = fcntl(r->rules_fd, F_DUPFD_CLOEXEC, 0);
	out->config_fd = fcntl(r->config_fd, F_DUPFD_CLOEXEC, 0);
	if (out->rules_fd >= 0 && out->config_fd >= 0)
		return 0;
	if (out->rules_fd >= 0)
		close(out->rules_fd);
	if (out->config_fd >= 0)
		close(out->config_fd);
	out->rules_fd = out->config_fd = -1;
	return -EMFILE;
}

int pv_xdp_lend(const struct pv_xdp_cfg *cfg, struct pv_xdp_loan *out, char *err, size_t errsize)
{
	struct xdp_sock sock[PV_XDP_LOAN_QUEUES];
	struct xdp_ring r = { .link_fd = -1, .sock = sock, .lib = pv_xdp_libbpf(err, errsize) };
	int rc;

	if (!r.lib)
		return -EOPNOTSUPP;
	memset(sock, 0, sizeof(sock));
	for (uint32_t i = 0; i < pv_array_size(sock); i++)
		sock[i].fd = -1;
	rc = know_link(&r, cfg);
	r.nsocks = rc ? 0 : PV_MIN(pv_xdp_queues(cfg), PV_XDP_LOAN_QUEUES);
	rc = rc ? rc : make_sockets(&r);
	if (rc)
		snprintf(err, errsize, "%s: %s", cfg->ifname, strerror(-rc));
	else
		rc = pv_xdp_prog_open(&r, cfg, err, errsize);
	rc = rc ? rc : pv_xdp_prog_attach(&r, cfg, err, errsize);
	if (!rc) {
		rc = pv_xdp_config_write(&r);
		rc = rc ? rc : keep_maps(&r, out);
		if (rc)
			snprintf(err, errsize, "%s: %s", cfg->ifname, strerror(-rc));
	}
	if (!rc)
		pass_on(&r, out);
	pv_xdp_socks_close(&r);
	pv_xdp_prog_close(&r);
	return rc;
}
