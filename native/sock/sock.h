/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets: handles (struct pyvma_sock, one an fd) over shared sockets (struct pv_sock, one a kernel socket and at most one UDP
 * socket of the stack).
 *
 * Legs. An offloaded socket receives by the stack (core_leg), by its kernel socket (kernel_leg), or both: bound to all addresses it
 * serves the engine's interfaces and everything else at once. On interfaces that the kernel owns it always has both (leg.c).
 *
 * The kernel socket of a stream is made when somebody asks for it, and its fd with it (kfd.c): a connection of the stack's has neither.
 * Handles and shared sockets are as many as were ever open at once, 64 more at a time: 400 bytes each, whatever RLIMIT_NOFILE says.
 *
 * Memory of both is never given back to the system, only reused, so that a thread which still holds the handle of a socket that
 * another one closes finds a closed or a new socket, never freed memory: the same race, with the same outcome, as with fds.
 *
 * Locks, in this order: the registry's (sock.c: handles, references, fds), the engine's (all that is marked below).
 */
#ifndef PV_SOCK_SOCK_H
#define PV_SOCK_SOCK_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/list.h"
#include "pyvma.h"
#include "rt/engine.h"
#include "tcp/tcp.h"
#include "udp/udp.h"

enum pv_sock_mode {
	PV_SOCK_UNDECIDED, /* may become either; so far the kernel's */
	PV_SOCK_KERNEL,
	PV_SOCK_CORE,
	PV_SOCK_STREAM, /* the stack's, by TCP (stream.h) */
};

/* What recvmsg tells beside the payload; the kernel's options in short. */
#define PV_RX_PKTINFO4 0x001u
#define PV_RX_TTL 0x002u
#define PV_RX_TOS 0x004u
#define PV_RX_ORIGDST4 0x008u
#define PV_RX_PKTINFO6 0x010u
#define PV_RX_HOPLIMIT 0x020u
#define PV_RX_TCLASS 0x040u
#define PV_RX_ORIGDST6 0x080u
#define PV_RX_TSTAMP 0x100u
#define PV_RX_TSTAMPNS 0x200u
#define PV_RX_OVERFLOW 0x400u
#define PV_RX_TSTAMP_NEW 0x800u /* by the options' newer numbers */
#define PV_RX_STAMPING 0x1000u /* SO_TIMESTAMPING reports something */
#define PV_RX_SELECT_ERR 0x2000u /* SO_SELECT_ERR_QUEUE: what is POLLERR is POLLPRI, too */

/* Interface indices of the engine begin here, above any of the kernel's, so that one number means one interface. */
#define PV_IFINDEX_BASE 0x1000000u

/* An option that the kernel socket is to get once it is made. */
struct pv_kfd_note {
	struct pv_kfd_note *next;
	int level, name;
	socklen_t len;
	char val[16];
};

/* A kernel socket that keeps a port for as long as the stack has something of it (stream_host.c). Engine lock; `so` and `lent` as kfd.c says. */
struct pv_hold {
	struct pv_list all;
	struct pv_hold *next; /* of the same port */
	struct pv_addr addr;
	int fd;
	struct pv_sock *so; /* whose port it is, which may want to have this as its kernel socket */
	bool lent; /* and has: the program may have done anything to it */
};

#define PV_KFD_NONE (-1) /* not made yet */
#define PV_KFD_GONE (-2) /* the socket is closed */

/* An open file in the registry. */
struct pv_sock_id {
	struct pv_list node;
	dev_t dev;
	ino_t ino;
	struct pv_sock *so;
};

/* Of datagram sockets; streams share one that nothing is read from. Engine lock. */
struct pv_dgram {
	uint32_t kernel_turns; /* receives since the kernel leg was looked at */
	uint32_t kernel_first; /* so many datagrams of the kernel leg go before the stack's: they came before the rule */
	int64_t kernel_seen_ns; /* when a call that does not wait looked at it */
	int64_t error_seen_ns; /* when a send asked it for errors */
	struct pv_addr
	    last_dst; /* where the last datagram with an address went, and by which leg; good while last_gen is the net's */
	uint32_t last_iface, last_gen, peer_gen; /* peer_gen: when the connected peer was found to be the kernel's; 0: it was not */
	bool last_core; /* with last_dst */
	uint32_t segment; /* UDP_SEGMENT */
};

struct pv_sock {
	/* engine lock */
	struct pv_watch watch; /* first: the stack's `user` */
	struct pv_udp *u; /* NULL: none, or dead */
	struct pv_tcp *tc; /* the same for a stream; it may be bound only so far */
	bool core_leg, kernel_leg;
	bool tx_core; /* the connected peer is sent to by the stack */
	bool host; /* the kernel socket is bound, connected and joined alike, and its errors are ours (leg.c) */
	bool retired; /* left to the kernel after it was the stack's: what is queued there is still read, nothing else */
	bool bound; /* in the stack */
	uint8_t shut; /* of a datagram socket; 1: RD, 2: WR, as pv_udp_shut */
	bool dead; /* was the stack's, which is gone: -ENOTCONN in a forked child, -ENETDOWN after pyvma_stop */
	bool kernel_mcast4 : 1,
	    kernel_mcast6 : 1; /* the kernel socket has a multicast interface, as pv_decide_kernel_read found it */
	bool inq : 1; /* of a stream: TCP_INQ */
	bool rcvbuf_set : 1, sndbuf_set : 1; /* by the program: streams do not tune them any more */
	bool name_chosen : 1; /* of a stream: we bound the kernel socket, not the program */
	bool loses : 1; /* in a child of the fork under way it is lost, and not the kernel's */
	bool own_kfd, detached; /* registry lock; detached: no handle, but the fd `detached_fd` may come back */
	_Atomic(bool) untouched; /* a stream's: its number was told nobody and no option of it set */
	uint32_t rx_flags; /* PV_RX_* */
	uint32_t mcast_index4; /* IP_MULTICAST_IF as it was set: the kernel does not tell the index */
	uint32_t accept_turns; /* of a stream: accepts since its kernel half was asked */
	uint32_t kernel_device; /* the kernel socket's SO_BINDTOIFINDEX, as pv_decide_kernel_read found it */
	uint32_t pacing_burst; /* PYVMA_SO_PACING; 0: the default */
	uint64_t kernel_opts; /* options in force that rings cannot honour: a bit each (opt_kernel.c) */
	int64_t rcvtimeo_ns, sndtimeo_ns; /* 0: none */
	uint16_t pacing_packet; /* PYVMA_SO_PACING; 0: the default */
	bool paced; /* the progress thread works for it (pacing.c) */
	bool cloexec; /* of an fd that is made late; set before the socket is shared */
	bool named; /* the caller's: its kernel socket's name is decided about, and is bound already (late.c) */
	/* What is shown at the exported fd (ready.c); blocked: not writable; hung: the end of a connection that it `opened` with. */
	bool shown : 1, kernel_ready : 1, extra : 1, blocked : 1, opened : 1, hung : 1;
	/* The progress thread is asleep on the kernel leg for who waits; that one's own sleeps are, since datagrams come that way. */
	bool leg_watched : 1, leg_busy : 1;
	bool candidate; /* a UDP or TCP socket that may be offloaded; this and the next are set before the socket is shared */
	bool stream;
	struct pv_lane *lane; /* lane.h; NULL: nobody asked for a place */
	struct pv_dgram *dg; /* never NULL */
	struct pv_sock_stat *st; /* what it counts and shows (shown.h); never NULL, and never another one */
	struct pv_list on_core; /* all sockets with `u` */
	struct pv_list entries; /* in sets (epoll.h) */
	int exp_fd, sig_fd; /* exported fd (ready.c): what the program sees, and our end of it; -1: not exported */

	/* set before the socket is shared, or atomic */
	_Atomic(uint8_t) mode; /* enum pv_sock_mode; written under the engine lock */
	_Atomic(bool) nonblock;
	int16_t family, type, proto;
	uint32_t st_id; /* pv_stats_show */
	_Atomic(int) kfd; /* the kernel socket: a handle's fd, or one of our own; PV_KFD_* */
	struct pv_kfd_note *notes; /* kfd.c */
	struct pv_hold *hold; /* kfd.c: what becomes the kernel socket */

	/* registry lock */
	int detached_fd;
	uint32_t refs; /* handles, and one for each detached fd */
	uint64_t serial; /* no other socket ever has it; set once */
	uint32_t born, kfd_born; /* kin.c: how many forks there had been before the socket, and before its kernel socket */
	struct pv_sock_id *id[2]; /* kernel socket, exported fd; NULL: not in the registry */
	struct pv_sock *next; /* free list, or detached ones */
};

/* The handle. `so` is NULL while the memory waits for reuse. */
struct pyvma_sock {
	_Atomic(struct pv_sock *) so;
	_Atomic(int) fd; /* -1: nobody asked yet */
	uint32_t gen; /* engine lock; counts closes */
	bool exported; /* engine lock; `fd` is the pair's */
	struct pyvma_sock *next; /* free list */
};

pv_inline struct pv_sock *pv_handle_sock(const struct pyvma_sock *h)
{
	return atomic_load_explicit(&h->so, memory_order_acquire);
}

/* The kernel socket, or PV_KFD_*. */
pv_inline int pv_sock_kfd_made(const struct pv_sock *so)
{
	return atomic_load_explicit(&so->kfd, memory_order_relaxed);
}

/* The kernel socket, which is made now if there is none. < 0: it cannot be, and errno says why. */
int pv_kfd_make(const struct pv_sock *so);
pv_inline int pv_sock_kfd(const struct pv_sock *so)
{
	int fd = pv_sock_kfd_made(so);

	return pv_likely(fd >= 0) ? fd : pv_kfd_make(so);
}

/* The number that a handle has, if any. */
pv_inline int pv_handle_fd(const struct pyvma_sock *h)
{
	return atomic_load_explicit(&h->fd, memory_order_relaxed);
}

pv_inline enum pv_sock_mode pv_sock_mode(const struct pv_sock *so)
{
	return (enum pv_sock_mode)atomic_load_explicit(&so->mode, memory_order_acquire);
}

pv_inline bool pv_sock_is_core(const struct pv_sock *so)
{
	return so && pv_sock_mode(so) == PV_SOCK_CORE;
}

/* The stack's, whichever transport. */
pv_inline bool pv_sock_is_ours(const struct pv_sock *so)
{
	return so && pv_sock_mode(so) >= PV_SOCK_CORE;
}

pv_inline bool pv_sock_is_stream(const struct pv_sock *so)
{
	return so && so->stream && pv_sock_mode(so) != PV_SOCK_KERNEL;
}

pv_inline bool pv_sock_nonblock(const struct pv_sock *so)
{
	return atomic_load_explicit(&so->nonblock, memory_order_relaxed);
}

/* Takes the engine's lock and returns 0 when `so` is still the handle's and has a UDP socket; else -errno without the lock. */
int pv_sock_lock_failed(const struct pyvma_sock *h, struct pv_sock *so);
pv_inline int pv_sock_lock(const struct pyvma_sock *h, struct pv_sock *so)
{
	pv_lock_get(&pv_engine.lock);
	if (pv_likely(pv_handle_sock(h) == so && so->u))
		return 0;
	return pv_sock_lock_failed(h, so);
}

pv_inline void pv_sock_unlock(void)
{
	pv_lock_put(&pv_engine.lock);
}

/* After a wait, with the lock held: still the same socket? */
pv_inline bool pv_sock_same(const struct pyvma_sock *h, const struct pv_sock *so, uint32_t gen)
{
	return h->gen == gen && pv_handle_sock(h) == so && (so->u || so->tc);
}

/* Inside, of calls on a stream: it became the kernel's while the call was on its way (handback.h), which goes on there. */
#define PV_HANDED (-EREMCHG)

/* Why it is not: closed, handed back, or the engine was stopped; or this is the child of a handler that interrupted the wait and forked. */
pv_inline int pv_sock_gone(const struct pyvma_sock *h, const struct pv_sock *so, uint32_t gen)
{
	if (pv_engine_state() == PV_ENGINE_FORKED)
		return -EINTR;
	if (h->gen == gen && pv_handle_sock(h) == so && !so->dead && pv_sock_mode(so) == PV_SOCK_KERNEL)
		return so->stream ? PV_HANDED : -EBADF;
	return h->gen == gen && pv_handle_sock(h) == so && so->dead ? -ENETDOWN : -EBADF;
}

/* Does a call end so that its socket must not be touched any more? */
pv_inline bool pv_sock_is_over(int64_t rc)
{
	return rc == -EBADF || rc == -ENETDOWN || (pv_unlikely(rc == -EINTR) && pv_engine_state() == PV_ENGINE_FORKED);
}

/* ---- sock.c ------------------------------------------------------------------------------------------------------------ */

extern struct pv_list pv_core_socks; /* engine lock */

void pv_registry_get(void);
void pv_registry_put(void);
/* What becomes of it without the engine: it is lost, or the kernel socket beneath goes on. The lock is held. */
bool pv_sock_loses(const struct pv_sock *so);
/* pv_engine_retire, and what the kernel socket beneath can go on with is the kernel's then. */
void pv_sock_stop_kindly(void);
/* The socket of this open file, NULL: none of ours. The registry lock is held. */
struct pv_sock *pv_sock_find(int fd);
/* Another open file leads to `so`; the registry lock is held. 0 or -errno. */
int pv_sock_register(struct pv_sock *so, unsigned int which, int fd);
/* A handle for a stream that is the stack's already or may become it, with no fd yet (-1), or with this one, which is the handle's then.
 * Flags: those of accept4. 0 or -ENOMEM. */
int pv_handle_stream(int fd, int family, int proto, int flags, struct pyvma_sock **out);

/* ---- kfd.c ------------------------------------------------------------------------------------------------------------- */

/* May a socket like this do without a kernel socket for now? */
bool pv_kfd_may_be_late(int family, int type, int proto);
/* The kernel socket gets that option when it is made; at once if it is. 0 or -errno. */
int pv_kfd_note(struct pv_sock *so, int level, int name, const void *val, socklen_t len);
/* The socket's port is kept by `hold`: should a kernel socket be wanted it is that one. */
void pv_kfd_hold(struct pv_sock *so, struct pv_hold *hold);
/* Not any more. True: it was wanted. */
bool pv_kfd_unhold(struct pv_hold *hold);
/* The stack has the socket, and its options. */
void pv_kfd_forget(struct pv_sock *so);
/* None is made any more; what pv_sock_kfd_made was. */
int pv_kfd_end(struct pv_sock *so);
int pv_kfd_nonblock(struct pv_sock *so, bool on);
/* A kernel socket that only checks options and says what they become: an fd, not the caller's, or -errno. The engine's lock is held. */
int pv_kfd_scratch(int family);
void pv_kfd_scratch_drop(int family);

/* ---- addr.c ------------------------------------------------------------------------------------------------------------ */

/* False: not an address that this family of sockets takes; the kernel then says which error that is. */
bool pv_addr_parse(const struct pv_sock *so, const struct sockaddr *addr, socklen_t len, struct pv_endpoint *out);
/* As the kernel gives an address to a socket of this family. Returns its full length; at most `size` bytes are written. */
socklen_t pv_addr_format(int family, const struct pv_endpoint *ep, void *addr, socklen_t size);
/* Interface numbers: the program's to the stack's (0: not one of ours) and back. */
uint32_t pv_ifindex_core(uint32_t index);
uint32_t pv_ifindex_public(uint32_t core);
void pv_addr_text(const struct pv_addr *addr, char *buf, size_t size);
/* Is this interface (the stack's number) one that the kernel owns? */
bool pv_iface_is_host(uint32_t core);

/* ---- decide.c ---------------------------------------------------------------------------------------------------------- */

/* All with the engine's lock. */
bool pv_decide_route(const struct pv_sock *so, const struct pv_endpoint *to); /* does this destination go by the stack? */
bool pv_decide_static(
    const struct pv_addr *dst); /* is this unicast address reached by an interface that the kernel does not know? */
uint32_t pv_decide_group_iface(const struct pv_sock *so, const struct pv_addr *group); /* when none is named; 0: none of ours */
/* Asks the kernel socket what routes depend on. Before decisions and after whatever changes it, so that no datagram need ask. */
void pv_decide_kernel_read(struct pv_sock *so);
/* Interface of ours that SO_BINDTODEVICE names; `kernels`: it names another one. */
uint32_t pv_decide_device(const struct pv_sock *so, bool *kernels);
int pv_decide_may_kernel(const struct pv_addr *addr); /* strict: -EOPNOTSUPP with a text */
/* A UDP socket in the stack with the kernel socket's options. 0 or -errno. */
int pv_core_open(struct pv_sock *so);
void pv_core_close(struct pv_sock *so);
void pv_decide_core(struct pv_sock *so, bool core_leg, bool kernel_leg);
/* `addr` may be NULL; else the reason follows it in the text. */
void pv_decide_kernel(struct pv_sock *so, const char *reason, const struct pv_addr *addr);
/* The first datagram of a socket that was neither bound nor connected. 0: decided. */
int pv_decide_send(struct pyvma_sock *h, struct pv_sock *so, const struct pv_endpoint *to);

/* ---- late.c ------------------------------------------------------------------------------------------------------------ */

/* The kernel has named the adopted socket `h` of `so`, and perhaps listens or is connected by it: it is decided now. No lock is held. */
void pv_late_decide(struct pyvma_sock *h, struct pv_sock *so);
/* bind(2) of the kernel socket. 0 or -errno. */
int pv_late_bind(const struct pv_sock *so, const struct sockaddr *addr, socklen_t len);

/* ---- name.c ------------------------------------------------------------------------------------------------------------ */

/* bind(2) of a socket that has a name: -EINVAL, or -EADDRNOTAVAIL. The engine's lock is held. */
int pv_name_twice(const struct pv_sock *so, const struct pv_endpoint *ep);

/* ---- leg.c ------------------------------------------------------------------------------------------------------------- */

/* All with the engine's lock; errors are the kernel's. */
/* The kernel socket is bound first, then the stack takes over its name. `ep` is what `addr` says. 0 also when the stack had to leave
 * the socket to the kernel. */
int pv_leg_bind(struct pv_sock *so, const struct pv_endpoint *ep, const struct sockaddr *addr, socklen_t len);
int pv_leg_bind_any(struct pv_sock *so);
/* The port of the kernel socket, and an end to that if the kernel chose it: false if not. */
int pv_leg_port(const struct pv_sock *so, uint16_t *out);
bool pv_leg_unbind(const struct pv_sock *so);
int pv_leg_connect(struct pv_sock *so, const struct pv_endpoint *to, const struct sockaddr *addr, socklen_t len);
int pv_leg_disconnect(struct pv_sock *so, const struct sockaddr *addr, socklen_t len);
/* The socket is the kernel's from now on. `addr` may be NULL; else the reason follows it in the text. */
void pv_leg_retire(struct pv_sock *so, const char *reason, const struct pv_addr *addr);
/* What to say when the stack did not take over a name that the kernel gave. */
const char *pv_leg_why_not(int rc);
/* Is it worth while to offer the stack a datagram to `to`? */
bool pv_leg_route(struct pv_sock *so, const struct pv_endpoint *to);
/* An error of the stack's for a datagram to `to` (NULL: the peer): is it the kernel that should say? */
bool pv_leg_ask_kernel(struct pv_sock *so, const struct pv_endpoint *to, int64_t rc);
/* What send(2) tells before it sends: the kernel socket's pending error, or 0. */
int pv_leg_error(struct pv_sock *so, int64_t now_ns);
/* An error that the kernel socket reported, or an entry of its error queue: path MTUs are for the stack, too. */
void pv_leg_saw_error(struct pv_sock *so, int rc);
void pv_leg_saw_queue(struct pv_sock *so, const struct msghdr *msg);
/* Before memberships or peers change: takes in what has come. */
void pv_leg_settle(void);
/* After an option changed: which leg sends to the connected peer? */
void pv_leg_options(struct pv_sock *so);
/* In a forked child, or without the engine: the kernel socket goes on. */
void pv_leg_left(struct pv_sock *so, const char *why);
pv_inline bool pv_leg_engine(void)
{
	return pv_engine.host != NULL;
}

/* ---- opt.c, opt_mcast.c ------------------------------------------------------------------------------------------------ */

/* Reads every option that the stack must know from the kernel socket; the lock is held. */
void pv_opt_import(struct pv_sock *so);
/* SO_RCVTIMEO or SO_SNDTIMEO of a kernel socket; 0: none. */
int64_t pv_opt_timeout(int fd, int name);
/* Rings were opened or closed: which interfaces are meant by the kernel socket's options? The lock is held. */
void pv_opt_ifaces_changed(struct pv_sock *so);
/* Multicast options that name one of our interfaces, or none. -ENOPROTOOPT: the kernel's business alone. */
int pv_mcast_set(struct pyvma_sock *h, struct pv_sock *so, int level, int name, const void *val, socklen_t len);
int pv_mcast_get(struct pv_sock *so, int level, int name, void *val, socklen_t *len);
bool pv_mcast_is_option(int level, int name);
void pv_mcast_import(struct pv_sock *so);
void pv_mcast_filter(struct pv_sock *so, int level, int name, const void *val, socklen_t len);
/* opt_kernel.c: options that rings cannot honour. After one was set on the kernel socket: takes note of it. */
void pv_opt_kernel_note(struct pv_sock *so, int level, int name);
/* Is it one? `receives`: it concerns what is received, too. Sockets on interfaces of our own alone refuse some. */
bool pv_opt_kernel_is(int level, int name, bool *receives);
bool pv_opt_kernel_refused(int level, int name);
/* The name of one that is in force; NULL: none is. */
const char *pv_opt_kernel_reason(const struct pv_sock *so);

/* ---- ready.c ----------------------------------------------------------------------------------------------------------- */

/* After anything that may have changed what an exported fd shows; the lock is held. */
void pv_ready_refresh(struct pv_sock *so);
void pv_ready_close(struct pv_sock *so);
/* The engine stops, or this is a forked child: no events any more. */
void pv_ready_stop(struct pv_sock *so);
void pv_ready_extra(void);
/* After a call that went to the kernel socket of a stream; without the lock. */
void pv_ready_after(struct pv_sock *so);
pv_inline void pv_ready_called(struct pv_sock *so)
{
	if (pv_unlikely(so->stream && pv_sock_mode(so) == PV_SOCK_KERNEL && so->sig_fd >= 0))
		pv_ready_after(so);
}
/* The set behind it, which is made if there is none; -1: it cannot be. */
int pv_ready_extra_fd(void);
/* The socket's entries in sets want to hear of its events, or want no more. */
void pv_ready_events(struct pv_sock *so, bool on);
/* Is the progress thread asleep on the kernel leg, so that who waits need not be? It is as long as nothing comes that way. */
bool pv_ready_leg_watched(struct pv_sock *so);
/* Before the kernel socket gets another number; engine lock. */
void pv_ready_unwatch(struct pv_sock *so);
/* One more, or one less, fd that is polled behind our back. */
void pv_ready_poll(bool more);
/* POLLRDNORM and POLLWRNORM, which are POLLIN and POLLOUT by other names. */
pv_inline uint32_t pv_ready_norm(uint32_t bits)
{
	return (bits & (PV_EV_IN | PV_EV_OUT)) << 6;
}
/* poll(2) on the kernel leg. */
int pv_ready_kernel(struct pv_sock *so, int events);
pv_inline void pv_ready_update(struct pv_sock *so)
{
	if (pv_unlikely(so->sig_fd >= 0))
		pv_ready_refresh(so);
}

/* ---- cmsg.c ------------------------------------------------------------------------------------------------------------ */

/* One piece more of it, behind `used` bytes of msg's. */
void pv_cmsg_put(struct msghdr *msg, size_t *used, int level, int type, const void *data, size_t len);
/* What of a datagram that was sent its stamp's reader is told (`m`: from, dst, iface, ttl, tos). */
void pv_cmsg_put_sent(struct pv_sock *so, const struct pv_udp_recv *m, struct msghdr *msg, size_t *used);
/* Ancillary data of a received datagram into msg; msg_controllen and MSG_CTRUNC as the kernel sets them. */
void pv_cmsg_put_all(struct pv_sock *so, const struct pv_udp_recv *m, struct msghdr *msg);
/* An entry of the error queue as MSG_ERRQUEUE tells it. */
void pv_cmsg_put_error(struct pv_sock *so, const struct pv_udp_errq *q, struct msghdr *msg);
struct pv_cmsg_send {
	struct pv_addr src;
	uint16_t segment; /* UDP_SEGMENT; 0: none */
};
/* Ancillary data of a datagram to send into `m`; `aux` holds what it points to. 0 or -errno. */
int pv_cmsg_parse(const struct pv_sock *so, const struct msghdr *msg, struct pv_udp_send *m, struct pv_cmsg_send *aux);
/* Of a stream: what stamps the message asks for, as pv_udp_send.stamp. 0 or -EINVAL. */
int pv_cmsg_parse_stream(const struct pv_sock *so, const struct msghdr *msg, uint32_t *stamp);

/* ---- recv.c ------------------------------------------------------------------------------------------------------------ */

/* A receive by either leg. */
struct pv_rx {
	struct pv_udp_recv m;
	int flags;
	bool from_kernel;
	void *heap; /* lending: what the kernel's leg had, for free() */
	bool eof; /* shut down for reading, and nothing queued */
	struct msghdr msg; /* the kernel's leg: name and control buffers in, what it wrote out */
};
/* The lock is held before and after. `lend`, when not NULL, takes the packet instead of copying. */
int64_t pv_recv_locked(struct pyvma_sock *h, struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend, int64_t timeout_ns);
/* One try without polling or waiting. */
int64_t pv_recv_try(struct pv_sock *so, struct pv_rx *rx, struct pv_pkt **lend);

/* ---- batch.c ----------------------------------------------------------------------------------------------------------- */

/* How many more packets may be lent: at most half of the buffers may be away. The lock is held. */
uint32_t pv_batch_may_lend(void);
/* The message has the packet, a single buffer, from here to pyvma_batch_release; `len` is the caller's to fill in. The lock is held. */
void pv_batch_lend(struct pyvma_msg *m, struct pv_pkt *pkt);

/* ---- send.c ------------------------------------------------------------------------------------------------------------ */

/* The lock is held before and after; posts only, the caller kicks. */
int64_t pv_send_locked(struct pyvma_sock *h, struct pv_sock *so, const struct pv_udp_send *m, int flags, int64_t timeout_ns);
/* After it, when it failed: is the message for the kernel to send? If not it is counted. */
bool pv_send_refused(struct pv_sock *so, const struct pv_endpoint *to, int64_t rc);
/* Rings the doorbell for what was posted; the lock is held. The engine may have been stopped under a send that waited. */
pv_inline void pv_send_done(void)
{
	if (pv_unlikely(!pv_engine.stack))
		return;
	pv_net_kick(pv_engine.net);
	pv_engine_timers(&pv_engine);
}
/*
 * What was sent to an address of ours is there, and answered, when the next call sends, as by the kernel's loopback: a refusal or a
 * reset is that call's error. The lock is held.
 */
pv_inline void pv_send_first(void)
{
	if (pv_engine.stack && pv_unlikely(pv_net_looped(pv_engine.net)))
		pv_engine_poll(&pv_engine, pv_clock_now(&pv_engine.clock));
}
/* Which leg does a datagram to `to` (NULL: the peer) take? The lock is held. */
bool pv_send_by_core(struct pv_sock *so, const struct pv_endpoint *to);

/* ---- stats.c ----------------------------------------------------------------------------------------------------------- */

/* To the setting exit_stats' file, if there is one: that the engine has started, or what it counted. The lock is held. */
void pv_report(bool stops);
/* The interface that an offloaded socket is bound to, by itself or by its address; 0: it may use several. The lock is held. */
uint32_t pv_sock_iface(const struct pv_sock *so);

#endif
