/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses between Python's tuples and the system's structures, by the rules of the standard library's socket module. */
#include "_calls.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#define HOST_MAX 1025 /* NI_MAXHOST */

PyObject *calls_address_tuple(const struct address *a)
{
	char text[INET6_ADDRSTRLEN];

	if (a->len >= sizeof(struct sockaddr_in) && a->sa.ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)&a->sa;

		inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
		return Py_BuildValue("(si)", text, (int)ntohs(in->sin_port));
	}
	if (a->len >= sizeof(struct sockaddr_in6) && a->sa.ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
		return Py_BuildValue("(siII)", text, (int)ntohs(in6->sin6_port), (unsigned int)ntohl(in6->sin6_flowinfo),
				     (unsigned int)in6->sin6_scope_id);
	}
	Py_INCREF(Py_None);
	return Py_None;
}

/* The sender's address. Most datagrams come from the same peer as the one before: then the tuple is the same object. */
PyObject *calls_sender_tuple(struct handle *h, const struct address *a)
{
	if (!h->from_tuple || h->from.len != a->len || memcmp(&h->from.sa, &a->sa, a->len)) {
		PyObject *made = calls_address_tuple(a);

		if (!made)
			return NULL;
		Py_XDECREF(h->from_tuple);
		h->from_tuple = made;
		h->from.len = a->len;
		memcpy(&h->from.sa, &a->sa, a->len);
	}
	Py_INCREF(h->from_tuple);
	return h->from_tuple;
}

static void set_gaierror(int error)
{
	PyObject *module, *type;

	if (error == EAI_SYSTEM) {
		PyErr_SetFromErrno(PyExc_OSError);
		return;
	}
	PyObject *value = Py_BuildValue("(is)", error, gai_strerror(error));
	module = PyImport_ImportModule("_socket");
	type = module ? PyObject_GetAttrString(module, "gaierror") : NULL;
	if (value && type)
		PyErr_SetObject(type, value);
	Py_XDECREF(value);
	Py_XDECREF(type);
	Py_XDECREF(module);
}

/* 1: resolved without asking anybody; 2: a name server or file was asked; 0: not for us; -1: exception. */
static int resolve_host(const char *host, int family, struct sockaddr_storage *out)
{
	struct sockaddr_in *in = (struct sockaddr_in *)out;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
	struct addrinfo hints = { .ai_family = family }, *found;

	if (!host[0]) /* both any-addresses are zeros */
		return 1;
	if (!strcmp(host, "<broadcast>") || !strcmp(host, "255.255.255.255")) {
		in->sin_addr.s_addr = INADDR_BROADCAST;
		return family == AF_INET;
	}
	if (family == AF_INET ? inet_pton(AF_INET, host, &in->sin_addr) == 1
			      : !strchr(host, '%') && inet_pton(AF_INET6, host, &in6->sin6_addr) == 1)
		return 1;
	PyThreadState *state = PyEval_SaveThread();
	int error = getaddrinfo(host, NULL, &hints, &found);
	PyEval_RestoreThread(state);
	if (error) {
		set_gaierror(error);
		return -1;
	}
	memcpy(out, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 2;
}

/* Copies the host's text in the bytes that a resolver takes. -1: not for us. */
static int host_text(PyObject *host, char *out)
{
	PyObject *encoded = NULL;
	const char *text = NULL;
	Py_ssize_t len = -1;
	int rc = -1;

	if (PyUnicode_Check(host)) {
		text = PyUnicode_AsUTF8AndSize(host, &len);
		if (text && len != PyUnicode_GetLength(host)) { /* not ASCII */
			encoded = PyUnicode_AsEncodedString(host, "idna", NULL);
			text = encoded ? PyBytes_AsString(encoded) : NULL;
			len = encoded ? PyBytes_Size(encoded) : -1;
		}
	} else if (PyBytes_Check(host)) {
		text = PyBytes_AsString(host);
		len = PyBytes_Size(host);
	} else if (PyByteArray_Check(host)) {
		text = PyByteArray_AsString(host);
		len = PyByteArray_Size(host);
	}
	if (text && len < HOST_MAX && !memchr(text, 0, (size_t)len)) {
		memcpy(out, text, (size_t)len);
		out[len] = 0;
		rc = 0;
	}
	Py_XDECREF(encoded);
	return rc;
}

int calls_parse_address(int family, PyObject *tuple, struct address *out)
{
	char host[HOST_MAX];
	long port, flowinfo = 0, scope = 0;
	Py_ssize_t n = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0;

	if (n < 2 || n > (family == AF_INET ? 2 : 4) || as_long(PyTuple_GetItem(tuple, 1), 0, 0xffff, &port))
		return 0;
	if ((n > 2 && as_long(PyTuple_GetItem(tuple, 2), 0, 0xfffff, &flowinfo)) ||
	    (n > 3 && as_long(PyTuple_GetItem(tuple, 3), 0, UINT32_MAX, &scope)) || host_text(PyTuple_GetItem(tuple, 0), host))
		return 0;
	memset(&out->sa, 0, sizeof(struct sockaddr_in6));
	int rc = resolve_host(host, family, &out->sa);
	if (rc <= 0)
		return rc;
	out->sa.ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)&out->sa;

		in->sin_port = htons((uint16_t)port);
		out->len = sizeof(*in);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out->sa;

		in6->sin6_port = htons((uint16_t)port);
		in6->sin6_flowinfo = htonl((uint32_t)flowinfo);
		in6->sin6_scope_id = (uint32_t)scope;
		out->len = sizeof(*in6);
	}
	return rc;
}

/* Whether the tuple means the same for ever: no bytearray, no object with an __index__ of its own inside. */
static bool address_is_constant(PyObject *tuple)
{
	if (!PyTuple_CheckExact(tuple) || !PyUnicode_CheckExact(PyTuple_GetItem(tuple, 0)))
		return false;
	for (Py_ssize_t i = 1; i < PyTuple_Size(tuple); i++)
		if (!PyLong_CheckExact(PyTuple_GetItem(tuple, i)))
			return false;
	return true;
}

/* parse_address with the last constant tuple remembered. The answer is copied: without the GIL another thread may replace it. */
int calls_destination(struct handle *h, PyObject *tuple, struct address *out)
{
	if (tuple != h->to_tuple) {
		struct address parsed;
		int rc = calls_parse_address(h->family, tuple, &parsed);

		if (rc <= 0)
			return rc;
		out->len = parsed.len;
		memcpy(&out->sa, &parsed.sa, parsed.len);
		if (rc == 1 && address_is_constant(tuple)) {
			Py_INCREF(tuple);
			PyObject *old = h->to_tuple;
			h->to_tuple = tuple;
			h->to.len = parsed.len;
			memcpy(&h->to.sa, &parsed.sa, parsed.len);
			Py_XDECREF(old);
		}
		return 1;
	}
	out->len = h->to.len;
	memcpy(&out->sa, &h->to.sa, sizeof(struct sockaddr_in6));
	return 1;
}
