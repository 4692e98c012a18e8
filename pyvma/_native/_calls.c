/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of pyvma.socket.socket that carry data. cffi needs 190 ns for a send and 350 ns for a recv_into of any buffer, most of it
 * for finding the buffer's address; written out against the C interface of Python they take a fifth of that.
 *
 * Calls is a base class without fields. Its methods read the instance's attribute _handle: a Handle of ours, or None for a socket
 * that is the standard library's alone. Arguments that do not parse, and sockets without a handle, go to the standard library's
 * method with the same arguments: it raises what it always raises, in its own words.
 */
#include "_calls.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <structmember.h>

#define STACK_MAX 2048
#define SPARE_MAX (256u << 10) /* what an event loop reads at most by one call */

static PyTypeObject *handle_type;
static PyObject *name_handle;

/* The standard library's methods of the same names, for what is not ours. */
enum method { SEND, SENDALL, SENDTO, RECV, RECV_INTO, RECVFROM, RECVFROM_INTO, METHODS };
static const char *const method_names[METHODS] = { "send", "sendall", "sendto", "recv", "recv_into", "recvfrom", "recvfrom_into" };
static PyObject *stdlib_methods[METHODS];

/* Whether waiting polls before it sleeps. A sleep of HOLD_NS would only be a detour. */
bool calls_engine_spins(void)
{
	static int spins = -1;
	char text[32];

	if (spins < 0)
		spins = pyvma_config_get("rx_poll", text, sizeof(text)) > 0 && strcmp(text, "0") != 0;
	return spins;
}

/* ---- the handle -------------------------------------------------------------------------------------------------------- */

static PyObject *handle_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "pointer", "family", NULL };
	unsigned long long pointer;
	int family;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Ki", (char **)(uintptr_t)names, &pointer, &family))
		return NULL;
	struct handle *h = PyObject_New(struct handle, type);
	if (!h)
		return NULL;
	h->sock = (pyvma_sock *)(uintptr_t)pointer;
	h->timeout_ns = -1;
	h->stream = 0;
	h->whose = CALLS_UNDECIDED;
	h->quick = calls_engine_spins();
	h->watches = NULL;
	h->family = family;
	h->to_tuple = h->from_tuple = NULL;
	h->to.len = h->from.len = 0;
	return (PyObject *)h;
}

void calls_free_object(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_Free(self);
	Py_DECREF(type);
}

static void handle_dealloc(PyObject *self)
{
	struct handle *h = (struct handle *)self;

	Py_CLEAR(h->to_tuple);
	Py_CLEAR(h->from_tuple);
	calls_free_object(self);
}

static PyObject *handle_take(PyObject *self, PyObject *unused)
{
	(void)unused;
	struct handle *h = (struct handle *)self;
	pyvma_sock *sock = h->sock;

	h->sock = NULL;
	return PyLong_FromUnsignedLongLong((uintptr_t)sock);
}

static PyMemberDef handle_members[] = {
	{ "timeout_ns", T_LONGLONG, offsetof(struct handle, timeout_ns), 0, NULL },
	{ "stream", T_BOOL, offsetof(struct handle, stream), 0, NULL },
	{ 0 },
};
static PyMethodDef handle_methods[] = {
	{ "take", handle_take, METH_NOARGS, NULL },
	{ 0 },
};
static PyType_Slot handle_slots[] = {
	{ Py_tp_doc,
	  DOC("Handle(pointer, family): an open pyvma_sock; take() gives the pointer back and leaves the handle closed.") },
	{ Py_tp_new, handle_new },
	{ Py_tp_dealloc, handle_dealloc },
	{ Py_tp_members, handle_members },
	{ Py_tp_methods, handle_methods },
	{ 0 },
};
static PyType_Spec handle_spec = { "pyvma._native._calls.Handle", sizeof(struct handle), 0, Py_TPFLAGS_DEFAULT, handle_slots };

/* Where an instance has its _handle: the slot's descriptor knows, and to ask it costs as much as all the rest of a call. */
static PyTypeObject *slot_type;
static Py_ssize_t slot_at;

/* PyMemberDescrObject, the same in every CPython since 3.3. */
struct member_descriptor {
	PyObject ob_base;
	PyTypeObject *type;
	PyObject *name, *qualname;
	PyMemberDef *member;
};

/* bind(type): instances of the type and its subclasses have their _handle where the type's slot of that name says. */
static PyObject *calls_bind(PyObject *module, PyObject *type)
{
	PyObject *found = PyObject_GetAttr(type, name_handle);

	(void)module;
	if (!found)
		return NULL;
	if (!PyType_Check(type) || !Py_IS_TYPE(found, &PyMemberDescr_Type) ||
	    ((struct member_descriptor *)found)->member->type != T_OBJECT_EX) {
		Py_DECREF(found);
		PyErr_SetString(PyExc_TypeError, "_handle is no slot of the type");
		return NULL;
	}
	slot_at = ((struct member_descriptor *)found)->member->offset;
	Py_INCREF(type);
	Py_XDECREF(slot_type);
	slot_type = (PyTypeObject *)type;
	Py_DECREF(found);
	Py_RETURN_NONE;
}

struct handle *calls_handle(PyObject *self)
{
	PyObject *found;

	if (!slot_type || (!Py_IS_TYPE(self, slot_type) && !PyType_IsSubtype(Py_TYPE(self), slot_type)))
		return NULL;
	found = *(PyObject **)((char *)self + slot_at);
	if (!found || !Py_IS_TYPE(found, handle_type) || !((struct handle *)found)->sock)
		return NULL;
	Py_INCREF(found);
	return (struct handle *)found;
}

static PyObject *stdlib_call(enum method which, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	Py_ssize_t nkw = kwnames ? PyTuple_Size(kwnames) : 0;
	PyObject *kwargs = NULL, *result = NULL, *tuple = PyTuple_New(nargs + 1);

	PyErr_Clear();
	if (!tuple)
		return NULL;
	Py_INCREF(self);
	PyTuple_SetItem(tuple, 0, self);
	for (Py_ssize_t i = 0; i < nargs; i++) {
		Py_INCREF(args[i]);
		PyTuple_SetItem(tuple, i + 1, args[i]);
	}
	if (nkw > 0 && !(kwargs = PyDict_New()))
		goto out;
	for (Py_ssize_t i = 0; i < nkw; i++)
		if (PyDict_SetItem(kwargs, PyTuple_GetItem(kwnames, i), args[nargs + i]))
			goto out;
	result = PyObject_Call(stdlib_methods[which], tuple, kwargs);
out:
	Py_XDECREF(kwargs);
	Py_DECREF(tuple);
	return result;
}

PyObject *calls_stdlib_recv(PyObject *self, long size, int flags)
{
	PyObject *args[2] = { PyLong_FromLong(size), PyLong_FromLong(flags) };
	PyObject *result = args[0] && args[1] ? stdlib_call(RECV, self, args, 2, NULL) : NULL;

	Py_XDECREF(args[0]);
	Py_XDECREF(args[1]);
	return result;
}

/* ---- one call of the engine -------------------------------------------------------------------------------------------- */

int64_t calls_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t calls_raise(int64_t rc, int64_t timeout_ns)
{
	if (rc == -EAGAIN && timeout_ns > 0) {
		PyErr_SetString(PyExc_TimeoutError, "timed out");
	} else {
		errno = (int)-rc;
		PyErr_SetFromErrno(PyExc_OSError);
	}
	return -1;
}

int calls_after_signal(int64_t deadline, int64_t *timeout_ns)
{
	if (PyErr_CheckSignals())
		return -1;
	if (*timeout_ns <= 0)
		return 0;
	*timeout_ns = deadline - calls_now_ns();
	return *timeout_ns > 0 ? 0 : (int)calls_raise(-EAGAIN, 1);
}

int64_t calls_run(const struct handle *h, struct io *io, engine_call *call)
{
	int64_t timeout_ns = h->timeout_ns, deadline = 0;

	if (!io->sock)
		return calls_raise(-EBADF, 0);
	if (timeout_ns > 0) { /* the standard library waits for a socket with a timeout whatever the flags say */
		io->flags &= ~MSG_DONTWAIT;
		deadline = calls_now_ns() + timeout_ns;
	}
	for (;;) {
		int64_t n = call_released(io, call, timeout_ns);

		if (n >= 0)
			return n;
		if (n != -EINTR)
			return calls_raise(n, timeout_ns);
		if (calls_after_signal(deadline, &timeout_ns))
			return -1;
	}
}

bool calls_ask_whose(struct handle *h)
{
	char text[128];
	int state = pyvma_sock_offload(h->sock, text, sizeof(text));

	h->whose = state == PYVMA_OFFLOADED ? CALLS_OURS : state == PYVMA_KERNEL ? CALLS_KERNEL : CALLS_UNDECIDED;
	return h->whose == CALLS_OURS;
}

static bool waits(const struct handle *h, const struct io *io)
{
	return h->timeout_ns > 0 || (h->timeout_ns < 0 && !(io->flags & MSG_DONTWAIT));
}

/* Nothing was there: the whole wait begins now, HOLD_NS later than it could have. */
int64_t calls_receive_again(struct handle *h, struct io *io, engine_call *call, int64_t n)
{
	int64_t start;

	if (n == -EINTR && PyErr_CheckSignals())
		return -1;
	if (n != -EINTR && (n != -EAGAIN || !waits(h, io)))
		return calls_raise(n, 0);
	start = calls_now_ns();
	n = calls_run(h, io, call);
	h->quick = calls_engine_spins() && calls_now_ns() - start < HOLD_NS;
	return n;
}

_Thread_local struct posting calls_posting;

int64_t calls_send_batched(struct handle *h, struct io *io, engine_call *call)
{
	int flags = io->flags;

	if (++calls_posting.posted < BATCH_SENDS)
		io->flags |= PYVMA_MSG_BATCH;
	else
		calls_posting.posted = 0;
	int64_t n = call(io, 0);
	io->flags = flags;
	return n == (int64_t)io->len ? n : calls_send_again(h, io, call, n);
}

/* A stream that may wait takes everything, as the kernel's does; what went counts more than what came after it. */
int64_t calls_send_again(struct handle *h, struct io *io, engine_call *call, int64_t n)
{
	struct io rest = *io;

	if (n == -EINTR && PyErr_CheckSignals())
		return -1;
	if (n == -EINTR || (n == -EAGAIN && waits(h, io)))
		return calls_run(h, io, call);
	if (n < 0)
		return calls_raise(n, 0);
	if (!h->stream || h->timeout_ns >= 0 || !waits(h, io))
		return n;
	rest.buf = (char *)io->buf + n;
	rest.len -= (size_t)n;
	int64_t more = call_released(&rest, call, h->timeout_ns);
	return n + (more > 0 ? more : 0);
}

static int64_t do_send(struct io *io, int64_t timeout_ns)
{
	return pyvma_sock_send(io->sock, io->buf, io->len, io->flags, timeout_ns);
}

static int64_t do_sendto(struct io *io, int64_t timeout_ns)
{
	return pyvma_sock_sendto(io->sock, io->buf, io->len, io->flags, (struct sockaddr *)&io->addr->sa, io->addr->len,
				 timeout_ns);
}

static int64_t do_recv(struct io *io, int64_t timeout_ns)
{
	return pyvma_sock_recv(io->sock, io->buf, io->len, io->flags, timeout_ns);
}

static int64_t do_recvfrom(struct io *io, int64_t timeout_ns)
{
	io->addr->len = sizeof(io->addr->sa);
	return pyvma_sock_recvfrom(io->sock, io->buf, io->len, io->flags, (struct sockaddr *)&io->addr->sa, &io->addr->len,
				   timeout_ns);
}

/* ---- send -------------------------------------------------------------------------------------------------------------- */

/* The rest of a stream's sendall; the timeout is that of the whole. */
static int64_t send_rest(const struct handle *h, struct io *io, int64_t n, int64_t deadline)
{
	struct handle left = *h;

	while (n >= 0 && (size_t)n < io->len) {
		io->buf = (char *)io->buf + n;
		io->len -= (size_t)n;
		if (h->timeout_ns > 0 && (left.timeout_ns = deadline - calls_now_ns()) <= 0)
			return calls_raise(-EAGAIN, 1);
		n = run_send(&left, io, do_send);
	}
	return n;
}

/* send(data[, flags]) and sendall(data[, flags]): a datagram leaves whole or not at all. */
static int64_t send_common(enum method which, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject **result)
{
	struct handle *h = calls_handle(self);
	struct io io = { 0 };
	Py_buffer data;

	*result = NULL;
	if (!h || nargs < 1 || nargs > 2 || (nargs > 1 && as_flags(args[1], &io.flags)) ||
	    PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE)) {
		Py_XDECREF(h);
		*result = stdlib_call(which, self, args, nargs, NULL);
		return -1;
	}
	io.sock = h->sock;
	io.buf = data.buf;
	io.len = (size_t)data.len;
	int64_t deadline = which == SENDALL && h->timeout_ns > 0 ? calls_now_ns() + h->timeout_ns : 0;
	int64_t n = run_send(h, &io, do_send);
	if (which == SENDALL && n >= 0 && (size_t)n < io.len)
		n = send_rest(h, &io, n, deadline);
	PyBuffer_Release(&data);
	Py_DECREF(h);
	return n;
}

static PyObject *calls_send(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	PyObject *result;

	if (kwnames)
		return stdlib_call(SEND, self, args, nargs, kwnames);
	int64_t n = send_common(SEND, self, args, nargs, &result);
	return n < 0 ? result : PyLong_FromLongLong(n);
}

static PyObject *calls_sendall(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	PyObject *result;

	if (kwnames)
		return stdlib_call(SENDALL, self, args, nargs, kwnames);
	int64_t n = send_common(SENDALL, self, args, nargs, &result);
	if (n < 0)
		return result;
	Py_INCREF(Py_None);
	return Py_None;
}

/* sendto(data, address) and sendto(data, flags, address) */
static PyObject *calls_sendto(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	struct handle *h = calls_handle(self);
	struct address addr;
	struct io io = { .addr = &addr };
	PyObject *result = NULL;
	Py_buffer data;

	if (!h || kwnames || nargs < 2 || nargs > 3 || (nargs == 3 && as_flags(args[1], &io.flags)) ||
	    PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE)) {
		Py_XDECREF(h);
		return stdlib_call(SENDTO, self, args, nargs, kwnames);
	}
	int rc = calls_destination(h, args[nargs - 1], &addr);
	if (rc == 0) {
		result = stdlib_call(SENDTO, self, args, nargs, NULL);
	} else if (rc > 0 && !PySys_Audit("socket.sendto", "OO", self, args[nargs - 1])) {
		io.sock = h->sock;
		io.buf = data.buf;
		io.len = (size_t)data.len;
		int64_t n = run_send(h, &io, do_sendto);
		result = n < 0 ? NULL : PyLong_FromLongLong(n);
	}
	PyBuffer_Release(&data);
	Py_DECREF(h);
	return result;
}

/* ---- receive ----------------------------------------------------------------------------------------------------------- */

/* A bytes object of `n` bytes of which `have` are in `from`: with MSG_TRUNC a datagram tells its full length. */
static PyObject *make_bytes(const char *from, size_t have, int64_t n)
{
	if ((size_t)n <= have)
		return PyBytes_FromStringAndSize(from, (Py_ssize_t)n);
	PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
	if (made) {
		char *to = PyBytes_AsString(made);

		memcpy(to, from, have);
		memset(to + have, 0, (size_t)n - have);
	}
	return made;
}

/* Results up to STACK_MAX are received in the stack, larger ones in memory that is cut down afterwards by copying what came. */
static PyObject *recv_bytes(struct handle *h, struct io *io, long size, engine_call *call)
{
	static char *spare; /* SPARE_MAX bytes; whoever has it is the one with the GIL, or has taken it away */
	char small[STACK_MAX], *room = NULL;

	io->sock = h->sock;
	size_t most = h->stream ? (io->flags & MSG_WAITALL ? (size_t)PY_SSIZE_T_MAX : STREAM_MAX) : DATAGRAM_MAX;

	io->len = (size_t)size < most ? (size_t)size : most;
	io->buf = small;
	if (io->len > sizeof(small)) {
		room = io->len <= SPARE_MAX ? spare : NULL;
		spare = room ? NULL : spare;
		io->buf = room = room ? room : PyMem_Malloc(io->len <= SPARE_MAX ? SPARE_MAX : io->len);
	}
	if (!io->buf)
		return PyErr_NoMemory();
	int64_t n = run_receive(h, io, call);
	PyObject *result = n < 0 ? NULL : make_bytes(io->buf, io->len, n);
	if (io->len <= SPARE_MAX && !spare)
		spare = room;
	else
		PyMem_Free(room);
	return result;
}

static int parse_recv(PyObject *const *args, Py_ssize_t nargs, long *size, int *flags)
{
	return nargs < 1 || nargs > 2 || as_long(args[0], 0, LONG_MAX, size) || (nargs > 1 && as_flags(args[1], flags)) ? -1 : 0;
}

static PyObject *calls_recv(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	struct handle *h = calls_handle(self);
	struct io io = { 0 };
	PyObject *result;
	long size;

	if (!h || kwnames || parse_recv(args, nargs, &size, &io.flags) || size == 0) /* nothing asked for: nothing is done */
		result = stdlib_call(RECV, self, args, nargs, kwnames);
	else
		result = recv_bytes(h, &io, size, do_recv);
	Py_XDECREF(h);
	return result;
}

/* (first, sender); takes the reference of `first`, which may be NULL. */
static PyObject *with_sender(struct handle *h, PyObject *first, const struct address *addr)
{
	PyObject *sender = first ? calls_sender_tuple(h, addr) : NULL, *pair = sender ? PyTuple_New(2) : NULL;

	if (!pair) {
		Py_XDECREF(first);
		Py_XDECREF(sender);
		return NULL;
	}
	PyTuple_SetItem(pair, 0, first);
	PyTuple_SetItem(pair, 1, sender);
	return pair;
}

static PyObject *calls_recvfrom(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	struct handle *h = calls_handle(self);
	struct address addr;
	struct io io = { .addr = &addr };
	PyObject *result;
	long size;

	if (!h || kwnames || parse_recv(args, nargs, &size, &io.flags))
		result = stdlib_call(RECVFROM, self, args, nargs, kwnames);
	else
		result = with_sender(h, recv_bytes(h, &io, size, do_recvfrom), &addr);
	Py_XDECREF(h);
	return result;
}

/* (buffer[, nbytes[, flags]]), each also by name. Fills io and the buffer, to be released. -1: not for us. */
static int parse_into(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, struct io *io, Py_buffer *buffer)
{
	static const char *const names[3] = { "buffer", "nbytes", "flags" };
	PyObject *given[3] = { NULL, NULL, NULL };
	long nbytes = 0;

	if (nargs > 3)
		return -1;
	for (Py_ssize_t i = 0; i < nargs; i++)
		given[i] = args[i];
	for (Py_ssize_t i = 0; kwnames && i < PyTuple_Size(kwnames); i++) {
		int k = 0;

		while (k < 3 && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(kwnames, i), names[k]))
			k++;
		if (k == 3 || given[k])
			return -1;
		given[k] = args[nargs + i];
	}
	if (!given[0] || (given[1] && as_long(given[1], 0, LONG_MAX, &nbytes)) || (given[2] && as_flags(given[2], &io->flags)) ||
	    PyObject_GetBuffer(given[0], buffer, PyBUF_WRITABLE))
		return -1;
	if (nbytes > buffer->len) {
		PyBuffer_Release(buffer);
		return -1;
	}
	io->buf = buffer->buf;
	io->len = (size_t)(nbytes ? nbytes : buffer->len);
	return 0;
}

static PyObject *calls_recv_into(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	struct handle *h = calls_handle(self);
	struct io io = { 0 };
	Py_buffer buffer;

	if (!h || parse_into(args, nargs, kwnames, &io, &buffer)) {
		Py_XDECREF(h);
		return stdlib_call(RECV_INTO, self, args, nargs, kwnames);
	}
	io.sock = h->sock;
	int64_t n = io.len ? run_receive(h, &io, do_recv) : 0;
	PyBuffer_Release(&buffer);
	Py_DECREF(h);
	return n < 0 ? NULL : PyLong_FromLongLong(n);
}

static PyObject *calls_recvfrom_into(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	struct handle *h = calls_handle(self);
	struct address addr;
	struct io io = { .addr = &addr };
	Py_buffer buffer;

	if (!h || parse_into(args, nargs, kwnames, &io, &buffer)) {
		Py_XDECREF(h);
		return stdlib_call(RECVFROM_INTO, self, args, nargs, kwnames);
	}
	io.sock = h->sock;
	int64_t n = run_receive(h, &io, do_recvfrom);
	PyBuffer_Release(&buffer);
	PyObject *result = n < 0 ? NULL : with_sender(h, PyLong_FromLongLong(n), &addr);
	Py_DECREF(h);
	return result;
}

/* ---- the module -------------------------------------------------------------------------------------------------------- */

#define FAST(f) ((PyCFunction)(void (*)(void))(f))
static PyMethodDef calls_methods[] = {
	{ "send", FAST(calls_send), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "sendall", FAST(calls_sendall), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "sendto", FAST(calls_sendto), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "recv", FAST(calls_recv), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "recv_into", FAST(calls_recv_into), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "recvfrom", FAST(calls_recvfrom), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "recvfrom_into", FAST(calls_recvfrom_into), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "recv_batch", calls_recv_batch, METH_VARARGS, NULL },
	{ "send_batch", calls_send_batch, METH_VARARGS, NULL },
	{ 0 },
};
static PyType_Slot calls_slots[] = {
	{ Py_tp_doc, DOC("The methods of a socket that carry data; the instance's _handle is a Handle or None.") },
	{ Py_tp_methods, calls_methods },
	{ 0 },
};
static PyType_Spec calls_spec = { "pyvma._native._calls.Calls", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, calls_slots };

/* calls_parse_address(family, tuple) -> bytes of a sockaddr, or None when it is malformed (the standard library then says how) */
static PyObject *module_parse_address(PyObject *module, PyObject *args)
{
	struct address a;
	PyObject *tuple;
	int family;

	(void)module;
	if (!PyArg_ParseTuple(args, "iO", &family, &tuple))
		return NULL;
	int rc = calls_parse_address(family, tuple, &a);
	if (rc < 0)
		return NULL;
	PyErr_Clear(); /* malformed may have come with an exception of its own */
	return rc > 0 ? PyBytes_FromStringAndSize((const char *)&a.sa, (Py_ssize_t)a.len) : Py_BuildValue("");
}

/* format_address(bytes of a sockaddr) -> tuple */
static PyObject *module_format_address(PyObject *module, PyObject *args)
{
	struct address a;
	const char *bytes;
	Py_ssize_t len;

	(void)module;
	if (!PyArg_ParseTuple(args, "y#", &bytes, &len))
		return NULL;
	a.len = len < (Py_ssize_t)sizeof(a.sa) ? (socklen_t)len : (socklen_t)sizeof(a.sa);
	memset(&a.sa, 0, sizeof(a.sa));
	memcpy(&a.sa, bytes, a.len);
	return calls_address_tuple(&a);
}

static PyMethodDef module_methods[] = {
	{ "parse_address", module_parse_address, METH_VARARGS, NULL },
	{ "format_address", module_format_address, METH_VARARGS, NULL },
	{ "bind", calls_bind, METH_O, NULL },
	{ 0 },
};
static struct PyModuleDef module_def = {
	PyModuleDef_HEAD_INIT, "_calls", "The calls that carry data.", -1, module_methods, NULL, NULL, NULL, NULL
};

/* What the calls need of the standard library. */
static int import_stdlib(void)
{
	PyObject *module = PyImport_ImportModule("_socket"), *type = module ? PyObject_GetAttrString(module, "socket") : NULL;
	int rc = type ? 0 : -1;

	for (int i = 0; rc == 0 && i < METHODS; i++)
		if (!(stdlib_methods[i] = PyObject_GetAttrString(type, method_names[i])))
			rc = -1;
	Py_XDECREF(type);
	Py_XDECREF(module);
	return rc;
}

PyMODINIT_FUNC PyInit__calls(void);
PyMODINIT_FUNC PyInit__calls(void)
{
	PyObject *module = PyModule_Create(&module_def), *calls = PyType_FromSpec(&calls_spec);

	name_handle = PyUnicode_InternFromString("_handle");
	handle_type = (PyTypeObject *)PyType_FromSpec(&handle_spec);
	if (module && calls && name_handle && handle_type && !import_stdlib() && !calls_batch_init(module) &&
	    !calls_poller_init(module, handle_type) && !PyModule_AddObjectRef(module, "Handle", (PyObject *)handle_type) &&
	    !PyModule_AddObjectRef(module, "Calls", calls)) {
		Py_DECREF(calls);
		return module;
	}
	Py_XDECREF(calls);
	Py_XDECREF(module);
	return NULL;
}
