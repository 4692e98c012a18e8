/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the preload library's files share. See doc/preload.md for the rules.
 *
 * Every interposer has the same form: a table look-up, and either the real call or pyvma_sock_* with its result made -1 and errno. Errno is
 * untouched by a call that succeeds.
 */
#ifndef PV_PRELOAD_PRELOAD_H
#define PV_PRELOAD_PRELOAD_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "preload/real.h"
#include "pyvma.h"

#define PL_EXPORT PYVMA_EXPORT

/* ---- table.c: any thread, no lock to read ------------------------------------------------------------------------------ */

/*
 * What a number leads to, in one word: 0, not ours; PL_LATE, a kernel socket that may be offloaded and was not used yet; a handle of the
 * engine's; or a set with PL_SET. Handles and sets are reused, never freed: a thread that still holds the word of an fd that another one
 * closes meets the same as it would in the kernel, a closed file or a new one.
 */
typedef uintptr_t pl_word;
#define PL_LATE ((pl_word)1)
#define PL_SET ((pl_word)2)
#define PL_CLOSING ((pl_word)3) /* a socket of ours that is about to come or to go */
#define PL_TAGS ((pl_word)3)

#define PL_CHUNK_BITS 16u
#define PL_CHUNK (1u << PL_CHUNK_BITS)
extern _Atomic(_Atomic(pl_word) *) pl_table[PL_CHUNK];

pv_inline pl_word pl_get(int fd)
{
	_Atomic(pl_word) *chunk = atomic_load_explicit(&pl_table[(unsigned int)fd >> PL_CHUNK_BITS], memory_order_acquire);

	return pv_likely(chunk) ? atomic_load_explicit(&chunk[(unsigned int)fd % PL_CHUNK], memory_order_acquire) : 0;
}

/* False: no memory, and the fd stays the kernel's. */
bool pl_put(int fd, pl_word word);
/* The number is about to be closed, or is the kernel's from now on. What it led to; that is the caller's now. */
pl_word pl_take(int fd);
/* Only if it still is `was`. */
bool pl_change(int fd, pl_word was, pl_word word);
/* The first number from `fd` on that leads to something, up to `last`; -1: none. */
int pl_next(int fd, int last);

/* ---- start.c ----------------------------------------------------------------------------------------------------------- */

/* May sockets be offloaded at all? Cheap; the engine is not started by it. */
bool pl_on(void);
/* Not any more, and why not: once on stderr. */
void pl_off(const char *why);
/* sandbox.c, before the engine is started: why that must not be tried; NULL: it may, or it was asked before. */
const char *pl_sandbox(void);
/* retreat.c: everything of the program's becomes the kernel's, and the engine stops; why is said once. */
void pl_retreat(const char *why);
/* The calls of this thread are the engine's, or a library's that it starts: they are the kernel's. */
extern _Thread_local unsigned int pl_inside;

/* In a forked child: locks that other threads may have held are made anew. What they guard is one word at a time, or not yet seen. */
void pl_socket_forked(void);
void pl_epoll_forked(void);
void pl_deepbind_forked(void);
void pl_wait_forked(void);
void pl_stdio_forked(void);
void pl_spawn_forked(void);
/* What streams of sockets hold is written: the C library does so behind all handlers of exit, and that is too late. */
void pl_stdio_flush(void);
/* One line on stderr, for what the program cannot be told in another way. */
void pl_say(const char *why, const char *what);

/* ---- process.c --------------------------------------------------------------------------------------------------------- */

/* This process uses a socket by the engine. */
void pl_used(void);
bool pl_uses_engine(void);
/* It has done so, or one that it was forked from has. */
bool pl_is_user(void);
/* Another program is about to get what survives an exec. What cannot be handed back it finds as a socket that is not connected. */
void pl_hand_over(void);
/* clone(2) by number with arguments `a`, where it makes a process with memory, numbers and a stack of its own: vsftpd's fork. */
long pl_fork_by(const long *a);

/* ---- socket.c ---------------------------------------------------------------------------------------------------------- */

/* The handle of a socket that is about to be used in a way that decides whose it is; NULL: the kernel's. */
pyvma_sock *pl_use(int fd);
/* As long as nothing decides: NULL also for a socket that the kernel alone knows so far. */
pv_inline pyvma_sock *pl_peek(int fd)
{
	pl_word w = pl_get(fd);

	return w & PL_TAGS ? NULL : (pyvma_sock *)w;
}
pv_inline pyvma_sock *pl_sock(int fd)
{
	pl_word w = pl_get(fd);

	if (pv_likely(!(w & PL_TAGS)))
		return (pyvma_sock *)w;
	return (w & PL_TAGS) == PL_SET ? NULL : pl_use(fd);
}
/* The same once more. */
pyvma_sock *pl_sock_now(int fd);
/* After a call that may have decided: a socket that is the kernel's leaves the table. */
void pl_settle(int fd, pyvma_sock *h);
/* A new number for the open file of `from` exists. */
void pl_dup(int from, int to);
/* The number `fd` is about to lead elsewhere, or nowhere. 0: the caller closes it; 1: it is closed; -errno */
int pl_close(int fd);

/* What calls by name and by number are made of. The new number, or -errno. */
int pl_accept_by(pyvma_sock *h, struct sockaddr *addr, socklen_t *len, int flags);
int64_t pl_recv_from(pyvma_sock *h, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *alen);
int64_t pl_recv_msg(pyvma_sock *h, struct msghdr *msg, int flags);
int64_t pl_send_msg(pyvma_sock *h, const struct msghdr *msg, int flags);
int64_t pl_read_to(pyvma_sock *h, const struct iovec *iov, int n, int flags);
int64_t pl_write_from(pyvma_sock *h, const struct iovec *iov, int n, int flags);
int64_t pl_recv_many(pyvma_sock *h, struct mmsghdr *msgs, unsigned int n, int flags, struct timespec *ts);
int64_t pl_send_many(pyvma_sock *h, struct mmsghdr *msgs, unsigned int n, int flags);
/* The connections among a message's fds are handed back before. False: busy. */
bool pl_pass_on(const struct msghdr *msg);

/* ---- number.c: syscall() of `number` with its arguments; false: it is the kernel's. ------------------------------------- */

bool pl_by_number(long number, const long *a, long *rc);

/* ---- jump.c: signals whose handlers have run in this thread since a wait for several began, a bit each. ------------------ */

extern _Thread_local uint64_t pl_handled __attribute__((tls_model("initial-exec")));

/* ---- edge.c ------------------------------------------------------------------------------------------------------------ */

extern _Thread_local struct pyvma_thread *pl_me __attribute__((tls_model("initial-exec"))); /* NULL: not known yet */
extern _Thread_local struct pyvma_thread *pl_known
    __attribute__((tls_model("initial-exec"))); /* NULL: it has made no call of the engine's */
struct pyvma_thread *pl_register(bool point);
/* This is a signal's handler, and has interrupted a call of the engine's. */
bool pl_busy(void);
/* Then: to close `h` of `fd`, or to shut it down as `how` says, is left to that call. */
int pl_defer(int fd, pyvma_sock *h, int how);
/* Or to leave for where a handler jumped to: that call ends as soon as it can, and then pl_jump comes. */
void pl_leave_soon(void);
struct pl_mark {
	struct pyvma_thread *me;
	int cancel; /* the thread's cancellation state, which is off meanwhile; PL_OPEN: it is as it was; PL_FIRST: and this is the outermost call */
	int cancellable, open; /* not with PL_FIRST: of the call that this one's handler has interrupted, if any */
	int err; /* errno before: the engine's own calls need not succeed, and one that does leaves it alone */
};
#define PL_OPEN (-1)
#define PL_FIRST (-2)
/* Has pthread_cancel been called in this process, or is it about to be? From then on cancellation is off within calls. */
extern _Atomic(bool) pl_cancels;
/* Then, on the way in: `m` and the thread know. And on the way out, where pthread_cancel may have come while the call was open. */
void pl_shut(struct pl_mark *m, bool point);
void pl_asked(const struct pl_mark *m);
/* On the way in, of a handler's call that has interrupted another one; on the way out, cancellation is what it was before the call. */
void pl_enter_within(struct pl_mark *m, bool point);
void pl_restore(const struct pl_mark *m);
/* What handlers left to do, and the jump of one (jump.c), if there was any. */
void pl_finish(const struct pl_mark *m);
void pl_jump(const struct pl_mark *m);
/* A jump that leaves no call of the engine's begins. It may leave the last steps of one, and what those had still to do is done here. */
void pl_jumps(void);
/* What handlers left to a call is being done: it is too early for their jump. */
bool pl_doing(void);

/* start.c: the process ends, by a thread in its last handlers of exit. That the engine is gone no program would have been told by others' calls:
 * those come back once the process is gone, or REST_NS after that began, should one of them be waited for. */
extern _Atomic(bool) pl_ending;
void pl_rest(void);
/* This thread ends the process. */
void pl_end(void);

/* False: busy. `point`: the call is one that pthread_cancel ends. */
pv_inline bool pl_enter(struct pl_mark *m, bool point)
{
	struct pyvma_thread *me = pl_me;

	if (pv_unlikely(!me))
		me = pl_register(point);
	if (pv_unlikely(me->busy))
		return false;
	m->me = me;
	me->signalled = 0;
	atomic_signal_fence(memory_order_seq_cst);
	/* First: from here on nothing leaves but by pl_leave. */
	me->busy = 1;
	m->err = *me->err;
	if (pv_unlikely(me->open | me->cancellable | me->resting)) {
		pl_enter_within(m, point);
		return true;
	}
	m->cancel = PL_FIRST;
	__atomic_store_n(&me->open, 1, __ATOMIC_RELAXED);
	/* Whoever cancels sees the one, or this thread the other: between its two steps is a membarrier. */
	atomic_signal_fence(memory_order_seq_cst);
	if (pv_likely(!atomic_load_explicit(&pl_cancels, memory_order_relaxed)))
		me->cancellable = point ? PYVMA_THREAD_ENDS : PYVMA_THREAD_ENABLED;
	else
		pl_shut(m, point);
	return true;
}

/* Is the call to be made again? It was ended for the thread to end, which does so already: these are its cleanup handlers. */
pv_inline bool pl_leave(const struct pl_mark *m, int64_t rc)
{
	struct pyvma_thread *me = m->me;

	me->busy = 0;
	if (pv_unlikely(me->deferred != NULL))
		pl_finish(m);
	if (pv_likely(m->cancel == PL_FIRST)) {
		/* What is stored last tells a handler that jumps before what is to be restored. */
		me->cancellable = 0;
		__atomic_store_n(&me->open, 0, __ATOMIC_RELAXED);
		atomic_signal_fence(memory_order_seq_cst);
		if (pv_unlikely(__atomic_load_n(&me->asked, __ATOMIC_RELAXED)))
			pl_asked(m);
	} else {
		pl_restore(m);
	}
	*me->err = m->err;
	if (pv_likely(rc >= 0))
		return false;
	if (pv_unlikely(rc == -ENETDOWN && atomic_load_explicit(&pl_ending, memory_order_relaxed)))
		pl_rest();
	if (pv_likely(rc != -ECANCELED))
		return false;
	pthread_testcancel();
	return true;
}

#define PL_EDGE(point, call)                                                                                                       \
	({                                                                                                                         \
		struct pl_mark pl_mark;                                                                                            \
		int64_t pl_told = -EAGAIN;                                                                                         \
                                                                                                                                   \
		while (pv_likely(pl_enter(&pl_mark, point))) {                                                                     \
			pl_told = (call);                                                                                          \
			if (pv_likely(!pl_leave(&pl_mark, pl_told)))                                                               \
				break;                                                                                             \
		}                                                                                                                  \
		pl_told;                                                                                                           \
	})
/* A call of the engine's, from outside of it, and its result; -EAGAIN: this thread is busy. */
#define PL_IN(call) PL_EDGE(false, call)
/* One that may sleep: the thread may end in it. What the caller has then is given back by PL_FREED and its kin: these files are compiled so that
 * a thread that ends runs them (-fexceptions), and a jump out of a handler leaves nothing behind that would be run later. */
#define PL_POINT(call) PL_EDGE(true, call)
void pl_free(void *at);
#define PL_FREED __attribute__((cleanup(pl_free)))

/* ---- loan.c ------------------------------------------------------------------------------------------------------------ */

/* Memory of this call's, which ends with it, also if a thread's end or a handler's jump ends that: `PL_LENT void *at = NULL`. 0, -ENOMEM, or -EAGAIN: busy. */
int pl_lend(void **at, size_t len);
/* Two fds, -1 as long as there are none, which are closed then. */
int *pl_lent_pipe(void *at);
/* A set that is closed then; NULL as long as there is none. */
pyvma_epoll **pl_lent_set(void *at);
void pl_give_back(void *mem);
pv_inline void pl_lent_end(void **at)
{
	if (pv_unlikely(*at != NULL))
		pl_give_back(*at);
}
#define PL_LENT __attribute__((cleanup(pl_lent_end)))
/* A jump is about to set the stack pointer to `to`; UINTPTR_MAX: nobody knows, and nothing is given back. */
void pl_loans_left(uintptr_t to);

/* ---- wait.c ------------------------------------------------------------------------------------------------------------ */

#define PL_NS_PER_S INT64_C(1000000000)
pv_inline int64_t pl_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * PL_NS_PER_S + ts.tv_nsec;
}
/* NULL: -1; -EINVAL. */
int64_t pl_timespec_ns(const struct timespec *ts);
/* ppoll(2), -errno; timeout_ns -1: for ever. `waits`: what the program called. */
struct pl_wait {
	enum pyvma_waits waits;
	const sigset_t *mask;
};
/* A socket that is, or may become, the stack's? A set is shown: its number is polled. */
bool pl_polls_ours(int fd);
int pl_poll(struct pollfd *fds, nfds_t n, int64_t timeout_ns, const struct pl_wait *how);
/* pyvma_epoll_wait under `mask`, the caller's memory. Within PL_POINT: neither the thread's end nor a jump comes between. */
int pl_wait_epoll(pyvma_epoll *ep, struct pyvma_event *ev, int n, int64_t timeout_ns, const sigset_t *mask);

/* ---- epoll.c ----------------------------------------------------------------------------------------------------------- */

struct pl_set;
pv_inline struct pl_set *pl_set_of(pl_word w)
{
	return (w & PL_TAGS) == PL_SET ? (struct pl_set *)(w - PL_SET) : NULL;
}
/* Before its number is polled, or put into a set. */
void pl_set_show(struct pl_set *set);
void pl_set_get(struct pl_set *set);
void pl_set_put(struct pl_set *set, int fd);
/* It is a set of the kernel's from now on, and nothing of ours. */
void pl_set_retreat(struct pl_set *set);

/*
 * `call` by handle `h` of `fd` until it has a result for the program, or the socket turns out to be the kernel's by now, by a call of another
 * thread's: that is what the statement ends with.
 */
#define PL_CALL(fd, timeo, call)                                                                                                   \
	for (pyvma_sock *h = pl_sock(fd); pv_likely(h != NULL); h = pl_sock_now(fd)) {                                             \
		int64_t pl_rc = PL_POINT(call);                                                                                    \
                                                                                                                                   \
		if (pv_likely(pl_rc >= 0) || !pl_again(fd, h, pl_rc, timeo))                                                       \
			return pl_result(pl_rc);                                                                                   \
	}

/* No address is: whatever the socket (move_addr_to_kernel in Linux). */
pv_inline bool pl_too_long(socklen_t len)
{
	return len > sizeof(struct sockaddr_storage);
}

/* Where an address is to be written whose length is what the caller says. Linux looks at that when the call is done: what it did stays done. */
pv_inline int pl_no_len(const struct sockaddr *addr, const socklen_t *len)
{
	return pv_likely(!addr) ? 0 : !len ? -EFAULT : (int)*len < 0 ? -EINVAL : 0;
}

/* Is the call to be made again? As signal(7) says for SA_RESTART, unless the socket has the timeout `timeo`. */
bool pl_again(int fd, pyvma_sock *h, int64_t rc, int timeo);

/* A result of the engine's as libc has it. */
pv_inline int64_t pl_result(int64_t rc)
{
	if (pv_likely(rc >= 0))
		return rc;
	errno = (int)-rc;
	return -1;
}

#endif
