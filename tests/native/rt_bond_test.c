/* SPDX-License-Identifier: BSD-3-Clause */
/* What interfaces are made of, by trees that look like sysfs, and by trees that do not. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rt/bond.h"
#include "test.h"

static const char netvsc_class[] = "{f8615163-df3e-46c5-913f-f2d2f965ed0e}\n";
static char root[64], err[256];
static struct pv_bond_info info;

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void tree_end(void)
{
	if (*root)
		nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	*root = '\0';
}

static void tree_begin(void)
{
	tree_end();
	strcpy(root, "/tmp/pv_bond_XXXXXX");
	CHECK(mkdtemp(root) != NULL);
}

/* Makes the directories above, too. */
static void put_bytes(const char *path, const void *data, size_t len)
{
	char full[512];
	int fd;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *p = strchr(full + strlen(root) + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		CHECK(!mkdir(full, 0755) || errno == EEXIST);
		*p = '/';
	}
	if (full[strlen(full) - 1] == '/')
		return;
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, data, len), (ssize_t)len);
	close(fd);
}

static void put(const char *dir, const char *file, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "class/net/%s/%s", dir, file);
	put_bytes(path, text, strlen(text));
}

static int read_of(const char *ifname)
{
	err[0] = '\0';
	return pv_bond_read(root, ifname, false, &info, err, sizeof(err));
}

static void bond(const char *mode, const char *slaves)
{
	tree_begin();
	put("bond0", "bonding/mode", mode);
	put("bond0", "bonding/slaves", slaves);
	put("bond0", "bonding/active_slave", "eth1\n");
	put("bond0", "bonding/fail_over_mac", "none 0\n");
	put("bond0", "bonding/xmit_hash_policy", "layer3+4 1\n");
	put("eth0", "device/infiniband/mlx5_0/", "");
	put("eth1", "device/infiniband/mlx5_1/", "");
	put("eth0", "address", "02:00:00:00:00:0a\n");
	put("eth0", "operstate", "up\n");
	put("eth1", "operstate", "lowerlayerdown\n");
}

TEST(plain)
{
	tree_begin();
	put("eth0", "device/infiniband/mlx5_3/", "");
	put("eth0", "dev_port", "0\n");
	put("eth0", "dev_id", "0x1\n");
	put("eth0", "address", "02:00:00:00:00:0A\n");
	CHECK_EQ(read_of("eth0"), 0);
	CHECK_EQ(info.kind, PV_BOND_KIND_PLAIN);
	CHECK_EQ(info.n, 1);
	CHECK(!strcmp(info.slave[0].device, "mlx5_3"));
	CHECK_EQ(info.slave[0].port, 2);
	CHECK(info.slave[0].have_mac && info.slave[0].mac[5] == 10);
	CHECK(!info.slave[0].down);
	put("eth0", "dev_port", "3\n");
	CHECK_EQ(read_of("eth0"), 0);
	CHECK_EQ(info.slave[0].port, 4);
	CHECK(!strcmp(pv_bond_kind_text(&info), "plain"));
	CHECK_EQ(read_of("eth1"), -ENODEV);
	CHECK(strstr(err, root) != NULL);
	CHECK_EQ(read_of(".."), -ENODEV);
	CHECK_EQ(read_of("../net/eth0"), -ENODEV);
	CHECK_EQ(read_of(""), -ENODEV);
	CHECK_EQ(read_of("a-name-that-is-too-long"), -ENODEV);
}

TEST(netvsc_and_its_vf)
{
	tree_begin();
	put("eth0", "device/class_id", netvsc_class);
	CHECK_EQ(read_of("eth0"), 0);
	CHECK_EQ(info.kind, PV_BOND_KIND_NETVSC);
	CHECK_EQ(info.mode, PV_BOND_NETVSC);
	CHECK_EQ(info.n, 0);
	/* The VF is there before its driver is. */
	put("eth0", "lower_ens2/ifindex", "5\n");
	CHECK_EQ(read_of("eth0"), 0);
	CHECK_EQ(info.n, 1);
	CHECK(!strcmp(info.slave[0].ifname, "ens2"));
	CHECK(!*info.slave[0].device);
	CHECK(!info.slave[0].have_mac);
	put("ens2", "device/infiniband/mlx5_7/", "");
	put("ens2", "operstate", "up\n");
	CHECK_EQ(read_of("eth0"), 0);
	CHECK(!strcmp(info.slave[0].device, "mlx5_7"));
	CHECK_EQ(info.slave[0].port, 1);
	CHECK(!strcmp(pv_bond_kind_text(&info), "NetVSC"));
	put("eth0", "device/class_id", "{f8615163-df3e-46c5-913f-f2d2f965ed0f}\n");
	CHECK_EQ(read_of("eth0"), 0);
	CHECK_EQ(info.kind, PV_BOND_KIND_PLAIN);
}

TEST(bond_active_backup)
{
	bond("active-backup 1\n", "eth0 eth1\n");
	CHECK_EQ(read_of("bond0"), 0);
	CHECK_EQ(info.kind, PV_BOND_KIND_BOND);
	CHECK_EQ(info.mode, PV_BOND_ACTIVE_BACKUP);
	CHECK_EQ(info.n, 2);
	CHECK_EQ(info.fail_over_mac, 0);
	CHECK(info.slave[0].backup && !info.slave[0].down);
	CHECK(!info.slave[1].backup && info.slave[1].down);
	CHECK(!strcmp(info.slave[1].device, "mlx5_1"));
	put("bond0", "bonding/fail_over_mac", "active 1\n");
	put("bond0", "bonding/active_slave", "\n");
	CHECK_EQ(read_of("bond0"), 0);
	CHECK_EQ(info.fail_over_mac, 1);
	CHECK(info.slave[0].backup && info.slave[1].backup);
	put("bond0", "bonding/fail_over_mac", "follow 2\n");
	CHECK_EQ(read_of("bond0"), -EOPNOTSUPP);
	CHECK(strstr(err, "fail_over_mac=2") != NULL);
}

TEST(bond_of_all_active)
{
	bond("802.3ad 4\n", "eth0 eth1\n");
	put("eth0", "bonding_slave/state", "active\n");
	put("eth1", "bonding_slave/state", "backup\n");
	CHECK_EQ(read_of("bond0"), 0);
	CHECK_EQ(info.mode, PV_BOND_8023AD);
	CHECK_EQ(info.hash_policy, 1);
	CHECK(!info.slave[0].backup && info.slave[1].backup);
	bond("balance-xor 2\n", "eth1 eth0\n");
	put("bond0", "bonding/xmit_hash_policy", "encap3+4 4\n");
	CHECK_EQ(read_of("bond0"), 0);
	CHECK_EQ(info.mode, PV_BOND_XOR);
	CHECK_EQ(info.hash_policy, 4);
	CHECK(!strcmp(info.slave[0].ifname, "eth1"));
	CHECK(!info.slave[0].backup && !info.slave[1].backup);
	put("bond0", "bonding/xmit_hash_policy", "vlan+srcmac 5\n");
	CHECK_EQ(read_of("bond0"), -EOPNOTSUPP);
	bond("balance-rr 0\n", "eth0\n");
	CHECK_EQ(read_of("bond0"), -EOPNOTSUPP);
	CHECK(strstr(err, "mode 0") != NULL);
	bond("802.3ad 4\n", "a b c d e f g h i j k\n");
	CHECK_EQ(read_of("bond0"), -EOPNOTSUPP);
	CHECK(strstr(err, "10 slaves") != NULL);
}

static void link_to(const char *to, const char *path)
{
	char full[512], target[512];

	snprintf(full, sizeof(full), "%s/%s", root, path);
	snprintf(target, sizeof(target), "%s/%s", root, to);
	CHECK_EQ(symlink(target, full), 0);
}

TEST(roce_lag)
{
	bond("802.3ad 4\n", "eth0 eth1\n");
	put("eth0", "device/infiniband/mlx5_bond_0/", "");
	CHECK_EQ(read_of("bond0"), 0);
	/* "mlx5_0" is before it in the directory: that is no device of a LAG. */
	CHECK(!info.lag);

	tree_begin();
	put("bond0", "bonding/mode", "802.3ad 4\n");
	put("bond0", "bonding/slaves", "eth0 eth1\n");
	put_bytes("class/net/eth0/", "", 0);
	put_bytes("class/net/eth1/", "", 0);
	put_bytes("devices/0000:03:00.0/roce_lag_enable", "1\n", 2);
	put_bytes("devices/0000:03:00.1/roce_lag_enable", "1\n", 2);
	put_bytes("devices/0000:03:00.0/infiniband/mlx5_4/", "", 0);
	link_to("devices/0000:03:00.0", "class/net/eth0/device");
	link_to("devices/0000:03:00.1", "class/net/eth1/device");
	put("eth0", "operstate", "down\n");
	CHECK_EQ(read_of("bond0"), 0);
	CHECK(info.lag);
	CHECK_EQ(info.n, 1);
	CHECK(!strcmp(info.slave[0].device, "mlx5_4"));
	CHECK(!info.slave[0].down); /* the other port is up */
	CHECK(!strcmp(pv_bond_kind_text(&info), "RoCE LAG"));
	put_bytes("devices/0000:03:00.1/roce_lag_enable", "0\n", 2);
	CHECK_EQ(read_of("bond0"), 0);
	CHECK(!info.lag && info.n == 2);

	bond("active-backup 1\n", "eth0 eth2\n");
	put("eth2", "device/infiniband/mlx5_bond_0/", "");
	CHECK_EQ(read_of("bond0"), 0);
	CHECK(info.lag && info.n == 1);
	CHECK(!strcmp(info.slave[0].device, "mlx5_bond_0"));
	CHECK(!info.slave[0].backup);
	/* As interfaces they are two, and need no device. */
	CHECK_EQ(pv_bond_read(root, "bond0", true, &info, err, sizeof(err)), 0);
	CHECK(!info.lag && info.n == 2);
	CHECK(!strcmp(info.slave[0].device, info.slave[0].ifname) && !strcmp(info.slave[1].device, info.slave[1].ifname));
}

/* Every file of a bond in turn missing, empty, garbage, without end, huge, with zeros, a directory: an answer, and nothing made up. */
TEST(broken_files)
{
	static const char *const files[] = { "bond0/bonding/mode",
					     "bond0/bonding/slaves",
					     "bond0/bonding/active_slave",
					     "bond0/bonding/fail_over_mac",
					     "bond0/bonding/xmit_hash_policy",
					     "eth0/operstate",
					     "eth0/address",
					     "eth0/dev_port",
					     "eth0/dev_id",
					     "eth0/bonding_slave/state",
					     "eth0/device/roce_lag_enable" };
	static char huge[100000];
	char path[256], full[512];

	memset(huge, 'x', sizeof(huge));
	for (size_t i = 0; i < pv_array_size(files); i++) {
		for (int how = 0; how < 7; how++) {
			bond("active-backup 1\n", "eth0 eth1\n");
			snprintf(path, sizeof(path), "class/net/%s", files[i]);
			snprintf(full, sizeof(full), "%s/%s", root, path);
			unlink(full);
			if (how == 1)
				put_bytes(path, "", 0);
			else if (how == 2)
				put_bytes(path, "\xff\xfe -1 99999999999999999999 :/\n\n\n", 33);
			else if (how == 3)
				put_bytes(path, huge, sizeof(huge));
			else if (how == 4)
				put_bytes(path, "a\0b\0c", 5);
			else if (how == 5)
				put_bytes(strcat(path, "/"), "", 0);
			else if (how == 6)
				put_bytes(path, "18446744073709551616", 20);
			int rc = read_of("bond0");

			CHECK(rc == 0 || (rc == -EOPNOTSUPP && *err));
			CHECK(rc || info.n <= 2);
			for (uint32_t n = 0; !rc && n < info.n; n++)
				CHECK(info.slave[n].port >= 1);
			/* A bond of which the mode is not to be had is none that is known. */
			CHECK(i || rc == -EOPNOTSUPP);
			CHECK(i != 6 || how == 0 || !info.slave[0].have_mac);
		}
	}
	bond("active-backup 1\n", "eth0 eth1\n");
	snprintf(full, sizeof(full), "%s/class/net/bond0/bonding/mode", root);
	unlink(full);
	CHECK_EQ(mkfifo(full, 0600), 0);
	CHECK_EQ(read_of("bond0"), -EOPNOTSUPP); /* and does not wait */
	tree_begin();
	CHECK_EQ(symlink("/does/not/exist", strcat(strcpy(full, root), "/class")), 0);
	CHECK_EQ(read_of("bond0"), -ENODEV);
}

TEST(words)
{
	static const struct pv_bond_word names[] = { { "none", 0 }, { "active", 1 }, { NULL, 0 } };
	char out[3][IFNAMSIZ];
	uint8_t mac[PV_ETH_ALEN];

	CHECK_EQ(pv_bond_parse_word("none 0", names), 0);
	CHECK_EQ(pv_bond_parse_word("active", names), 1);
	CHECK_EQ(pv_bond_parse_word("1", names), 1);
	CHECK_EQ(pv_bond_parse_word("newer 9", names), 9);
	CHECK_EQ(pv_bond_parse_word("newer", names), -1);
	CHECK_EQ(pv_bond_parse_word("newer -9", names), -1);
	CHECK_EQ(pv_bond_parse_word("", names), -1);
	CHECK_EQ(pv_bond_parse_slaves("  eth0\teth1 eth2 eth3", out, 3), 3);
	CHECK(!strcmp(out[2], "eth2"));
	CHECK_EQ(pv_bond_parse_slaves("../x . .. a-name-that-is-too-long ok", out, 3), 1);
	CHECK(!strcmp(out[0], "ok"));
	CHECK(!pv_bond_parse_mac("01:00:00:00:00:01", mac));
	CHECK(!pv_bond_parse_mac("00:00:00:00:00:00", mac));
	CHECK(!pv_bond_parse_mac("02:00:00:00:00:1", mac));
	CHECK(!pv_bond_parse_mac("02:00:00:00:00:011", mac));
	CHECK(!pv_bond_parse_mac("02:00:00:00:00", mac));
	CHECK(!pv_bond_parse_mac("0", mac));
	CHECK(pv_bond_parse_mac("fe:DC:ba:98:76:54", mac) && mac[1] == 0xdc);
	tree_end();
}

int main(int argc, char **argv)
{
	int rc = test_main(argc, argv);

	tree_end();
	return rc;
}
