/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of the control socket: text, one a packet.
 *	pyvma 1 VERB\n
 *	key=value\n ...
 * A request's verb says what is wanted; an answer's is "ok", or "error" with `code` (an errno) and `text`. Keys stand once; values have no
 * control characters. Whoever meets a key or verb that it does not know refuses: nothing is silently without effect.
 */
#ifndef PV_RT_CONTROL_MSG_H
#define PV_RT_CONTROL_MSG_H

#include <stddef.h>
#include <stdint.h>

#define PV_CONTROL_VERSION 1
#define PV_CONTROL_MSG_MAX 4096
#define PV_CONTROL_PAIRS 16

struct pv_control_msg {
	char text[PV_CONTROL_MSG_MAX + 1]; /* taken apart */
	size_t len; /* of a message that is being made */
	const char *verb;
	uint32_t n;
	struct {
		const char *key, *value;
	} pair[PV_CONTROL_PAIRS];
};

/* 0; -EBADMSG (it is none), -EPROTONOSUPPORT (of another version), with a text. */
int pv_control_parse(struct pv_control_msg *m, const void *data, size_t size);
/* NULL: it has no such key. */
const char *pv_control_value(const struct pv_control_msg *m, const char *key);
/* 0 to `max`, decimal; `*out` stays when there is no such key. 0, -EINVAL with a text. */
int pv_control_number(const struct pv_control_msg *m, const char *key, uint64_t max, uint64_t *out);
/* 0; -EINVAL with a text when it has a key that is not among `keys`, which ends with NULL. */
int pv_control_only(const struct pv_control_msg *m, const char *const *keys);

/* Makes a message: the verb, then pairs; control characters in a value become spaces, what does not fit is left out. */
void pv_control_begin(struct pv_control_msg *m, const char *verb);
void pv_control_add(struct pv_control_msg *m, const char *key, const char *value);
void pv_control_add_number(struct pv_control_msg *m, const char *key, uint64_t value);

#endif
