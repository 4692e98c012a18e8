/* SPDX-License-Identifier: BSD-3-Clause */
/* Network namespaces of a test's own, and the program `ip` in them. Every command has a limit. */
#ifndef NETNS_H
#define NETNS_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <unistd.h>

#include "base/addr.h"
#include "test.h"

/* Where the test is, and its peer. */
static int own_ns __attribute__((unused)), peer_ns __attribute__((unused));

/* The namespace that the thread is in from now on; its fd. */
static inline int new_ns(void)
{
	int fd;

	CHECK_EQ(unshare(CLONE_NEWNET), 0);
	fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

/* In that namespace; -1: where the thread is. Elsewhere it comes back to own_ns. */
static inline void ip_command(int ns, const char *fmt, va_list ap)
{
	char command[400] = "timeout 20 ip ";

	vsnprintf(command + strlen(command), sizeof(command) - strlen(command), fmt, ap);
	if (ns >= 0)
		CHECK_EQ(setns(ns, CLONE_NEWNET), 0);
	CHECK_EQ(system(command), 0);
	if (ns >= 0)
		CHECK_EQ(setns(own_ns, CLONE_NEWNET), 0);
}

static inline void ip_here(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void ip_here(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ip_command(-1, fmt, ap);
	va_end(ap);
}

static inline void ip_in(int ns, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void ip_in(int ns, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ip_command(ns, fmt, ap);
	va_end(ap);
}

static inline struct pv_addr addr_of(const char *text)
{
	uint8_t b[16];

	if (inet_pton(AF_INET, text, b) == 1)
		return pv_addr_from4(b);
	CHECK_EQ(inet_pton(AF_INET6, text, b), 1);
	return pv_addr_from6(b);
}

#endif
