/* SPDX-License-Identifier: BSD-3-Clause */
/* Legs of a bond, two devices of the software NIC, that come and go while one thread sends, another one forks and the engine is stopped. */
#include "host_env.h"

#ifndef SOFTNIC_LIB
int main(void)
{
	puts("skip: built without verbs");
	return 77;
}
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "ring/verbs.h"
#include "rt/bond.h"
#include "rt/error.h"
#include "rt/mem.h"
#include "rt/port_bond.h"

#define LEGS 2

static struct {
	int (*add)(const char *spec, char *name, size_t size);
	int (*plug)(const char *device, int in);
} nic;

static struct {
	struct pv_pool *pool;
	struct pv_ring *ring;
} kept[LEGS];
static char root[] = "/tmp/pyvma-leg-XXXXXX", fabric[32];
static _Atomic(bool) stop;

static void put(const char *path, const char *text)
{
	char whole[200], *slash;
	FILE *f;

	snprintf(whole, sizeof(whole), "%s/class/net/%s", root, path);
	for (slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(whole, 0700);
		*slash = '/';
	}
	f = fopen(whole, "w");
	CHECK(f != NULL);
	fputs(text, f);
	fclose(f);
}

static void plug(int leg, bool in)
{
	char port[48];

	snprintf(port, sizeof(port), "softnic_%s%d_0", fabric, leg);
	CHECK_EQ(nic.plug(port, in), 0);
}

static void make_bond(void)
{
	char path[96];

	for (int i = 0; i < LEGS; i++) {
		ip("link add s%d address 02:00:00:00:02:01 type veth peer name t%d", i, i);
		ip("link set t%d up", i);
		ip("link set s%d up", i);
		snprintf(path, sizeof(path), "s%d/bonding_slave/state", i);
		put(path, i ? "backup\n" : "active\n");
		snprintf(path, sizeof(path), "s%d/operstate", i);
		put(path, "up\n");
		snprintf(path, sizeof(path), "s%d/address", i);
		put(path, "02:00:00:00:02:01\n");
		snprintf(path, sizeof(path), "s%d/dev_port", i);
		put(path, "0\n");
		snprintf(path, sizeof(path), "s%d/device/infiniband/softnic_%s%d_0/name", i, fabric, i);
		put(path, "\n");
	}
	ip("link add bond0 address 02:00:00:00:02:01 type veth peer name bondp");
	ip("link set bondp up");
	ip("addr add 10.1.0.1/24 dev bond0");
	ip("link set bond0 up");
	ip("neigh add 10.1.0.2 lladdr 02:00:00:00:02:02 dev bond0");
	put("bond0/bonding/mode", "active-backup 1\n");
	put("bond0/bonding/slaves", "s0 s1\n");
	put("bond0/bonding/active_slave", "s0\n");
	put("bond0/bonding/fail_over_mac", "none 0\n");
	put("bond0/bonding/xmit_hash_policy", "layer2 0\n");
}

/* A fabric that nobody has open forgets that its device is out. */
static void keep_open(int leg)
{
	static const struct pv_pool_cfg pc = { .buf_size = 2048, .headroom = PV_NET_HEADROOM, .count = 64, .max = 64 };
	struct pv_verbs_cfg vc = { .library = SOFTNIC_LIB, .rx_depth = 8, .tx_depth = 8 };
	char spec[64], name[64], err[256];

	snprintf(spec, sizeof(spec), "%s%d/1", fabric, leg);
	CHECK_EQ(nic.add(spec, name, sizeof(name)), 0);
	vc.device = name;
	CHECK_EQ(pv_pool_open(&kept[leg].pool, pv_mem_system(false), &pc), 0);
	CHECK_EQ(pv_verbs_open(&kept[leg].ring, pv_mem_system(false), kept[leg].pool, &vc, err, sizeof(err)), 0);
}

static void begin(void)
{
	char entry[300], name[64];
	void *lib = dlopen(SOFTNIC_LIB, RTLD_NOW | RTLD_LOCAL);

	make_world();
	CHECK(lib != NULL);
	nic.add = (int (*)(const char *, char *, size_t))dlsym(lib, "softnic_device_add");
	nic.plug = (int (*)(const char *, int))dlsym(lib, "softnic_plug");
	CHECK(nic.add && nic.plug);
	CHECK(mkdtemp(root) != NULL);
	snprintf(fabric, sizeof(fabric), "rl%d", getpid());
	make_bond();
	for (int i = 0; i < LEGS; i++) {
		snprintf(entry, sizeof(entry), "%s%d/0,mac=02:00:00:00:02:01", fabric, i);
		CHECK_EQ(nic.add(entry, name, sizeof(name)), 0);
		keep_open(i);
	}
	CHECK_EQ(pyvma_config_set("sysfs_root", root), 0);
	CHECK_EQ(pyvma_config_set("daemon", "none"), 0);
	snprintf(entry, sizeof(entry), "bond:device=bond0,lib=%s", SOFTNIC_LIB);
	start(entry);
}

static void end(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", root);
	CHECK_EQ(system(command), 0);
	for (int i = 0; i < LEGS; i++) {
		pv_ring_close(kept[i].ring);
		CHECK_EQ(pv_pool_close(kept[i].pool), 0);
	}
	close(own_ns);
	close(peer_ns);
}

/* With the lock. */
static uint32_t legs(void)
{
	struct pv_bond_leg_cfg lc;
	uint32_t n = 0;

	if (e->nports != 1)
		return 0;
	while (pv_bond_leg(e->ports[0].ring, n, &lc))
		n++;
	return n;
}

/* A device without flow rules is opened in vain, and its place in the pool is its keeper's until the keeper gives it back. */
static void without_rules(void)
{
	static const struct pv_pool_cfg pc = { .buf_size = 2048, .headroom = PV_NET_HEADROOM, .count = 256, .max = 256 };
	struct pv_config cfg = *e->cfg;
	struct pv_port view;
	int binder, other;

	memset(&view, 0, sizeof(view));
	cfg.rx_depth = cfg.tx_depth = 8;
	CHECK_EQ(pv_pool_open(&view.pool, pv_mem_system(false), &pc), 0);
	binder = pv_pool_bind_begin(view.pool);
	CHECK(binder > 0);
	view.binder = (uint32_t)binder;
	view.spec.ring = PV_IFSPEC_VERBS;
	view.spec.port = 1;
	snprintf(view.spec.lib, sizeof(view.spec.lib), "%s", SOFTNIC_LIB);
	snprintf(view.spec.device, sizeof(view.spec.device), "softnic_%s0_1", fabric);
	CHECK_EQ(setenv("PYVMA_SOFTNIC_OFF", "flow", 1), 0);
	CHECK_EQ(pv_port_device_open(&view, &cfg), -EOPNOTSUPP);
	CHECK_EQ(unsetenv("PYVMA_SOFTNIC_OFF"), 0);
	CHECK(strstr(pv_error_text(), "no flow rules"));
	other = pv_pool_bind_begin(view.pool);
	CHECK(other > 0 && other != binder);
	CHECK(view.ring != NULL);
	pv_ring_close(view.ring);
	pv_pool_unbind(view.pool, (uint32_t)other);
	CHECK_EQ(pv_pool_close(view.pool), 0);
}

static void *send_on(void *arg)
{
	struct us *s = arg;

	while (!atomic_load(&stop)) {
		(void)us_send(s, "some bytes", "10.1.0.2", 9);
		pv_lock_get(&e->lock);
		(void)pv_engine_poll(e, pv_clock_now(&e->clock));
		pv_lock_put(&e->lock);
		(void)usleep(50);
	}
	return NULL;
}

static void *fork_on(void *arg)
{
	while (!atomic_load(&stop)) {
		pid_t child = fork();
		int status = 0;

		CHECK(child >= 0);
		if (!child)
			_exit(e->nports == 0 ? 7 : 1);
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		(void)usleep(3000);
	}
	return arg;
}

/* An application that has used up its own: what cannot be read of the legs has not changed. */
static void without_descriptors(void)
{
	static int fds[1024];
	struct rlimit most, few = { .rlim_cur = 512 };
	uint32_t n = 0, gen;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &most), 0);
	few.rlim_max = most.rlim_max;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	gen = e->ports_gen;
	while (n < 1024 && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		n++;
	CHECK_EQ(errno, EMFILE);
	for (int i = 0; i < 20; i++) {
		pv_lock_get(&e->lock);
		CHECK(e->nports == 1 && pv_port_bond_follow(e, &e->ports[0]));
		pv_lock_put(&e->lock);
	}
	CHECK(legs() == LEGS && e->ports_gen == gen);
	while (n)
		close(fds[--n]);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &most), 0);
}

TEST(legs_come_and_go_beside_all_else)
{
	pthread_t sender, forker;
	struct us s;

	begin();
	WAIT_FOR(legs() == LEGS);
	without_rules();
	us_open(&s, "10.1.0.1", 7000);
	CHECK_EQ(pthread_create(&sender, NULL, send_on, &s), 0);
	CHECK_EQ(pthread_create(&forker, NULL, fork_on, NULL), 0);
	for (int turn = 0; turn < 30; turn++) {
		plug(turn % LEGS, false);
		WAIT_FOR(legs() == LEGS - 1);
		plug(turn % LEGS, true);
		/* Now and then it goes again while it is being opened. */
		if (turn % 3 == 2) {
			plug(turn % LEGS, false);
			plug(turn % LEGS, true);
		}
		WAIT_FOR(legs() == LEGS);
	}
	atomic_store(&stop, true);
	CHECK_EQ(pthread_join(sender, NULL), 0);
	CHECK_EQ(pthread_join(forker, NULL), 0);
	us_close(&s);
	without_descriptors();
	/* Stopped while one is being shut, or opened. */
	for (int turn = 0; turn < 4; turn++) {
		plug(0, false);
		if (turn & 1)
			plug(0, true);
		pyvma_stop();
		CHECK(!e->nports && !e->nlimbo && pv_list_empty(&e->leg_jobs) && !e->leg_job);
		plug(0, true);
		CHECK_EQ(pyvma_start(), 0);
		WAIT_FOR(legs() == LEGS);
	}
	pyvma_stop();
	end();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
#endif
