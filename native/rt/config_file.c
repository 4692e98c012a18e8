/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings from a file. What is accepted is TOML 1.0 cut down to what settings need; anything else is an error with its line, never
 * a guess: a file that this parser takes means the same to a full TOML parser.
 */
#include "rt/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rt/error.h"

struct cursor {
	const char *p, *end;
	const char *file;
	unsigned int line;
	char where[160];
	char *value; /* PV_CONFIG_TEXT_MAX + 1 bytes */
	size_t len;
	uint64_t seen; /* settings that stood already, by row */
};

static int fail(struct cursor *c, const char *what)
{
	return pv_error(-EINVAL, "%s, line %u: %s", c->file, c->line, what);
}

static bool at(const struct cursor *c, char ch)
{
	return c->p < c->end && *c->p == ch;
}

static void skip_blanks(struct cursor *c)
{
	while (at(c, ' ') || at(c, '\t'))
		c->p++;
}

/* Blanks, comment, and the end of the line or text. */
static int end_of_line(struct cursor *c)
{
	skip_blanks(c);
	if (at(c, '#'))
		while (c->p < c->end && *c->p != '\n')
			c->p++;
	if (at(c, '\r') && c->p + 1 < c->end && c->p[1] == '\n')
		c->p++;
	if (c->p < c->end && *c->p != '\n')
		return fail(c, "something follows the value");
	if (c->p < c->end)
		c->p++;
	c->line++;
	return 0;
}

static int put(struct cursor *c, char ch)
{
	if (c->len >= PV_CONFIG_TEXT_MAX)
		return fail(c, "the value is too long");
	if (!ch)
		return fail(c, "a text cannot hold the character 0");
	c->value[c->len++] = ch;
	return 0;
}

/* "..." with the escapes \" \\ \t, or '...' as it stands. */
static int parse_string(struct cursor *c)
{
	char quote = *c->p++;
	int rc = 0;

	if (c->p + 1 < c->end && c->p[0] == quote && c->p[1] == quote)
		return fail(c, "texts over several lines are not taken");
	while (!rc && c->p < c->end && *c->p != quote) {
		char ch = *c->p++;

		if (ch == '\n' || ch == '\r')
			return fail(c, "the text does not end on its line");
		if (((unsigned char)ch < 0x20 && ch != '\t') || ch == 0x7f)
			return fail(c, "a text cannot hold control characters");
		if (quote == '"' && ch == '\\') {
			if (at(c, '"') || at(c, '\\'))
				ch = *c->p;
			else if (at(c, 't'))
				ch = '\t';
			else
				return fail(c, "of the escapes only \\\", \\\\ and \\t are taken");
			c->p++;
		}
		rc = put(c, ch);
	}
	if (rc)
		return rc;
	if (!at(c, quote))
		return fail(c, "the text does not end");
	c->p++;
	return 0;
}

/* Arrays may span lines, with comments between and a comma after the last element. */
static int skip_space_in_array(struct cursor *c)
{
	for (;;) {
		skip_blanks(c);
		if (!at(c, '#') && !at(c, '\n') && !at(c, '\r'))
			return 0;
		int rc = end_of_line(c);

		if (rc)
			return rc;
	}
}

static int parse_array(struct cursor *c)
{
	int rc;

	c->p++;
	for (bool first = true;; first = false) {
		rc = skip_space_in_array(c);
		if (rc)
			return rc;
		if (at(c, ']'))
			break;
		if (!at(c, '"') && !at(c, '\''))
			return fail(c, "an array holds texts only");
		rc = first ? 0 : put(c, ';');
		if (!rc)
			rc = parse_string(c);
		if (!rc)
			rc = skip_space_in_array(c);
		if (rc)
			return rc;
		if (at(c, ']'))
			break;
		if (!at(c, ','))
			return fail(c, "',' or ']' is missing in the array");
		c->p++;
	}
	c->p++;
	return 0;
}

static bool bare_char(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '_' || ch == '-';
}

/* true, false, or a decimal integer with '_' between digits. */
static int parse_bare(struct cursor *c)
{
	const char *start = c->p;
	int rc = 0;

	while (!rc && c->p < c->end && (bare_char(*c->p) || *c->p == '+')) {
		char ch = *c->p++;

		if (ch == '_' && c->p - 1 > start && c->p[-2] >= '0' && c->p[-2] <= '9' && c->p < c->end && *c->p >= '0' &&
		    *c->p <= '9')
			continue;
		rc = put(c, ch);
	}
	if (rc)
		return rc;
	c->value[c->len] = '\0';
	if (!strcmp(c->value, "true") || !strcmp(c->value, "false"))
		return 0;
	const char *digits = c->value + (*c->value == '-' || *c->value == '+');

	if (!*digits || strspn(digits, "0123456789") != strlen(digits) || (*digits == '0' && digits[1]))
		return fail(c, "a value is true, false, a decimal number, a text in quotes or an array of texts");
	return 0;
}

static int parse_table(struct cursor *c)
{
	static const char name[] = "[pyvma]";

	if ((size_t)(c->end - c->p) < sizeof(name) - 1 || memcmp(c->p, name, sizeof(name) - 1))
		return fail(c, "the only table is [pyvma]");
	c->p += sizeof(name) - 1;
	return end_of_line(c);
}

static int parse_setting(struct pv_config *cfg, struct cursor *c)
{
	char name[64];
	size_t n = 0;
	unsigned int line = c->line;

	while (c->p < c->end && bare_char(*c->p)) {
		if (n + 1 >= sizeof(name))
			return fail(c, "there is no setting with so long a name");
		name[n++] = *c->p++;
	}
	name[n] = '\0';
	skip_blanks(c);
	if (!n || !at(c, '='))
		return fail(c, "a line is NAME = VALUE");
	c->p++;
	skip_blanks(c);
	c->len = 0;
	int rc = at(c, '"') || at(c, '\'') ? parse_string(c) : at(c, '[') ? parse_array(c) : parse_bare(c);

	if (rc)
		return rc;
	c->value[c->len] = '\0';
	snprintf(c->where, sizeof(c->where), "%.100s, line %u: %.40s", c->file, line, name);
	rc = end_of_line(c);
	if (!rc)
		rc = pv_config_apply(cfg, name, c->value, c->where);
	if (rc)
		return rc;
	uint64_t bit = UINT64_C(1) << pv_config_index(name);

	if (c->seen & bit)
		return pv_error(-EINVAL, "%s stands twice", c->where);
	c->seen |= bit;
	return 0;
}

int pv_config_parse(struct pv_config *cfg, const char *text, size_t size, const char *file)
{
	char value[PV_CONFIG_TEXT_MAX + 1];
	struct cursor c = { .p = text, .end = text + size, .file = file, .line = 1, .value = value };
	bool table = false;

	while (c.p < c.end) {
		int rc;

		skip_blanks(&c);
		if (c.p == c.end)
			break;
		if (*c.p == '#' || *c.p == '\n' || *c.p == '\r') {
			rc = end_of_line(&c);
		} else if (*c.p == '[') {
			rc = table ? fail(&c, "[pyvma] stands twice") : parse_table(&c);
			table = true;
		} else {
			rc = parse_setting(cfg, &c);
		}
		if (rc)
			return rc;
	}
	return 0;
}
