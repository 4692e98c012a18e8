/* SPDX-License-Identifier: BSD-3-Clause */
/* The program that puts connections on a listener's queue: loaded from the object that the build embeds, attached by a bpf_link of ours. */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ownfd.h"
#include "ring/bpf/enqueue.h"
#include "ring/enqueue.h"
#include "ring/xdp_priv.h"

__asm__(".pushsection .rodata\n"
	".balign 8\n"
	"pv_xdp_enqueue_object: .incbin \"" PV_ENQUEUE_OBJECT "\"\n"
	"pv_xdp_enqueue_object_end:\n"
	".popsection\n");
extern const uint8_t pv_xdp_enqueue_object[], pv_xdp_enqueue_object_end[] __attribute__((visibility("hidden")));

/* Linux 6.6; later than the headers that this is built with. */
#define TCX_INGRESS 46
/* Of every network namespace. */
#define LOOPBACK_IFINDEX 1
#define MSS_MIN4 536
#define MSS_MIN6 1220

struct pv_enqueue {
	const struct xdp_libbpf *lib;
	struct bpf_object *object;
	int prog_fd, map_fd, link_fd;
};

static int say(char *err, size_t errsize, int rc, const char *what)
{
	const char *hint = rc == -EPERM ? ": needs CAP_BPF and CAP_NET_ADMIN, or root" : "";

	snprintf(err, errsize, "%s: %s%s", what, strerror(-rc), hint);
	return rc;
}

static int load(struct pv_enqueue *q, char *err, size_t errsize)
{
	const struct xdp_libbpf *lib = q->lib;
	void *program;

	q->object = lib->open_mem(pv_xdp_enqueue_object, (size_t)(pv_xdp_enqueue_object_end - pv_xdp_enqueue_object), NULL);
	if (!q->object)
		return say(err, errsize, -errno, "the program's object");
	if (lib->load(q->object)) {
		if (errno == EPERM || errno == EACCES)
			return say(err, errsize, -EPERM, "loading the program");
		snprintf(err, errsize, "loading the program, which needs Linux 6.9: %s", strerror(errno));
		return -EOPNOTSUPP;
	}
	program = lib->find_program(q->object, "enqueue");
	q->prog_fd = program ? lib->program_fd(program) : -1;
	q->map_fd = lib->find_map_fd(q->object, "wanted");
	if (q->prog_fd < 0 || q->map_fd < 0)
		return say(err, errsize, -EPROTO, "the program's map");
	(void)pv_ownfd(q->prog_fd);
	(void)pv_ownfd(q->map_fd);
	(void)pv_ownfd(lib->btf_fd(q->object));
	q->link_fd = lib->link_create(q->prog_fd, LOOPBACK_IFINDEX, TCX_INGRESS, NULL);
	if (q->link_fd < 0)
		return say(err, errsize, q->link_fd, "attaching the program to the loopback interface");
	(void)pv_ownfd(q->link_fd);
	return 0;
}

int pv_enqueue_open(struct pv_enqueue **out, char *err, size_t errsize)
{
	const struct xdp_libbpf *lib = pv_xdp_libbpf(err, errsize);
	struct pv_enqueue *q;
	int rc;

	*out = NULL;
	if (!lib)
		return -EOPNOTSUPP;
	q = malloc(sizeof(*q));
	if (!q)
		return say(err, errsize, -ENOMEM, "the program");
	*q = (struct pv_enqueue){ .lib = lib, .prog_fd = -1, .map_fd = -1, .link_fd = -1 };
	rc = load(q, err, errsize);
	if (rc)
		pv_enqueue_close(q);
	else
		*out = q;
	return rc;
}

void pv_enqueue_close(struct pv_enqueue *q)
{
	if (q->link_fd >= 0)
		close(q->link_fd);
	if (q->object) {
		pv_ownfd_not(q->prog_fd);
		pv_ownfd_not(q->map_fd);
		pv_ownfd_not(q->lib->btf_fd(q->object));
		q->lib->close(q->object);
	}
	free(q);
}

int pv_enqueue_want(struct pv_enqueue *q, const struct pv_enqueue_conn *c)
{
	uint16_t mss_min = pv_addr_is4(&c->local) ? MSS_MIN4 : MSS_MIN6;
	struct enqueue_conn v = {
		.lport = htons(c->lport),
		.rport = htons(c->rport),
		.state = ENQUEUE_WANTED,
		.attrs = { .rcv_tsval = c->ts_recent,
			   .rcv_tsecr = c->ts_val,
			   .mss = PV_MAX(c->mss, mss_min),
			   .rcv_wscale = c->rcv_wscale,
			   .snd_wscale = c->snd_wscale,
			   .wscale_ok = c->snd_wscale || c->rcv_wscale,
			   .sack_ok = c->sack,
			   .tstamp_ok = c->timestamps },
	};
	uint32_t zero = 0;

	memcpy(v.local, c->local.b, sizeof(v.local));
	memcpy(v.remote, c->remote.b, sizeof(v.remote));
	return q->lib->map_update(q->map_fd, &zero, &v, 0);
}

bool pv_enqueue_done(struct pv_enqueue *q)
{
	struct enqueue_conn v = { .state = ENQUEUE_NONE };
	uint32_t zero = 0;
	bool done = !q->lib->map_lookup(q->map_fd, &zero, &v) && v.state == ENQUEUE_DONE;

	v.state = ENQUEUE_NONE;
	(void)q->lib->map_update(q->map_fd, &zero, &v, 0);
	return done;
}
