/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sysfs as the kernel's bonding, netvsc and mlx5 drivers write it (Documentation/networking/bonding.rst, ABI/testing/sysfs-class-net).
 * It changes while it is read: a slave that goes in between is one of which little is said.
 */
#include "rt/bond.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The longest that is read: ten names of interfaces, and room for what a newer kernel adds. */
#define TEXT_MAX 512
#define PATH_LEN 512

/* VMBus's class of network devices (linux/hyperv.h, HV_NIC_GUID). */
static const char netvsc_class[] = "{f8615163-df3e-46c5-913f-f2d2f965ed0e}";

static const struct pv_bond_word modes[] = {
	{ "balance-rr", 0 }, { "active-backup", 1 }, { "balance-xor", 2 }, { "broadcast", 3 },
	{ "802.3ad", 4 },    { "balance-tlb", 5 },   { "balance-alb", 6 }, { NULL, 0 },
};
static const struct pv_bond_word policies[] = {
	{ "layer2", 0 },   { "layer3+4", 1 },    { "layer2+3", 2 }, { "encap2+3", 3 },
	{ "encap3+4", 4 }, { "vlan+srcmac", 5 }, { NULL, 0 },
};
static const struct pv_bond_word fail_overs[] = { { "none", 0 }, { "active", 1 }, { "follow", 2 }, { NULL, 0 } };

struct tree {
	const char *root, *ifname;
};

/* ---- texts --------------------------------------------------------------------------------------------------------------- */

/* A whole number of at most nine digits and nothing else; -1. */
static int number(const char *text, size_t len, int base)
{
	char buf[10], *end;
	unsigned long n;

	if (!len || len >= sizeof(buf))
		return -1;
	memcpy(buf, text, len);
	buf[len] = '\0';
	if (!((*buf >= '0' && *buf <= '9') || (base == 16 && strchr("abcdefABCDEF", *buf))))
		return -1;
	n = strtoul(buf, &end, base);
	return *end || n > INT32_MAX ? -1 : (int)n;
}

int pv_bond_parse_word(const char *text, const struct pv_bond_word *names)
{
	size_t len = strcspn(text, " \t\n");
	const char *rest = text + len + strspn(text + len, " \t\n");
	int n = number(rest, strcspn(rest, " \t\n"), 10);

	for (; names->name; names++)
		if (strlen(names->name) == len && !memcmp(names->name, text, len))
			return names->number;
	/* A name that is new here has its number behind it. */
	return n >= 0 ? n : number(text, len, 10);
}

static bool is_ifname(const char *text, size_t len)
{
	if (!len || len >= IFNAMSIZ || (len == 1 && *text == '.') || (len == 2 && !memcmp(text, "..", 2)))
		return false;
	for (size_t i = 0; i < len; i++)
		if (text[i] == '/' || text[i] == ':' || (unsigned char)text[i] <= ' ' || text[i] == 0x7f)
			return false;
	return true;
}

uint32_t pv_bond_parse_slaves(const char *text, char (*out)[IFNAMSIZ], uint32_t max)
{
	uint32_t n = 0;

	while (n < max && *(text += strspn(text, " \t\n"))) {
		size_t len = strcspn(text, " \t\n");

		if (is_ifname(text, len)) {
			memcpy(out[n], text, len);
			out[n++][len] = '\0';
		}
		text += len;
	}
	return n;
}

bool pv_bond_parse_mac(const char *text, uint8_t mac[PV_ETH_ALEN])
{
	uint8_t b[PV_ETH_ALEN];

	for (uint32_t i = 0; i < PV_ETH_ALEN; i++, text += 3) {
		int n = text[0] && text[1] ? number(text, 2, 16) : -1;

		if (n < 0 || (i < PV_ETH_ALEN - 1 ? text[2] != ':' : text[2] != '\0'))
			return false;
		b[i] = (uint8_t)n;
	}
	memcpy(mac, b, sizeof(b));
	return !(mac[0] & 1) && memcmp(mac, "\0\0\0\0\0\0", PV_ETH_ALEN) != 0;
}

/* ---- files --------------------------------------------------------------------------------------------------------------- */

static bool path_of(const struct tree *t, const char *file, char *path)
{
	int n = snprintf(path, PATH_LEN, "%s/class/net/%s%s%s", t->root, t->ifname, *file ? "/" : "", file);

	return n > 0 && n < PATH_LEN;
}

/* One line without its end; false: missing, empty, longer than anything that the kernel writes, or with a zero in it. */
static bool read_text(const struct tree *t, const char *file, char out[TEXT_MAX])
{
	char path[PATH_LEN];
	ssize_t n = -1;
	int fd;

	if (!path_of(t, file, path))
		return false;
	/* Not to wait: a tree of tests may hold anything. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	n = read(fd, out, TEXT_MAX);
	close(fd);
	if (n <= 0 || n == TEXT_MAX || memchr(out, 0, (size_t)n))
		return false;
	while (n && (out[n - 1] == '\n' || out[n - 1] == ' '))
		n--;
	out[n] = '\0';
	return n && !strchr(out, '\n');
}

static int read_word(const struct tree *t, const char *file, const struct pv_bond_word *names)
{
	char text[TEXT_MAX];

	return read_text(t, file, text) ? pv_bond_parse_word(text, names) : -1;
}

static int read_number(const struct tree *t, const char *file)
{
	char text[TEXT_MAX];
	bool hex;

	if (!read_text(t, file, text))
		return -1;
	hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	return hex ? number(text + 2, strlen(text + 2), 16) : number(text, strlen(text), 10);
}

static bool exists(const struct tree *t, const char *file)
{
	char path[PATH_LEN];

	return path_of(t, file, path) && !access(path, F_OK);
}

/* The first name of a directory, in the order of their bytes, that begins with `prefix` and that `fits`: what is behind the prefix. */
static bool first_entry(const struct tree *t, const char *file, const char *prefix, bool (*fits)(const char *, size_t), char *out,
			size_t size)
{
	char path[PATH_LEN];
	struct dirent *d;
	bool found = false;
	DIR *dir;

	if (!path_of(t, file, path) || !(dir = opendir(path)))
		return false;
	while ((d = readdir(dir)) != NULL) {
		const char *name = d->d_name;
		size_t len = strlen(prefix);

		if (strncmp(name, prefix, len))
			continue;
		name += len;
		len = strlen(name);
		if (len >= size || !fits(name, len) || (found && strcmp(name, out) >= 0))
			continue;
		memcpy(out, name, len + 1);
		found = true;
	}
	closedir(dir);
	return found;
}

static bool is_device(const char *name, size_t len)
{
	return *name != '.' && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

/* ---- one device ------------------------------------------------------------------------------------------------------------ */

static bool is_down(const struct tree *t)
{
	static const char *const words[] = { "down", "lowerlayerdown", "notpresent", "dormant" };
	char text[TEXT_MAX];

	if (!read_text(t, "operstate", text))
		return false;
	for (size_t i = 0; i < pv_array_size(words); i++)
		if (!strcmp(text, words[i]))
			return true;
	return false;
}

static void read_slave(const char *root, const char *ifname, struct pv_bond_slave *s)
{
	const struct tree t = { root, ifname };
	char text[TEXT_MAX];
	int port, id;

	memset(s, 0, sizeof(*s));
	snprintf(s->ifname, sizeof(s->ifname), "%s", ifname);
	s->have_mac = read_text(&t, "address", text) && pv_bond_parse_mac(text, s->mac);
	s->down = is_down(&t);
	if (!first_entry(&t, "device/infiniband", "", is_device, s->device, sizeof(s->device)))
		s->device[0] = '\0';
	/* Older drivers have the one, newer ones the other. */
	id = read_number(&t, "ifindex");
	s->ifindex = id > 0 ? (uint32_t)id : 0;
	port = read_number(&t, "dev_port");
	id = read_number(&t, "dev_id");
	port = PV_MAX(port, id);
	s->port = (uint8_t)(port < 0 || port > 254 ? 1 : port + 1);
}

/* ---- bonds ----------------------------------------------------------------------------------------------------------------- */

/* mlx5 calls the one device of both ports mlx5_bond_0. */
static bool is_lag_device(const char *device)
{
	const char *at = strstr(device, "_bond_");

	return at && number(at + 6, strlen(at + 6), 10) >= 0;
}

/* The card: the PCI device without its function. */
static bool card_of(const char *root, const char *ifname, char out[PATH_LEN])
{
	const struct tree t = { root, ifname };
	char path[PATH_LEN], *real, *dot;
	bool fits;

	if (!path_of(&t, "device", path) || !(real = realpath(path, NULL)))
		return false;
	dot = strrchr(real, '.');
	if (dot && !strchr(dot, '/'))
		*dot = '\0';
	fits = (size_t)snprintf(out, PATH_LEN, "%s", real) < PATH_LEN;
	free(real);
	return fits;
}

static bool is_lag(const char *root, const struct pv_bond_info *info)
{
	char first[PATH_LEN], other[PATH_LEN];

	for (uint32_t i = 0; i < info->n; i++)
		if (is_lag_device(info->slave[i].device))
			return true;
	for (uint32_t i = 0; i < info->n; i++) {
		const struct tree t = { root, info->slave[i].ifname };

		if (read_number(&t, "device/roce_lag_enable") != 1 || !card_of(root, t.ifname, i ? other : first) ||
		    (i && strcmp(first, other)))
			return false;
	}
	return info->n == 2;
}

/* Both slaves become the one that stands for them. */
static void take_lag(struct pv_bond_info *info)
{
	struct pv_bond_slave one = info->slave[0];
	bool down = true;

	for (uint32_t i = 0; i < info->n; i++) {
		if (*info->slave[i].device && (!*one.device || is_lag_device(info->slave[i].device)))
			one = info->slave[i];
		down &= info->slave[i].down;
	}
	one.down = down;
	one.backup = false;
	info->lag = true;
	info->n = 1;
	info->slave[0] = one;
}

static int read_bond(const struct tree *t, struct pv_bond_info *out, char *err, size_t errsize)
{
	char text[TEXT_MAX], active[TEXT_MAX] = "", names[PV_BOND_LEGS_MAX + 1][IFNAMSIZ];
	int mode = read_word(t, "bonding/mode", modes), policy = read_word(t, "bonding/xmit_hash_policy", policies);
	int over = read_word(t, "bonding/fail_over_mac", fail_overs);
	uint32_t n;

	if (mode != PV_BOND_ACTIVE_BACKUP && mode != PV_BOND_XOR && mode != PV_BOND_8023AD) {
		snprintf(err, errsize, "a bond of mode %d: offloaded are active-backup, balance-xor and 802.3ad", mode);
		return -EOPNOTSUPP;
	}
	if (mode == PV_BOND_ACTIVE_BACKUP && over > 1) {
		snprintf(err, errsize, "a bond with fail_over_mac=%d: offloaded are none and active", over);
		return -EOPNOTSUPP;
	}
	if (mode != PV_BOND_ACTIVE_BACKUP && policy > 4) {
		snprintf(err, errsize, "a bond with xmit_hash_policy %d: offloaded are 0 to 4", policy);
		return -EOPNOTSUPP;
	}
	n = read_text(t, "bonding/slaves", text) ? pv_bond_parse_slaves(text, names, PV_BOND_LEGS_MAX + 1) : 0;
	if (n > PV_BOND_LEGS_MAX) {
		snprintf(err, errsize, "a bond of more than %u slaves", PV_BOND_LEGS_MAX);
		return -EOPNOTSUPP;
	}
	out->kind = PV_BOND_KIND_BOND;
	out->mode = (enum pv_bond_mode)mode;
	out->fail_over_mac = mode == PV_BOND_ACTIVE_BACKUP && over == 1;
	out->hash_policy = policy < 0 ? 0 : (uint32_t)policy;
	out->n = n;
	if (!read_text(t, "bonding/active_slave", active))
		active[0] = '\0';
	for (uint32_t i = 0; i < n; i++) {
		const struct tree of = { t->root, names[i] };

		read_slave(t->root, names[i], &out->slave[i]);
		out->slave[i].backup = mode == PV_BOND_ACTIVE_BACKUP
					   ? strcmp(active, names[i]) != 0
					   : read_text(&of, "bonding_slave/state", text) && !strcmp(text, "backup");
	}
	return 0;
}

/* ---- NetVSC ---------------------------------------------------------------------------------------------------------------- */

static bool is_netvsc(const struct tree *t)
{
	char text[TEXT_MAX];

	return read_text(t, "device/class_id", text) && !strcasecmp(text, netvsc_class);
}

static void read_netvsc(const struct tree *t, struct pv_bond_info *out)
{
	char vf[IFNAMSIZ];

	out->kind = PV_BOND_KIND_NETVSC;
	out->mode = PV_BOND_NETVSC;
	if (!first_entry(t, "", "lower_", is_ifname, vf, sizeof(vf)))
		return;
	read_slave(t->root, vf, &out->slave[0]);
	out->n = 1;
}

_Static_assert(sizeof(((struct pv_bond_slave *)0)->device) >= IFNAMSIZ, "the name of an interface fits");

int pv_bond_read(const char *root, const char *ifname, bool netdevs, struct pv_bond_info *out, char *err, size_t errsize)
{
	const struct tree t = { root, ifname };
	int rc = 0;

	memset(out, 0, sizeof(*out));
	if (!is_ifname(ifname, strlen(ifname)) || !exists(&t, "")) {
		snprintf(err, errsize, "there is no such interface below %s", root);
		return -ENODEV;
	}
	if (exists(&t, "bonding")) {
		rc = read_bond(&t, out, err, errsize);
	} else if (is_netvsc(&t)) {
		read_netvsc(&t, out);
	} else {
		read_slave(root, ifname, &out->slave[0]);
		out->n = 1;
	}
	for (uint32_t i = 0; netdevs && i < out->n; i++)
		memcpy(out->slave[i].device, out->slave[i].ifname, sizeof(out->slave[i].ifname));
	if (!rc && !netdevs && out->kind == PV_BOND_KIND_BOND && is_lag(root, out))
		take_lag(out);
	return rc;
}

const char *pv_bond_kind_text(const struct pv_bond_info *info)
{
	switch (info->kind) {
	case PV_BOND_KIND_NETVSC:
		return "NetVSC";
	case PV_BOND_KIND_BOND:
		return info->lag ? "RoCE LAG" : "bond";
	default:
		return "plain";
	}
}
