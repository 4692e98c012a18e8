/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sysfs of a bond, of NetVSC or of nothing known, every file of any bytes: what is read is an error with a text, or one that its readers can
 * rely on. The first byte says of which kind the tree is and which files are missing; the files are pieces of the rest.
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "fuzz.h"
#include "rt/bond.h"

static const char *const files[] = {
	"bond0/bonding/mode",
	"bond0/bonding/slaves",
	"bond0/bonding/active_slave",
	"bond0/bonding/fail_over_mac",
	"bond0/bonding/xmit_hash_policy",
	"bond0/device/class_id",
	"s0/address",
	"s0/operstate",
	"s0/dev_port",
	"s0/dev_id",
	"s0/ifindex",
	"s0/bonding_slave/state",
	"s0/device/roce_lag_enable",
};
static char root[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

/* The directories above are made, too. A path that ends with a slash is a directory. */
static void put(const char *path, const uint8_t *data, uint32_t len)
{
	char full[256];
	FILE *file;

	snprintf(full, sizeof(full), "%s/class/net/%s", root, path);
	for (char *p = strchr(full + strlen(root) + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		(void)mkdir(full, 0700);
		*p = '/';
	}
	if (full[strlen(full) - 1] == '/')
		return;
	file = fopen(full, "w");
	REQUIRE(file != NULL);
	REQUIRE(fwrite(data, 1, len, file) == len);
	fclose(file);
}

static void make(struct script *s)
{
	uint8_t text[1024], kind = script_8(s);
	uint16_t there = script_16(s);

	put("bond0/", NULL, 0);
	for (uint32_t i = 0; i < pv_array_size(files); i++) {
		uint32_t n = script_bytes(s, text, sizeof(text));

		/* Most inputs are to get beyond the mode. */
		if (i == 0 && kind & 1)
			n = (uint32_t)snprintf((char *)text, sizeof(text), "%u", 1u << (kind >> 1 & 1));
		if (i == 1 && kind & 4)
			n = (uint32_t)snprintf((char *)text, sizeof(text), "s0 s1");
		if (i == 5 && kind & 8)
			n = (uint32_t)snprintf((char *)text, sizeof(text), "{f8615163-df3e-46c5-913f-f2d2f965ed0e}");
		if (there >> i & 1 && !(kind & 8 && i < 5))
			put(files[i], text, n);
	}
	if (kind & 16)
		put("s0/device/infiniband/mlx5_0/", NULL, 0);
	if (kind & 32)
		put("s1/device/infiniband/mlx5_bond_0/", NULL, 0);
	if (kind & 64)
		put("bond0/lower_s0/", NULL, 0);
}

static int has_end(const char *text, size_t size)
{
	return memchr(text, 0, size) != NULL;
}

static void check(const struct pv_bond_info *info)
{
	REQUIRE(info->n <= PV_BOND_LEGS_MAX && info->fail_over_mac <= 1);
	REQUIRE(pv_bond_kind_text(info) != NULL);
	if (info->kind == PV_BOND_KIND_BOND)
		REQUIRE(info->mode == PV_BOND_XOR || info->mode == PV_BOND_8023AD || info->mode == PV_BOND_ACTIVE_BACKUP);
	if (info->kind == PV_BOND_KIND_BOND && info->mode != PV_BOND_ACTIVE_BACKUP)
		REQUIRE(info->hash_policy <= 4);
	if (info->kind == PV_BOND_KIND_NETVSC || info->lag)
		REQUIRE(info->n <= 1);
	for (uint32_t i = 0; i < info->n; i++) {
		const struct pv_bond_slave *s = &info->slave[i];

		REQUIRE(*s->ifname && has_end(s->ifname, sizeof(s->ifname)) && !strchr(s->ifname, '/'));
		REQUIRE(has_end(s->device, sizeof(s->device)) && !strchr(s->device, '/'));
		REQUIRE(s->port >= 1);
		REQUIRE(!s->have_mac || !(s->mac[0] & 1));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = { data, data + size };
	struct pv_bond_info info;
	char err[256] = "";
	int rc;

	strcpy(root, "/tmp/pv_fuzz_bond_XXXXXX");
	REQUIRE(mkdtemp(root) != NULL);
	make(&s);
	rc = pv_bond_read(root, "bond0", false, &info, err, sizeof(err));
	REQUIRE(rc == 0 || (rc == -EOPNOTSUPP && *err));
	if (!rc)
		check(&info);
	REQUIRE(pv_bond_read(root, "s2", false, &info, err, sizeof(err)) == -ENODEV);
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}
