/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pyvma: BSD sockets over user-space rings. The one installed header; the Python package, the preload library and C programs all
 * use this interface.
 *
 * Every call returns a result >= 0 or -errno, and never touches errno, unless said otherwise. Calls on one socket may come from
 * several threads. A blocking call is interrupted by a signal with -EINTR; the caller decides (PEP 475).
 */
#ifndef PYVMA_H
#define PYVMA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PYVMA_EXPORT __attribute__((visibility("default")))

/* ---- the engine -------------------------------------------------------------------------------------------------------- */

/*
 * Settings may be made until the engine starts: the first socket starts it, or pyvma_start. Order, later wins: defaults, the TOML
 * file named by PYVMA_CONFIG, VMA_* variables, PYVMA_* variables, pyvma_config_set.
 * -EINVAL with a text in pyvma_last_error; -EBUSY once started.
 */
PYVMA_EXPORT int pyvma_config_set(const char *name, const char *value);
/* The value in force as text; returns its length (as snprintf) or -ENOENT. */
PYVMA_EXPORT int pyvma_config_get(const char *name, char *buf, size_t size);
/* The table: row `i`, or -ENOENT past the end. Strings live for ever. */
struct pyvma_config_row {
	const char *name, *type, *unit, *vma_alias, *default_value, *help;
	int live; /* may be changed in a running process, by its control socket */
	int given; /* set by its name, and so not by a preset */
};
PYVMA_EXPORT int pyvma_config_row(unsigned int i, struct pyvma_config_row *row);
/* Whether a text is one that the setting interfaces takes: 0, or -errno with a text. Nothing is opened. */
PYVMA_EXPORT int pyvma_interfaces_check(const char *text);
/* The rules of a file as the setting rules_file has it, those that are for a program of this name with this app_id, a line each: number, line
 * in the file, role, "kernel" or "offload", and the rule itself, with tabs between. Cut to `size`; their full length, or -errno with a text. */
PYVMA_EXPORT int pyvma_rules_list(const char *file, const char *program, const char *id, char *buf, size_t size);

/* 0, or -errno with a text in pyvma_last_error (unknown ring, no such device, bad interface, no privilege). Idempotent. */
PYVMA_EXPORT int pyvma_start(void);
/* Closes every offloaded socket and ring. Called at exit by itself. */
PYVMA_EXPORT void pyvma_stop(void);
/* For _exit(2): connections end as by pyvma_stop, but nothing else is done, and not even that where it would have to be waited for, as in a
 * handler that interrupted a call of this library's. Safe in one. */
PYVMA_EXPORT void pyvma_leave(void);
/* Everything becomes the kernel's, as by pyvma_sock_hand_back or by the kernel sockets beneath, and the engine stops. How many connections are
 * lost, since they could not be handed back; datagrams that were not read are, too. It is not started again. */
PYVMA_EXPORT int pyvma_retreat(void);
/* Text of this thread's last failure in a call that says it has one. Never NULL. */
PYVMA_EXPORT const char *pyvma_last_error(void);
PYVMA_EXPORT const char *pyvma_version(void);

/* Interfaces of the running engine: the first is 1; -ENOENT past the end. The field `index` is what SO_BINDTOIFINDEX, IP_PKTINFO and
 * scope ids call it, a number that no interface of the kernel has. */
struct pyvma_interface {
	char name[32];
	char ring[64]; /* e.g. "softnic:softnic_demo_0/1" */
	char mode[64];
	uint8_t mac[6];
	uint8_t link_up;
	uint8_t naddr;
	uint32_t index, mtu;
	struct sockaddr_storage addr[16];
	uint8_t prefix_len[16];
	uint32_t rx_csum, tx_csum, inline_size, tso_max, rx_depth, tx_depth, queues, flow_kinds, tstamp_kind, dm_bytes;
	uint32_t pacing_min_kbps, pacing_max_kbps;
	uint32_t rxqs; /* receive queues that sockets and rules may have beside the first ones, at most */
	uint32_t txqs, pacing_burst;
	uint64_t tstamp_khz;
	uint64_t tso_packets, dm_alloc, dm_packets, dm_sent, dm_oob; /* what the ring has counted */
	uint32_t flow_match; /* PYVMA_FLOW_*, and 0x8: sniffers */
	char note[192]; /* what was asked for and is not in force, and why; empty: nothing */
};
PYVMA_EXPORT int pyvma_interface_get(unsigned int index, struct pyvma_interface *out);

/* Entries of the setting `interfaces` that name an interface of the kernel's, offloaded or not: the first is 1; -ENOENT past the end. */
struct pyvma_kernel_interface {
	char name[32];
	char ring[16]; /* kind: "xdp", "verbs", "softnic" */
	uint32_t index; /* the kernel's number; 0: there is no such interface at the moment */
	uint32_t offloaded;
	char reason[256]; /* why it is not offloaded */
};
PYVMA_EXPORT int pyvma_kernel_interface_get(unsigned int number, struct pyvma_kernel_interface *out);

/* Named 64-bit counters of the engine: "net.rx_frames", "udp.rx_no_port", "ring.IFNAME.tx_packets", ... -ENOENT past the end. */
struct pyvma_counter {
	char name[64];
	uint64_t value;
};
PYVMA_EXPORT int pyvma_counter_get(unsigned int i, struct pyvma_counter *out);

/* The file in which others read this process's statistics. 0, -ENOENT (no engine, or no file), -ENAMETOOLONG. */
PYVMA_EXPORT int pyvma_stats_path(char *buf, size_t size);
/* What it holds, in JSON: its schema. Returns the length; at most `size` bytes are written, without a zero byte behind them. */
PYVMA_EXPORT size_t pyvma_stats_schema(char *buf, size_t size);

/* What pyvmad makes for a process without privileges: the XDP program in force on an interface, and AF_XDP sockets in its map. The fds are the
 * caller's. `mode` 0: the better one, 1: native, 2: generic. 0 or -errno with a text. Needs no engine. */
struct pyvma_xdp_loan {
	int link_fd, rules_fd, config_fd, sock_fd[16];
	uint32_t queues, native;
	uint8_t mac[6];
};
PYVMA_EXPORT int pyvma_xdp_lend(const char *ifname, unsigned int queues, unsigned int mode, struct pyvma_xdp_loan *out, char *text,
				size_t size);

/* ---- steering ---------------------------------------------------------------------------------------------------------- */

/* Headers that a rule names: an address family of AF_UNSPEC, a port, protocol or MAC of zeros is any. A port wants an address and a
 * protocol, a source wants a destination, all with ports. */
struct pyvma_flow_tuple {
	struct sockaddr_storage dst, src;
	uint8_t dst_mac[6];
	uint8_t l4_proto; /* 6 or 17 */
};
#define PYVMA_FLOW_TOS 0x1u
#define PYVMA_FLOW_LABEL 0x2u
#define PYVMA_FLOW_VXLAN 0x4u
struct pyvma_flow {
	struct pyvma_flow_tuple outer, inner; /* the frame's; those of the frame inside (PYVMA_FLOW_VXLAN) */
	uint16_t ethertype, vlan; /* 0: any; untagged */
	uint32_t match; /* PYVMA_FLOW_*: which of the following count */
	uint8_t tos, tos_mask; /* type of service or traffic class */
	uint32_t flow_label, vni;
};
struct pyvma_rule {
	uint32_t index, serial;
	uint64_t handle;
	uint32_t queue; /* of those beside the ring's first ones; 0: the first ones */
};
/* More frames for the interface with the public number `index`: those of the rule reach the engine although no socket asked for them.
 * It lasts until it is deleted or the interface goes. 0, or -errno with a text in pyvma_last_error: -EINVAL, -ENODEV, -EOPNOTSUPP
 * (the device cannot match by that), what the device says. */
PYVMA_EXPORT int pyvma_rule_add(unsigned int index, const struct pyvma_flow *flow, struct pyvma_rule *out);
/* Leads the rule to a receive queue of its own (-1), to that of another rule of its interface (its `queue`) or to the first ones (0); what came
 * before is received before. 0, and rule->queue is the new one; -errno with a text, and it leads where it led: -EOPNOTSUPP (the setting
 * ring_logic_rx does not ask for queues, the ring has none, or the rule is not by ports), -ENOSPC, -ENOBUFS, -ENOENT (no such queue),
 * -EEXIST (another rule, or a socket's, leads the same frames to such a queue), -ENODEV, -EAGAIN. */
PYVMA_EXPORT int pyvma_rule_move(struct pyvma_rule *rule, int queue);
PYVMA_EXPORT int pyvma_rule_del(const struct pyvma_rule *rule); /* 0, also when the interface is gone; -ENOENT */

/* ---- signals ----------------------------------------------------------------------------------------------------------- */

/* For faces that have libc's rules. This thread's waits, until that is NULL again, have the signal mask that `mask`, a sigset_t, says, as
 * ppoll(2)'s have. */
PYVMA_EXPORT void pyvma_wait_mask(const void *mask);
/* For a fork that pthread_atfork does not hear of, around which its caller is to call this: before it (0), after it in the parent,
 * made or not (1), and in the child (2). */
PYVMA_EXPORT void pyvma_forks(int step);
/* The program has a listener that the engine does not know of, and the processes that are forked from here may all accept from it; `inherited`:
 * so may others, it was there before the program. */
PYVMA_EXPORT void pyvma_listener_shared(int inherited);
/* An engine runs, and has an interface whose addresses the kernel does not have: what is sent there meets the engine's sockets alone. */
PYVMA_EXPORT int pyvma_has_own(void);
/* From now on it is known whether the handler that interrupted a wait has SA_RESTART. */
PYVMA_EXPORT void pyvma_wait_exact(void);
/* 1: that which ended this thread's last call with -EINTR has it. Asked once. */
PYVMA_EXPORT int pyvma_wait_restarts(void);

/*
 * For a face whose threads may be cancelled, and whose calls are made by signals' handlers: what both know of a thread. Before each call
 * the face sets `busy`, `cancellable` if cancellation is enabled, and disables that or sets `open`; it undoes it afterwards. A handler that
 * finds its thread busy must make no call; a wait that sleeps is not busy but `resting`, and calls `deferred` first unless that is NULL. A
 * wait of a thread that may end by the call and is `cancelled`, or that is `leaving`, ends with -ECANCELED. A handler that ran while the
 * thread was busy is told by `signalled`, which is 0 before each call: the call's wait, if it comes to one, ends with -EINTR as if it had
 * been asleep.
 */
#define PYVMA_THREAD_ENABLED 1 /* cancellation was enabled */
#define PYVMA_THREAD_ENDS 2 /* and the thread may end by the call */
#define PYVMA_SIGNALLED 1
#define PYVMA_SIGNALLED_RESTART 2 /* the handler has SA_RESTART */
struct pyvma_thread {
	volatile int busy, resting, leaving, cancellable, open, signalled;
	int cancelled, asked;
	void (*volatile deferred)(void);
	int *err; /* the face's: where this thread's errno is */
};
/* The calling thread's, which is found by pyvma_thread_cancel from now on. */
PYVMA_EXPORT struct pyvma_thread *pyvma_thread_get(void);
/* Before pthread_cancel is called for that pthread_t, and once calls that begin are not `open` any more. 0: it may be; 1: the thread is within
 * an open call, which ends if it waits: it is `asked` to cancel itself after that. The caller's own cancellation is disabled. */
PYVMA_EXPORT int pyvma_thread_ask(unsigned long thread);
/* 1: the calling thread is asked. Told once. */
PYVMA_EXPORT int pyvma_thread_asked(void);
/* pthread_cancel was called for that pthread_t: its wait ends, and all that follow. The caller's own cancellation is disabled. */
PYVMA_EXPORT void pyvma_thread_cancel(unsigned long thread);

/* The first number from `first` to `last` that is a descriptor of the engine's own; -1: none. For a face whose program closes numbers that it
 * does not know. */
PYVMA_EXPORT int pyvma_own_fd(unsigned int first, unsigned int last);

/* ---- sockets ----------------------------------------------------------------------------------------------------------- */

typedef struct pyvma_sock pyvma_sock;

/* As socket(2): a handle, and an fd for it, which a stream gets only when somebody asks (pyvma_sock_fileno, pyvma_sock_fd, or a call that
 * is the kernel's): what RLIMIT_NOFILE allows does not limit connections. Any family and type: what is not ours stays the kernel's.
 * `type` may carry SOCK_NONBLOCK and SOCK_CLOEXEC. */
PYVMA_EXPORT int pyvma_sock_open(int family, int type, int proto, pyvma_sock **out);
/* A handle for an fd that exists: shares the offloaded socket when the fd is (a duplicate of) one of ours, else a kernel one. */
PYVMA_EXPORT int pyvma_sock_adopt(int fd, pyvma_sock **out);
/* 1: the fd leads to a socket that was opened or adopted here and may be, or become, offloaded; 0: it does not. */
PYVMA_EXPORT int pyvma_is_sock(int fd);
/* As dup(2): one socket, two fds. */
PYVMA_EXPORT int pyvma_sock_dup(pyvma_sock *s, pyvma_sock **out);
/* Closes the fd; blocked callers wake with -EBADF. The handle is gone. */
PYVMA_EXPORT int pyvma_sock_close(pyvma_sock *s);
/* Gives the fd away without closing it: the handle is gone, the fd keeps the socket reachable by pyvma_sock_adopt. Returns the fd;
 * -EMFILE when a duplicate needs a number for the kernel socket and there is none: nothing has changed then. */
PYVMA_EXPORT int pyvma_sock_detach(pyvma_sock *s);
/* The fd for stock select, epoll, asyncio: from the first call on its readiness follows the socket's. */
PYVMA_EXPORT int pyvma_sock_fileno(pyvma_sock *s);
/* The number alone: how ready it shows to be says nothing. -errno when one has to be made and cannot. */
PYVMA_EXPORT int pyvma_sock_fd(pyvma_sock *s);

PYVMA_EXPORT int pyvma_sock_bind(pyvma_sock *s, const struct sockaddr *addr, socklen_t len);
/* -EINPROGRESS when a stream's handshake goes on after timeout_ns (-1: none, or SO_SNDTIMEO), or was not to be waited for. */
PYVMA_EXPORT int pyvma_sock_connect(pyvma_sock *s, const struct sockaddr *addr, socklen_t len, int64_t timeout_ns);
/* As listen(2). A listener bound to all addresses listens in the kernel, too. */
PYVMA_EXPORT int pyvma_sock_listen(pyvma_sock *s, int backlog);
/* As accept4(2); `addr` and `len` may be NULL. A connection that came by the kernel is a kernel socket; one of the stack's has no fd until
 * somebody asks. With PYVMA_ACCEPT_FD in the flags it has one at once, and where there is none (-EMFILE) it stays in the queue. */
#define PYVMA_ACCEPT_FD 0x20000000
PYVMA_EXPORT int pyvma_sock_accept(pyvma_sock *s, struct sockaddr *addr, socklen_t *len, int flags, int64_t timeout_ns,
				   pyvma_sock **out);
/* Where a connect to that address would lead: enum pyvma_offload_state. A stream that would be the kernel's is from then on, with the
 * reason; strict mode refuses that: -EOPNOTSUPP. */
PYVMA_EXPORT int pyvma_sock_would(pyvma_sock *s, const struct sockaddr *addr, socklen_t len);
PYVMA_EXPORT int pyvma_sock_getsockname(pyvma_sock *s, struct sockaddr *addr, socklen_t *len);
PYVMA_EXPORT int pyvma_sock_getpeername(pyvma_sock *s, struct sockaddr *addr, socklen_t *len);
PYVMA_EXPORT int pyvma_sock_shutdown(pyvma_sock *s, int how);
PYVMA_EXPORT int pyvma_sock_setsockopt(pyvma_sock *s, int level, int name, const void *val, socklen_t len);
PYVMA_EXPORT int pyvma_sock_getsockopt(pyvma_sock *s, int level, int name, void *val, socklen_t *len);
PYVMA_EXPORT int pyvma_sock_ioctl(pyvma_sock *s, unsigned long request, void *arg);
PYVMA_EXPORT int pyvma_sock_set_nonblock(pyvma_sock *s, int on);

/*
 * A live connection of the stack's becomes the kernel's as it is, with sequence numbers, options and queues; handles, fds and sets go on with
 * it, and so do calls that wait. 0, also when it was the kernel's before. Else nothing has changed and pyvma_last_error says why: -EOPNOTSUPP
 * (not on an interface that the kernel owns), -EPERM (CAP_NET_ADMIN is wanted), -EINPROGRESS (its handshake is not over), -ENOTCONN (there is
 * none, or no more), -EBUSY (urgent data is under way), what the kernel says.
 */
PYVMA_EXPORT int pyvma_sock_hand_back(pyvma_sock *s);
/* The same by fd: 0 also when there is nothing to hand back, since it is no connection of the stack's. `listener`: one of those is the kernel's
 * from then on, too. */
PYVMA_EXPORT int pyvma_hand_back_fd(int fd, int listener);
/* All connections whose fd would survive an exec(2). 0, or why the first one could not; the others are handed back all the same. Not for the
 * child of a vfork(2), whose fds are its own while the stack is the parent's. */
PYVMA_EXPORT int pyvma_hand_back_inheritable(void);
/* Before _exit(2), which the engine does not hear of: forked children keep the connections that they have inherited. exit(3) does the same. */
PYVMA_EXPORT int pyvma_hand_back_inherited(void);

/*
 * Pacing. SO_MAX_PACING_RATE of Linux (4 or 8 bytes: bytes a second, all ones and 0: unlimited) holds what a socket sends by each interface
 * to a rate. This option names the bytes that may leave at once, too, and those of a usual packet, which a device plans with; 0: what is
 * usual. Both forms set and tell the one rate. -EINVAL: less than 125 bytes a second, or than the device can; -EOPNOTSUPP: a burst on a
 * socket that is the kernel's.
 */
#define PYVMA_SOL 0x7076
#define PYVMA_SO_PACING 1
struct pyvma_pacing {
	uint64_t rate; /* bytes a second, of Ethernet frames without FCS */
	uint32_t burst;
	uint16_t packet;
	uint16_t reserved; /* 0 */
};
enum pyvma_pacing_by { PYVMA_PACING_NONE, PYVMA_PACING_DEVICE, PYVMA_PACING_SOFTWARE, PYVMA_PACING_KERNEL };
struct pyvma_pacing_state {
	struct pyvma_pacing pacing;
	uint32_t by; /* enum pyvma_pacing_by */
	uint32_t queue; /* of the device; 0: none of its own */
	uint32_t frames, bytes; /* that wait for their time */
	char interface[32];
	char reason[64]; /* why not by the device */
};
/* Who holds what the socket sends by its i-th interface to the rate. -ENOENT past the end, and while nothing was sent: then `pacing` alone
 * is filled in. */
PYVMA_EXPORT int pyvma_sock_pacing(pyvma_sock *s, unsigned int i, struct pyvma_pacing_state *out);

/* Receive queues of sockets' own: which the setting ring_logic_rx chooses, or the program by a key. Sockets of one key share a queue. */
#define PYVMA_PLACE_MOVE 0x1u /* also from another queue; what came by that is received before what comes by the new one */
#define PYVMA_PLACE_NONE 0x2u /* to the interface's first queues, whatever the key and the setting say */
#define PYVMA_PLACE_SEND 0x4u /* of sending, instead */
/* The key of a socket; of one without a name, or that is not connected yet, from then on. 0, or -errno with a text, and the socket is led where it
 * was: -EOPNOTSUPP (it is the kernel's, or the ring has no such queues), -EBUSY (it has another place, and PYVMA_PLACE_MOVE is not set),
 * -EEXIST (a rule of the program's leads the same frames to such a queue), -EAGAIN (frames come faster than they are received), -ENOBUFS,
 * -ENOMEM, -EINVAL, what the device says. */
PYVMA_EXPORT int pyvma_sock_place(pyvma_sock *s, uint64_t key, unsigned int how);
struct pyvma_place {
	uint32_t logic; /* by what: as ring_logic_rx */
	uint64_t key;
	uint32_t queue; /* beside the ring's first ones; 0: none, for `reason` */
	uint32_t cpu; /* as SO_INCOMING_CPU numbers it */
	uint32_t users; /* keys and rules that have this queue */
	uint64_t set; /* queues over which the device spreads what comes to the address, a bit each */
	char interface[32];
	char reason[64];
};
/* With PYVMA_PLACE_SEND it is the send queue of the key by which the socket sends, where ring_logic_tx is not 0. What it has sent leaves by the old
 * queue first: -EAGAIN when that takes longer than a millisecond. -ENOSPC: ring_limit keys have one. -EBUSY also of a socket that is held to a
 * rate. -ENOTCONN: it does not send by the engine yet. */
/* The i-th address or flow that the socket is placed by; -ENOENT past the end, and of a socket that was not placed. */
PYVMA_EXPORT int pyvma_sock_placed(pyvma_sock *s, unsigned int i, struct pyvma_place *out);
/* The send queue of the i-th interface that its key has sent by, of which `users` are the sockets: `cpu` and `set` are 0. -ENOENT past the end,
 * and of a socket that sends by the first queues. */
PYVMA_EXPORT int pyvma_sock_sends_by(pyvma_sock *s, unsigned int i, struct pyvma_place *out);

/* A flag of a send, sendto that need not wait, on an offloaded socket: more is about to be sent, on whatever socket, before a
 * pyvma_flush() or a send without it, and one doorbell will do for all. Nothing is held back for longer than until the engine polls. */
#define PYVMA_MSG_BATCH 0x40000 /* as the kernel's MSG_BATCH */
PYVMA_EXPORT void pyvma_flush(void);

/* timeout_ns: -1 waits for ever (or SO_RCVTIMEO/SO_SNDTIMEO), 0 not at all, else so long: -EAGAIN when that is over. A
 * non-blocking socket or MSG_DONTWAIT waits not at all whatever is given. */
PYVMA_EXPORT int64_t pyvma_sock_send(pyvma_sock *s, const void *buf, size_t len, int flags, int64_t timeout_ns);
PYVMA_EXPORT int64_t pyvma_sock_recv(pyvma_sock *s, void *buf, size_t len, int flags, int64_t timeout_ns);
PYVMA_EXPORT int64_t pyvma_sock_sendto(pyvma_sock *s, const void *buf, size_t len, int flags, const struct sockaddr *addr,
				       socklen_t addrlen, int64_t timeout_ns);
PYVMA_EXPORT int64_t pyvma_sock_recvfrom(pyvma_sock *s, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addrlen,
					 int64_t timeout_ns);
PYVMA_EXPORT int64_t pyvma_sock_sendmsg(pyvma_sock *s, const struct msghdr *msg, int flags, int64_t timeout_ns);
PYVMA_EXPORT int64_t pyvma_sock_recvmsg(pyvma_sock *s, struct msghdr *msg, int flags, int64_t timeout_ns);
/* poll(2) on one socket: POLLIN, POLLOUT, ... among `events`; returns revents, 0 at the timeout. */
PYVMA_EXPORT int pyvma_sock_poll(pyvma_sock *s, int events, int64_t timeout_ns);

/* ---- batches ----------------------------------------------------------------------------------------------------------- */

/* One datagram, or piece of a stream, of a batch. */
struct pyvma_msg {
	void *base; /* payload; send: the caller's; receive: into the caller's buffer, or lent (zero copy) */
	uint32_t len; /* in: size of the buffer or payload; out: bytes there */
	uint32_t flags; /* out: MSG_TRUNC, MSG_CTRUNC */
	uint32_t addrlen; /* 0: connected peer */
	struct sockaddr_storage addr;
	int64_t arrival_ns; /* receive: CLOCK_MONOTONIC of the poll that brought it */
	void *lent; /* receive, zero copy: give it back with pyvma_batch_release */
};
/* Sends in order; returns how many left (>= 1) or -errno of the first. Waits as send does only while none has left. */
PYVMA_EXPORT int pyvma_sock_send_batch(pyvma_sock *s, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns);
/* Waits for the first, takes what is there up to n. */
PYVMA_EXPORT int pyvma_sock_recv_batch(pyvma_sock *s, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns);
/* The same with payloads lent in place: read only, contiguous, valid until released, in a forked child as copies of its own. A datagram
 * that came in fragments, or by the kernel, is copied into one buffer; offloaded sockets only (-EOPNOTSUPP). Lent buffers are the
 * engine's receive buffers: at most half of the pool may be away, then -ENOBUFS.
 * Of a stream the messages are consecutive pieces, each as it came, without address and time; 0 at its end. Reading them opens the
 * window, whenever they are given back. */
PYVMA_EXPORT int pyvma_sock_recv_lent(pyvma_sock *s, struct pyvma_msg *msgs, uint32_t n, int flags, int64_t timeout_ns);
PYVMA_EXPORT void pyvma_batch_release(struct pyvma_msg *msgs, uint32_t n);

/* ---- waiting for many -------------------------------------------------------------------------------------------------- */

/*
 * epoll(7) over offloaded sockets, kernel sockets and other fds together: same events, same errors. Bits are <sys/epoll.h>'s:
 * level-triggered unless EPOLLET; EPOLLONESHOT; EPOLLERR and EPOLLHUP always. EPOLLEXCLUSIVE is the kernel's matter: those whose
 * set has sockets of ours, too, are all woken, since they wait in poll(2), on the kernel's set.
 * A socket may be added before it is decided whose it is, and leaves every set when it is closed. Waiting spins, then sleeps, as a
 * receive does, while sockets of ours are in the set; else it sleeps at once.
 */
typedef struct pyvma_epoll pyvma_epoll;
struct pyvma_event {
	uint32_t events;
	uint64_t data; /* the caller's */
};
PYVMA_EXPORT int pyvma_epoll_open(pyvma_epoll **out);
/* By what the program waits for which the set was made: what its statistics say of it. */
enum pyvma_waits { PYVMA_WAITS_EPOLL, PYVMA_WAITS_POLL, PYVMA_WAITS_SELECT, PYVMA_WAITS_LOOP };
PYVMA_EXPORT void pyvma_epoll_waits(pyvma_epoll *ep, enum pyvma_waits kind);
/* Threads that wait in it find -EBADF; no other call may come after. */
PYVMA_EXPORT void pyvma_epoll_close(pyvma_epoll *ep);
/* As epoll_ctl(2): EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL by number. */
PYVMA_EXPORT int pyvma_epoll_ctl(pyvma_epoll *ep, int op, int fd, const struct pyvma_event *ev);
/* The same by handle, which needs no fd: once in a set for all handles of the socket. */
PYVMA_EXPORT int pyvma_epoll_ctl_sock(pyvma_epoll *ep, int op, pyvma_sock *s, const struct pyvma_event *ev);
/* How many of `events` were filled, 0 at the timeout; timeout_ns: -1 for ever, 0 not at all. */
PYVMA_EXPORT int pyvma_epoll_wait(pyvma_epoll *ep, struct pyvma_event *events, int n, int64_t timeout_ns);
/* An fd that is readable while the set has something to tell, for sets within sets and other loops. Now and then it has nothing
 * after all. Not to be closed or changed. */
PYVMA_EXPORT int pyvma_epoll_fileno(pyvma_epoll *ep);
/* The same fd as a number that nobody polls, which costs less: pyvma_epoll_fileno has to be called before anybody does. */
PYVMA_EXPORT int pyvma_epoll_number(const pyvma_epoll *ep);
/* How many there are in the set at the moment: no more are told at once. */
PYVMA_EXPORT int pyvma_epoll_entries(const pyvma_epoll *ep);
/* `fd`, one of several numbers that lead to the set, is about to be closed: where it is the set's own, the set goes on by another. */
PYVMA_EXPORT void pyvma_epoll_leave(pyvma_epoll *ep, int fd);
/* The set is closed, but for its fd, which is told and is the caller's: a set of the kernel's with what was added to it, by number, and its
 * data. For sockets that are the kernel's by now. */
PYVMA_EXPORT int pyvma_epoll_retreat(pyvma_epoll *ep);
/*
 * For event loops that sleep in a poll of their own. The fd is readable when a frame came, so that its poller's thread polls the rings,
 * by pyvma_epoll_turn: after each wake-up, and as long as that returns more than 0. It may sleep on the fd after a 0 only.
 */
PYVMA_EXPORT int pyvma_epoll_loop_fd(pyvma_epoll *ep);
/*
 * Polls once; how many of `events` were filled, which does not wait. spin_ns < 0: when that is none, whatever comes from now on makes
 * the fd above readable. Else it polls for so long until there are some or `other`, -1 for none, is readable; and says nothing by that fd.
 */
PYVMA_EXPORT int pyvma_epoll_turn(pyvma_epoll *ep, struct pyvma_event *events, int n, int64_t spin_ns, int other);

/* ---- what became of a socket ------------------------------------------------------------------------------------------- */

enum pyvma_offload_state { PYVMA_UNDECIDED, PYVMA_OFFLOADED, PYVMA_KERNEL };
/* Text: the ring's name when offloaded, else the reason why not. Returns the state. */
PYVMA_EXPORT int pyvma_sock_offload(const pyvma_sock *s, char *text, size_t size);
/* Where the device's time stamps of a socket's packets come from (SO_TIMESTAMPING), and how good they are. */
struct pyvma_sock_stamps {
	char mode[8]; /* the conversion in force: "off", "raw", "sync", "ptp", "rtc" */
	uint32_t rx, tx; /* the device stamps what is received, what is sent */
	uint64_t error_bound_ns; /* what conversion may add to the device's own error; UINT64_MAX: not known */
	uint64_t samples, steps; /* of the clocks, so far; jumps that these found */
};
/* -ENOTCONN: the kernel's, or not decided yet. */
PYVMA_EXPORT int pyvma_sock_stamps(pyvma_sock *s, struct pyvma_sock_stamps *out);
struct pyvma_sock_stats {
	uint64_t rx_datagrams, rx_bytes, rx_dropped, tx_datagrams, tx_bytes; /* through the stack */
	uint64_t rx_eagain, rx_errors, tx_eagain, tx_errors; /* calls that ended so there */
	uint64_t kernel_rx_datagrams, kernel_rx_bytes, kernel_tx_datagrams, kernel_tx_bytes;
	uint64_t poll_hits, poll_misses, sleeps;
	uint32_t queued, queued_bytes;
	uint32_t pacing_by, tx_queue; /* enum pyvma_pacing_by; the device's queue, 0: none of its own */
	uint32_t tx_held, tx_held_bytes; /* frames that wait for their time */
};
PYVMA_EXPORT int pyvma_sock_stats(pyvma_sock *s, struct pyvma_sock_stats *out);

/* ---- captures ---------------------------------------------------------------------------------------------------------- */

/*
 * Frames as a stream of pcapng blocks, read by one thread: of a live process, whose control socket gave an fd (native/rt/control.h), or of
 * a device's port. -EBADMSG, ... with a text in pyvma_last_error.
 */
typedef struct pyvma_capture pyvma_capture;
struct pyvma_capture_options {
	uint32_t bytes; /* buffered between writer and reader; 0: 8 MiB */
	uint32_t snaplen; /* bytes kept of a frame; 0: all */
	uint64_t count; /* frames; 0: no end */
	const char *filter; /* "udp and port 53"; "": every frame */
};
struct pyvma_capture_stats {
	char name[32]; /* of the interface */
	uint64_t received; /* frames that came by */
	uint64_t missed; /* that the device had no buffer for, where it tells */
	uint64_t accepted; /* by the filter */
	uint64_t dropped; /* accepted, and the reader had left no room */
	uint64_t start_ns; /* since 1970 */
};
/* `fd` stays the caller's. */
PYVMA_EXPORT int pyvma_capture_attach(int fd, pyvma_capture **out);
/* What a port receives and sends, by a sniffer rule: "softnic:fabric=F,port=0" or "verbs:device=mlx5_0,port=1". -EOPNOTSUPP: the device
 * has none. */
PYVMA_EXPORT int pyvma_capture_sniff(const char *interface, const struct pyvma_capture_options *options, pyvma_capture **out);
/* Receives from the port, waiting for the first frame so long (0: not at all): how many. -EOPNOTSUPP: another process writes. */
PYVMA_EXPORT int pyvma_capture_poll(pyvma_capture *c, int64_t timeout_ns);
/* The next bytes of the stream, where they are; how many, 0: none yet. They stay until they are taken. */
PYVMA_EXPORT int64_t pyvma_capture_peek(pyvma_capture *c, const void **data);
PYVMA_EXPORT void pyvma_capture_take(pyvma_capture *c, uint64_t n);
/* 1: nothing more will be written. */
PYVMA_EXPORT int pyvma_capture_done(pyvma_capture *c);
/* Interface `i` of the stream, from 0; -ENOENT past the end. */
PYVMA_EXPORT int pyvma_capture_stats(pyvma_capture *c, unsigned int i, struct pyvma_capture_stats *out);
/* The blocks of statistics that end the stream; their length, -ENOSPC. 4 KiB are enough. */
PYVMA_EXPORT int pyvma_capture_trailer(pyvma_capture *c, void *buf, size_t size);
/* Ends the sniffing of a port; what was received can still be read. */
PYVMA_EXPORT void pyvma_capture_stop(pyvma_capture *c);
PYVMA_EXPORT void pyvma_capture_detach(pyvma_capture *c);

#ifdef __cplusplus
}
#endif

#endif
