/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/control_msg.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "rt/error.h"

#define MARK "pyvma "
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyz_-"

static bool is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* Ends the present line and returns where the next one begins; NULL: it does not end. */
static char *line_end(char *line)
{
	char *nl = strchr(line, '\n');

	if (!nl)
		return NULL;
	*nl = '\0';
	return nl + 1;
}

static int parse_head(struct pv_control_msg *m, char *line)
{
	char *end;
	unsigned long version;

	if (strncmp(line, MARK, strlen(MARK)) || line[strlen(MARK)] < '0' || line[strlen(MARK)] > '9')
		return pv_error(-EBADMSG, "control: not a message of pyvma's");
	version = strtoul(line + strlen(MARK), &end, 10);
	if (version != PV_CONTROL_VERSION)
		return pv_error(-EPROTONOSUPPORT, "control: version %lu is not spoken here, only %d", version, PV_CONTROL_VERSION);
	m->verb = end + 1;
	if (*end != ' ' || !*m->verb || m->verb[strspn(m->verb, NAME_CHARS)])
		return pv_error(-EBADMSG, "control: no verb");
	return 0;
}

static int parse_pair(struct pv_control_msg *m, char *line)
{
	char *eq = strchr(line, '=');

	if (!eq || eq == line)
		return pv_error(-EBADMSG, "control: a line is not key=value");
	*eq = '\0';
	if (line[strspn(line, NAME_CHARS)])
		return pv_error(-EBADMSG, "control: a key is not a name");
	if (pv_control_value(m, line))
		return pv_error(-EBADMSG, "control: %s stands twice", line);
	if (m->n == PV_CONTROL_PAIRS)
		return pv_error(-EBADMSG, "control: more than %d lines", PV_CONTROL_PAIRS);
	m->pair[m->n].key = line;
	m->pair[m->n++].value = eq + 1;
	return 0;
}

int pv_control_parse(struct pv_control_msg *m, const void *data, size_t size)
{
	char *line, *after;
	int rc;

	m->n = 0;
	m->len = 0;
	m->verb = "";
	if (!size || size > PV_CONTROL_MSG_MAX)
		return pv_error(-EBADMSG, "control: a message of %zu bytes", size);
	memcpy(m->text, data, size);
	m->text[size] = '\0';
	for (size_t i = 0; i < size; i++)
		if (is_control(m->text[i]) && m->text[i] != '\n')
			return pv_error(-EBADMSG, "control: a control character");
	line = m->text;
	after = line_end(line);
	if (!after)
		return pv_error(-EBADMSG, "control: a message without an end");
	rc = parse_head(m, line);
	for (line = after; !rc && *line; line = after) {
		after = line_end(line);
		rc = after ? parse_pair(m, line) : pv_error(-EBADMSG, "control: a line without an end");
	}
	return rc;
}

const char *pv_control_value(const struct pv_control_msg *m, const char *key)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (!strcmp(m->pair[i].key, key))
			return m->pair[i].value;
	return NULL;
}

int pv_control_number(const struct pv_control_msg *m, const char *key, uint64_t max, uint64_t *out)
{
	const char *value = pv_control_value(m, key);
	unsigned long long n;
	char *end;

	if (!value)
		return 0;
	errno = 0;
	n = strtoull(value, &end, 10);
	if (*value < '0' || *value > '9' || *end || errno || n > max)
		return pv_error(-EINVAL, "control: %s=%s is not a number up to %llu", key, value, (unsigned long long)max);
	*out = n;
	return 0;
}

static bool among(const char *key, const char *const *keys)
{
	for (; *keys; keys++)
		if (!strcmp(key, *keys))
			return true;
	return false;
}

int pv_control_only(const struct pv_control_msg *m, const char *const *keys)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (!among(m->pair[i].key, keys))
			return pv_error(-EINVAL, "control: \"%s\" is not known to %s", m->pair[i].key, m->verb);
	return 0;
}

void pv_control_begin(struct pv_control_msg *m, const char *verb)
{
	m->n = 0;
	m->verb = verb;
	m->len = (size_t)snprintf(m->text, sizeof(m->text), MARK "%d %s\n", PV_CONTROL_VERSION, verb);
}

void pv_control_add(struct pv_control_msg *m, const char *key, const char *value)
{
	size_t from = m->len + strlen(key) + 1, room = PV_CONTROL_MSG_MAX - m->len;
	int n = snprintf(m->text + m->len, room, "%s=%s\n", key, value);

	if (n < 0 || (size_t)n >= room)
		return;
	m->len += (size_t)n;
	for (size_t i = from; i + 1 < m->len; i++)
		if (is_control(m->text[i]))
			m->text[i] = ' ';
}

void pv_control_add_number(struct pv_control_msg *m, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	pv_control_add(m, key, text);
}
