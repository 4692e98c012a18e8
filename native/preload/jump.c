/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * longjmp out of a signal's handler.
 *
 * A handler may have interrupted a call of the engine's, which has locks, and lists that lead to the stack that the jump leaves. So the
 * handler is left first, into the function here that called it and returns; the call ends as if it was interrupted, and on the way out of the engine
 * (pl_leave) the thread jumps. For that handlers are called from here: sigaction and signal put handle() in their place. Signals that report a
 * fault of the thread's own are no matter of ours.
 */
#include <signal.h>
#include <string.h>

#include "preload/preload.h"

typedef void (*handler_fn)(int, siginfo_t *, void *);

static _Atomic(handler_fn) handlers[_NSIG];

/* A handler of the program's that has interrupted a call of the engine's, or another such handler. It is on the stack of that. */
struct handling {
	struct handling *outer;
	int depth; /* calls of the engine's that are under way beneath it */
	jmp_buf back;
};

_Thread_local uint64_t pl_handled;
static _Thread_local struct handling *volatile handling;
static _Thread_local struct {
	struct __jmp_buf_tag *to;
	int val;
	sigset_t mask; /* the handler's */
} pending;

static int depth(void)
{
	const struct pyvma_thread *me = pl_known;

	return me ? me->busy + me->resting : 0;
}

/* ---- into a handler ---------------------------------------------------------------------------------------------------- */

/* The kernel ends a system call that would wait by a signal that came at any time since it began; the first one's handler decides whether
 * it is made again. What a call of ours does before it has signals blocked is part of it. */
static void tell_call(int sig)
{
	struct pyvma_thread *me = pl_known;
	struct sigaction sa;

	/* A profiler's goes by the time that is computed, which a wait of the kernel's does not. */
	if (!me || !me->busy || me->signalled || sig == SIGPROF)
		return;
	me->signalled =
	    !PL_REAL(sigaction)(sig, NULL, &sa) && (sa.sa_flags & SA_RESTART) ? PYVMA_SIGNALLED_RESTART : PYVMA_SIGNALLED;
}

/* Behind what the handler did: it may have waited itself. */
static void handled(int sig)
{
	if (sig != SIGPROF)
		pl_handled |= UINT64_C(1) << (sig - 1);
}

/* A handler that makes calls which all succeed leaves errno alone on the kernel; the engine's own calls need not succeed. */
static void handle(int sig, siginfo_t *info, void *context)
{
	handler_fn call = atomic_load_explicit(&handlers[sig], memory_order_relaxed);
	struct handling here;
	int saved = errno;

	if (pv_likely(!depth())) {
		call(sig, info, context);
		handled(sig);
		errno = saved;
		return;
	}
	tell_call(sig);
	here.outer = handling;
	here.depth = depth();
	handling = &here;
	if (!_setjmp(here.back))
		call(sig, info, context);
	handling = here.outer;
	handled(sig);
	errno = saved;
}

static bool is_ours_to_call(int sig)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (sig == faults[i])
			return false;
	return sig > 0 && sig < _NSIG;
}

static bool is_function(sighandler_t handler)
{
	return handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR && handler != SIG_HOLD;
}

PL_EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	bool ours = is_ours_to_call(sig), changes = ours && act && is_function(act->sa_handler);
	handler_fn was = ours ? atomic_load(&handlers[sig]) : NULL;
	struct sigaction with;
	int rc;

	if (changes) {
		with = *act;
		with.sa_sigaction = handle;
		/* It may come at once. */
		atomic_store(&handlers[sig], act->sa_sigaction);
	}
	rc = PL_REAL(sigaction)(sig, changes ? &with : act, old);
	if (rc && changes)
		atomic_store(&handlers[sig], was);
	if (!rc && old && old->sa_sigaction == handle)
		old->sa_sigaction = was;
	return rc;
}

static sighandler_t by_signal(sighandler_t (*real)(int, sighandler_t), int sig, sighandler_t handler)
{
	bool ours = is_ours_to_call(sig), changes = ours && is_function(handler);
	handler_fn was = ours ? atomic_load(&handlers[sig]) : NULL;
	sighandler_t old;

	if (changes) {
		atomic_store(&handlers[sig], (handler_fn)(void *)handler);
		handler = (sighandler_t)(void *)handle;
	}
	old = real(sig, handler);
	if (old == SIG_ERR && changes)
		atomic_store(&handlers[sig], was);
	return old == (sighandler_t)(void *)handle ? (sighandler_t)(void *)was : old;
}

PL_EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	return by_signal(PL_REAL(signal), sig, handler);
}

PL_EXPORT sighandler_t ssignal(int sig, sighandler_t handler) __attribute__((alias("signal")));
PL_EXPORT sighandler_t bsd_signal(int sig, sighandler_t handler) __attribute__((alias("signal"), nothrow, leaf)); /* tftp-hpa */

PL_EXPORT sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return by_signal(PL_REAL(__sysv_signal), sig, handler);
}

PL_EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler) __attribute__((alias("__sysv_signal")));

/* ---- out of it --------------------------------------------------------------------------------------------------------- */

/* The stack pointer that the jump will set, which the C library has scrambled; where we do not know how, it is taken for one above all handlers. */
static uintptr_t target(const struct __jmp_buf_tag *to)
{
#if defined(__x86_64__) && defined(__LP64__)
	uintptr_t sp = (uintptr_t)to->__jmpbuf[6];

	__asm__("ror $0x11, %0\n\txor %%fs:0x30, %0" : "+r"(sp) : : "cc");
	return sp;
#else
	(void)to;
	return UINTPTR_MAX;
#endif
}

/* The handler, left by a jump to there, in which the call of the engine's has to go on to its end; NULL: there is none. */
static struct handling *interrupted(uintptr_t here, uintptr_t to)
{
	struct handling *h = handling, *first = NULL;

	for (; h && !(to > here && to < (uintptr_t)h); h = h->outer)
		if (h->depth == handling->depth)
			first = h;
	/* It jumps to one that has interrupted the same call: that is not left. */
	if (h && first && h->depth == first->depth)
		first = NULL;
	if (!first)
		handling = h;
	return first;
}

typedef void (*jump_fn)(struct __jmp_buf_tag *, int);

_Noreturn static void jump(struct __jmp_buf_tag *to, int val, jump_fn real)
{
	struct handling *first = NULL;

	if (pv_unlikely(handling != NULL))
		first = interrupted((uintptr_t)__builtin_frame_address(0), target(to));
	if (first) {
		pending.to = to;
		pending.val = val;
		pthread_sigmask(SIG_SETMASK, NULL, &pending.mask);
		pl_leave_soon();
		to = first->back;
		val = 1;
		real = PL_REAL(siglongjmp);
	} else {
		if (!depth())
			pl_jumps();
		pl_loans_left(target(to));
	}
	real(to, val);
	__builtin_unreachable();
}

void pl_jump(const struct pl_mark *m)
{
	if (pv_likely(!m->me->leaving) || pl_doing())
		return;
	m->me->leaving = 0;
	pl_restore(m);
	pthread_sigmask(SIG_SETMASK, &pending.mask, NULL);
	jump(pending.to, pending.val, PL_REAL(siglongjmp));
}

PL_EXPORT void siglongjmp(sigjmp_buf to, int val)
{
	jump(to, val, PL_REAL(siglongjmp));
}

PL_EXPORT void longjmp(jmp_buf to, int val)
{
	jump(to, val, PL_REAL(siglongjmp));
}

PL_EXPORT void _longjmp(jmp_buf to, int val)
{
	jump(to, val, PL_REAL(siglongjmp));
}

PL_EXPORT _Noreturn void __longjmp_chk(struct __jmp_buf_tag *to, int val);
void __longjmp_chk(struct __jmp_buf_tag *to, int val)
{
	jump(to, val, PL_REAL(__longjmp_chk));
}
