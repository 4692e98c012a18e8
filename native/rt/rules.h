/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which sockets are the stack's and which the kernel's by the administrator's will: a file in VMA's grammar (libvma.conf).
 *
 *     application-id PROGRAM|* ID|*
 *     use vma|pyvma|os ROLE ADDRESS[/LENGTH]|*:PORT[-PORT]|*[:ADDRESS...:PORT...]
 *     log ...                                   (checked, of no effect)
 *
 * The first application-id that fits the process counts, with the rules up to the next one, and of those the first that fits the socket; where
 * none does the socket is the stack's if it can be. Rules before the first application-id are every program's. IPv6 addresses stand between
 * brackets, which VMA does not know.
 */
#ifndef PV_RT_RULES_H
#define PV_RT_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/endpoint.h"

#define PV_RULES_MAX 4096

enum pv_rule_role {
	PV_RULE_TCP_SERVER,
	PV_RULE_TCP_CLIENT,
	PV_RULE_UDP_SENDER,
	PV_RULE_UDP_RECEIVER,
	PV_RULE_UDP_CONNECT,
	PV_RULE_ROLES
};

struct pv_rule_side {
	struct pv_addr addr, mask;
	bool by_addr, by_port;
	uint16_t low, high;
};

struct pv_rule {
	enum pv_rule_role role;
	bool kernel;
	bool has_second;
	struct pv_rule_side first, second;
	uint32_t number, line; /* from 1 */
	char *name; /* "rule N of FILE" */
	char *text; /* as it stands there */
};

/* What applies to this process, in the file's order. */
struct pv_rules {
	uint32_t n;
	uint32_t roles; /* a bit each: there are rules for it */
	struct pv_rule *rule;
};

/* `size` bytes of `text`; `program` and `id` choose the section. 0 and *out, the caller's to free; -EINVAL or -ENOMEM with a text that names
 * file and line. */
struct pv_rules_for {
	const char *program, *id;
};
int pv_rules_parse(const char *file, const char *text, size_t size, struct pv_rules_for who, struct pv_rules **out);
/* The same of a file; -errno also when it cannot be read. */
int pv_rules_load(const char *file, struct pv_rules_for who, struct pv_rules **out);
void pv_rules_free(struct pv_rules *rules);
/* The first that fits; NULL: none. `first` is the local name of a receiver and a server, the far one of others; `second`, of those that
 * connect, the local one; NULL: not known, which fits every rule. */
const struct pv_rule *pv_rules_match(const struct pv_rules *rules, enum pv_rule_role role, const struct pv_endpoint *first,
				     const struct pv_endpoint *second);
const char *pv_rule_role_name(enum pv_rule_role role);

/* The process's, by the settings rules_file and app_id; NULL: there are none. Read when the engine starts and never freed while sockets may
 * look; engine lock. */
extern struct pv_rules *pv_rules;
int pv_rules_open(const char *file, const char *id);

#endif
