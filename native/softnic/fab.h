/* SPDX-License-Identifier: BSD-3-Clause */
/* What the fab_*.c files share: the process's side of the fabric. The shared side is fab_layout.h. */
#ifndef SN_FAB_H
#define SN_FAB_H

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/list.h"
#include "base/rng.h"
#include "softnic/fab_layout.h"
#include "softnic/fab_parse.h"
#include "softnic/fabric.h"

struct sn_hold;
struct sn_pacer;

struct sn_fabric {
	struct pv_list link; /* in the process's list */
	uint32_t refs;
	char name[SN_NAME_MAX + 1];
	char path[SN_NAME_MAX + 64];
	int fd, wake_fd;
	uint32_t client;
	bool fences;
	struct sn_shm *s;
	pthread_mutex_t mutex; /* with the lock on the file: the fabric's lock */
	struct sn_hold *hold; /* frames held back by impairments, and their thread; NULL until needed */
	struct sn_pacer *pacer; /* paced queues, and their thread; NULL until needed */
};

/* A receiving queue as a sender sees it. */
struct sn_target {
	struct sn_rxq_ent *ent;
	_Atomic uint64_t *claim;
	struct sn_slot *slot;
	struct sn_lane_count *count; /* the sender's, for the port */
	uint32_t mask;
	uint32_t hash; /* or tag */
	uint32_t max_len;
	uint16_t flags; /* SN_RX_TAG */
	uint8_t port;
	bool stamped;
};

enum { SN_MISS_NO_RULE, SN_MISS_LINK_DOWN, SN_MISS_DROPPED };
struct sn_miss {
	uint8_t port;
	uint8_t why;
};

#define SN_ROUTE_TARGETS SN_RXQS
#define SN_ROUTE_MISSES SN_PORTS
/* Where a frame goes; of the frame it depends on the bytes in `fields` (SN_FIELD_*) and those that led the parser. */
struct sn_route {
	struct sn_parse parse;
	uint32_t fields;
	uint32_t ntargets, nmisses;
	struct sn_target target[SN_ROUTE_TARGETS];
	struct sn_miss miss[SN_ROUTE_MISSES];
};

typedef uint64_t sn_vec __attribute__((vector_size(16)));
#define SN_PATH_TARGETS 4u
#define SN_PATH_MISSES 4u
#define SN_PATHS 64u
/* A route remembered with the header bytes it depends on. */
struct sn_path {
	sn_vec value[4], mask[4];
	struct sn_target target[SN_PATH_TARGETS];
	struct sn_miss miss[SN_PATH_MISSES];
	uint32_t hlen; /* 0: empty */
	uint32_t one_max; /* the longest frame that goes to one queue, into one slot, and nowhere else; 0: none does */
	uint8_t ntargets, nmisses;
	bool udp4; /* UDP behind an IPv4 header without options */
	struct sn_layers layers;
};

struct sn_impair_state;

struct sn_port {
	struct sn_fabric *f;
	struct sn_shm *s;
	struct sn_lane *lane;
	struct sn_lane_count *count; /* the lane's, for this port */
	uint64_t gen; /* of the paths and of the copies below; 0: none yet */
	uint32_t number, lane_no;
	uint32_t self; /* lane whose queues do not hear what is sent here: lane_no, or whose frames these are */
	uint32_t ordinal; /* among the port's senders when it joined */
	uint32_t mtu, max_len;
	uint32_t plug; /* of the port when this was attached */
	bool link_up, impaired, removed;
	bool special; /* one of the two needs a look */
	bool fences;
	uint64_t stamp_ns; /* of frames sent; 0: the clock */
	uint64_t mac;
	struct sn_impair_state *impair;
	struct sn_path *path; /* SN_PATHS */
	struct sn_route *route;
	uint8_t *scratch; /* one frame */
	void *alloc; /* the memory of the three */
};

struct sn_rxq {
	struct sn_slot *slot;
	uint64_t pos, told; /* next to consume; `head` as shared */
	uint32_t mask, quarter;
	uint32_t idle; /* looks that found nothing */
	uint64_t armings; /* so far */
	uint32_t n; /* slots of the frame at `pos` */
	struct sn_rxq_ent *ent;
	_Atomic uint64_t *claim;
	struct sn_fabric *f;
	struct sn_port *port;
	uint32_t no;
};

/* Looks at an empty queue after which a sender that stands in the way is suspected to be dead. */
#define SN_IDLE_CHECK 4096u
/* Data of a slot that shares the line of its description. */
#define SN_SLOT_LINE (64u - SN_SLOT_HEAD)

struct sn_waker {
	struct sn_fabric *f;
	uint32_t no;
	int fd;
};

/* fab_map.c */
int sn_fail(int rc, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int sn_lock(struct sn_fabric *f);
void sn_unlock(struct sn_fabric *f);
int sn_reserve(struct sn_fabric *f, const void *p, size_t len); /* memory behind a part of the mapping: 0 or -ENOSPC */
void sn_release(struct sn_fabric *f, const void *p, size_t len);

/* fab_client.c: all with the lock, but sn_client_alive and sn_barrier */
int sn_client_join(struct sn_fabric *f);
void sn_client_leave(struct sn_fabric *f);
void sn_client_ends(struct sn_fabric *f); /* its process does; what it has is freed when that is no more */
bool sn_others_stay(struct sn_fabric *f); /* clients that have neither left nor begun to end */
bool sn_client_alive(struct sn_fabric *f, uint32_t client);
bool sn_clients_any(int fd);
void sn_clients_reap(struct sn_fabric *f);
void sn_change_begin(struct sn_fabric *f); /* around every change of what senders' paths depend on */
void sn_change_end(struct sn_fabric *f);
/* After it, every other thread of every client has executed a full fence. */
void sn_barrier(struct sn_fabric *f);

/* fab_port.c */
int sn_lane_get(struct sn_fabric *f, uint32_t port);
void sn_lane_put(struct sn_fabric *f, uint32_t lane);
struct sn_port *sn_port_view(struct sn_fabric *f, uint32_t number, uint32_t lane);
void sn_port_unview(struct sn_port *p);
void sn_port_set_uplink(struct sn_port *p);
void sn_port_settle(struct sn_fabric *f, uint32_t port); /* forgets a port that no lane is on */

/* fab_rxq.c */
void sn_rxq_kill(struct sn_fabric *f, uint32_t no); /* in a change */
void sn_rxq_collect(struct sn_fabric *f); /* frees queues that no sender can write to any more */
void sn_rxq_unclaim(struct sn_fabric *f, uint32_t no, uint32_t client);
bool sn_target_get(struct sn_shm *s, uint32_t no, struct sn_target *t);

/* fab_rule.c */
void sn_rules_drop(struct sn_fabric *f, uint32_t client, uint32_t lane); /* in a change; lane UINT32_MAX: all */
void sn_rules_drop_queue(struct sn_fabric *f, uint32_t rxq);

/* fab_route.c */
void sn_route_find(struct sn_port *p, const uint8_t *frame, uint32_t len, struct sn_route *out);
void sn_path_learn(struct sn_port *p, struct sn_path *path, const struct sn_route *route, const uint8_t *head);

/* fab_send.c */
void sn_send_now(struct sn_port *p, uint8_t *frame, uint32_t len, uint32_t tx_flags); /* past link and impairments */
void sn_port_refresh(struct sn_port *p);

/* fab_waker.c */
void sn_wake(struct sn_fabric *f, uint32_t no);
void sn_waker_name(const struct sn_fabric *f, uint32_t no, char *path, size_t size);
void sn_wakers_drop(struct sn_fabric *f, uint32_t client);

/* fab_impair.c */
bool sn_impair_holds(struct sn_port *p);
void sn_impair_send(struct sn_port *p, uint8_t *frame, uint32_t len);
void sn_impair_detach(struct sn_port *p);
void sn_hold_close(struct sn_fabric *f);

/* fab_pace.c */
void sn_pacer_close(struct sn_fabric *f);

/* fab_clock.c */
void sn_clock_reset(struct sn_fabric *f, uint32_t port); /* with the lock */

/* fab_fdb.c */
int sn_fdb_find(struct sn_shm *s, uint64_t mac); /* port or -1 */
void sn_fdb_learn(struct sn_fabric *f, uint32_t port, uint64_t mac, uint32_t now_s);
void sn_fdb_age(struct sn_fabric *f, uint32_t port, uint32_t older_than_s);
void sn_fdb_drop(struct sn_fabric *f, uint32_t port, uint32_t older_than_s);

pv_inline void sn_full_fence(void)
{
#if defined(__x86_64__)
	__asm__ volatile("lock; orl $0, (%%rsp)" ::: "memory", "cc");
#elif defined(__aarch64__)
	__asm__ volatile("dmb ish" ::: "memory");
#else
	__sync_synchronize();
#endif
}

/* The sender's half of a store-load pair whose other half is sn_barrier. */
pv_inline void sn_light_fence(bool fences)
{
	__asm__ volatile("" ::: "memory");
	if (pv_unlikely(fences))
		sn_full_fence();
}

#endif
