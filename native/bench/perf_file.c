/* SPDX-License-Identifier: BSD-3-Clause */
/* Files in sockperf's formats: endpoints, one a line, and traffic as "seconds, bytes". Empty lines and those with # say nothing. */
#include "bench/perf.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#define LINE_MAX_LEN 256u

bool perf_is_group(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;

	return a->ss_family == AF_INET6 ? IN6_IS_ADDR_MULTICAST(&v6->sin6_addr) : IN_MULTICAST(ntohl(v4->sin_addr.s_addr));
}

/* An address up to a ':' or the end, in brackets if it is IPv6. Returns what follows, NULL when it is none. */
static const char *parse_host(const char *text, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
	bool brackets = *text == '[';
	size_t len = strcspn(text += brackets, brackets ? "]" : ":");
	char host[64];

	memset(out, 0, sizeof(*out));
	if (len >= sizeof(host) || (brackets && text[len] != ']'))
		return NULL;
	memcpy(host, text, len);
	host[len] = '\0';
	if (brackets) {
		v6->sin6_family = AF_INET6;
		return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 ? text + len + 1 : NULL;
	}
	v4->sin_family = AF_INET;
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? text + len : NULL;
}

int perf_parse_end(const char *text, struct perf_end *out)
{
	const char *at = text;
	unsigned long port;
	char *end;

	memset(out, 0, sizeof(*out));
	if (*at && strchr("TtUu", *at) && at[1] == ':') {
		out->tcp = *at == 'T' || *at == 't';
		at += 2;
	}
	at = parse_host(at, &out->addr);
	if (!at || *at != ':' || !isdigit((unsigned char)at[1]))
		return -EINVAL;
	port = strtoul(at + 1, &end, 10);
	if (!port || port > 65535 || (out->tcp && perf_is_group(&out->addr)))
		return -EINVAL;
	/* The port is at the same place in both kinds. */
	((struct sockaddr_in *)(void *)&out->addr)->sin_port = htons((uint16_t)port);
	if (*end == '\0')
		return 0;
	if (*end != ':' || !perf_is_group(&out->addr))
		return -EINVAL;
	at = parse_host(end + 1, &out->source);
	return at && *at == '\0' && out->source.ss_family == out->addr.ss_family ? 0 : -EINVAL;
}

static int parse_play(const char *text, struct perf_play *out)
{
	char *end;
	unsigned long size;

	out->at_s = strtod(text, &end);
	if (end == text || !(out->at_s >= 0) || out->at_s > 86400)
		return -EINVAL;
	end += strspn(end, " \t");
	if (*end++ != ',')
		return -EINVAL;
	end += strspn(end, " \t");
	if (!isdigit((unsigned char)*end))
		return -EINVAL;
	size = strtoul(end, &end, 10);
	out->size = (uint32_t)size;
	return *end == '\0' && size >= MSG_HLEN && size <= PERF_MSG_MAX ? 0 : -EINVAL;
}

/* The next line that says something, without space around it, in `line`: what follows it; NULL at the end. */
static const char *next_line(const char *text, char *line, uint32_t *number, bool *fits)
{
	while (*text) {
		size_t len = strcspn(text, "\n");
		const char *from = text, *to = text + len;

		text = to + (*to == '\n');
		(*number)++;
		while (from < to && isspace((unsigned char)*from))
			from++;
		while (to > from && isspace((unsigned char)to[-1]))
			to--;
		if (from == to || *from == '#')
			continue;
		*fits = (size_t)(to - from) < LINE_MAX_LEN;
		len = *fits ? (size_t)(to - from) : 0;
		memcpy(line, from, len);
		line[len] = '\0';
		return text;
	}
	return NULL;
}

static uint32_t count_lines(const char *text)
{
	uint32_t n = 1;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* One line into entry `n` of the list: 0 or -EINVAL. */
typedef int (*parse_line)(const char *line, void *list, uint32_t n);

static int parse_lines(const char *text, size_t size, parse_line parse, void **out, uint32_t *line)
{
	void *list = calloc(count_lines(text), size);
	char one[LINE_MAX_LEN];
	uint32_t n = 0;
	bool fits;

	*line = 0;
	if (!list)
		return -ENOMEM;
	for (; (text = next_line(text, one, line, &fits)) != NULL; n++) {
		if (!fits || parse(one, list, n)) {
			free(list);
			return -EINVAL;
		}
	}
	*out = list;
	return (int)n;
}

static int add_end(const char *line, void *list, uint32_t n)
{
	return n < PERF_SOCKS_MAX ? perf_parse_end(line, (struct perf_end *)list + n) : -EINVAL;
}

int perf_parse_ends(const char *text, struct perf_end **out, uint32_t *line)
{
	void *list = NULL;
	int n = parse_lines(text, sizeof(**out), add_end, &list, line);

	if (n >= 0)
		*out = list;
	return n;
}

/* Their times do not go back. */
static int add_play(const char *line, void *list, uint32_t n)
{
	struct perf_play *play = (struct perf_play *)list + n;
	int rc = parse_play(line, play);

	return rc ? rc : (n && play->at_s < play[-1].at_s ? -EINVAL : 0);
}

int perf_parse_plays(const char *text, struct perf_play **out, uint32_t *line)
{
	void *list = NULL;
	int n = parse_lines(text, sizeof(**out), add_play, &list, line);

	if (n >= 0)
		*out = list;
	return n;
}
