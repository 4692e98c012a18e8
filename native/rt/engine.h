/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: the process's one stack, its rings and pools, the lock around them, and who runs them.
 *
 * Who runs the stack. Any call that finds its socket empty polls. A call that waits becomes the leader: it polls for everybody,
 * spinning with the lock held or asleep on the rings' fds; other waiting calls follow: they watch their own flag and fd and are woken
 * when the leader finds something for them, or made leader when it leaves. While nobody leads, the progress thread does, asleep on
 * the rings' fds.
 *
 * Everything here is under `lock` but where said. Nothing of the engine is touched in a forked child (rt/fork.c).
 */
#ifndef PV_RT_ENGINE_H
#define PV_RT_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "rt/clock.h"
#include "rt/config.h"
#include "rt/ifspec.h"
#include "rt/lock.h"
#include "rt/stats_types.h"
#include "stack/stack.h"

/* One thread that waits. On its stack; found through a watch or the list of followers. */
struct pv_waiter {
	struct pv_list on_watch, on_engine;
	_Atomic(bool) woken; /* by an event, a close, or to become leader */
	bool asleep; /* in ppoll: waking takes a write to `efd` */
	int efd;
	int64_t until; /* while asleep as leader: when it wakes by itself */
	const void *thread; /* whose it is: a handler of the same thread may wait, too */
};

/* What one waits for: the `user` of the stack's sockets. */
struct pv_watch {
	struct pv_list waiters;
	void (*ready)(struct pv_watch *w, uint32_t bits); /* an event came; NULL: only waiters are told */
};

struct pv_agent;
struct pv_control;
struct pv_host;
struct pv_port_bond;
struct pv_host_state;
struct pv_leg_job;
struct pv_tstamp;
struct pv_wrap;

/* An interface whose ring is open. Entries of the settings that have none are known to rt/host.h. */
struct pv_port {
	struct pv_ring *ring; /* with what wraps it */
	struct pv_pool *pool;
	struct pv_wrap *wrap;
	struct pv_port_bond *bond; /* rt/port_bond.h; NULL: it is one device's */
	uint32_t binder; /* the place that is kept for its ring in its pool; 0: none is */
	uint32_t index; /* of the interface */
	uint32_t serial; /* no other port of this process has it */
	int notify_fd; /* -1: the ring has none */
	bool gone; /* its device is */
	bool failed; /* it is there and does not work: nothing goes by it any more */
	struct pv_ifspec spec;
	char label[PV_RING_NAME_MAX]; /* the ring's name with the interface's kind: softnic:DEVICE/PORT */
};

/* The process ends at once (pyvma_leave). */
enum pv_leaving { PV_STAYING, PV_LEAVE_ASKED, PV_LEAVE_BEGUN, PV_LEFT };

enum pv_engine_state {
	PV_ENGINE_NEW,
	PV_ENGINE_RUNNING,
	PV_ENGINE_EMPTY, /* started with no interface, or retired: nothing is offloaded */
	PV_ENGINE_FORKED, /* this is a forked child */
};

struct pv_engine {
	struct pv_lock lock;
	struct pv_stack *stack;
	struct pv_net *net;
	struct pv_udp_table *udp;
	struct pv_tcp_table *tcp;
	struct pv_waiter *leader; /* NULL: nobody, or the progress thread */
	uint32_t interest; /* waiters on watches, and watches with `ready`: events must be read */
	uint32_t rx_budget;
	struct pv_engine_stat *stat; /* never NULL; shown while the stack is there */
	int64_t spin_ns; /* PV_NEVER: for ever */
	uint32_t kernel_ratio; /* 0: never */
	uint64_t leaves; /* of leaders */
	bool sleeper; /* leader or progress thread is asleep: new deadlines must reach it */
	_Atomic(uint32_t) leaving; /* enum pv_leaving: no lock */
	bool progress_parked; /* the progress thread waits to be told that a leader left */
	struct pv_clock clock;
	struct pv_list followers;
	uint32_t exports; /* fds that show readiness to whoever polls them, behind our back: the progress thread works for those */
	uint32_t
	    loops; /* event loops that are woken by the rings, and then poll; their deadlines are the progress thread's to keep */
	struct pv_waiter progress;
	bool progress_stop;
	int extra_fd; /* epoll set of fds that the progress thread watches for the socket layer; -1: none yet */
	struct pv_port ports[PV_IFACE_MAX];
	uint32_t nports, ports_gen; /* the latter counts changes of the former */
	_Atomic(uint32_t)
	    kernel_index[PV_IFACE_MAX + 1]; /* by the stack's number: the kernel's, 0: not the kernel's; any thread reads */
	uint32_t kernel_addrs; /* counts changes of the kernel's addresses that rtnetlink told of; interfaces of others, too */
	struct pv_tstamp *tstamp; /* rt/tstamp.h; NULL: no socket wanted stamps yet */
	struct pv_host *host; /* NULL: no interface is the kernel's */
	struct pv_agent *agent; /* rt/agent.h; NULL: not asked for */
	struct pv_control *control; /* NULL: no control socket */
	struct pv_trace *trace; /* the flight recorder (rt/recorder.h); NULL: there is none */
	_Atomic(uint64_t)
	    netns; /* the cookie of the namespace that these are in; 0: none are, or it cannot be told; any thread reads */
	char netns_name[32]; /* with it: what proc calls it, so many bytes; 0: cannot be told */
	uint32_t netns_len;
	int netns_fd; /* leads to it; -1: nothing does */
	int netns_link; /* the name as the thread has it that started the engine; -1: none */
	struct pv_pool *limbo[PV_IFACE_MAX]; /* pools of closed rings with buffers lent */
	uint32_t nlimbo;
	bool several; /* entries in the settings: a file for each */
	_Atomic(int) state; /* enum pv_engine_state */
	uint32_t starts; /* what a call found in an earlier one is gone */
	pthread_t thread;
	bool have_thread;
	struct pv_list leg_jobs; /* rt/port_leg.h: devices to be opened and shut by the progress thread */
	struct pv_leg_job *leg_job; /* the one under way */
	_Atomic(bool) leg_busy; /* and it is at work, without the lock */
	const struct pv_config *cfg;
};

extern struct pv_engine pv_engine;

/* Starts once. 0 when running or when there is nothing to offload; else the first failure, with a text: nothing is open then. */
int pv_engine_start(void);
/* pyvma_stop, for good: what would start it finds it without an interface. */
void pv_engine_retire(void);
/* Any thread, no lock. */
pv_inline enum pv_engine_state pv_engine_state(void)
{
	return (enum pv_engine_state)atomic_load_explicit(&pv_engine.state, memory_order_acquire);
}

/* The socket layer's part in stop and fork. `down`: the lock is held and the stack still there (stop) or not to be touched (fork). */
struct pv_engine_hooks {
	void (*stop)(void);
	void (*forking)(void); /* before fork, with the lock: sockets note what they will be in the child */
	void (*parent)(void); /* after it, in the parent, with the lock */
	void (*forked)(void);
	void (*fork_lock)(void); /* before fork, ahead of the engine's lock */
	void (*fork_unlock)(void); /* after it, in both */
	void (*extra)(void); /* extra_fd is readable; the lock is held */
	void (*port_free)(void *hold); /* what pv_tcp_port_hold kept; the lock is held */
	bool (*port_idle)(void *hold); /* of a reserved port that nobody has: may it stay so? The lock is held */
	uint32_t (*lane)(void *user, const struct pv_addr *src); /* pv_net_cfg.lane; the lock is held */
	void (*started)(void); /* it runs; the lock is held */
	void (*ifaces)(void); /* rings were opened or closed, or addresses changed, while sockets may use them; the lock is held */
};
/* Its numbers where nobody sees them: while there is no stack, and in a forked child. */
void pv_engine_stat_hide(struct pv_engine *e);
void pv_engine_set_hooks(const struct pv_engine_hooks *hooks);
const struct pv_engine_hooks *pv_engine_hooks(void);

/* Tells waiters and exports of every event that the stack has. */
void pv_engine_route(struct pv_engine *e);
void pv_engine_wake(struct pv_waiter *w);
/* The leader, or else the progress thread, when one sleeps beyond the stack's next deadline. */
void pv_engine_wake_sleeper(struct pv_engine *e);

/* Without a progress thread the rings' events and the kernel's changes (rt/host.h) are looked for every so many polls; and every so
 * many while it is parked, since a leader that spins would never hear of them. */
#define PV_HOST_POLLS 1024u
#define PV_PARKED_POLLS 65536u
void pv_host_tick(struct pv_engine *e);

/* Runs a piece of the stack, with so many frames to receive at most; how much it did. */
pv_inline uint32_t pv_engine_poll_some(struct pv_engine *e, int64_t now, uint32_t rx_budget)
{
	uint32_t n = pv_stack_poll(e->stack, now, rx_budget);

	if (pv_unlikely(++e->stat->polls % PV_HOST_POLLS == 0))
		pv_host_tick(e);
	/* Not only what was counted makes events: room to send does, and calls between the polls. */
	if (e->interest && (pv_udp_ready(e->udp) || pv_tcp_ready(e->tcp)))
		pv_engine_route(e);
	return n;
}

pv_inline uint32_t pv_engine_poll(struct pv_engine *e, int64_t now)
{
	return pv_engine_poll_some(e, now, e->rx_budget);
}

/* After calls that may have set a timer. */
pv_inline void pv_engine_timers(struct pv_engine *e)
{
	if (pv_unlikely(e->sleeper))
		pv_engine_wake_sleeper(e);
}

/* ports.c: opens what the settings name into e->ports. 0 or the first failure with a text; those before it are open. */
int pv_ports_open(struct pv_engine *e, const struct pv_ifspec *specs, uint32_t n);
/* After the stack was closed. */
void pv_ports_close(struct pv_engine *e);
/* One more at the end of e->ports; `host` NULL: the entry has addresses of its own. 0 or -errno with a text. */
int pv_port_open(struct pv_engine *e, const struct pv_ifspec *s, const struct pv_host_state *host);
/* What its ring has received goes to the sockets first. The last one takes its place. Who sleeps on the ring's fd must be woken. */
void pv_port_close(struct pv_engine *e, struct pv_port *p);
/* What of it others see, after it changed. */
void pv_port_stat(struct pv_port *p);
/* Its ring brings and takes nothing any more: rt/host.c closes it, and opens it again when it can be. */
void pv_port_failed(struct pv_engine *e, struct pv_port *p, enum pv_ring_event ev);
/* The ring and the pool of p->spec alone, without an engine. 0 or -errno with a text. */
int pv_port_ring_open(struct pv_port *p, const struct pv_config *cfg);
void pv_port_ring_close(struct pv_port *p);
/* The ring of p->spec, of which the device counts; of verbs and AF_XDP with p->pool, or one of its own where there is none. 0 or -errno with a
 * text. */
int pv_port_device_open(struct pv_port *p, const struct pv_config *cfg);
/* Shape of the buffers that an AF_XDP ring of that entry wants, and how many for receiving and sending. 0 or -errno with a text. */
int pv_port_xdp_pool(const struct pv_ifspec *s, const struct pv_config *cfg, struct pv_pool_cfg *pc, uint32_t *rx, uint32_t *tx);
/* Buffers for frames of an MTU; p->pool of such as `pc` has, as many as the settings and the queues say. 0 or -errno with a text. */
uint32_t pv_port_buf_size(uint32_t mtu);
int pv_port_pool_open(struct pv_port *p, const struct pv_config *cfg, struct pv_pool_cfg *pc, uint32_t rx_depth, uint32_t tx_depth);
/* Reads the rings' events (link, device gone) and says so; without a progress thread, their clocks too. */
void pv_ports_events(struct pv_engine *e);

/* progress.c */
int pv_progress_start(struct pv_engine *e);
void pv_progress_stop(struct pv_engine *e);

/* fork.c: when the library is loaded, and once more when the rings' libraries are. */
void pv_fork_setup(void);
/* Keeps the engine from starting and stopping meanwhile; false: some thread is just about it. */
bool pv_engine_fork_lock(void);
void pv_engine_fork_unlock(void);

#endif
