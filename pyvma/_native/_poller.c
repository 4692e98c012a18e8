/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Poller: the set of sockets that an event loop waits for, and its turn: one call that polls the engine, drains the set and calls the
 * target of every socket that is ready. Read item by item through cffi an event costs as much as the engine needs for a datagram.
 *
 * A target may do anything, close the poller and end the watch of a socket whose event is still to be told included: the memory of a
 * watch stays until no turn is under way.
 */
#include "_calls.h"

#include <limits.h>
#include <sys/epoll.h>

#define EVENTS_MAX 256
#define NEAR_NS 60000 /* a sleep and its end take most of that */
#define REST_ROUNDS 4
#define ALWAYS ((uint32_t)(EPOLLERR | EPOLLHUP))

struct poller;

/* What the poller knows of a socket; its address is the data of the socket's events. */
struct watch {
	struct watch *next, *prev; /* of the poller */
	struct watch *same; /* the next poller's of the same handle */
	struct poller *poller;
	struct handle *handle; /* a reference; NULL: by its fd */
	int fd;
	PyObject *target; /* a reference; NULL: the watch has ended */
	uint32_t events;
};

struct poller {
	PyObject ob_base;
	pyvma_epoll *set; /* NULL: closed */
	struct watch *first, *ended;
	unsigned int turns; /* under way */
	int other; /* in a turn: an fd that ends the wait when it is readable; -1: none */
	bool quick; /* what the last wait waited for came soon */
	bool near; /* the same of a sleep */
	int64_t asleep_ns; /* since then; 0: not */
	PyObject *failed; /* called with the exception of a target */
};

static PyTypeObject *handle_type;

/* What a caller means: a handle, or an fd, which is rare. */
struct key {
	struct handle *handle;
	int fd;
};

static int parse_key(PyObject *given, struct key *out)
{
	long fd;

	*out = (struct key){ .fd = -1 };
	if (Py_IS_TYPE(given, handle_type)) {
		out->handle = (struct handle *)given;
		return 0;
	}
	if (as_long(given, 0, INT_MAX, &fd)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "no fd");
		return -1;
	}
	out->fd = (int)fd;
	return 0;
}

static struct watch *find(const struct poller *p, struct key key)
{
	struct watch *w = key.handle ? key.handle->watches : p->first;

	if (key.handle)
		while (w && w->poller != p)
			w = w->same;
	else
		while (w && (w->handle || w->fd != key.fd))
			w = w->next;
	return w;
}

static int control(struct poller *p, int op, struct key key, uint32_t events, struct watch *w)
{
	struct pyvma_event event = { events, (uintptr_t)w };

	if (!key.handle)
		return pyvma_epoll_ctl(p->set, op, key.fd, &event);
	return key.handle->sock ? pyvma_epoll_ctl_sock(p->set, op, key.handle->sock, &event) : -EBADF;
}

/* ---- watches ----------------------------------------------------------------------------------------------------------- */

static void free_ended(struct poller *p)
{
	while (p->ended) {
		struct watch *w = p->ended;

		p->ended = w->next;
		PyMem_Free(w);
	}
}

/* The poller knows it no more. What it referred to may run code of its own when it goes: last. */
static void end_watch(struct poller *p, struct watch *w)
{
	struct handle *h = w->handle;
	PyObject *target = w->target;

	if (h) {
		struct watch **at = &h->watches;

		while (*at != w)
			at = &(*at)->same;
		*at = w->same;
	}
	if (w->next)
		w->next->prev = w->prev;
	if (w->prev)
		w->prev->next = w->next;
	else
		p->first = w->next;
	w->target = NULL;
	w->handle = NULL;
	w->next = p->ended;
	p->ended = w;
	if (!p->turns)
		free_ended(p);
	Py_DECREF(target);
	Py_XDECREF(h);
}

static PyObject *raise_closed(void)
{
	PyErr_SetString(PyExc_ValueError, "the poller is closed");
	return NULL;
}

static PyObject *raise_errno(int rc)
{
	calls_raise(rc, 0);
	return NULL;
}

static int add_watch(struct poller *p, struct key key, uint32_t events, PyObject *target)
{
	struct watch *w = PyMem_Malloc(sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	*w =
	    (struct watch){ .next = p->first, .poller = p, .handle = key.handle, .fd = key.fd, .target = target, .events = events };
	rc = control(p, EPOLL_CTL_ADD, key, events, w);
	if (rc) {
		PyMem_Free(w);
		return rc;
	}
	Py_XINCREF(key.handle);
	Py_INCREF(target);
	if (p->first)
		p->first->prev = w;
	p->first = w;
	if (key.handle) {
		w->same = key.handle->watches;
		key.handle->watches = w;
	}
	return 0;
}

static PyObject *poller_watch(PyObject *self, PyObject *args)
{
	struct poller *p = (struct poller *)self;
	PyObject *given, *target, *before;
	unsigned int events;
	struct watch *w;
	struct key key;
	int rc;

	if (!PyArg_ParseTuple(args, "OIO:watch", &given, &events, &target) || parse_key(given, &key))
		return NULL;
	if (!p->set)
		return raise_closed();
	w = find(p, key);
	if (!w) {
		rc = add_watch(p, key, events, target);
		return rc ? raise_errno(rc) : Py_BuildValue("");
	}
	if (events != w->events) {
		rc = control(p, EPOLL_CTL_MOD, key, events, w);
		if (rc)
			return raise_errno(rc);
		w->events = events;
	}
	before = w->target;
	Py_INCREF(target);
	w->target = target;
	Py_DECREF(before);
	return Py_BuildValue("");
}

/* A socket that was closed has left the set by itself. */
static PyObject *poller_unwatch(PyObject *self, PyObject *given)
{
	struct poller *p = (struct poller *)self;
	struct watch *w;
	struct key key;

	if (parse_key(given, &key))
		return NULL;
	w = find(p, key);
	if (!w)
		return PyBool_FromLong(0);
	if (p->set)
		control(p, EPOLL_CTL_DEL, key, 0, NULL);
	end_watch(p, w);
	return PyBool_FromLong(1);
}

/* ---- the turn ---------------------------------------------------------------------------------------------------------- */

/* The exception of a target is told, so that the others get their turn, too. -1: that raised, or it ends the program. */
static int tell_failure(struct poller *p)
{
	PyObject *type, *value, *trace, *result;

	if (PyErr_ExceptionMatches(PyExc_SystemExit) || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
		return -1;
	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	if (trace)
		PyException_SetTraceback(value, trace);
	result = PyObject_CallFunctionObjArgs(p->failed, value, NULL);
	Py_XDECREF(type);
	Py_XDECREF(value);
	Py_XDECREF(trace);
	Py_XDECREF(result);
	return result ? 0 : -1;
}

static int call_target(struct poller *p, const struct pyvma_event *event)
{
	struct watch *w = (struct watch *)(uintptr_t)event->data;
	uint32_t bits;

	if (!w->target || !(bits = event->events & (w->events | ALWAYS)))
		return 0;
	PyObject *target = w->target, *number = PyLong_FromUnsignedLong(bits);
	Py_INCREF(target);
	PyObject *result = number ? PyObject_CallFunctionObjArgs(target, number, NULL) : NULL;
	Py_XDECREF(number);
	Py_DECREF(target);
	if (!result)
		return tell_failure(p);
	Py_DECREF(result);
	return 0;
}

static int call_targets(struct poller *p, const struct pyvma_event *events, int n)
{
	int rc = 0;

	for (int i = 0; i < n && !rc; i++) {
		calls_posting.more = i + 1 < n;
		rc = call_target(p, &events[i]);
	}
	calls_posting.more = false;
	if (calls_posting.posted)
		pyvma_flush();
	calls_posting.posted = 0;
	return rc;
}

static int look(struct poller *p, struct pyvma_event *events, int64_t wait_ns)
{
	return p->other < 0 ? pyvma_epoll_wait(p->set, events, EVENTS_MAX, wait_ns)
			    : pyvma_epoll_turn(p->set, events, EVENTS_MAX, wait_ns, p->other);
}

/*
 * What is ready, waiting for it until the deadline at most; as calls that wait do (_calls.h) it keeps the GIL for HOLD_NS if that was
 * enough the last time. Not polled at all: `budget_ns` is 0.
 */
static int wait_events(struct poller *p, struct pyvma_event *events, int64_t deadline)
{
	int64_t left = deadline - calls_now_ns(), start;
	int n;

	if (left <= 0)
		return 0;
	if (p->quick) {
		n = look(p, events, left < HOLD_NS ? left : HOLD_NS);
		left = deadline - calls_now_ns();
		if (n || left <= 0)
			return n;
	}
	start = calls_now_ns();
	PyThreadState *state = PyEval_SaveThread();
	n = look(p, events, left);
	PyEval_RestoreThread(state);
	p->quick = calls_now_ns() - start < HOLD_NS;
	return n;
}

/* Events told, or -1 with an exception. */
static int take_turns(struct poller *p, int64_t budget_ns, PyObject *ready)
{
	struct pyvma_event events[EVENTS_MAX];
	int64_t deadline = budget_ns > 0 ? calls_now_ns() + budget_ns : 0;
	int told = 0;

	for (;;) {
		int n = p->set ? look(p, events, 0) : 0;

		if (n == 0 && deadline && p->set)
			n = wait_events(p, events, deadline);
		if (n == -EINTR)
			return PyErr_CheckSignals() ? -1 : told;
		if (n < 0) {
			calls_raise(n, 0);
			return -1;
		}
		told += n;
		if (call_targets(p, events, n))
			return -1;
		if (!n || !deadline || !ready || calls_now_ns() >= deadline)
			return told;
		Py_ssize_t waiting = PyObject_Size(ready);
		if (waiting)
			return waiting < 0 ? -1 : told;
	}
}

static PyObject *poller_turn(PyObject *self, PyObject *args)
{
	struct poller *p = (struct poller *)self;
	PyObject *ready = Py_None;
	long long budget_ns = 0;
	int told, other = -1;

	if (!PyArg_ParseTuple(args, "|LOi:turn", &budget_ns, &ready, &other))
		return NULL;
	if (!p->set)
		return raise_closed();
	p->other = other;
	p->turns++;
	told = take_turns(p, budget_ns, ready == Py_None ? NULL : ready);
	if (!--p->turns)
		free_ended(p);
	return told < 0 ? NULL : PyLong_FromLong(told);
}

/*
 * What is ready, and if nothing is, the fd of loop_fd() tells of what comes. To sleep and be woken takes longer than an answer that is on
 * its way: as a receive polls before it sleeps, so does this, for HOLD_NS, as long as what was waited for last came within NEAR_NS.
 */
static int rest_events(struct poller *p, struct pyvma_event *events, bool others)
{
	int n = 0;

	if (p->near && !others) {
		n = pyvma_epoll_turn(p->set, events, EVENTS_MAX, HOLD_NS, -1);
		p->near = n > 0;
	}
	return n ? n : pyvma_epoll_turn(p->set, events, EVENTS_MAX, -1, -1);
}

/* 1: nothing is ready, and the fd of loop_fd() tells of what comes; 0: there may be more; -1: with an exception. */
static int take_rest(struct poller *p, PyObject *ready)
{
	struct pyvma_event events[EVENTS_MAX];
	Py_ssize_t waiting = PyObject_Size(ready);

	if (p->asleep_ns)
		p->near = calls_engine_spins() && calls_now_ns() - p->asleep_ns < NEAR_NS;
	p->asleep_ns = 0;
	for (int round = 0; waiting >= 0 && round < REST_ROUNDS && p->set; round++) {
		int n = rest_events(p, events, waiting > 0);

		if (n == 0) {
			p->asleep_ns = calls_now_ns();
			return 1;
		}
		if (n < 0)
			return (int)calls_raise(n, 0);
		if (call_targets(p, events, n))
			return -1;
		waiting = PyObject_Size(ready);
		if (waiting > 0)
			return 0;
	}
	return waiting < 0 ? -1 : !p->set;
}

static PyObject *poller_rest(PyObject *self, PyObject *ready)
{
	struct poller *p = (struct poller *)self;
	int done;

	if (!p->set)
		return raise_closed();
	p->turns++;
	done = take_rest(p, ready);
	if (!--p->turns)
		free_ended(p);
	return done < 0 ? NULL : PyBool_FromLong(done);
}

/* ---- the type ---------------------------------------------------------------------------------------------------------- */

static void close_set(struct poller *p)
{
	pyvma_epoll *set = p->set;

	p->set = NULL;
	if (set)
		pyvma_epoll_close(set);
	while (p->first)
		end_watch(p, p->first);
}

static PyObject *poller_close(PyObject *self, PyObject *unused)
{
	(void)unused;
	close_set((struct poller *)self);
	return Py_BuildValue("");
}

static PyObject *poller_loop_fd(PyObject *self, PyObject *unused)
{
	struct poller *p = (struct poller *)self;

	(void)unused;
	return p->set ? PyLong_FromLong(pyvma_epoll_loop_fd(p->set)) : raise_closed();
}

static PyObject *poller_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "failed", NULL };
	PyObject *failed;
	struct poller *p;
	int rc;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", (char **)(uintptr_t)names, &failed))
		return NULL;
	p = PyObject_GC_New(struct poller, type);
	if (!p)
		return NULL;
	p->first = p->ended = NULL;
	p->turns = 0;
	p->other = -1;
	p->quick = true;
	p->near = false;
	p->asleep_ns = 0;
	p->failed = failed;
	Py_INCREF(failed);
	rc = pyvma_epoll_open(&p->set);
	PyObject_GC_Track(p);
	if (rc) {
		Py_DECREF(p);
		return raise_errno(rc);
	}
	pyvma_epoll_waits(p->set, PYVMA_WAITS_LOOP);
	return (PyObject *)p;
}

static int poller_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct poller *)self)->failed);
	for (const struct watch *w = ((struct poller *)self)->first; w; w = w->next)
		Py_VISIT(w->target);
	return 0;
}

static int poller_clear(PyObject *self)
{
	close_set((struct poller *)self);
	Py_CLEAR(((struct poller *)self)->failed);
	return 0;
}

static void poller_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_GC_UnTrack(self);
	poller_clear(self);
	PyObject_GC_Del(self);
	Py_DECREF(type);
}

static PyMethodDef poller_methods[] = {
	{ "watch", poller_watch, METH_VARARGS, NULL },
	{ "unwatch", poller_unwatch, METH_O, NULL },
	{ "turn", poller_turn, METH_VARARGS, NULL },
	{ "rest", poller_rest, METH_O, NULL },
	{ "loop_fd", poller_loop_fd, METH_NOARGS, NULL },
	{ "close", poller_close, METH_NOARGS, NULL },
	{ 0 },
};
static PyType_Slot poller_slots[] = {
	{ Py_tp_doc, DOC("Poller(failed): a set of sockets. watch(handle or fd, events, target) adds or changes one: "
			 "target(bits) is called by the turn that finds it ready, level-triggered; what a target raises is "
			 "told to failed(exception), and the turn goes on. turn(budget_ns=0, ready=None, other=-1) tells "
			 "what is ready now; with a budget it waits that long for the first, and with `ready` it goes on "
			 "until the budget is used up or `ready` is not empty. `other`: an fd that ends the wait, too, which "
			 "then spins. rest(ready) tells what is ready until nothing is, and then True: what comes makes the "
			 "fd of loop_fd() readable; False: something in `ready` waits, or there may be more.") },
	{ Py_tp_new, poller_new },
	{ Py_tp_dealloc, poller_dealloc },
	{ Py_tp_traverse, poller_traverse },
	{ Py_tp_clear, poller_clear },
	{ Py_tp_methods, poller_methods },
	{ 0 },
};
static PyType_Spec poller_spec = { "pyvma._native._calls.Poller", sizeof(struct poller), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
				   poller_slots };

int calls_poller_init(PyObject *module, PyTypeObject *handles)
{
	PyObject *type = PyType_FromSpec(&poller_spec);
	int rc = type ? PyModule_AddObjectRef(module, "Poller", type) : -1;

	handle_type = handles;
	Py_XDECREF(type);
	return rc;
}
