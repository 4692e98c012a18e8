/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/port_leg.h"

#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rt/error.h"
#include "rt/log.h"
#include "rt/port_bond.h"

/* Who waits for the device that is at work looks this often. */
#define LOOK_NS 50000
/* A fork waits so long: a library's constructor that forks may have what opening the device waits for. */
#define FORK_MAX_NS PV_NS_PER_S

enum leg_work { LEG_OPEN, LEG_SHUT };

struct pv_leg_job {
	struct pv_list link;
	enum leg_work work;
	bool wanted;
	const struct pv_port_bond *owner; /* NULL: it is closed, and what there was to do is done */
	struct pv_ring *bond; /* LEG_SHUT: whose leg it was; NULL: nobody's */
	struct pv_ring *ring;
	int rc;
	int64_t took_ns;
	char why[256];
	/* LEG_OPEN: what it is opened with. The settings may change meanwhile. */
	struct pv_port view;
	struct pv_config cfg;
};

bool pv_leg_thread(const struct pv_engine *e)
{
	return e->have_thread && !e->progress_stop;
}

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

/* The software NIC's devices are called softnic_FABRIC_PORT. */
static bool of_fabric(const char *device, const char *fabric, uint32_t *port)
{
	static const char stem[] = "softnic_";
	size_t len = strlen(fabric);
	const char *rest = device + sizeof(stem) - 1;
	char *end;

	if (strncmp(device, stem, sizeof(stem) - 1) || strncmp(rest, fabric, len) || rest[len] != '_')
		return false;
	rest += len + 1;
	*port = (uint32_t)strtoul(rest, &end, 10);
	return *rest >= '0' && *rest <= '9' && !*end && *port < 64;
}

/* The leg as a port of its own. */
static int plan(struct pv_port *view, const struct pv_port *p, const struct pv_bond_slave *slave)
{
	const struct pv_ifspec *s = &p->spec;

	memset(view, 0, sizeof(*view));
	view->pool = p->pool;
	view->spec.ring = s->xdp_legs ? PV_IFSPEC_XDP : PV_IFSPEC_VERBS;
	view->spec.mode = s->mode;
	view->spec.queues = s->queues;
	view->spec.port = slave->port;
	view->spec.rx_depth = s->rx_depth;
	view->spec.tx_depth = s->tx_depth;
	snprintf(view->spec.device, sizeof(view->spec.device), "%s", slave->device);
	snprintf(view->spec.lib, sizeof(view->spec.lib), "%s", s->lib);
	snprintf(view->spec.name, sizeof(view->spec.name), "%s", slave->ifname);
	if (!*s->fabric)
		return 0;
	if (!of_fabric(slave->device, s->fabric, &view->spec.port))
		return pv_error(-ENODEV, "%s: %s is no port of the fabric %s", slave->ifname, slave->device, s->fabric);
	view->spec.ring = PV_IFSPEC_SOFTNIC;
	snprintf(view->spec.fabric, sizeof(view->spec.fabric), "%s", s->fabric);
	view->spec.have_mac = slave->have_mac;
	memcpy(view->spec.mac, slave->mac, PV_ETH_ALEN);
	return 0;
}

int pv_leg_open(struct pv_engine *e, const struct pv_port *p, const struct pv_bond_slave *s, struct pv_ring **ring)
{
	struct pv_port view;
	int rc = plan(&view, p, s);

	rc = rc ? rc : pv_port_device_open(&view, e->cfg);
	*ring = rc ? NULL : view.ring;
	return rc;
}

/* ---- what is to be done -------------------------------------------------------------------------------------------------- */

static void later(struct pv_engine *e, struct pv_leg_job *job)
{
	pv_list_add(&e->leg_jobs, &job->link);
	pv_engine_wake(&e->progress);
}

struct pv_leg_job *pv_leg_open_later(struct pv_engine *e, const struct pv_port *p, const struct pv_bond_slave *s)
{
	struct pv_leg_job *job = calloc(1, sizeof(*job));
	int rc = job ? plan(&job->view, p, s) : pv_error(-ENOMEM, "%s: no memory to open it", s->ifname);

	if (!rc) {
		rc = pv_pool_bind_begin(p->pool);
		if (rc < 0)
			(void)pv_error(rc, "%s: too many devices over one interface's buffers", s->ifname);
	}
	if (rc < 0) {
		free(job);
		return NULL;
	}
	job->view.binder = (uint32_t)rc;
	job->cfg = *e->cfg;
	job->work = LEG_OPEN;
	job->wanted = true;
	job->owner = p->bond;
	later(e, job);
	return job;
}

void pv_leg_unwanted(struct pv_leg_job *job)
{
	if (job)
		job->wanted = false;
}

int pv_leg_shut_later(struct pv_engine *e, const struct pv_port *p, struct pv_ring *bond, struct pv_ring *leg)
{
	struct pv_leg_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	job->work = LEG_SHUT;
	job->owner = p->bond;
	job->bond = bond;
	job->ring = leg;
	later(e, job);
	return 0;
}

/* ---- doing it ------------------------------------------------------------------------------------------------------------ */

static int count_loads(struct dl_phdr_info *info, size_t size, void *out)
{
	(void)size;
	*(uint64_t *)out = info->dlpi_adds;
	return 1;
}

static uint64_t loads(void)
{
	uint64_t n = 0;

	(void)dl_iterate_phdr(count_loads, &n);
	return n;
}

/* Without the lock. */
static void work(struct pv_leg_job *job)
{
	int64_t begin = pv_clock_kernel_ns();
	uint64_t before = loads();

	if (job->work == LEG_SHUT) {
		pv_ring_shut(job->ring);
	} else {
		job->rc = pv_port_device_open(&job->view, &job->cfg);
		job->ring = job->view.ring;
		if (job->rc)
			snprintf(job->why, sizeof(job->why), "%s", pv_error_text());
	}
	/* The first device of its kind brings a library, with locks of its own around fork: ours are to be taken before those (rt/fork.c). */
	if (loads() != before)
		pv_fork_setup();
	job->took_ns = pv_clock_kernel_ns() - begin;
}

static void opened(struct pv_engine *e, struct pv_leg_job *job)
{
	struct pv_pool *pool = job->view.pool;

	if (!job->rc && job->wanted) {
		job->rc = pv_pool_bind_end(pool, job->view.binder);
		if (job->rc)
			snprintf(job->why, sizeof(job->why), "%s: memory cannot be registered with its device: %s",
				 job->view.spec.name, strerror(-job->rc));
	}
	if (job->rc && !job->ring)
		pv_pool_unbind(pool, job->view.binder);
	if (job->wanted) {
		pv_log(PV_LOG_DEBUG, "%s: opening its device took %lld us", job->view.spec.name, (long long)job->took_ns / 1000);
		if (job->rc)
			(void)pv_error(job->rc, "%s", job->why);
		pv_port_bond_opened(e, job->owner, job, job->rc ? NULL : job->ring);
	}
	if (job->ring && (job->rc || !job->wanted)) {
		job->work = LEG_SHUT;
		later(e, job);
		return;
	}
	free(job);
}

static void shut(struct pv_engine *e, struct pv_leg_job *job)
{
	pv_log(PV_LOG_DEBUG, "%s: shutting it took %lld us", job->ring->caps.name, (long long)job->took_ns / 1000);
	if (job->bond) {
		pv_bond_leg_end(job->bond, job->ring);
		pv_port_bond_ended(e, job->owner);
	} else {
		pv_ring_close(job->ring);
	}
	free(job);
}

void pv_legs_work(struct pv_engine *e)
{
	while (pv_legs_due(e) && !e->progress_stop) {
		struct pv_leg_job *job = pv_list_entry(e->leg_jobs.next, struct pv_leg_job, link);

		pv_list_del(&job->link);
		e->leg_job = job;
		atomic_store_explicit(&e->leg_busy, true, memory_order_relaxed);
		pv_lock_put(&e->lock);
		work(job);
		/* Who waits for it has the lock, and takes what was done. */
		atomic_store_explicit(&e->leg_busy, false, memory_order_release);
		pv_lock_get(&e->lock);
		e->leg_job = NULL;
		if (!job->owner)
			free(job);
		else if (job->work == LEG_OPEN)
			opened(e, job);
		else
			shut(e, job);
	}
}

/* Of what is done, or will not be: nobody else has it. A leg that was parted with is its bond's to close. */
static void give_up(struct pv_leg_job *job)
{
	job->owner = NULL;
	if (job->work == LEG_OPEN && !job->ring)
		pv_pool_unbind(job->view.pool, job->view.binder);
	else if (!job->bond)
		pv_ring_close(job->ring);
}

static void look_later(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
}

void pv_leg_wait(struct pv_engine *e, const struct pv_port_bond *owner)
{
	pv_list_for_each_safe(it, tmp, &e->leg_jobs) {
		struct pv_leg_job *job = pv_list_entry(it, struct pv_leg_job, link);

		if (job->owner != owner)
			continue;
		pv_list_del(&job->link);
		give_up(job);
		free(job);
	}
	if (!e->leg_job || e->leg_job->owner != owner)
		return;
	while (atomic_load_explicit(&e->leg_busy, memory_order_acquire))
		look_later();
	give_up(e->leg_job);
}

void pv_legs_settle(struct pv_engine *e)
{
	int64_t until = pv_clock_kernel_ns() + FORK_MAX_NS;

	while ((pv_legs_due(e) || e->leg_job) && pv_leg_thread(e) && pv_clock_kernel_ns() < until) {
		pv_lock_put(&e->lock);
		look_later();
		pv_lock_get(&e->lock);
	}
}

/* What was under way is half of something: it is left alone. */
void pv_legs_forget(struct pv_engine *e)
{
	pv_list_init(&e->leg_jobs);
	e->leg_job = NULL;
	atomic_store(&e->leg_busy, false);
}
