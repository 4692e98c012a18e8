/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pyvma.h"
#include "rt/error.h"

#define LINE_MAX_BYTES 1024
#define FILE_MAX_BYTES (4u << 20)
#define WORDS_MAX 16

struct pv_rules *pv_rules;

static const char *const role_names[PV_RULE_ROLES] = { "tcp_server", "tcp_client", "udp_sender", "udp_receiver", "udp_connect" };

struct reader {
	const char *file;
	uint32_t line, number, max;
	struct pv_rules_for who;
	struct pv_rules *rules;
	enum { BEFORE, INSIDE, OTHERS, DONE } section; /* whose rules these are; DONE: a section before was ours */
};

const char *pv_rule_role_name(enum pv_rule_role role)
{
	return role_names[role];
}

static int bad(const struct reader *r, const char *what, const char *word)
{
	return pv_error(-EINVAL, "%.200s:%u: %s%s%.100s%s", r->file, r->line, what, *word ? ": \"" : "", word, *word ? "\"" : "");
}

/* ---- addresses and ports ----------------------------------------------------------------------------------------------- */

static bool number(const char *text, uint32_t high, uint32_t *out)
{
	size_t n = strspn(text, "0123456789");

	if (!n || text[n] || n > 9)
		return false;
	*out = (uint32_t)strtoul(text, NULL, 10);
	return *out <= high;
}

static void mask_of(struct pv_rule_side *s, uint32_t bits)
{
	for (uint32_t i = 0; i < 16; i++) {
		uint32_t here = bits > 8 * i ? PV_MIN(bits - 8 * i, 8u) : 0;

		s->mask.b[i] = (uint8_t)(0xff00u >> here);
	}
}

/* ADDRESS, ADDRESS/LENGTH or *; IPv6 as [ADDRESS], [ADDRESS]/LENGTH or [ADDRESS/LENGTH]. */
static int side_addr(const struct reader *r, char *text, struct pv_rule_side *s)
{
	bool six = *text == '[';
	char *slash, *close = six ? strchr(text, ']') : NULL;
	uint32_t bits = six ? 128 : 32;
	uint8_t b[16];

	if (!strcmp(text, "*"))
		return 0;
	slash = strchr(text, '/');
	if (six) {
		if (!close || (close[1] && (close[1] != '/' || slash != close + 1)))
			return bad(r, "an IPv6 address is [ADDRESS] or [ADDRESS]/LENGTH", text);
		*close = '\0';
		text++;
	}
	if (slash) {
		if (!number(slash + 1, bits, &bits))
			return bad(r, six ? "a prefix length is 0 to 128" : "a prefix length is 0 to 32", slash + 1);
		*slash = '\0';
	}
	if (inet_pton(six ? AF_INET6 : AF_INET, text, b) != 1)
		return bad(r, "no address", text);
	s->addr = six ? pv_addr_from6(b) : pv_addr_from4(b);
	mask_of(s, six ? bits : 96 + bits);
	s->by_addr = true;
	return 0;
}

static int side_port(const struct reader *r, char *text, struct pv_rule_side *s)
{
	char *dash = strchr(text, '-');
	uint32_t low, high;

	if (!strcmp(text, "*"))
		return 0;
	if (dash)
		*dash = '\0';
	if (!number(text, 65535, &low) || (dash && !number(dash + 1, 65535, &high)))
		return bad(r, "a port is 0 to 65535, a range of them A-B, or *", dash && *text ? dash + 1 : text);
	if (!dash)
		high = low;
	if (high < low)
		return bad(r, "a range of ports begins with the lower one", text);
	s->by_port = true;
	s->low = (uint16_t)low;
	s->high = (uint16_t)high;
	return 0;
}

/* The next part up to a colon outside brackets; NULL: there is no more. */
static char *part(char **at)
{
	char *start = *at, *p = start;

	if (!start)
		return NULL;
	while (*p && *p != ':') {
		char *close = *p == '[' ? strchr(p, ']') : NULL;

		p = close ? close + 1 : p + 1;
	}
	*at = *p ? p + 1 : NULL;
	*p = '\0';
	return start;
}

static int sides(const struct reader *r, char *text, struct pv_rule *rule)
{
	char *at = text, *p[5];
	uint32_t n = 0;
	int rc;

	while (n < 5 && (p[n] = part(&at)))
		n++;
	if (n != 2 && n != 4)
		return bad(r, "ADDRESS:PORT or ADDRESS:PORT:ADDRESS:PORT is wanted, with * for any", "");
	rule->has_second = n == 4;
	rc = side_addr(r, p[0], &rule->first);
	if (!rc)
		rc = side_port(r, p[1], &rule->first);
	if (!rc && n == 4)
		rc = side_addr(r, p[2], &rule->second);
	if (!rc && n == 4)
		rc = side_port(r, p[3], &rule->second);
	return rc;
}

/* ---- lines ------------------------------------------------------------------------------------------------------------- */

static uint32_t words_of(char *line, char *word[WORDS_MAX + 1])
{
	uint32_t n = 0;
	char *save;

	for (char *w = strtok_r(line, " \t", &save); w && n <= WORDS_MAX; w = strtok_r(NULL, " \t", &save))
		word[n++] = w;
	return n;
}

static bool fits(const struct reader *r, const char *program, const char *id)
{
	bool ours = !*r->who.id || !strcmp(id, "*") || !strcmp(r->who.id, "*") || !strcmp(id, r->who.id);

	return ours && !fnmatch(program, r->who.program, 0);
}

static int app_id(struct reader *r, char **word, uint32_t n)
{
	if (n != 3)
		return bad(r, "application-id wants a program and an id, or * for any", "");
	if (r->section == INSIDE || r->section == DONE || r->rules->n)
		r->section = DONE;
	else
		r->section = fits(r, word[1], word[2]) ? INSIDE : OTHERS;
	return 0;
}

/* Known to VMA, done by neither. */
static int log_line(const struct reader *r, char **word, uint32_t n)
{
	uint32_t i = 1, level;

	while (i < n) {
		if (i + 1 < n && !strcmp(word[i], "min-level") && number(word[i + 1], 9, &level) && level)
			i += 2;
		else if (i + 1 < n && !strcmp(word[i], "destination") &&
			 (!strcmp(word[i + 1], "stderr") || !strcmp(word[i + 1], "syslog")))
			i += 2;
		else if (i + 2 < n && !strcmp(word[i], "destination") && !strcmp(word[i + 1], "file"))
			i += 3;
		else
			return bad(r, "log destination stderr|syslog|file NAME, min-level 1 to 9", word[i]);
	}
	return 0;
}

static int role_of(const char *word)
{
	for (int i = 0; i < PV_RULE_ROLES; i++)
		if (!strcmp(word, role_names[i]))
			return i;
	return -1;
}

static int rule_add(struct reader *r, const struct pv_rule *found, const char *text)
{
	struct pv_rules *rules = r->rules;
	struct pv_rule *rule;

	if (rules->n == r->max) {
		uint32_t max = r->max ? 2 * r->max : 16;

		rule = realloc(rules->rule, max * sizeof(*rule));
		if (!rule)
			return -ENOMEM;
		rules->rule = rule;
		r->max = max;
	}
	rule = &rules->rule[rules->n];
	*rule = *found;
	rule->number = r->number;
	rule->line = r->line;
	if (asprintf(&rule->name, "rule %u of %s", r->number, r->file) < 0)
		return -ENOMEM;
	rule->text = strdup(text);
	if (!rule->text) {
		free(rule->name);
		return -ENOMEM;
	}
	rules->n++;
	rules->roles |= 1u << rule->role;
	return 0;
}

static int use(struct reader *r, char **word, uint32_t n, const char *text)
{
	struct pv_rule rule = { .number = 0 };
	char tuple[LINE_MAX_BYTES] = "";
	int role, rc;

	if (n < 4)
		return bad(r, "use vma|os ROLE ADDRESS:PORT", "");
	rule.kernel = !strcmp(word[1], "os");
	if (!rule.kernel && strcmp(word[1], "vma") && strcmp(word[1], "pyvma") && strcmp(word[1], "*"))
		return bad(r, "a transport is vma, pyvma or os", word[1]);
	role = role_of(word[2]);
	if (role < 0)
		return bad(r, "a role is tcp_server, tcp_client, udp_sender, udp_receiver or udp_connect", word[2]);
	rule.role = (enum pv_rule_role)role;
	for (uint32_t i = 3; i < n; i++) /* blanks around colons */
		strcat(tuple, word[i]);
	rc = sides(r, tuple, &rule);
	if (rc)
		return rc;
	if (++r->number > PV_RULES_MAX)
		return bad(r, "more rules than 4096", "");
	return r->section == INSIDE || r->section == BEFORE ? rule_add(r, &rule, text) : 0;
}

static int one_line(struct reader *r, char *line)
{
	char *word[WORDS_MAX + 1], text[LINE_MAX_BYTES];
	char *hash = *line == '#' ? line : strstr(line, " #");
	uint32_t n;

	if (!hash)
		hash = strstr(line, "\t#");
	if (hash)
		*hash = '\0';
	for (size_t end = strlen(line); end && strchr(" \t\r", line[end - 1]); end--)
		line[end - 1] = '\0';
	line += strspn(line, " \t");
	memcpy(text, line, strlen(line) + 1);
	n = words_of(line, word);
	if (!n)
		return 0;
	if (n > WORDS_MAX)
		return bad(r, "too many words", "");
	if (!strcmp(word[0], "use"))
		return use(r, word, n, text);
	if (!strcmp(word[0], "application-id"))
		return app_id(r, word, n);
	return strcmp(word[0], "log") ? bad(r, "a line is application-id, use or log", word[0]) : log_line(r, word, n);
}

static bool comment(const char *line, size_t n)
{
	size_t i = 0;

	while (i < n && (line[i] == ' ' || line[i] == '\t'))
		i++;
	return i < n && line[i] == '#';
}

int pv_rules_parse(const char *file, const char *text, size_t size, struct pv_rules_for who, struct pv_rules **out)
{
	struct reader r = { .file = file, .who = who, .section = BEFORE };
	const char *end = text + size;
	char line[LINE_MAX_BYTES];
	int rc = 0;

	*out = NULL;
	r.rules = calloc(1, sizeof(*r.rules));
	if (!r.rules)
		return -ENOMEM;
	while (text < end && !rc) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		size_t n = (size_t)((stop ? stop : end) - text);

		r.line++;
		if (n >= sizeof(line) || memchr(text, '\0', n)) {
			rc = comment(text, n) ? 0 : bad(&r, "too long a line, or no text", "");
		} else {
			memcpy(line, text, n);
			line[n] = '\0';
			rc = one_line(&r, line);
		}
		text += n + 1;
	}
	if (rc == -ENOMEM)
		rc = pv_error(rc, "no memory for the rules of %s", file);
	if (rc)
		pv_rules_free(r.rules);
	else
		*out = r.rules;
	return rc;
}

int pv_rules_load(const char *file, struct pv_rules_for who, struct pv_rules **out)
{
	FILE *f = fopen(file, "re");
	size_t n, max = 1 << 16;
	char *text = NULL;
	int rc = 0;

	*out = NULL;
	if (!f)
		return pv_error(-errno, "rules_file: %s: %s", file, strerror(errno));
	for (n = 0; !rc; max *= 4) {
		char *more = max <= FILE_MAX_BYTES ? realloc(text, max) : NULL;

		if (!more) {
			rc = pv_error(-EFBIG, "rules_file: %s is too long", file);
			break;
		}
		text = more;
		n += fread(text + n, 1, max - n, f);
		if (ferror(f))
			rc = pv_error(-EIO, "rules_file: %s cannot be read", file);
		if (n < max)
			break;
	}
	if (!rc)
		rc = pv_rules_parse(file, text, n, who, out);
	free(text);
	(void)fclose(f);
	return rc;
}

void pv_rules_free(struct pv_rules *rules)
{
	if (!rules)
		return;
	for (uint32_t i = 0; i < rules->n; i++) {
		free(rules->rule[i].name);
		free(rules->rule[i].text);
	}
	free(rules->rule);
	free(rules);
}

/* ---- looking up -------------------------------------------------------------------------------------------------------- */

static bool side_fits(const struct pv_rule_side *s, const struct pv_endpoint *ep)
{
	if (s->by_port && (ep->port < s->low || ep->port > s->high))
		return false;
	return !s->by_addr || !(((s->addr.q[0] ^ ep->addr.q[0]) & s->mask.q[0]) | ((s->addr.q[1] ^ ep->addr.q[1]) & s->mask.q[1]));
}

const struct pv_rule *pv_rules_match(const struct pv_rules *rules, enum pv_rule_role role, const struct pv_endpoint *first,
				     const struct pv_endpoint *second)
{
	if (!rules || !(rules->roles >> role & 1))
		return NULL;
	for (uint32_t i = 0; i < rules->n; i++) {
		const struct pv_rule *rule = &rules->rule[i];

		if (rule->role == role && side_fits(&rule->first, first) &&
		    (!rule->has_second || !second || side_fits(&rule->second, second)))
			return rule;
	}
	return NULL;
}

int pv_rules_open(const char *file, const char *id)
{
	struct pv_rules *rules = NULL;
	int rc = 0;

	if (*file)
		rc = pv_rules_load(file, (struct pv_rules_for){ .program = program_invocation_short_name, .id = id }, &rules);
	if (rc)
		return rc;
	pv_rules_free(pv_rules);
	pv_rules = rules;
	return 0;
}

int pyvma_rules_list(const char *file, const char *program, const char *id, char *buf, size_t size)
{
	struct pv_rules *rules;
	int rc, len = 0;

	if (!file || !program || !id)
		return pv_error(-EINVAL, "rules want a file, a program and an id");
	rc = pv_rules_load(file, (struct pv_rules_for){ .program = program, .id = id }, &rules);
	if (rc)
		return rc;
	if (size)
		*buf = '\0';
	for (uint32_t i = 0; i < rules->n; i++) {
		const struct pv_rule *r = &rules->rule[i];
		size_t at = PV_MIN((size_t)len, size);

		len += snprintf(buf ? buf + at : NULL, size - at, "%u\t%u\t%s\t%s\t%s\n", r->number, r->line, role_names[r->role],
				r->kernel ? "kernel" : "offload", r->text);
	}
	pv_rules_free(rules);
	return len;
}
