/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fork(2). Queue pairs belong to the process that made them, so a child keeps none: it forgets the rings without touching the devices,
 * its offloaded sockets answer -ENOTCONN, and what it opens from then on is the kernel's. Its parent goes on undisturbed. Payloads that
 * are lent at the time are copied (rt/lent.h).
 *
 * The locks are held across fork, so that the child finds no half-made change; it then makes the engine's anew, since whoever waits for
 * it exists in the parent only. Their order must be that of ordinary calls, which come from us into a ring's library, and that may have
 * handlers and locks of its own. Handlers run before fork in reverse order of registration, so ours are registered twice: when this
 * library is loaded, and again once the rings' libraries are; whichever comes first does the work.
 *
 * A device that is just being opened or shut for a leg of a bond is waited for.
 *
 * A thread that is just starting or stopping the engine is not waited for: its child has kernel sockets only.
 */
#include "base/ownfd.h"
#include "pyvma.h"
#include "rt/agent.h"
#include "rt/control.h"
#include "rt/engine.h"
#include "rt/host.h"
#include "rt/lent.h"
#include "rt/log.h"
#include "rt/port_bond.h"
#include "rt/port_leg.h"
#include "rt/recorder.h"
#include "rt/stats.h"
#include "rt/wait.h"

/* What this thread's fork holds: threads may fork at once, and the engine's state may change where the start is not held. */
static _Thread_local bool inside, have_start, have_engine, have_lock;

static void before(void)
{
	if (inside)
		return;
	inside = true;
	if (pv_engine_hooks()) /* none where the engine runs without sockets */
		pv_engine_hooks()->fork_lock(); /* first, so that of two threads that fork the second waits for the first */
	have_start = pv_engine_fork_lock();
	have_engine = pv_engine_state() == PV_ENGINE_RUNNING;
	/* Buffers may still be away when the engine is stopped. */
	have_lock = have_engine || (have_start && pv_engine.stat->lent);
	if (have_lock) {
		pv_lock_get(&pv_engine.lock);
		pv_legs_settle(&pv_engine);
		pv_lent_save(&pv_engine);
		pv_trace_note(pv_engine.trace, .kind = PV_TRACE_engine, .a = PV_TRACE_FORK);
	}
	if (have_engine && pv_engine_hooks())
		pv_engine_hooks()->forking();
	pv_stats_fork_lock();
}

static void unlock_others(void)
{
	if (have_start)
		pv_engine_fork_unlock();
	if (pv_engine_hooks())
		pv_engine_hooks()->fork_unlock();
	inside = false;
}

static void in_parent(void)
{
	if (!inside)
		return;
	pv_stats_fork_unlock();
	if (have_engine && pv_engine_hooks())
		pv_engine_hooks()->parent();
	if (have_lock) {
		pv_lent_drop();
		pv_lock_put(&pv_engine.lock);
	}
	unlock_others();
}

/* The thread that forked is the only one, so nothing here is contended. */
static void forget(struct pv_engine *e)
{
	atomic_store_explicit(&e->state, PV_ENGINE_FORKED, memory_order_release);
	pv_legs_forget(e);
	for (uint32_t i = 0; i < e->nports; i++) {
		pv_ring_forget(e->ports[i].ring);
		pv_port_bond_forget(&e->ports[i]);
	}
	e->nports = 0;
	e->nlimbo = 0;
	pv_engine_stat_hide(e);
	pv_control_forget(e);
	pv_host_stop(e);
	pv_agent_forget(e);
	e->leader = NULL;
	e->progress.asleep = e->sleeper = e->progress_parked = false;
	e->exports = e->interest = e->loops = 0;
	pv_list_init(&e->followers);
	e->have_thread = false;
	if (pv_engine_hooks())
		pv_engine_hooks()->forked();
}

static void in_child(void)
{
	if (!inside)
		return;
	pv_ownfd_none();
	pv_log_forked();
	pv_stats_forked();
	pv_stat_tid = 0;
	pv_wait_forked();
	if (have_lock) {
		pv_lent_restore();
		pv_lock_init(&pv_engine.lock);
	}
	pv_recorder_forget(&pv_engine);
	/* With nothing open the child may start an engine of its own. */
	if (have_engine)
		forget(&pv_engine);
	else if (!have_start)
		atomic_store_explicit(&pv_engine.state, PV_ENGINE_FORKED, memory_order_release);
	unlock_others();
}

void pyvma_forks(int step)
{
	static void (*const steps[])(void) = { before, in_parent, in_child };

	if (step >= 0 && (size_t)step < pv_array_size(steps))
		steps[step]();
}

void pv_fork_setup(void)
{
	pthread_atfork(before, in_parent, in_child);
}
