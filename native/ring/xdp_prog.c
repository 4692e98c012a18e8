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
#include "base/ownfd.h"
#include "ring/frame.h"

/* clang's output for the BPF target, in the library's read-only data. */
__asm__(".pushsection .rodata\n"
	".balign 8\n"
	"pv_xdp_steer_object: .incbin \"" PV_STEER_OBJECT "\"\n"
	"pv_xdp_steer_object_end:\n"
	".balign 8\n"
	"pv_xdp_steer_meta_object: .incbin \"" PV_STEER_META_OBJECT "\"\n"
	"pv_xdp_steer_meta_object_end:\n"
	".popsection\n");
extern const uint8_t pv_xdp_steer_object[], pv_xdp_steer_object_end[] __attribute__((visibility("hidden")));
extern const uint8_t pv_xdp_steer_meta_object[], pv_xdp_steer_meta_object_end[] __attribute__((visibility("hidden")));

/* Linux 6.3: such a program may ask the driver for metadata, and runs on that device only. */
#ifndef BPF_F_XDP_DEV_BOUND_ONLY
#define BPF_F_XDP_DEV_BOUND_ONLY (1U << 6)
#endif

#define RULES_STEP 64u

static int say(char *err, size_t errsize, int rc, const char *what)
{
	const char *hint = rc == -EPERM ? ": needs CAP_BPF and CAP_NET_ADMIN, or root" : "";

	snprintf(err, errsize, "%s: %s%s", what, strerror(-rc), hint);
	return rc;
}

static int prog_load(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize)
{
	const uint8_t *at = r->metadata ? pv_xdp_steer_meta_object : pv_xdp_steer_object;
	const uint8_t *end = r->metadata ? pv_xdp_steer_meta_object_end : pv_xdp_steer_object_end;
	const struct xdp_libbpf *lib = r->lib;
	uint32_t flags = 0;
	void *program;

	r->object = lib->open_mem(at, (size_t)(end - at), NULL);
	if (!r->object)
		return say(err, errsize, -errno, "the XDP program's object");
	program = lib->find_program(r->object, "steer");
	/* Drivers hand frames of several buffers in native mode only to a program that says it can be given them. */
	if (r->jumbo && cfg->mode != PV_XDP_GENERIC)
		flags |= BPF_F_XDP_HAS_FRAGS;
	if (r->metadata)
		flags |= BPF_F_XDP_DEV_BOUND_ONLY;
	if (program && flags)
		lib->program_flags(program, flags);
	if (program && r->metadata)
		lib->program_ifindex(program, (uint32_t)r->ifindex);
	if (lib->load(r->object))
		return say(err, errsize, errno == EPERM || errno == EACCES ? -EPERM : -errno, "loading the XDP program");
	r->prog_fd = program ? lib->program_fd(program) : -1;
	r->rules_fd = lib->find_map_fd(r->object, "rules");
	r->xsks_fd = lib->find_map_fd(r->object, "xsks");
	r->config_fd = lib->find_map_fd(r->object, "config");
	r->few_fd = lib->find_map_fd(r->object, "few");
	r->gate_fd = lib->find_map_fd(r->object, "gate");
	if (r->prog_fd < 0 || r->rules_fd < 0 || r->xsks_fd < 0 || r->config_fd < 0 || r->few_fd < 0 || r->gate_fd < 0)
		return say(err, errsize, -EPROTO, "the XDP program's maps");
	(void)pv_ownfd(r->prog_fd);
	(void)pv_ownfd(lib->btf_fd(r->object));
	(void)pv_ownfd(r->rules_fd);
	(void)pv_ownfd(r->xsks_fd);
	(void)pv_ownfd(r->config_fd);
	(void)pv_ownfd(r->few_fd);
	(void)pv_ownfd(r->gate_fd);
	return 0;
}

static void no_metadata(struct xdp_ring *r, const char *why)
{
	r->metadata = 0;
	snprintf(r->ring.caps.note, sizeof(r->ring.caps.note), "no rx_metadata: %s", why);
}

static bool native_first(const struct xdp_ring *r, const struct pv_xdp_cfg *cfg)
{
	/* veth makes an XDP frame of each socket buffer by a second buffer and a copy, and the other end loses segmentation offload for as
	 * long as the program is there: in generic mode datagrams are quicker, and the kernel's own TCP is not slowed down. */
	return cfg->mode == PV_XDP_NATIVE || (cfg->mode == PV_XDP_AUTO && !r->veth);
}

/* What frames are to come with; 0: nothing, and why. */
static void choose_metadata(struct xdp_ring *r, const struct pv_xdp_cfg *cfg)
{
	struct pv_xdp_features f = { 0 };
	char text[96];
	int rc;

	if (!cfg->rx_metadata)
		return;
	if (!native_first(r, cfg)) {
		no_metadata(r, "generic mode has none (mode=native)");
		return;
	}
	rc = pv_xdp_features(r->ifindex, &f);
	r->metadata = (uint32_t)f.rx_metadata & (XDP_META_STAMP | XDP_META_HASH | XDP_META_VLAN);
	if (rc) {
		snprintf(text, sizeof(text), "the kernel does not say what the driver offers (Linux 6.8): %s", strerror(-rc));
		no_metadata(r, text);
	} else if (!r->metadata) {
		no_metadata(r, "the driver offers none");
	}
}

static void prog_unload(struct xdp_ring *r)
{
	if (r->object) {
		pv_ownfd_not(r->prog_fd);
		pv_ownfd_not(r->lib->btf_fd(r->object));
		pv_ownfd_not(r->rules_fd);
		pv_ownfd_not(r->xsks_fd);
		pv_ownfd_not(r->config_fd);
		pv_ownfd_not(r->few_fd);
		pv_ownfd_not(r->gate_fd);
		r->lib->close(r->object);
	}
	r->object = NULL;
}

int pv_xdp_prog_open(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize)
{
	int rc;

	choose_metadata(r, cfg);
	rc = prog_load(r, cfg, err, errsize);
	if (!rc || !r->metadata || rc == -EPERM)
		return rc;
	no_metadata(r, err);
	prog_unload(r);
	return prog_load(r, cfg, err, errsize);
}

static int attach(struct xdp_ring *r, uint32_t flags)
{
	struct bpf_link_create_opts opts = { .sz = sizeof(opts), .flags = flags };

	return r->lib->link_create(r->prog_fd, r->ifindex, BPF_XDP, &opts);
}

static bool busy(int rc)
{
	return rc == -EBUSY || rc == -EEXIST;
}

/* libxdp calls its programs from one of its own, which is there as long as any of them is. */
static bool is_dispatcher(const struct xdp_ring *r, uint32_t id)
{
	struct bpf_prog_info info = { .type = 0 };
	uint32_t len = sizeof(info);
	int fd = r->lib->fd_by_id(id);
	bool found = fd >= 0 && !r->lib->info(fd, &info, &len) && !strcmp(info.name, "xdp_dispatcher");

	if (fd >= 0)
		close(fd);
	return found;
}

static int attach_failed(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, int rc, char *err, size_t errsize)
{
	uint32_t id = 0;

	if (!busy(rc))
		return say(err, errsize, rc, "attaching the XDP program");
	r->lib->query_id(r->ifindex, 0, &id);
	if (is_dispatcher(r, id))
		/* It would have to be replaced by one that calls ours, too, and stays when we are killed. */
		snprintf(
		    err, errsize,
		    "%s has XDP program %u already, libxdp's dispatcher: what it calls outlives its process, and ours must not; "
		    "take its programs off (xdp-loader unload %s --all)",
		    cfg->ifname, id, cfg->ifname);
	else
		snprintf(err, errsize,
			 "%s has XDP program %u already; take it off (ip link set %s xdp off) or stop who attached it", cfg->ifname,
			 id, cfg->ifname);
	return -EBUSY;
}

static int fill_socks(struct xdp_ring *r, char *err, size_t errsize)
{
	for (uint32_t i = 0; i < r->nsocks; i++) {
		uint32_t queue = r->sock[i].queue_id;
		int rc = r->lib->map_update(r->xsks_fd, &queue, &r->sock[i].fd, 0);

		if (rc)
			return say(err, errsize, rc, "the XDP program's socket map");
	}
	return 0;
}

int pv_xdp_prog_attach(struct xdp_ring *r, const struct pv_xdp_cfg *cfg, char *err, size_t errsize)
{
	int fd = -EOPNOTSUPP, rc = fill_socks(r, err, errsize);

	if (rc)
		return rc;
	if (native_first(r, cfg)) {
		fd = attach(r, XDP_FLAGS_DRV_MODE);
		r->native = fd >= 0;
	}
	/* A program that is bound to the device knows no other mode. */
	if (fd < 0 && r->metadata && !busy(fd)) {
		no_metadata(r, strerror(-fd));
		prog_unload(r);
		rc = prog_load(r, cfg, err, errsize);
		return rc ? rc : pv_xdp_prog_attach(r, cfg, err, errsize);
	}
	if (fd < 0 && cfg->mode != PV_XDP_NATIVE && !busy(fd))
		fd = attach(r, XDP_FLAGS_SKB_MODE);
	if (fd < 0)
		return attach_failed(r, cfg, fd, err, errsize);
	r->link_fd = pv_ownfd(fd);
	return 0;
}

void pv_xdp_prog_close(struct xdp_ring *r)
{
	if (r->link_fd >= 0)
		close(r->link_fd);
	r->link_fd = -1;
	prog_unload(r);
	if (r->rule)
		r->mem->free(r->mem->ctx, r->rule, r->nrules * sizeof(*r->rule));
	r->rule = NULL;
	r->nrules = 0;
	if (r->keeper.close)
		r->keeper.close(r->keeper.ctx);
	memset(&r->keeper, 0, sizeof(r->keeper));
}

static void key_of(const struct pv_flow *flow, struct steer_key *key)
{
	memset(key, 0, sizeof(*key));
	key->kind = (uint8_t)flow->kind;
	if (flow->kind == PV_FLOW_ALL)
		return;
	key->vlan = flow->vlan;
	if (flow->kind <= PV_FLOW_IP)
		memcpy(key->src, flow->dst_mac, PV_ETH_ALEN);
	if (flow->kind == PV_FLOW_ETHER) {
		key->dport = __builtin_bswap16(flow->ethertype);
		return;
	}
	memcpy(key->dst, flow->dst.b, sizeof(key->dst));
	if (flow->kind == PV_FLOW_IP)
		return;
	key->dport = __builtin_bswap16(flow->dst_port);
	key->proto = flow->l4_proto;
	if (flow->kind == PV_FLOW_5TUPLE) {
		memcpy(key->src, flow->src.b, sizeof(key->src));
		key->sport = __builtin_bswap16(flow->src_port);
	}
}

static bool well_formed(const struct pv_flow *flow)
{
	if ((uint32_t)flow->kind >= PV_FLOW_KINDS || flow->vlan > 4094)
		return false;
	if (flow->kind < PV_FLOW_3TUPLE)
		return true;
	if (flow->l4_proto != 6 && flow->l4_proto != 17)
		return false;
	return flow->kind != PV_FLOW_5TUPLE || pv_addr_is4(&flow->src) == pv_addr_is4(&flow->dst);
}

int pv_xdp_config_write(struct xdp_ring *r)
{
	struct steer_config config = { .kinds = 0 };
	uint32_t zero = 0, tuples = r->kind_rules[PV_FLOW_3TUPLE] + r->kind_rules[PV_FLOW_5TUPLE];
	int rc;

	if (r->keeper.add)
		return 0;
	/* The program looks only for kinds of which there is a rule. */
	for (uint32_t i = 0; i < PV_FLOW_KINDS; i++)
		config.kinds |= r->kind_rules[i] ? 1u << i : 0;
	memcpy(config.mac, r->ring.caps.mac, sizeof(config.mac));
	config.few = tuples && tuples == r->nfew && !r->few_stale;
	if (!memcmp(&config, &r->told, sizeof(config)))
		return 0;
	rc = r->lib->map_update(r->config_fd, &zero, &config, 0);
	if (!rc)
		r->told = config;
	return rc;
}

/* ---- rules ------------------------------------------------------------------------------------------------------------- */

/* Takes the place of `was`, if there is one. */
static int few_put(struct xdp_ring *r, const struct steer_key *was, const struct steer_key *key, uint32_t value)
{
	uint32_t i = 0, zero = 0, before;
	int rc;

	while (i < STEER_FEW && memcmp(&r->few.key[i], was, sizeof(*was)))
		i++;
	if (i == STEER_FEW)
		return 0;
	before = r->few.value[i];
	r->few.key[i] = *key;
	r->few.value[i] = value;
	rc = r->lib->map_update(r->few_fd, &zero, &r->few, 0);
	r->few_stale = rc != 0;
	r->nfew += !!value - !!before;
	return rc;
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

static int rule_drop(struct xdp_ring *r, const struct pv_flow *flow)
{
	static const struct steer_key none;
	struct steer_key key;
	int rc, few;

	if (r->keeper.add) {
		r->keeper.del(r->keeper.ctx, flow);
		return 0;
	}
	key_of(flow, &key);
	few = flow->kind < PV_FLOW_3TUPLE ? 0 : few_put(r, &key, &none, 0);
	rc = r->lib->map_delete(r->rules_fd, &key);
	return few ? few : rc;
}

static int rule_put(struct xdp_ring *r, const struct pv_flow *flow)
{
	static const struct steer_key none;
	struct steer_key key;
	uint32_t value = flow->sole ? STEER_SOLE : STEER_RULE;
	int rc;

	if (r->keeper.add)
		return r->keeper.add(r->keeper.ctx, flow);
	key_of(flow, &key);
	rc = r->lib->map_update(r->rules_fd, &key, &value, BPF_NOEXIST);
	if (rc || flow->kind < PV_FLOW_3TUPLE)
		return rc == -E2BIG ? -ENOSPC : rc;
	rc = few_put(r, &none, &key, value);
	if (rc)
		(void)rule_drop(r, flow);
	return rc;
}

int pv_xdp_flow_add(struct pv_ring *ring, const struct pv_flow *flow, uint64_t *handle)
{
	struct xdp_ring *r = (struct xdp_ring *)(void *)ring;
	struct pv_flow whole;
	uint32_t slot;
	int rc;

	if (r->gone)
		return -ENODEV;
	if (!well_formed(flow))
		return -EINVAL;
	if (r->free_rule == UINT32_MAX) {
		rc = rules_grow(r);
		if (rc)
			return rc;
	}
	slot = r->free_rule;
	whole = *flow;
	if (flow->kind == PV_FLOW_ETHER || flow->kind == PV_FLOW_IP)
		pv_frame_flow_mac(flow, r->ring.caps.mac, whole.dst_mac);
	rc = rule_put(r, &whole);
	if (rc)
		return rc;
	r->kind_rules[flow->kind]++;
	rc = pv_xdp_config_write(r);
	if (rc) {
		r->kind_rules[flow->kind]--;
		(void)rule_drop(r, &whole);
		return rc;
	}
	r->free_rule = r->rule[slot].next_free;
	r->rule[slot].flow = whole;
	r->rule[slot].gated = false;
	r->rule[slot].handle = *handle = ++r->next_handle << 32 | slot;
	return 0;
}

int pv_xdp_flow_del(struct pv_ring *ring, uint64_t handle)
{
	struct xdp_ring *r = (struct xdp_ring *)(void *)ring;
	uint32_t slot = (uint32_t)handle;
	struct pv_flow *flow;
	int rc;

	if (slot >= r->nrules || !handle || r->rule[slot].handle != handle)
		return -ENOENT;
	flow = &r->rule[slot].flow;
	rc = rule_drop(r, flow);
	/* A rule that stays in force would take datagrams from whoever has the port next: the program has to go (a process that gave up
	 * its privileges may not change maps before Linux 5.19). */
	if (rc && rc != -ENOENT && !r->gone)
		pv_xdp_set_gone(r);
	r->rule[slot].handle = 0;
	r->rule[slot].next_free = r->free_rule;
	r->free_rule = slot;
	/* A kind that the program goes on looking for, in vain, costs it a lookup and no more, and so does the map. */
	r->kind_rules[flow->kind]--;
	(void)pv_xdp_config_write(r);
	return 0;
}

/* Without the daemon: its rules have no gate. */
static bool has_gate(const struct xdp_ring *r)
{
	return !r->keeper.add && !r->gone;
}

int pv_xdp_flow_gate(struct pv_ring *ring, uint64_t handle, bool gated)
{
	struct xdp_ring *r = (struct xdp_ring *)(void *)ring;
	uint32_t slot = (uint32_t)handle, value = gated ? STEER_GATED : STEER_RULE;
	struct xdp_rule *rule;
	struct steer_key key;
	int rc;

	if (slot >= r->nrules || !handle || r->rule[slot].handle != handle)
		return -ENOENT;
	rule = &r->rule[slot];
	if (!has_gate(r) || rule->flow.kind != PV_FLOW_3TUPLE || rule->flow.l4_proto != 6 || rule->flow.sole)
		return -EOPNOTSUPP;
	if (rule->gated == gated)
		return 0;
	key_of(&rule->flow, &key);
	rc = r->lib->map_update(r->rules_fd, &key, &value, BPF_EXIST);
	if (rc)
		return rc;
	rule->gated = gated;
	if (few_put(r, &key, &key, value))
		(void)pv_xdp_config_write(r);
	return 0;
}

int pv_xdp_gate(struct pv_ring *ring, bool open)
{
	struct xdp_ring *r = (struct xdp_ring *)(void *)ring;
	uint32_t zero = 0, value = open ? STEER_GATE_OPEN : STEER_GATE_SHUT;

	return has_gate(r) ? r->lib->map_update(r->gate_fd, &zero, &value, 0) : -EOPNOTSUPP;
}
