/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The XDP program: loaded from the object that the build embeds, attached by a bpf_link whose only reference is our fd, and its map of
 * rules.
 */
#include "ring/xdp_priv.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "ring/bpf/steer.h"

/* clang's output for the BPF target, in the library's read-only data. */
__asm__(".pushsection .rodata\n"
	".balign 8\n"
	"pv_xdp_steer_object: .incbin \"" PV_STEER_OBJECT "\"\n"
	"pv_xdp_steer_object_end:\n"
	".popsection\n");
extern const uint8_t pv_xdp_steer_object[], pv_xdp_steer_object_end[] __attribute__((visibility("hidden")));

#define RULES_STEP 64u

static int say(char *err, size_t errsize, int rc, const char *what)
{
	const char *hint = rc == -EPERM ? ": needs CAP_BPF and CAP_NET_ADMIN, or root" : "";

	snprintf(err, errsize, "%s: %s%s", what, strerror(-rc), hint);
	return rc;
}

int pv_xdp_prog_open(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize)
{
	const struct xdp_libbpf *lib = r->lib;
	void *program;

	(void)cfg;
	r->object = lib->open_mem(pv_xdp_steer_object, (size_t)(pv_xdp_steer_object_end - pv_xdp_steer_object), NULL);
	if (!r->object)
		return say(err, errsize, -errno, "the XDP program's object");
	if (lib->load(r->object))
		return say(err, errsize, errno == EPERM || errno == EACCES ? -EPERM : -errno, "loading the XDP program");
	program = lib->find_program(r->object, "steer");
	r->prog_fd = program ? lib->program_fd(program) : -1;
	r->rules_fd = lib->find_map_fd(r->object, "rules");
	r->xsks_fd = lib->find_map_fd(r->object, "xsks");
	if (r->prog_fd < 0 || r->rules_fd < 0 || r->xsks_fd < 0)
		return say(err, errsize, -EPROTO, "the XDP program's maps");
	return 0;
}

static int attach(struct xdp_ring *r, uint32_t flags)
{
	struct bpf_link_create_opts opts = { .sz = sizeof(opts), .flags = flags };

	return r->lib->link_create(r->prog_fd, r->ifindex, BPF_XDP, &opts);
}

static int attach_failed(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, int rc, char *err, size_t errsize)
{
	uint32_t id = 0;

	if (rc != -EBUSY && rc != -EEXIST)
		return say(err, errsize, rc, "attaching the XDP program");
	r->lib->query_id(r->ifindex, 0, &id);
	snprintf(err, errsize, "%s has XDP program %u already; take it off (ip link set %s xdp off) or stop who attached it",
		 cfg->ifname, id, cfg->ifname);
	return -EBUSY;
}

int pv_xdp_prog_attach(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize)
{
	int fd = -EOPNOTSUPP;

	for (uint32_t i = 0; i < r->nsocks; i++) {
		uint32_t queue = r->sock[i].queue_id;
		int rc = r->lib->map_update(r->xsks_fd, &queue, &r->sock[i].fd, 0);

		if (rc)
			return say(err, errsize, rc, "the XDP program's socket map");
	}
	if (cfg->mode != PV_XDP_GENERIC) {
		fd = attach(r, XDP_FLAGS_DRV_MODE);
		r->native = fd >= 0;
	}
	if (fd < 0 && cfg->mode != PV_XDP_NATIVE && fd != -EBUSY && fd != -EEXIST)
		fd = attach(r, XDP_FLAGS_SKB_MODE);
	if (fd < 0)
		return attach_failed(r, cfg, fd, err, errsize);
	r->link_fd = fd;
	return 0;
}

void pv_xdp_prog_close(struct xdp_ring *r)
{
	if (r->link_fd >= 0)
		close(r->link_fd);
	r->link_fd = -1;
	if (r->object)
		r->lib->close(r->object);
	r->object = NULL;
	if (r->rule)
		r->mem->free(r->mem->ctx, r->rule, r->nrules * sizeof(*r->rule));
	r->rule = NULL;
	r->nrules = 0;
}

static void key_of(const struct pv_flow *flow, struct steer_key *key)
{
	memset(key, 0, sizeof(*key));
	memcpy(key->dst, flow->dst.b, sizeof(key->dst));
	key->dport = __builtin_bswap16(flow->dst_port);
	key->vlan = flow->vlan;
	key->proto = flow->l4_proto;
	if (flow->kind == PV_FLOW_5TUPLE) {
		memcpy(key->src, flow->src.b, sizeof(key->src));
		key->sport = __builtin_bswap16(flow->src_port);
	}
}

static int rules_grow(struct xdp_ring *r)
{
	uint32_t n = r->nrules ? r->nrules * 2 : RULES_STEP;
	struct xdp_rule *rule = r->mem->alloc(r->mem->ctx, n * sizeof(*rule));

	if (!rule)
		return -ENOMEM;
	if (r->rule) {
		memcpy(rule, r->rule, r->nrules * sizeof(*rule));
		r->mem->free(r->mem->ctx, r->rule, r->nrules * sizeof(*rule));
	}
	for (uint32_t i = n; i-- > r->nrules;) {
		rule[i].next_free = r->free_rule;
		r->free_rule = i;
	}
	r->rule = rule;
	r->nrules = n;
	return 0;
}

int pv_xdp_flow_add(struct pv_ring *ring, const struct pv_flow *flow, uint64_t *handle)
{
	struct xdp_ring *r = (struct xdp_ring *)ring;
	struct steer_key key;
	uint32_t one = 1, slot;
	int rc;

	if (r->gone)
		return -ENODEV;
	if (r->free_rule == UINT32_MAX) {
		rc = rules_grow(r);
		if (rc)
			return rc;
	}
	slot = r->free_rule;
	key_of(flow, &key);
	rc = r->lib->map_update(r->rules_fd, &key, &one, BPF_NOEXIST);
	if (rc)
		return rc == -E2BIG ? -ENOSPC : rc;
	r->free_rule = r->rule[slot].next_free;
	r->rule[slot].flow = *flow;
	r->rule[slot].handle = *handle = ++r->next_handle << 32 | slot;
	return 0;
}

int pv_xdp_flow_del(struct pv_ring *ring, uint64_t handle)
{
	struct xdp_ring *r = (struct xdp_ring *)ring;
	uint32_t slot = (uint32_t)handle;
	struct steer_key key;

	if (slot >= r->nrules || !handle || r->rule[slot].handle != handle)
		return -ENOENT;
	key_of(&r->rule[slot].flow, &key);
	r->rule[slot].handle = 0;
	r->rule[slot].next_free = r->free_rule;
	r->free_rule = slot;
	return r->lib->map_delete(r->rules_fd, &key);
}
