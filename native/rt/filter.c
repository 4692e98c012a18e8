/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "rt/error.h"
#include "rt/ifspec.h"
#include "wire/eth.h"

#define PROTO_ICMP 1
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_ICMP6 58
#define IP4_HLEN 20u
#define IP6_HLEN 40u
#define MAPPED_BITS 96u

/* ---- parsing ----------------------------------------------------------------------------------------------------------- */

/* The words that stand alone. */
static const struct word {
	const char *word;
	enum pv_filter_what what;
	uint16_t number;
	uint8_t version;
} words[] = {
	{ "ip", PV_FILTER_TYPE, PV_ETHERTYPE_IP4, 0 },  { "ip6", PV_FILTER_TYPE, PV_ETHERTYPE_IP6, 0 },
	{ "arp", PV_FILTER_TYPE, PV_ETHERTYPE_ARP, 0 }, { "tcp", PV_FILTER_PROTO, PROTO_TCP, 0 },
	{ "udp", PV_FILTER_PROTO, PROTO_UDP, 0 },       { "icmp", PV_FILTER_PROTO, PROTO_ICMP, 4 },
	{ "icmp6", PV_FILTER_PROTO, PROTO_ICMP6, 6 },
};

struct parser {
	char *word; /* the present one; NULL: the end */
	char *save;
};

static void next(struct parser *p)
{
	p->word = strtok_r(NULL, " \t\n", &p->save);
}

static bool is(const struct parser *p, const char *word)
{
	return p->word && !strcmp(p->word, word);
}

static bool parse_number(const char *text, uint32_t max, uint16_t *out)
{
	char *end;
	unsigned long n;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (*end || errno || n > max)
		return false;
	*out = (uint16_t)n;
	return true;
}

static int parse_host(const struct parser *p, struct pv_filter_term *t)
{
	t->what = PV_FILTER_NET;
	t->prefix_len = 128;
	if (!p->word || !pv_ifspec_addr(p->word, &t->addr))
		return pv_error(-EINVAL, "filter: host needs an address, not \"%s\"", p->word ? p->word : "");
	return 0;
}

static int parse_net(const struct parser *p, struct pv_filter_term *t)
{
	char *slash = p->word ? strchr(p->word, '/') : NULL;
	uint16_t len = 0;

	t->what = PV_FILTER_NET;
	if (slash)
		*slash = '\0';
	if (!slash || !pv_ifspec_addr(p->word, &t->addr) || !parse_number(slash + 1, pv_addr_is4(&t->addr) ? 32 : 128, &len))
		return pv_error(-EINVAL, "filter: net needs ADDRESS/PREFIX, as 10.0.0.0/8");
	t->prefix_len = (uint8_t)(len + (pv_addr_is4(&t->addr) ? MAPPED_BITS : 0));
	return 0;
}

/* The word is one that takes a value, which it leaves as the present one. */
static int parse_valued(struct parser *p, struct pv_filter_term *t)
{
	if (is(p, "host") || is(p, "net")) {
		bool host = is(p, "host");

		next(p);
		return host ? parse_host(p, t) : parse_net(p, t);
	}
	if (is(p, "port")) {
		next(p);
		t->what = PV_FILTER_PORT;
		if (!parse_number(p->word, UINT16_MAX, &t->number))
			return pv_error(-EINVAL, "filter: port needs a number up to 65535, not \"%s\"", p->word ? p->word : "");
		return 0;
	}
	return pv_error(-EINVAL, "filter: \"%s\" is not known here: host, net, port, vlan, ip, ip6, arp, tcp, udp, icmp, icmp6",
			p->word ? p->word : "");
}

static int parse_term(struct parser *p, struct pv_filter_term *t)
{
	int rc;

	*t = (struct pv_filter_term){ .side = PV_FILTER_SRC | PV_FILTER_DST };
	if (is(p, "not")) {
		t->negate = true;
		next(p);
	}
	for (size_t i = 0; i < pv_array_size(words); i++) {
		if (!is(p, words[i].word))
			continue;
		t->what = words[i].what;
		t->number = words[i].number;
		t->version = words[i].version;
		next(p);
		return 0;
	}
	if (is(p, "vlan")) {
		t->what = PV_FILTER_VLAN;
		next(p);
		if (p->word && parse_number(p->word, 4094, &t->number)) {
			if (!t->number)
				return pv_error(-EINVAL, "filter: vlan: an id is 1 to 4094");
			next(p);
		}
		return 0;
	}
	if (is(p, "src") || is(p, "dst")) {
		t->side = is(p, "src") ? PV_FILTER_SRC : PV_FILTER_DST;
		next(p);
	}
	rc = parse_valued(p, t);
	if (!rc)
		next(p);
	return rc;
}

int pv_filter_parse(const char *text, struct pv_filter *out)
{
	char copy[PV_FILTER_TEXT_MAX];
	struct parser p = { 0 };

	out->n = 0;
	if (strlen(text) >= sizeof(copy))
		return pv_error(-E2BIG, "filter: longer than %zu bytes", sizeof(copy) - 1);
	memcpy(copy, text, strlen(text) + 1);
	p.word = strtok_r(copy, " \t\n", &p.save);
	while (p.word) {
		int rc;

		if (out->n == PV_FILTER_TERMS)
			return pv_error(-E2BIG, "filter: more than %d terms", PV_FILTER_TERMS);
		rc = parse_term(&p, &out->term[out->n]);
		if (rc)
			return rc;
		out->n++;
		if (!p.word)
			break;
		if (is(&p, "and")) {
			next(&p);
			if (!p.word)
				return pv_error(-EINVAL, "filter: nothing follows \"and\"");
		} else if (is(&p, "or")) {
			return pv_error(-EINVAL, "filter: \"or\" is not known here: terms must all hold");
		}
	}
	return 0;
}

/* ---- matching ---------------------------------------------------------------------------------------------------------- */

struct seen {
	uint16_t type, vlan; /* host order */
	bool tagged, ports;
	uint8_t version, proto;
	uint16_t port[2];
	struct pv_addr addr[2];
};

/* Steps over extension headers (RFC 8200 4); where the upper layer's header begins, 0 when a fragment or the end hides it. */
static uint32_t upper6(const uint8_t *ip, uint32_t room, uint8_t *proto)
{
	uint32_t off = IP6_HLEN;

	*proto = ip[6];
	while (*proto == 0 || *proto == 43 || *proto == 44 || *proto == 60) {
		bool fragment = *proto == 44;

		if (off + 8 > room)
			return 0;
		*proto = ip[off];
		if (fragment && pv_get16(ip + off + 2) & 0xfff8)
			return 0;
		off += fragment ? 8 : (ip[off + 1] + 1u) * 8;
	}
	return off;
}

static void look(const struct pv_pkt *pkt, struct seen *s)
{
	struct pv_wire_eth eth;
	int hlen = pv_wire_eth_parse(pkt->data, pkt->len, &eth);
	uint32_t room, l4 = 0;
	const uint8_t *ip;

	memset(s, 0, sizeof(*s));
	if (hlen < 0)
		return;
	s->type = eth.type;
	s->tagged = eth.tags || pkt->flags & PV_PKT_VLAN;
	s->vlan = (uint16_t)((pkt->flags & PV_PKT_VLAN ? pkt->vlan_tci : eth.tags ? eth.tci[0] : 0) & 0x0fff);
	ip = pkt->data + hlen;
	room = pkt->len - (uint32_t)hlen;
	if (eth.type == PV_ETHERTYPE_IP4 && room >= IP4_HLEN && ip[0] >> 4 == 4) {
		s->version = 4;
		s->proto = ip[9];
		s->addr[0] = pv_addr_from4(ip + 12);
		s->addr[1] = pv_addr_from4(ip + 16);
		l4 = pv_get16(ip + 6) & 0x1fff ? 0 : (ip[0] & 0x0fu) * 4u;
	} else if (eth.type == PV_ETHERTYPE_IP6 && room >= IP6_HLEN && ip[0] >> 4 == 6) {
		s->version = 6;
		s->addr[0] = pv_addr_from6(ip + 8);
		s->addr[1] = pv_addr_from6(ip + 24);
		l4 = upper6(ip, room, &s->proto);
	} else if (eth.type == PV_ETHERTYPE_ARP && room >= 28 && pv_get16(ip + 2) == PV_ETHERTYPE_IP4) {
		s->addr[0] = pv_addr_from4(ip + 14);
		s->addr[1] = pv_addr_from4(ip + 24);
		s->version = 4;
	}
	s->ports = l4 >= IP4_HLEN && l4 + 4 <= room && (s->proto == PROTO_TCP || s->proto == PROTO_UDP);
	if (s->ports) {
		s->port[0] = pv_get16(ip + l4);
		s->port[1] = pv_get16(ip + l4 + 2);
	}
}

static bool prefix_equal(const struct pv_addr *a, const struct pv_addr *b, uint32_t len)
{
	uint32_t bytes = len / 8, bits = len % 8;

	return !memcmp(a->b, b->b, bytes) && (!bits || !((a->b[bytes] ^ b->b[bytes]) >> (8 - bits)));
}

static bool side_holds(const struct pv_filter_term *t, const struct seen *s, uint32_t i)
{
	if (!(t->side >> i & 1))
		return false;
	if (t->what == PV_FILTER_PORT)
		return s->ports && s->port[i] == t->number;
	return s->version && pv_addr_is4(&s->addr[i]) == pv_addr_is4(&t->addr) &&
	       prefix_equal(&s->addr[i], &t->addr, t->prefix_len);
}

static bool holds(const struct pv_filter_term *t, const struct seen *s)
{
	switch (t->what) {
	case PV_FILTER_TYPE:
		return s->type == t->number;
	case PV_FILTER_PROTO:
		return s->type != PV_ETHERTYPE_ARP && s->version && s->proto == t->number &&
		       (!t->version || s->version == t->version);
	case PV_FILTER_VLAN:
		return s->tagged && (!t->number || s->vlan == t->number);
	case PV_FILTER_NET:
	case PV_FILTER_PORT:
		break;
	}
	return side_holds(t, s, 0) || side_holds(t, s, 1);
}

bool pv_filter_match(const struct pv_filter *f, const struct pv_pkt *pkt)
{
	struct seen s;

	if (!f->n)
		return true;
	look(pkt, &s);
	for (uint32_t i = 0; i < f->n; i++)
		if (holds(&f->term[i], &s) == f->term[i].negate)
			return false;
	return true;
}
