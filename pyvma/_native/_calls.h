/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the module pyvma._native._calls share. All of it runs with the GIL held, except the engine's calls inside run().
 *
 * Only the limited API of 3.10 is used, and the few symbols that entered it later but have been in every CPython since 3.10 with the
 * same layout.
 */
#ifndef PYVMA_CALLS_H
#define PYVMA_CALLS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "pyvma.h"

/* The buffer protocol, in the stable ABI since 3.11; PySys_Audit, since 3.13. */
#if defined(Py_LIMITED_API) && Py_LIMITED_API + 0 < 0x030b0000
typedef struct {
	void *buf;
	PyObject *obj;
	Py_ssize_t len, itemsize;
	int readonly, ndim;
	char *format;
	Py_ssize_t *shape, *strides, *suboffsets;
	void *internal;
} Py_buffer;
extern int PyObject_GetBuffer(PyObject *exporter, Py_buffer *view, int flags);
extern void PyBuffer_Release(Py_buffer *view);
extern int PyBuffer_FillInfo(Py_buffer *view, PyObject *exporter, void *buf, Py_ssize_t len, int readonly, int flags);
#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 1
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
#endif
#if defined(Py_LIMITED_API) && Py_LIMITED_API + 0 < 0x030d0000
extern int PySys_Audit(const char *event, const char *format, ...);
#endif

#define DOC(text) ((void *)(uintptr_t)(text))
#define DATAGRAM_MAX 65536u /* no datagram is longer */
#define STREAM_MAX (1u << 20) /* a single recv of a stream; more takes another call */

/* ---- the handle -------------------------------------------------------------------------------------------------------- */

struct address {
	socklen_t len;
	struct sockaddr_storage sa;
};

struct handle {
	PyObject ob_base;
	pyvma_sock *sock; /* NULL when closed or detached */
	long long timeout_ns;
	char stream; /* bytes, not datagrams */
	char whose; /* enum calls_whose, as of the last call */
	bool quick; /* what it waited for came soon, the last time */
	int family;
	struct watch *watches; /* of each poller that waits for it */
	PyObject *to_tuple; /* the last address of sendto and what it means; only if nothing can change that */
	struct address to;
	PyObject *from_tuple; /* the last sender and its address as a tuple */
	struct address from;
};

/* The open handle of a socket, or NULL without an exception: not ours, or closed. The reference is the caller's. */
struct handle *calls_handle(PyObject *self);
void calls_free_object(PyObject *self);

/* ---- addresses --------------------------------------------------------------------------------------------------------- */

/* As the standard library presents it; None when empty. A new reference. */
PyObject *calls_address_tuple(const struct address *a);
/* The same of a sender: the tuple of the datagram before when that came from there too. */
PyObject *calls_sender_tuple(struct handle *h, const struct address *a);
/*
 * What the tuple means to the standard library: (host, port) of AF_INET, (host, port[, flowinfo[, scope_id]]) of AF_INET6.
 * 1: `out` is filled without asking anybody; 2: a name server or file was asked; 0: malformed, or not for us; -1: exception.
 */
int calls_parse_address(int family, PyObject *tuple, struct address *out);
/* The same with the last constant tuple remembered; 1, 0 or -1. */
int calls_destination(struct handle *h, PyObject *tuple, struct address *out);

/* 0, or -1 when it is no integer (an exception is set) or not within lo..hi (none is). */
static inline int as_long(PyObject *o, long lo, long hi, long *out)
{
	long value = PyLong_AsLong(o);

	if (value == -1 && PyErr_Occurred())
		return -1;
	*out = value;
	return value < lo || value > hi ? -1 : 0;
}

static inline int as_flags(PyObject *o, int *out)
{
	long value;

	if (as_long(o, INT32_MIN, INT32_MAX, &value))
		return -1;
	*out = (int)value;
	return 0;
}

/* ---- one call of the engine -------------------------------------------------------------------------------------------- */

struct io {
	pyvma_sock *sock;
	void *buf;
	size_t len;
	int flags;
	struct address *addr;
	struct pyvma_msg *msgs;
	uint32_t n;
	bool lent; /* the messages are the engine's buffers */
	bool stream;
};
typedef int64_t engine_call(struct io *io, int64_t timeout_ns);

int64_t calls_now_ns(void);
/* Sets the exception for -errno; -1. */
int64_t calls_raise(int64_t rc, int64_t timeout_ns);
/* After a signal: runs Python's handlers and says how long is left. -1: a handler raised, or the time is over. */
int calls_after_signal(int64_t deadline, int64_t *timeout_ns);

/* The engine's call without the GIL. */
static inline __attribute__((always_inline)) int64_t call_released(struct io *io, engine_call *call, int64_t timeout_ns)
{
	PyThreadState *state = PyEval_SaveThread();
	int64_t n = call(io, timeout_ns);

	PyEval_RestoreThread(state);
	return n;
}

/* >= 0, or -1 with an exception. A signal in between runs its handler and then the call goes on (PEP 475). */
int64_t calls_run(const struct handle *h, struct io *io, engine_call *call);

/*
 * The GIL. To give it away and take it again costs 50 ns when nobody wants it, and when a busy thread does, the 5 ms until that one
 * gives it back. So a call that finds data or room keeps it, and one that has to wait keeps it for HOLD_NS, unless what it waited for
 * last took longer than that anyway. What the kernel may be asked to do, or to copy much, is done without it.
 */
#define HOLD_NS 20000
#define HELD_MAX 65536u

enum calls_whose { CALLS_UNDECIDED, CALLS_OURS, CALLS_KERNEL };
bool calls_ask_whose(struct handle *h);
/* Whether the engine polls before it sleeps. */
bool calls_engine_spins(void);
int64_t calls_receive_again(struct handle *h, struct io *io, engine_call *call, int64_t n);
int64_t calls_send_again(struct handle *h, struct io *io, engine_call *call, int64_t n);

/*
 * Sends of this thread that may leave their doorbell to a later one, since the turn of an event loop has more sockets to see to. On a
 * ring that the kernel drives a doorbell is half of what a send costs.
 */
#define BATCH_SENDS 16u
struct posting {
	bool more; /* sockets to see to, after this one */
	unsigned int posted; /* sends without a doorbell */
};
extern _Thread_local struct posting calls_posting;
int64_t calls_send_batched(struct handle *h, struct io *io, engine_call *call);

static inline bool calls_is_ours(struct handle *h)
{
	return __builtin_expect(h->whose == CALLS_OURS, 1) || (h->whose == CALLS_UNDECIDED && calls_ask_whose(h));
}

static inline __attribute__((always_inline)) int64_t run_receive(struct handle *h, struct io *io, engine_call *call)
{
	if (!io->sock) /* an argument's __index__ or __buffer__ closed it */
		return calls_raise(-EBADF, 0);
	if ((io->flags & MSG_WAITALL) || !calls_is_ours(h))
		return calls_run(h, io, call);
	int64_t n = call(io, h->timeout_ns && h->quick ? HOLD_NS : 0);
	return __builtin_expect(n >= 0, 1) ? n : calls_receive_again(h, io, call, n);
}

static inline __attribute__((always_inline)) int64_t run_send(struct handle *h, struct io *io, engine_call *call)
{
	if (!io->sock)
		return calls_raise(-EBADF, 0);
	if (io->len > HELD_MAX || !calls_is_ours(h))
		return calls_run(h, io, call);
	if (__builtin_expect(calls_posting.more, 0))
		return calls_send_batched(h, io, call);
	int64_t n = call(io, 0);
	return __builtin_expect(n == (int64_t)io->len, 1) ? n : calls_send_again(h, io, call, n);
}

/* The standard library's recv(size, flags). A new reference. */
PyObject *calls_stdlib_recv(PyObject *self, long size, int flags);

/* ---- batches ----------------------------------------------------------------------------------------------------------- */

/* Adds the types Batch and Received. */
int calls_batch_init(PyObject *module);
/* recv_batch(n or buffers, flags=0), send_batch(messages, flags=0, address=None) */
PyObject *calls_recv_batch(PyObject *self, PyObject *args);
PyObject *calls_send_batch(PyObject *self, PyObject *args);

/* ---- event loops ------------------------------------------------------------------------------------------------------- */

/* Adds the type Poller. */
int calls_poller_init(PyObject *module, PyTypeObject *handle_type);

#endif
