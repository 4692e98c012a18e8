/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches: many datagrams, or pieces of a stream, a call, into the caller's buffers or lent in place. */
#include "_calls.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 1024u /* as recvmmsg(2) */

static PyTypeObject *batch_type, *lent_type, *received_type;
static PyObject *name_release;

/* The open handle of a socket, or NULL with an exception. */
static struct handle *open_handle(PyObject *self)
{
	struct handle *h = calls_handle(self);

	if (!h) {
		PyObject *found = PyObject_GetAttrString(self, "_handle");

		errno = found && found != Py_None ? EBADF : EOPNOTSUPP;
		PyErr_Clear();
		Py_XDECREF(found);
		PyErr_SetFromErrno(PyExc_OSError);
	}
	return h;
}

/* Received datagrams, shared by the Batch and the views of its payloads: they go back when the last of these is gone, or at release. */
struct block {
	Py_ssize_t refs, exports;
	bool lent; /* the engine's buffers; else copies of our own */
	bool gone; /* given back */
	uint32_t n;
	struct pyvma_msg msgs[];
};

/* A Batch hands out memoryviews of these. */
struct lent {
	PyObject ob_base;
	struct block *block;
	uint32_t i;
};

struct batch {
	PyObject ob_base;
	struct block *block;
	PyObject *views; /* list of memoryview or None */
};

static struct block *block_new(uint32_t n)
{
	struct block *b = PyMem_Malloc(sizeof(*b) + n * sizeof(b->msgs[0]));

	if (!b) {
		PyErr_NoMemory();
		return NULL;
	}
	b->refs = 1;
	b->exports = 0;
	b->n = 0;
	b->lent = b->gone = false;
	return b;
}

static void block_give_back(struct block *b)
{
	if (b->gone)
		return;
	b->gone = true;
	if (b->lent)
		pyvma_batch_release(b->msgs, b->n);
	for (uint32_t i = 0; !b->lent && i < b->n; i++)
		free(b->msgs[i].base);
}

static void block_put(struct block *b)
{
	if (--b->refs)
		return;
	block_give_back(b);
	PyMem_Free(b);
}

static int lent_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	struct lent *l = (struct lent *)self;
	struct pyvma_msg *m = &l->block->msgs[l->i];

	if (l->block->gone) {
		PyErr_SetString(PyExc_BufferError, "the batch is released");
		view->obj = NULL;
		return -1;
	}
	if (PyBuffer_FillInfo(view, self, m->base, (Py_ssize_t)m->len, 1, flags))
		return -1;
	l->block->exports++;
	return 0;
}

static void lent_releasebuffer(PyObject *self, Py_buffer *view)
{
	(void)view;
	((struct lent *)self)->block->exports--;
}

static void lent_dealloc(PyObject *self)
{
	block_put(((struct lent *)self)->block);
	calls_free_object(self);
}

static PyType_Slot lent_slots[] = {
	{ Py_tp_doc, DOC("One payload of a batch.") },
	{ Py_tp_dealloc, lent_dealloc },
	{ Py_bf_getbuffer, lent_getbuffer },
	{ Py_bf_releasebuffer, lent_releasebuffer },
	{ 0 },
};
static PyType_Spec lent_spec = { "pyvma.socket.Lent", sizeof(struct lent), 0, Py_TPFLAGS_DEFAULT, lent_slots };

static struct block *batch_block(PyObject *self)
{
	struct block *b = ((struct batch *)self)->block;

	if (!b->gone)
		return b;
	PyErr_SetString(PyExc_ValueError, "operation on a released batch");
	return NULL;
}

static Py_ssize_t batch_length(PyObject *self)
{
	struct block *b = batch_block(self);

	return b ? (Py_ssize_t)b->n : -1;
}

static PyObject *batch_item(PyObject *self, Py_ssize_t i)
{
	struct block *b = batch_block(self);
	PyObject *views = ((struct batch *)self)->views;

	if (!b)
		return NULL;
	if (i < 0 || i >= (Py_ssize_t)b->n) {
		PyErr_SetString(PyExc_IndexError, "batch index out of range");
		return NULL;
	}
	PyObject *view = PyList_GetItem(views, i);
	if (view != Py_None) {
		Py_INCREF(view);
		return view;
	}
	struct lent *l = PyObject_New(struct lent, lent_type);
	if (!l)
		return NULL;
	l->block = b;
	l->i = (uint32_t)i;
	b->refs++;
	view = PyMemoryView_FromObject((PyObject *)l);
	Py_DECREF(l);
	if (view) {
		Py_INCREF(view);
		PyList_SetItem(views, i, view);
	}
	return view;
}

/* Releases the views handed out, then the buffers. A view made from these (a slice, an array) that is still there is an error. */
static PyObject *batch_release(PyObject *self, PyObject *unused)
{
	struct batch *batch = (struct batch *)self;
	struct block *b = batch->block;

	(void)unused;
	for (Py_ssize_t i = 0; !b->gone && i < PyList_Size(batch->views); i++) {
		PyObject *view = PyList_GetItem(batch->views, i);
		PyObject *done = view == Py_None ? NULL : PyObject_CallMethodObjArgs(view, name_release, NULL);

		if (!done && view != Py_None)
			return NULL;
		if (done) {
			/* Should a later one fail, the batch goes on, and makes a new view of this payload. */
			Py_DECREF(done);
			Py_INCREF(Py_None);
			PyList_SetItem(batch->views, i, Py_None);
		}
	}
	if (!b->gone && b->exports) {
		PyErr_SetString(PyExc_BufferError, "a view made from a payload of this batch is still in use");
		return NULL;
	}
	block_give_back(b);
	Py_INCREF(Py_None);
	return Py_None;
}

static PyObject *batch_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	Py_INCREF(self);
	return batch_block(self) ? self : (Py_DECREF(self), NULL);
}

static PyObject *received(uint32_t nbytes, PyObject *address, const struct pyvma_msg *m)
{
	PyObject *made = address ? PyStructSequence_New(received_type) : NULL;

	if (!made) {
		Py_XDECREF(address);
		return NULL;
	}
	PyStructSequence_SetItem(made, 0, PyLong_FromUnsignedLong(nbytes));
	PyStructSequence_SetItem(made, 1, address);
	PyStructSequence_SetItem(made, 2, PyLong_FromUnsignedLong(m->flags));
	PyStructSequence_SetItem(made, 3, PyLong_FromLongLong(m->arrival_ns));
	return made;
}

static PyObject *message_address(const struct pyvma_msg *m)
{
	struct address a = { .len = m->addrlen };

	memcpy(&a.sa, &m->addr, sizeof(a.sa));
	return calls_address_tuple(&a);
}

/* A list of what `make` says of each message. */
static PyObject *batch_list(PyObject *self, bool whole)
{
	struct block *b = batch_block(self);
	PyObject *list = b ? PyList_New(b->n) : NULL;

	for (uint32_t i = 0; list && i < b->n; i++) {
		PyObject *item = message_address(&b->msgs[i]);

		if (whole)
			item = received(b->msgs[i].len, item, &b->msgs[i]);
		if (!item)
			Py_CLEAR(list);
		else
			PyList_SetItem(list, i, item);
	}
	return list;
}

static PyObject *batch_addresses(PyObject *self, void *unused)
{
	(void)unused;
	return batch_list(self, false);
}

static PyObject *batch_messages(PyObject *self, void *unused)
{
	(void)unused;
	return batch_list(self, true);
}

static void batch_dealloc(PyObject *self)
{
	struct batch *batch = (struct batch *)self;

	Py_CLEAR(batch->views);
	block_put(batch->block);
	calls_free_object(self);
}

static PyMethodDef batch_methods[] = {
	{ "release", batch_release, METH_NOARGS,
	  "Gives the buffers back; every view of them ends. BufferError while one is in use." },
	{ "__enter__", batch_enter, METH_NOARGS, NULL },
	{ "__exit__", batch_release, METH_VARARGS, NULL },
	{ 0 },
};
static PyGetSetDef batch_getset[] = {
	{ "addresses", batch_addresses, NULL, "the senders' addresses, one a payload", NULL },
	{ "messages", batch_messages, NULL, "a Received(nbytes, address, flags, arrival_ns) a payload", NULL },
	{ 0 },
};
static PyType_Slot batch_slots[] = {
	{ Py_tp_doc, DOC("Received datagrams, or consecutive pieces of a stream (none at its end): a sequence of read-only "
			 "memoryviews, valid until release() or the end of the with block.") },
	{ Py_tp_dealloc, batch_dealloc },
	{ Py_tp_methods, batch_methods },
	{ Py_tp_getset, batch_getset },
	{ Py_sq_length, batch_length },
	{ Py_sq_item, batch_item },
	{ 0 },
};
static PyType_Spec batch_spec = { "pyvma.socket.Batch", sizeof(struct batch), 0, Py_TPFLAGS_DEFAULT, batch_slots };

static int64_t do_recv_batch(struct io *io, int64_t timeout_ns)
{
	return pyvma_sock_recv_batch(io->sock, io->msgs, io->n, io->flags, timeout_ns);
}

static int64_t do_send_batch(struct io *io, int64_t timeout_ns)
{
	return pyvma_sock_send_batch(io->sock, io->msgs, io->n, io->flags, timeout_ns);
}

/* Of a socket without lent buffers: each datagram into one large buffer and from there into memory of its own size. */
static int64_t recv_copies(struct io *io, int64_t timeout_ns)
{
	void *room = malloc(DATAGRAM_MAX);
	int64_t rc = room ? 1 : -ENOMEM;
	uint32_t done = 0;

	while (rc > 0 && done < io->n) {
		struct pyvma_msg *m = &io->msgs[done];

		*m = (struct pyvma_msg){ .base = room, .len = DATAGRAM_MAX };
		rc = pyvma_sock_recv_batch(io->sock, m, 1, io->flags | (done ? MSG_DONTWAIT : 0), done ? 0 : timeout_ns);
		if (rc <= 0)
			break;
		m->base = malloc(m->len ? m->len : 1);
		if (!m->base) {
			rc = -ENOMEM;
			break;
		}
		memcpy(m->base, room, m->len);
		done++;
	}
	free(room);
	return done ? (int64_t)done : rc;
}

/* Of a stream that is not the engine's: what one read brings. */
static int64_t recv_piece(struct io *io, int64_t timeout_ns)
{
	void *room = malloc(DATAGRAM_MAX), *cut;
	int64_t n = !room ? -ENOMEM : io->flags & ~MSG_DONTWAIT ? -EINVAL : 0;

	if (n == 0)
		n = pyvma_sock_recv(io->sock, room, DATAGRAM_MAX, io->flags, timeout_ns);
	if (n <= 0) {
		free(room);
		return n;
	}
	cut = realloc(room, (size_t)n);
	io->msgs[0] = (struct pyvma_msg){ .base = cut ? cut : room, .len = (uint32_t)n };
	return 1;
}

static int64_t do_recv_lent(struct io *io, int64_t timeout_ns)
{
	if (io->lent) {
		int64_t n = pyvma_sock_recv_lent(io->sock, io->msgs, io->n, io->flags, timeout_ns);

		if (n != -EOPNOTSUPP)
			return n;
		io->lent = false;
	}
	return io->stream ? recv_piece(io, timeout_ns) : recv_copies(io, timeout_ns);
}

/* Takes the reference of the block; NULL with an exception. */
static PyObject *batch_new(struct block *b)
{
	struct batch *batch = PyObject_New(struct batch, batch_type);

	if (!batch) {
		block_put(b);
		return NULL;
	}
	batch->block = b;
	batch->views = PyList_New((Py_ssize_t)b->n);
	for (uint32_t i = 0; batch->views && i < b->n; i++) {
		Py_INCREF(Py_None);
		PyList_SetItem(batch->views, i, Py_None);
	}
	if (!batch->views)
		Py_CLEAR(batch);
	return (PyObject *)batch;
}

static PyObject *recv_batch_lent(struct handle *h, long n, int flags)
{
	struct io io = { .sock = h->sock,
			 .flags = flags,
			 .n = n < (long)BATCH_MAX ? (uint32_t)n : BATCH_MAX,
			 .lent = true,
			 .stream = h->stream };
	struct block *b = block_new(io.n);

	if (!b)
		return NULL;
	io.msgs = b->msgs;
	int64_t got = run_receive(h, &io, do_recv_lent);
	b->lent = io.lent;
	b->n = got < 0 ? 0 : (uint32_t)got;
	if (got >= 0)
		return batch_new(b);
	block_put(b);
	return NULL;
}

/* Of a stream that is the standard library's alone: what one read brings. */
static PyObject *recv_batch_stdlib(PyObject *self, int flags)
{
	struct block *b;
	PyObject *data;
	char *from = NULL;
	Py_ssize_t len = 0;

	if (flags & ~MSG_DONTWAIT) {
		calls_raise(-EINVAL, 0);
		return NULL;
	}
	data = calls_stdlib_recv(self, DATAGRAM_MAX, flags);
	if (!data)
		return NULL;
	b = PyBytes_AsStringAndSize(data, &from, &len) ? NULL : block_new(1);
	if (b && len) {
		b->msgs[0] = (struct pyvma_msg){ .base = malloc((size_t)len), .len = (uint32_t)len };
		b->n = b->msgs[0].base != NULL;
		if (b->n)
			memcpy(b->msgs[0].base, from, (size_t)len);
	}
	Py_DECREF(data);
	if (!b)
		return NULL;
	if (!len || b->n)
		return batch_new(b);
	block_put(b);
	return PyErr_NoMemory();
}

static bool is_stream(PyObject *self)
{
	PyObject *type = PyObject_GetAttrString(self, "type");
	long value = type ? PyLong_AsLong(type) : -1;

	PyErr_Clear();
	Py_XDECREF(type);
	return value == SOCK_STREAM;
}

/* recv_batch(n[, flags]) */
static PyObject *recv_batch_number(PyObject *self, long n, int flags)
{
	struct handle *h;
	PyObject *result;

	if (n < 1) {
		PyErr_SetString(PyExc_ValueError, "the size of a batch must be positive");
		return NULL;
	}
	h = calls_handle(self);
	if (!h && is_stream(self))
		return recv_batch_stdlib(self, flags);
	Py_XDECREF(h);
	h = open_handle(self);
	if (!h)
		return NULL;
	result = recv_batch_lent(h, n, flags);
	Py_DECREF(h);
	return result;
}

/* The caller's buffers, their pieces of the messages and what keeps them in place. */
struct pieces {
	uint32_t n;
	struct pyvma_msg *msgs;
	Py_buffer *views;
};

static int pieces_init(struct pieces *p, Py_ssize_t n)
{
	p->n = 0;
	if (n < 0)
		return -1;
	if (n > (Py_ssize_t)BATCH_MAX)
		n = BATCH_MAX;
	p->msgs = PyMem_Malloc((size_t)n * (sizeof(*p->msgs) + sizeof(*p->views)) + 1);
	p->views = (Py_buffer *)(p->msgs + n);
	if (!p->msgs)
		PyErr_NoMemory();
	return p->msgs ? (int)n : -1;
}

static int pieces_add(struct pieces *p, PyObject *buffer, int flags)
{
	Py_buffer *view = &p->views[p->n];
	struct pyvma_msg *m = &p->msgs[p->n];

	if (PyObject_GetBuffer(buffer, view, flags))
		return -1;
	m->base = view->buf;
	m->len = view->len > (Py_ssize_t)UINT32_MAX ? UINT32_MAX : (uint32_t)view->len;
	m->flags = m->addrlen = 0;
	m->arrival_ns = 0;
	m->lent = NULL;
	p->n++;
	return 0;
}

static void pieces_fini(struct pieces *p)
{
	for (uint32_t i = 0; i < p->n; i++)
		PyBuffer_Release(&p->views[i]);
	PyMem_Free(p->msgs);
}

static PyObject *recv_batch_into(struct handle *h, PyObject *buffers, int flags)
{
	struct pieces p = { 0 };
	int want = pieces_init(&p, PySequence_Size(buffers));
	PyObject *list = NULL;

	if (want == 0)
		PyErr_SetString(PyExc_ValueError, "a batch needs at least one buffer");
	for (int i = 0; i < want; i++) {
		PyObject *buffer = PySequence_GetItem(buffers, i);
		int rc = buffer ? pieces_add(&p, buffer, PyBUF_WRITABLE) : -1;

		Py_XDECREF(buffer);
		if (rc)
			goto out;
	}
	if (want <= 0)
		goto out;
	struct io io = { .sock = h->sock, .msgs = p.msgs, .n = p.n, .flags = flags };
	int64_t n = run_receive(h, &io, do_recv_batch);
	list = n < 0 ? NULL : PyList_New((Py_ssize_t)n);
	for (int64_t i = 0; list && i < n; i++) {
		struct address from = { .len = p.msgs[i].addrlen };

		memcpy(&from.sa, &p.msgs[i].addr, sizeof(struct sockaddr_in6));
		PyObject *item = received(p.msgs[i].len, calls_sender_tuple(h, &from), &p.msgs[i]);
		if (!item)
			Py_CLEAR(list);
		else
			PyList_SetItem(list, (Py_ssize_t)i, item);
	}
out:
	pieces_fini(&p);
	return list;
}

PyObject *calls_recv_batch(PyObject *self, PyObject *args)
{
	struct handle *h;
	PyObject *where, *result;
	int flags = 0;

	if (!PyArg_ParseTuple(args, "O|i:recv_batch", &where, &flags))
		return NULL;
	if (PyLong_Check(where)) {
		long n = PyLong_AsLong(where);

		return n == -1 && PyErr_Occurred() ? NULL : recv_batch_number(self, n, flags);
	}
	h = open_handle(self);
	if (!h)
		return NULL;
	result = recv_batch_into(h, where, flags);
	Py_DECREF(h);
	return result;
}

static int message_destination(struct handle *h, PyObject *address, struct pyvma_msg *m)
{
	struct address to;
	int rc = calls_destination(h, address, &to);

	if (rc == 0)
		PyErr_Format(PyExc_TypeError, "send_batch(): not an address of this socket's family: %R", address);
	if (rc <= 0)
		return -1;
	m->addrlen = to.len;
	memcpy(&m->addr, &to.sa, to.len);
	return 0;
}

/* An item is a payload, or a pair of payload and address. */
static int add_message(struct handle *h, struct pieces *p, PyObject *item, PyObject *address)
{
	PyObject *data = item;

	if (PyTuple_Check(item)) {
		if (PyTuple_Size(item) != 2) {
			PyErr_SetString(PyExc_TypeError, "send_batch(): a message is a payload or a pair of payload and address");
			return -1;
		}
		data = PyTuple_GetItem(item, 0);
		address = PyTuple_GetItem(item, 1);
	}
	if (pieces_add(p, data, PyBUF_SIMPLE))
		return -1;
	return address == Py_None ? 0 : message_destination(h, address, &p->msgs[p->n - 1]);
}

PyObject *calls_send_batch(PyObject *self, PyObject *args)
{
	struct handle *h;
	struct pieces p = { 0 };
	PyObject *messages, *address = Py_None, *result = NULL;
	int flags = 0;

	if (!PyArg_ParseTuple(args, "O|iO:send_batch", &messages, &flags, &address) || !(h = open_handle(self)))
		return NULL;
	int want = pieces_init(&p, PySequence_Size(messages));
	for (int i = 0; i < want; i++) {
		PyObject *item = PySequence_GetItem(messages, i);
		int rc = item ? add_message(h, &p, item, address) : -1;

		Py_XDECREF(item);
		if (rc)
			goto out;
	}
	if (want > 0) {
		struct io io = { .sock = h->sock, .msgs = p.msgs, .n = p.n, .flags = flags };
		int64_t n = calls_run(h, &io, do_send_batch);

		result = n < 0 ? NULL : PyLong_FromLongLong(n);
	} else if (want == 0) {
		result = PyLong_FromLong(0);
	}
out:
	pieces_fini(&p);
	Py_DECREF(h);
	return result;
}

static PyStructSequence_Field received_fields[] = {
	{ "nbytes", "bytes in the buffer" },
	{ "address", "the sender, as recvfrom gives it" },
	{ "flags", "MSG_TRUNC when the buffer was too small" },
	{ "arrival_ns", "time.monotonic_ns() when the datagram was taken from the ring; 0 of kernel sockets" },
	{ NULL, NULL },
};
static PyStructSequence_Desc received_desc = { "pyvma.socket.Received", "One datagram of a batch.", received_fields, 4 };

int calls_batch_init(PyObject *module)
{
	name_release = PyUnicode_InternFromString("release");
	received_type = PyStructSequence_NewType(&received_desc);
	batch_type = (PyTypeObject *)PyType_FromSpec(&batch_spec);
	lent_type = (PyTypeObject *)PyType_FromSpec(&lent_spec);
	if (!name_release || !received_type || !batch_type || !lent_type)
		return -1;
	if (PyModule_AddObjectRef(module, "Received", (PyObject *)received_type))
		return -1;
	return PyModule_AddObjectRef(module, "Batch", (PyObject *)batch_type);
}
