/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the administrator's rules (rt/rules.h) say of a socket: asked before it is decided, and of datagrams that name where they go. They win
 * over strict mode, which is about what cannot be offloaded, not about what shall not. What only the stack can reach, an address of an
 * interface that the kernel does not know, is no matter of theirs once the socket is bound to it.
 */
#ifndef PV_SOCK_RULE_H
#define PV_SOCK_RULE_H

#include "rt/rules.h"

/* Why the socket is to be the kernel's; NULL: no rule wants that. Engine lock. */
pv_inline const char *pv_sock_rule(enum pv_rule_role role, const struct pv_endpoint *first, const struct pv_endpoint *second)
{
	const struct pv_rule *rule = pv_likely(!pv_rules) ? NULL : pv_rules_match(pv_rules, role, first, second);

	return rule && rule->kernel ? rule->name : NULL;
}

#endif
