/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of the preload library as a program: every call of the tables, on every kind of socket in every state, blocking and not.
 * It prints a line for each, and knows nothing of pyvma: what the kernel alone prints is what must be printed over the stack.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Ports of the peer (peer.py). */
enum { ECHO = 7001, GREET, BYE, RESET, SILENT, KNOCK, URGENT, CLOSED };

#define UDP 1u
#define TCP 2u
#define BOTH (UDP | TCP)

struct kind {
	const char *name;
	int family, type;
	unsigned int bit;
};

struct state;

/* In which the case is. */
extern const struct kind *kind;
extern const struct state *state;
extern bool blocking;
extern int arg; /* the call's */

/* Of a state: the peer answers what is sent; it ends its side of a stream when we end ours. */
#define ANSWERS 1u
#define ENDS 2u
/* It takes long: data is moved over IPv4 without blocking, and waited for over IPv6 with. */
#define SLOW 4u

struct state {
	const char *name;
	unsigned int kinds;
	int (*make)(void);
	unsigned int peer;
};

struct call {
	const char *name;
	unsigned int kinds;
	void (*run)(int fd);
	int arg;
};

#define CALL(name, kinds)                                                                                                          \
	{                                                                                                                          \
#name, kinds, name, 0                                                                                              \
	}

extern const struct state states[];
/* Ended by a row without a name. */
extern const struct call io_calls[], name_calls[], file_calls[], wait_calls[];
const struct call *option_calls(void); /* made of a table; only some states make a difference to them */

/* The line of the case. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A result: the number, or the name of errno. */
long rc(const char *what, long result);
void bytes(const char *data, long n);
/* Family, host and whether there is a port: the port itself is any. */
void address(const struct sockaddr_storage *a, socklen_t len);

socklen_t peer(int port, struct sockaddr_storage *out);
socklen_t any(struct sockaddr_storage *out);
/* A new socket of the kind. */
int fresh(void);
/* Waits until the fd shows one of these, two seconds at most. */
void settle(int fd, short events);
/* A small number that is nobody else's between the cases that use it. */
#define LOW_FD 20
void hold(int fd);
/* Waits as long for `more` bytes beside the `before` that FIONREAD told. */
int unread(int fd);
void arrive(int fd, int before, int more);

#endif
