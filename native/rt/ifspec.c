/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/ifspec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pyvma.h"
#include "rt/error.h"

#define ENTRY_MAX 1024

struct entry {
	unsigned int number; /* from 1, for messages */
	const char *ring;
	struct pv_ifspec *spec;
	bool bare; /* only the device counts */
};

static int bad(const struct entry *e, const char *key, const char *value, const char *allowed)
{
	return pv_error(-EINVAL, "interfaces, entry %u (%s): %s=%s: %s", e->number, e->ring, key, value, allowed);
}

static bool parse_number(const char *v, uint32_t lo, uint32_t hi, uint32_t *out)
{
	char *end;

	if (*v < '0' || *v > '9')
		return false;
	errno = 0;
	unsigned long n = strtoul(v, &end, 10);

	if (errno || *end || n < lo || n > hi)
		return false;
	*out = (uint32_t)n;
	return true;
}

static bool parse_mac(const char *v, uint8_t mac[PV_ETH_ALEN])
{
	static const char digits[] = "0123456789abcdef";

	if (strlen(v) != 17)
		return false;
	for (int i = 0; i < 17; i++) {
		char c = v[i] >= 'A' && v[i] <= 'F' ? (char)(v[i] - 'A' + 'a') : v[i];
		const char *d = strchr(digits, c);

		if (i % 3 == 2) {
			if (c != ':')
				return false;
			continue;
		}
		if (!d)
			return false;
		mac[i / 3] = (uint8_t)(mac[i / 3] << 4 | (d - digits));
	}
	/* A group address or none is no station's. */
	return !(mac[0] & 1) && memcmp(mac, "\0\0\0\0\0\0", PV_ETH_ALEN);
}

bool pv_ifspec_addr(const char *text, struct pv_addr *out)
{
	uint8_t b[16];

	if (inet_pton(AF_INET, text, b) == 1)
		*out = pv_addr_from4(b);
	else if (inet_pton(AF_INET6, text, b) == 1)
		*out = pv_addr_from6(b);
	else
		return false;
	return true;
}

/* What names a station: letters, digits, '.', '_', '-'. */
static bool parse_name(const char *v, char *out, size_t size)
{
	size_t n = strspn(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	if (!n || v[n] || n >= size)
		return false;
	memcpy(out, v, n + 1);
	return true;
}

static int key_addr(const struct entry *e, char *value)
{
	struct pv_ifspec *s = e->spec;
	struct pv_ifaddr a;
	uint32_t len;
	char text[80];

	snprintf(text, sizeof(text), "%s", value);
	char *slash = strchr(text, '/');

	if (slash)
		*slash = '\0';
	if (!pv_ifspec_addr(text, &a.addr))
		return bad(e, "addr", value, "not an address; ADDRESS/PREFIX, as 10.0.0.1/24 or fd00::1/64");
	bool is4 = pv_addr_is4(&a.addr);
	uint32_t max = is4 ? 32 : 128;

	if (!slash || !parse_number(slash + 1, 1, max, &len))
		return bad(e, "addr", value,
			   is4 ? "the prefix length is missing or not 1 to 32" : "the prefix length is missing or not 1 to 128");
	if (pv_addr_is_any(&a.addr) || pv_addr_is_mcast(&a.addr) || pv_addr_is_bcast(&a.addr))
		return bad(e, "addr", value, "not an address of one station");
	if ((is4 && a.addr.b[12] == 127) || (!is4 && !a.addr.q[0] && a.addr.w[2] == 0 && a.addr.w[3] == 0x01000000))
		return bad(e, "addr", value, "a loopback address is the kernel's");
	if (s->naddr == PV_IFACE_ADDR_MAX)
		return bad(e, "addr", value, "more than 16 addresses");
	for (uint32_t i = 0; i < s->naddr; i++)
		if (pv_addr_eq(&s->addr[i].addr, &a.addr))
			return bad(e, "addr", value, "stands twice");
	a.prefix_len = (uint8_t)len;
	s->addr[s->naddr++] = a;
	return 0;
}

static int key_gw(const struct entry *e, char *value)
{
	struct pv_addr a;

	if (!pv_ifspec_addr(value, &a) || pv_addr_is_any(&a) || pv_addr_is_mcast(&a) || pv_addr_is_bcast(&a))
		return bad(e, "gw", value, "not the address of a router");
	struct pv_addr *gw = pv_addr_is4(&a) ? &e->spec->gateway4 : &e->spec->gateway6;

	if (!pv_addr_is_any(gw))
		return bad(e, "gw", value, "a second gateway of one family");
	*gw = a;
	return 0;
}

static int number_key(const struct entry *e, const char *key, const char *value, uint32_t *out, uint32_t lo, uint32_t hi)
{
	char allowed[64];

	if (parse_number(value, lo, hi, out))
		return 0;
	snprintf(allowed, sizeof(allowed), "not a number from %u to %u", lo, hi);
	return bad(e, key, value, allowed);
}

/* PRIORITY:PCP, as `ip link` has it, or tos. */
static int key_egress(const struct entry *e, const char *value)
{
	static const char allowed[] = "PRIORITY:PCP, of 0 to 15 and 0 to 7, or tos";
	struct pv_egress *map = &e->spec->egress;
	const char *colon = strchr(value, ':');
	uint32_t prio, pcp;
	char text[8];

	if (!strcmp(value, "tos")) {
		map->by_tos = true;
		return 0;
	}
	if (!colon || (size_t)(colon - value) >= sizeof(text))
		return bad(e, "egress", value, allowed);
	memcpy(text, value, (size_t)(colon - value));
	text[colon - value] = '\0';
	if (!parse_number(text, 0, 15, &prio) || !parse_number(colon + 1, 0, 7, &pcp))
		return bad(e, "egress", value, allowed);
	map->named |= (uint16_t)(1u << prio);
	map->pcp[prio] = (uint8_t)pcp;
	return 0;
}

static int no_key(const struct entry *e, const char *key, const char *own)
{
	return pv_error(
	    -EINVAL, "interfaces, entry %u (%s): there is no key \"%s\": %s, addr, gw, name, mtu, vlan, egress, rx_depth, tx_depth",
	    e->number, e->ring, key, own);
}

static const char not_netdev[] = "not the name of a network interface, as eth0";

/* As the kernel has it: at most 15 bytes, no '/', ':' or white space. */
static bool parse_netdev(const char *v, char *out, size_t size)
{
	size_t n = strlen(v);

	if (!n || n > 15 || n >= size || strpbrk(v, "/: \t\n") || !strcmp(v, ".") || !strcmp(v, ".."))
		return false;
	memcpy(out, v, n + 1);
	return true;
}

static int station_key(const struct entry *e, const char *key, const char *value)
{
	e->spec->have_mac = true;
	return parse_mac(value, e->spec->mac) ? 0 : bad(e, key, value, "not the MAC address of a station, as 02:00:00:00:00:01");
}

static int softnic_key(const struct entry *e, const char *key, char *value)
{
	struct pv_ifspec *s = e->spec;

	if (!strcmp(key, "fabric"))
		return parse_name(value, s->fabric, sizeof(s->fabric))
			   ? 0
			   : bad(e, key, value, "a name of at most 32 letters, digits, '.', '_', '-'");
	if (!strcmp(key, "port")) {
		s->have_port = true;
		return number_key(e, key, value, &s->port, 0, 63);
	}
	if (!strcmp(key, "mac"))
		return station_key(e, key, value);
	return no_key(e, key, "fabric, port, mac, netdev");
}

static int verbs_key(const struct entry *e, const char *key, char *value)
{
	struct pv_ifspec *s = e->spec;

	if (!strcmp(key, "device"))
		return parse_name(value, s->device, sizeof(s->device)) ? 0
								       : bad(e, key, value, "not the name of a device, as mlx5_0");
	if (!strcmp(key, "port")) {
		s->have_port = true;
		return number_key(e, key, value, &s->port, 1, 255);
	}
	if (!strcmp(key, "lib")) {
		if (!*value || strlen(value) >= sizeof(s->lib))
			return bad(e, key, value, "not a path");
		strcpy(s->lib, value);
		return 0;
	}
	return no_key(e, key, "device, port, lib, netdev");
}

static int xdp_mode(const struct entry *e, const char *value)
{
	static const char *const modes[] = { "auto", "native", "generic" };

	for (uint32_t i = 0; i < pv_array_size(modes); i++)
		if (!strcmp(value, modes[i])) {
			e->spec->mode = (enum pv_ifspec_mode)i;
			return 0;
		}
	return bad(e, "mode", value, "not auto, native or generic");
}

static int xdp_csum(const struct entry *e, const char *value)
{
	static const char *const who[] = { "stack", "auto", "kernel", "software" };

	for (uint32_t i = 0; i < pv_array_size(who); i++)
		if (!strcmp(value, who[i])) {
			e->spec->tx_csum = (enum pv_ifspec_csum)i;
			return 0;
		}
	return bad(e, "tx_csum", value, "not stack, auto, kernel or software");
}

static int xdp_key(const struct entry *e, const char *key, char *value)
{
	struct pv_ifspec *s = e->spec;

	if (!strcmp(key, "device"))
		return parse_netdev(value, s->device, sizeof(s->device)) ? 0 : bad(e, key, value, not_netdev);
	if (!strcmp(key, "queues"))
		return number_key(e, key, value, &s->queues, 1, 256);
	if (!strcmp(key, "mode"))
		return xdp_mode(e, value);
	if (!strcmp(key, "rx_metadata")) {
		s->rx_metadata = !strcmp(value, "auto");
		return s->rx_metadata || !strcmp(value, "off") ? 0 : bad(e, key, value, "not off or auto");
	}
	if (!strcmp(key, "tx_csum"))
		return xdp_csum(e, value);
	if (!strcmp(key, "busy_poll"))
		return number_key(e, key, value, &s->busy_poll_us, 0, 1000000);
	return no_key(e, key, "device, queues, mode, rx_metadata, tx_csum, busy_poll");
}

static int tap_key(const struct entry *e, const char *key, char *value)
{
	struct pv_ifspec *s = e->spec;

	if (!strcmp(key, "queues"))
		return number_key(e, key, value, &s->queues, 1, 16);
	if (!strcmp(key, "mac"))
		return station_key(e, key, value);
	return no_key(e, key, "queues, mac");
}

static int bond_key(const struct entry *e, const char *key, char *value)
{
	if (!strcmp(key, "device"))
		return parse_netdev(value, e->spec->device, sizeof(e->spec->device)) ? 0 : bad(e, key, value, not_netdev);
	if (!strcmp(key, "lib"))
		return verbs_key(e, key, value);
	if (!strcmp(key, "fabric"))
		return softnic_key(e, key, value);
	if (!strcmp(key, "queues") || !strcmp(key, "mode"))
		return xdp_key(e, key, value);
	if (!strcmp(key, "legs")) {
		e->spec->xdp_legs = !strcmp(value, "xdp");
		return e->spec->xdp_legs || !strcmp(value, "verbs") ? 0 : bad(e, key, value, "not verbs or xdp");
	}
	return no_key(e, key, "device, legs, lib, fabric, queues, mode");
}

static int parse_key(const struct entry *e, const char *key, char *value)
{
	struct pv_ifspec *s = e->spec;

	if (!strcmp(key, "addr"))
		return key_addr(e, value);
	if (!strcmp(key, "gw"))
		return key_gw(e, value);
	if (!strcmp(key, "name"))
		return parse_name(value, s->name, 16) ? 0
						      : bad(e, key, value, "a name of at most 15 letters, digits, '.', '_', '-'");
	if (!strcmp(key, "mtu"))
		return number_key(e, key, value, &s->mtu, 68, 65520);
	if (!strcmp(key, "vlan"))
		return number_key(e, key, value, &s->vlan, 0, 4094);
	if (!strcmp(key, "egress"))
		return key_egress(e, value);
	if (!strcmp(key, "rx_depth"))
		return number_key(e, key, value, &s->rx_depth, 16, 32768);
	if (!strcmp(key, "tx_depth"))
		return number_key(e, key, value, &s->tx_depth, 16, 32768);
	if (!strcmp(key, "netdev") && (s->ring == PV_IFSPEC_SOFTNIC || s->ring == PV_IFSPEC_VERBS))
		return parse_netdev(value, s->netdev, sizeof(s->netdev)) ? 0 : bad(e, key, value, not_netdev);
	switch (s->ring) {
	case PV_IFSPEC_SOFTNIC:
		return softnic_key(e, key, value);
	case PV_IFSPEC_VERBS:
		return verbs_key(e, key, value);
	case PV_IFSPEC_TAP:
		return tap_key(e, key, value);
	case PV_IFSPEC_BOND:
		return bond_key(e, key, value);
	default:
		return xdp_key(e, key, value);
	}
}

/* A key that may stand only once is one that is not `addr`, `gw` or `egress`. */
static bool repeated(const char *const *keys, uint32_t n, const char *key)
{
	if (!strcmp(key, "addr") || !strcmp(key, "gw") || !strcmp(key, "egress"))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(keys[i], key))
			return true;
	return false;
}

/* What the kernel says of its interface cannot be said here, too. */
static int finish_owner(const struct entry *e)
{
	struct pv_ifspec *s = e->spec;
	bool gw = !pv_addr_is_any(&s->gateway4) || !pv_addr_is_any(&s->gateway6);
	bool egress = s->egress.named || s->egress.by_tos;
	const char *key = s->naddr   ? "addr"
			  : s->vlan  ? "vlan"
			  : egress   ? "egress"
			  : s->mtu   ? "mtu"
			  : *s->name ? "name"
			  : gw       ? "gw"
				     : NULL;

	if (!*s->netdev && !s->naddr)
		return pv_error(-EINVAL, "interfaces, entry %u (%s): addr=ADDRESS/PREFIX is missing%s", e->number, e->ring,
				s->ring == PV_IFSPEC_TAP ? "" : " (or netdev=NAME, the kernel's interface)");
	if (*s->netdev && key)
		return pv_error(-EINVAL, "interfaces, entry %u (%s): %s= is the kernel's to say: the interface is its %s",
				e->number, e->ring, key, s->netdev);
	return 0;
}

static int finish_bond(const struct entry *e)
{
	const struct pv_ifspec *s = e->spec;
	const char *key = NULL;

	if (s->xdp_legs && (*s->lib || *s->fabric))
		key = *s->lib ? "lib" : "fabric";
	if (!s->xdp_legs && (s->queues || s->mode))
		key = s->queues ? "queues" : "mode";
	if (key)
		return pv_error(-EINVAL, "interfaces, entry %u (bond): %s= is for legs=%s", e->number, key,
				s->xdp_legs ? "verbs" : "xdp");
	return 0;
}

static int finish(const struct entry *e)
{
	struct pv_ifspec *s = e->spec;

	if (s->ring == PV_IFSPEC_SOFTNIC && !*s->fabric)
		return pv_error(-EINVAL, "interfaces, entry %u (softnic): fabric=NAME is missing", e->number);
	if (s->ring == PV_IFSPEC_SOFTNIC && !s->have_port)
		return pv_error(-EINVAL, "interfaces, entry %u (softnic): port=NUMBER is missing", e->number);
	if (s->ring == PV_IFSPEC_TAP) {
		if (!*s->name)
			return pv_error(-EINVAL, "interfaces, entry %u (tap): name=NAME is missing, the TAP device's", e->number);
		snprintf(s->device, sizeof(s->device), "%s", s->name);
	}
	if (s->ring != PV_IFSPEC_SOFTNIC && !*s->device)
		return pv_error(-EINVAL, "interfaces, entry %u (%s): device=NAME is missing", e->number, e->ring);
	if (s->ring == PV_IFSPEC_BOND || (s->ring == PV_IFSPEC_XDP && !s->naddr))
		snprintf(s->netdev, sizeof(s->netdev), "%.15s", s->device);
	int rc = e->bare ? 0 : finish_owner(e);

	if (!rc && s->ring == PV_IFSPEC_BOND)
		rc = finish_bond(e);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < s->naddr && s->mtu; i++) {
		bool is4 = pv_addr_is4(&s->addr[i].addr);
		uint32_t least = is4 ? 576 : 1280; /* RFC 791 (what every host takes), RFC 8200 5 */

		if (s->mtu < least)
			return pv_error(-EINVAL, "interfaces, entry %u (%s): mtu=%u: %s needs at least %u", e->number, e->ring,
					s->mtu, is4 ? "IPv4" : "IPv6", least);
	}
	if (s->ring == PV_IFSPEC_VERBS && !s->have_port)
		s->port = 1;
	if (!*s->name) {
		const char *stem = s->ring == PV_IFSPEC_SOFTNIC ? s->fabric : s->device;

		if (*s->netdev || s->ring == PV_IFSPEC_XDP)
			snprintf(s->name, sizeof(s->name), "%.15s", *s->netdev ? s->netdev : s->device);
		else
			snprintf(s->name, sizeof(s->name), "%.20s.%u", stem, s->port);
	}
	return 0;
}

static const char *const kinds[] = { "softnic", "verbs", "xdp", "tap", "bond" };

static int kind_of(const char *text)
{
	for (uint32_t i = 0; i < pv_array_size(kinds); i++)
		if (!strcmp(text, kinds[i]))
			return (int)i;
	return -1;
}

const char *pv_ifspec_kind(const struct pv_ifspec *s)
{
	return kinds[s->ring];
}

/* The device alone, as in the names that rings have: xdp:eth0. */
static const char *short_for(enum pv_ifspec_ring ring)
{
	return ring == PV_IFSPEC_SOFTNIC ? "fabric" : ring == PV_IFSPEC_TAP ? "name" : "device";
}

static int parse_entry(char *text, unsigned int number, bool bare, struct pv_ifspec *out)
{
	struct entry e = { .number = number, .ring = text, .spec = out, .bare = bare };
	const char *keys[64];
	char *p = strchr(text, ':');
	uint32_t n = 0;

	memset(out, 0, sizeof(*out));
	if (p)
		*p++ = '\0';
	int kind = kind_of(text);

	if (kind < 0)
		return pv_error(-EINVAL, "interfaces, entry %u: there is no ring \"%s\": softnic, verbs, xdp, tap or bond", number,
				text);
	out->ring = (enum pv_ifspec_ring)kind;
	while (p && *p) {
		char *next = strchr(p, ','), *eq, *value;
		const char *key = p;

		if (next)
			*next++ = '\0';
		eq = strchr(p, '=');
		if (!eq && n)
			return pv_error(-EINVAL, "interfaces, entry %u (%s): \"%s\" is not KEY=VALUE", number, e.ring, p);
		value = eq ? eq + 1 : p;
		if (eq)
			*eq = '\0';
		else
			key = short_for(out->ring);
		if (repeated(keys, n, key))
			return pv_error(-EINVAL, "interfaces, entry %u (%s): %s stands twice", number, e.ring, key);
		if (n == pv_array_size(keys))
			return pv_error(-EINVAL, "interfaces, entry %u (%s): too many keys", number, e.ring);
		keys[n++] = key;
		int rc = parse_key(&e, key, value);

		if (rc)
			return rc;
		p = next;
	}
	return finish(&e);
}

/* Two entries must not claim one name or one address. */
static int check_apart(const struct pv_ifspec *specs, uint32_t n)
{
	for (uint32_t i = 0; i + 1 < n; i++) {
		if (!strcmp(specs[i].name, specs[n - 1].name))
			return pv_error(-EINVAL, "interfaces, entries %u and %u: the name %s twice (name= gives another)", i + 1, n,
					specs[i].name);
		for (uint32_t a = 0; a < specs[i].naddr; a++)
			for (uint32_t b = 0; b < specs[n - 1].naddr; b++)
				if (pv_addr_eq(&specs[i].addr[a].addr, &specs[n - 1].addr[b].addr))
					return pv_error(-EINVAL, "interfaces, entries %u and %u have an address in common", i + 1,
							n);
	}
	return 0;
}

int pv_ifspec_parse(const char *text, struct pv_ifspec *out, uint32_t max)
{
	uint32_t n = 0;

	for (const char *p = text; *p;) {
		size_t len = strcspn(p, ";"), skip = strspn(p, " \t\n");
		const char *from = p + PV_MIN(skip, len);
		char entry[ENTRY_MAX];

		len -= PV_MIN(skip, len);
		p = from + len;
		if (*p)
			p++;
		while (len && strchr(" \t\n", from[len - 1]))
			len--;
		if (!len)
			continue;
		if (n == max)
			return pv_error(-E2BIG, "interfaces: more than %u entries", max);
		if (len >= sizeof(entry))
			return pv_error(-EINVAL, "interfaces, entry %u: longer than %d bytes", n + 1, ENTRY_MAX - 1);
		memcpy(entry, from, len);
		entry[len] = '\0';
		int rc = parse_entry(entry, n + 1, false, &out[n]);

		if (!rc)
			rc = check_apart(out, ++n);
		if (rc)
			return rc;
	}
	return (int)n;
}

int pv_ifspec_parse_device(const char *text, struct pv_ifspec *out)
{
	char entry[ENTRY_MAX];

	memset(out, 0, sizeof(*out));
	if (strlen(text) >= sizeof(entry))
		return pv_error(-EINVAL, "interfaces: longer than %d bytes", ENTRY_MAX - 1);
	memcpy(entry, text, strlen(text) + 1);
	return parse_entry(entry, 1, true, out);
}

int pyvma_interfaces_check(const char *text)
{
	struct pv_ifspec specs[PV_IFACE_MAX];
	int n = text ? pv_ifspec_parse(text, specs, PV_IFACE_MAX) : 0;

	return PV_MIN(n, 0);
}
