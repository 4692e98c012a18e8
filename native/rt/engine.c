/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop, and telling waiters what the stack found. */
#include "rt/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/agent.h"
#include "rt/control.h"
#include "rt/error.h"
#include "rt/host.h"
#include "rt/libc.h"
#include "rt/log.h"
#include "rt/mem.h"
#include "rt/recorder.h"
#include "rt/rules.h"
#include "rt/stats.h"
#include "rt/sysctl.h"
#include "rt/tstamp_engine.h"
#include "rt/tune.h"
#include "rt/wait.h"

/* Made once: calls that were waiting when the engine stopped may still be on their way out when it starts again. */
static struct pv_engine_stat unseen;
struct pv_engine pv_engine = { .stat = &unseen,
			       .extra_fd = -1,
			       .followers = { &pv_engine.followers, &pv_engine.followers },
			       .leg_jobs = { &pv_engine.leg_jobs, &pv_engine.leg_jobs } };

static pthread_mutex_t start_mutex = PTHREAD_MUTEX_INITIALIZER;
static const struct pv_engine_hooks *engine_hooks;

void pv_engine_set_hooks(const struct pv_engine_hooks *hooks)
{
	engine_hooks = hooks;
	pv_fork_setup();
}

const struct pv_engine_hooks *pv_engine_hooks(void)
{
	return engine_hooks;
}

/* ---- events ------------------------------------------------------------------------------------------------------------ */

void pv_engine_wake(struct pv_waiter *w)
{
	atomic_store_explicit(&w->woken, true, memory_order_relaxed);
	if (w->asleep) {
		uint64_t one = 1;

		pv_trace_note(pv_engine.trace, .kind = PV_TRACE_wake, .a = w == &pv_engine.progress);
		pv_stat_add(&pv_engine.stat->wakeups, 1);
		/* Fails only when the counter is full: then it is readable anyway. */
		if (write(w->efd, &one, sizeof(one)) < 0)
			return;
	}
}

/* What this list of a table of sockets has. What is told makes no events. */
static void route(struct pv_list *ready)
{
	while (!pv_list_empty(ready)) {
		struct pv_event ev = pv_teller_take(ready);
		struct pv_watch *watch = ev.user;

		pv_list_for_each(it, &watch->waiters)
			pv_engine_wake(pv_list_entry(it, struct pv_waiter, on_watch));
		if (watch->ready)
			watch->ready(watch, ev.bits);
	}
}

void pv_engine_route(struct pv_engine *e)
{
	route(pv_udp_tellers(e->udp));
	route(pv_tcp_tellers(e->tcp));
}

void pv_engine_wake_sleeper(struct pv_engine *e)
{
	int64_t deadline = pv_stack_deadline(e->stack);
	struct pv_waiter *w = e->leader && e->leader->asleep ? e->leader : e->progress.asleep ? &e->progress : NULL;

	if (w && deadline < w->until) {
		w->until = deadline; /* one write is enough */
		pv_engine_wake(w);
	}
}

/* ---- start ------------------------------------------------------------------------------------------------------------- */

static uint64_t choose_seed(const struct pv_config *cfg)
{
	uint64_t seed = (uint64_t)cfg->seed;

	while (!seed)
		if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
			seed = (uint64_t)pv_clock_kernel_ns();
	return seed;
}

static void port_free(void *ctx, void *hold)
{
	(void)ctx;
	engine_hooks->port_free(hold);
}

static bool port_idle(void *ctx, void *hold)
{
	(void)ctx;
	return engine_hooks->port_idle(hold);
}

static int64_t clock_now(void)
{
	return pv_clock_now(&pv_engine.clock);
}

static bool has_timestamps(const struct pv_config *cfg)
{
	enum { OFF, ON, OS };

	return cfg->tcp_timestamps == OS ? pv_sysctl("net/ipv4/tcp_timestamps", 1) != 0 : cfg->tcp_timestamps == ON;
}

static int open_stack(struct pv_engine *e, const struct pv_config *cfg, bool host)
{
	struct pv_stack_cfg sc = {
		.mem = pv_mem_system(cfg->huge_pages),
		.seed = choose_seed(cfg),
		.net = { .neigh_max = (uint32_t)cfg->neigh_max,
			 .neigh_queue = (uint32_t)cfg->neigh_queue,
			 .reass_max = (uint32_t)cfg->reass_max,
			 .reass_bytes = (uint32_t)cfg->reass_bytes,
			 .reass_timeout_ns = cfg->reass_timeout * PV_NS_PER_S,
			 .icmp_rate = (uint32_t)cfg->icmp_rate,
			 .trace = e->trace,
			 .clock = clock_now,
			 .lane = cfg->ring_logic_tx && engine_hooks ? engine_hooks->lane : NULL },
		.udp = { .port_lo = (uint16_t)cfg->port_low, .port_hi = (uint16_t)cfg->port_high },
		.tcp = { .port_lo = (uint16_t)cfg->port_low,
			 .port_hi = (uint16_t)cfg->port_high,
			 .gro_streams = (uint32_t)cfg->gro_streams,
			 .no_gro = !cfg->gro_streams,
			 .no_timestamps = !has_timestamps(cfg),
			 .port_free = port_free,
			 .port_idle = port_idle,
			 .reserve_max = (uint32_t)cfg->port_reserve },
		.rx_batch = (uint32_t)cfg->rx_batch,
	};
	int rc;

	/* The host's answers are asked for only when there is an interface of the kernel's: paths of others never look. */
	if (host) {
		sc.net.host = &pv_host_ops;
		sc.net.host_ctx = e;
	}
	rc = pv_stack_open(&e->stack, &sc);

	if (rc)
		return pv_error(rc, "the stack cannot be opened: %s", strerror(-rc));
	e->net = pv_stack_net(e->stack);
	e->udp = pv_stack_udp(e->stack);
	e->tcp = pv_stack_tcp(e->stack);
	e->starts++;
	return 0;
}

static void stat_open(struct pv_engine *e)
{
	struct pv_engine_stat *s = pv_stats_alloc(NULL, sizeof(*s));

	if (!s)
		return;
	s->started_ns = pv_clock_kernel_ns();
	s->lent = unseen.lent;
	s->nports = e->nports;
	s->huge_bytes = pv_mem_huge_bytes();
	s->shown = pv_stats_show(NULL, &pv_engine_stat_type, s);
	e->stat = s;
}

void pv_engine_stat_hide(struct pv_engine *e)
{
	struct pv_engine_stat *s = e->stat;

	if (s == &unseen)
		return;
	unseen = (struct pv_engine_stat){ .lent = s->lent };
	e->stat = &unseen;
	pv_stats_hide(NULL, s->shown);
	pv_stats_free(NULL, s, sizeof(*s));
}

static void close_all(struct pv_engine *e)
{
	pv_stack_close(e->stack);
	pv_ports_close(e);
	pv_control_close(e);
	pv_host_stop(e);
	pv_agent_stop(e);
	pv_tstamp_stop(e);
	pv_recorder_close(e);
	pv_engine_stat_hide(e);
	pv_stats_close();
	e->stack = NULL;
	e->net = NULL;
	e->udp = NULL;
	e->tcp = NULL;
}

/* With at least one interface open; the start mutex is held. */
static int run(struct pv_engine *e, const struct pv_config *cfg)
{
	e->cfg = cfg;
	stat_open(e);
	pv_tune_apply(e);
	pv_agent_start(e);
	if (engine_hooks)
		engine_hooks->started();
	if (!cfg->progress)
		return 0;
	pv_control_open(e);
	return pv_progress_start(e);
}

/* Calls that the last stop woke may still come for the lock: they must find no engine or a whole one. */
static int start_specs(struct pv_engine *e, const struct pv_config *cfg, const struct pv_ifspec *specs, uint32_t n)
{
	bool host = false;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		host |= *specs[i].netdev != '\0';
	pv_lock_setup();
	pv_lock_get(&e->lock);
	pv_clock_init(&e->clock);
	e->cfg = cfg;
	pv_recorder_open(e);
	pv_stats_open(cfg->stats_dir);
	rc = open_stack(e, cfg, host);
	if (!rc) {
		rc = pv_ports_open(e, specs, n);
		if (!rc)
			rc = run(e, cfg);
		if (rc)
			close_all(e);
	} else {
		pv_recorder_close(e);
		pv_stats_close();
	}
	pv_lock_put(&e->lock);
	return rc;
}

/* The settings are frozen. */
static int start_with(struct pv_engine *e, const struct pv_config *cfg)
{
	static struct pv_ifspec specs[PV_IFACE_MAX];
	int rc, n;

	pv_log_open((enum pv_log_level)cfg->log_level, cfg->log_file);
	pv_log_set((enum pv_log_level)cfg->log_level, (int)cfg->log_details);
	if (cfg->port_low > cfg->port_high)
		return pv_error(-EINVAL, "port_low is above port_high");
	n = cfg->offload ? pv_ifspec_parse(cfg->interfaces, specs, PV_IFACE_MAX) : 0;
	if (n < 0)
		return n;
	rc = pv_rules_open(cfg->rules_file, cfg->app_id);
	if (!rc && n)
		rc = start_specs(e, cfg, specs, (uint32_t)n);
	if (!rc)
		atomic_store_explicit(&e->state, n ? PV_ENGINE_RUNNING : PV_ENGINE_EMPTY, memory_order_release);
	return rc;
}

static int start_locked(struct pv_engine *e)
{
	const struct pv_config *cfg;
	int rc;

	pv_config_freeze();
	rc = pv_config_load(&cfg);
	if (!rc)
		rc = start_with(e, cfg);
	if (rc)
		pv_config_thaw();
	return rc;
}

bool pv_engine_fork_lock(void)
{
	return pthread_mutex_trylock(&start_mutex) == 0;
}

void pv_engine_fork_unlock(void)
{
	pthread_mutex_unlock(&start_mutex);
}

static bool at_exit; /* since the load */

/* A handler that interrupts it meets a busy thread, as in any call: it must not wait for the locks that are held. */
static void stop_at_exit(void)
{
	struct pyvma_thread *me = pyvma_thread_get();
	int was = me->busy; /* such a handler may be what exits */

	me->busy = 1;
	pyvma_stop();
	me->busy = was;
}

/* Handlers run in reverse. A program under the preload library knows of no engine: what its own handlers send, the earliest, too, is sent. */
__attribute__((constructor)) static void first_at_exit(void)
{
	if (pv_libc_preloaded())
		at_exit = atexit(stop_at_exit) == 0;
}

int pv_engine_start(void)
{
	static bool set_up;
	int rc = 0;

	if (pv_likely(pv_engine_state() != PV_ENGINE_NEW))
		return 0;
	pthread_mutex_lock(&start_mutex);
	/* What is wrong may be set right: a start that failed leaves nothing and may be repeated. */
	if (pv_engine_state() == PV_ENGINE_NEW)
		rc = start_locked(&pv_engine);
	if (!set_up && pv_engine_state() == PV_ENGINE_RUNNING) {
		set_up = at_exit || atexit(stop_at_exit) == 0;
		pv_fork_setup();
	}
	pthread_mutex_unlock(&start_mutex);
	return rc;
}

int pyvma_start(void)
{
	return pv_engine_start();
}

static void stop(enum pv_engine_state after)
{
	struct pv_engine *e = &pv_engine;

	if (pv_engine_state() == PV_ENGINE_FORKED)
		return;
	pthread_mutex_lock(&start_mutex);
	if (pv_engine_state() == PV_ENGINE_RUNNING) {
		pv_progress_stop(e);
		pv_lock_get(&e->lock);
		if (engine_hooks)
			engine_hooks->stop();
		close_all(e);
		pv_lock_put(&e->lock);
	}
	atomic_store_explicit(&e->state, after, memory_order_release);
	pv_config_thaw();
	pv_log_close();
	pthread_mutex_unlock(&start_mutex);
}

void pyvma_stop(void)
{
	stop(PV_ENGINE_NEW);
}

void pv_engine_retire(void)
{
	stop(PV_ENGINE_EMPTY);
}
