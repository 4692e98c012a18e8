/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings: values, files, variables (in a process of its own), interface entries; every mistake is named. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/config.h"
#include "rt/error.h"
#include "rt/ifspec.h"
#include "rt/wrap.h"
#include "test.h"

static int parse(struct pv_config *cfg, const char *text)
{
	pv_config_init(cfg);
	return pv_config_parse(cfg, text, strlen(text), "test.toml");
}

TEST(defaults_are_in_range)
{
	struct pv_config cfg, again;
	struct pyvma_config_row row;
	unsigned int n = 0;

	pv_config_init(&cfg);
	pv_config_init(&again);
	for (; pyvma_config_row(n, &row) == 0; n++) {
		CHECK(*row.name && *row.type && *row.help);
		CHECK_EQ(pv_config_apply(&again, row.name, row.default_value, row.name), 0);
		for (unsigned int i = 0; i < n; i++) {
			struct pyvma_config_row other;

			CHECK_EQ(pyvma_config_row(i, &other), 0);
			CHECK(strcmp(other.name, row.name));
		}
	}
	CHECK(n > 30);
	CHECK_EQ(cfg.rx_poll, again.rx_poll);
	CHECK_EQ(pyvma_config_row(n, &row), -ENOENT);
	pv_config_fini(&cfg);
	pv_config_fini(&again);
}

TEST(values)
{
	struct pv_config cfg;

	pv_config_init(&cfg);
	CHECK_EQ(pv_config_apply(&cfg, "rx_poll", "-1", "x"), 0);
	CHECK_EQ(cfg.rx_poll, -1);
	CHECK_EQ(pv_config_apply(&cfg, "reass_bytes", "16M", "x"), 0);
	CHECK_EQ(cfg.reass_bytes, 16 << 20);
	CHECK_EQ(pv_config_apply(&cfg, "seed", "0xff", "x"), 0);
	CHECK_EQ(cfg.seed, 255);
	CHECK_EQ(pv_config_apply(&cfg, "strict", "Yes", "x"), 0);
	CHECK(cfg.strict);
	CHECK_EQ(pv_config_apply(&cfg, "strict", "off", "x"), 0);
	CHECK(!cfg.strict);
	CHECK_EQ(pv_config_apply(&cfg, "log_level", "DEBUG", "x"), 0);
	CHECK_EQ(cfg.log_level, 4);
	CHECK_EQ(pv_config_apply(&cfg, "pcap_file", "/tmp/a b", "x"), 0);
	CHECK(!strcmp(cfg.pcap_file, "/tmp/a b"));
	pv_config_fini(&cfg);
}

static const struct {
	const char *name, *value, *says;
	int rc;
} bad_values[] = {
	{ "rx_poll", "", "not a whole number", -EINVAL },
	{ "rx_poll", "12x", "not a whole number", -EINVAL },
	{ "rx_poll", " 1", "not a whole number", -EINVAL },
	{ "rx_poll", "1e3", "not a whole number", -EINVAL },
	{ "rx_poll", "-2", "out of range", -EINVAL },
	{ "rx_poll", "9223372036854775808", "not a whole number", -EINVAL },
	{ "rx_bufs", "9223372036854775807G", "not a whole number", -EINVAL },
	{ "rx_depth", "15", "16 to 32768 frames", -EINVAL },
	{ "strict", "perhaps", "not a switch", -EINVAL },
	{ "log_level", "loud", "not a log level", -EINVAL },
	{ "log_level", "5", "not a log level", -EINVAL },
	{ "hw_ts_conversion", "6", "off,raw,best,sync,ptp,rtc", -EINVAL },
	{ "hw_ts_conversion", "-1", "not one of", -EINVAL },
	{ "hw_ts_conversion", "", "not one of", -EINVAL },
	{ "hw_ts_conversion", "of", "not one of", -EINVAL },
	{ "hw_ts_conversion", "off,raw", "not one of", -EINVAL },
	{ "hw_ts_conversion", "03", "not one of", -EINVAL },
	{ "no_such_thing", "1", "no setting", -ENOENT },
	{ "", "1", "no setting", -ENOENT },
};

TEST(bad_values)
{
	struct pv_config cfg;

	pv_config_init(&cfg);
	for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); i++) {
		CHECK_EQ(pv_config_apply(&cfg, bad_values[i].name, bad_values[i].value, "WHERE"), bad_values[i].rc);
		if (!strstr(pv_error_text(), bad_values[i].says) || strncmp(pv_error_text(), "WHERE", 5))
			fprintf(stderr, "%s\n", pv_error_text());
		CHECK(strstr(pv_error_text(), bad_values[i].says));
		CHECK(!strncmp(pv_error_text(), "WHERE", 5));
	}
	pv_config_fini(&cfg);
}

TEST(good_file)
{
	struct pv_config cfg;

	CHECK_EQ(parse(&cfg, "# comment\n\n[pyvma]\r\nrx_poll = 1_000\t# us\nstrict=true\n"
			     "interfaces = [\n  \"softnic:fabric=a,port=0\", # one\n\n  'verbs:device=\"x\"',\n]\n"
			     "pcap_file = \"a\\\"b\\\\c\\td\"\nlog_file = 'c:\\n'\nseed = 0\nrx_depth = +64"),
		 0);
	CHECK_EQ(cfg.rx_poll, 1000);
	CHECK(cfg.strict);
	CHECK(!strcmp(cfg.interfaces, "softnic:fabric=a,port=0;verbs:device=\"x\""));
	CHECK(!strcmp(cfg.pcap_file, "a\"b\\c\td"));
	CHECK(!strcmp(cfg.log_file, "c:\\n"));
	CHECK_EQ(cfg.rx_depth, 64);
	pv_config_fini(&cfg);
	CHECK_EQ(parse(&cfg, ""), 0);
	pv_config_fini(&cfg);
	CHECK_EQ(parse(&cfg, "interfaces = []"), 0);
	CHECK(!strcmp(cfg.interfaces, ""));
	pv_config_fini(&cfg);
}

static const struct {
	const char *text, *says;
} bad_files[] = {
	{ "rx_poll", "NAME = VALUE" },
	{ "rx_poll 1", "NAME = VALUE" },
	{ "= 1", "NAME = VALUE" },
	{ "rx_poll =", "a value is" },
	{ "rx_poll = 01", "a value is" },
	{ "rx_poll = 1.5", "something follows" },
	{ "rx_poll = 1__0", "a value is" },
	{ "rx_poll = yes", "a value is" },
	{ "rx_poll = 1 2", "something follows" },
	{ "rx_poll = \"1", "does not end" },
	{ "rx_poll = \"1\n\"", "does not end on its line" },
	{ "rx_poll = \"\"\"1\"\"\"", "several lines" },
	{ "rx_poll = \"\\n\"", "escapes" },
	{ "rx_poll = \"a\x01\"", "control characters" },
	{ "interfaces = [\"a\"", "',' or ']'" },
	{ "interfaces = [\"a\" \"b\"]", "',' or ']'" },
	{ "interfaces = [1]", "texts only" },
	{ "interfaces = [", "texts only" },
	{ "[other]", "only table" },
	{ "[pyvma]\n[pyvma]", "stands twice" },
	{ "rx_poll = 1\nrx_poll = 2", "stands twice" },
	{ "\n\n\nrx_polls = 1", "line 4" },
	{ "strict = 2", "not a switch" },
	{ "a23456789012345678901234567890123456789012345678901234567890123456789 = 1", "so long a name" },
};

TEST(bad_files)
{
	for (size_t i = 0; i < sizeof(bad_files) / sizeof(bad_files[0]); i++) {
		struct pv_config cfg;
		int rc = parse(&cfg, bad_files[i].text);

		if (rc >= 0 || !strstr(pv_error_text(), bad_files[i].says))
			fprintf(stderr, "%s -> %d %s\n", bad_files[i].text, rc, pv_error_text());
		CHECK(rc < 0);
		CHECK(strstr(pv_error_text(), bad_files[i].says));
		CHECK(strstr(pv_error_text(), "test.toml, line "));
		pv_config_fini(&cfg);
	}
}

/* ---- variables: a fresh process each ----------------------------------------------------------------------------------- */

static const char *self;

/* Runs this program as `--get NAME` with the given variables; what it printed. */
static const char *with_env(const char *name, const char *const *env)
{
	static char out[2048];
	int p[2], status;

	CHECK(pipe(p) == 0);
	pid_t pid = fork();

	if (pid == 0) {
		char *argv[] = { (char *)(uintptr_t)self, (char *)(uintptr_t) "--get", (char *)(uintptr_t)name, NULL };

		dup2(p[1], 1);
		close(p[0]);
		execve(self, argv, (char *const *)(uintptr_t)env);
		_exit(127);
	}
	close(p[1]);
	size_t n = 0;
	ssize_t k;

	while (n < sizeof(out) - 1 && (k = read(p[0], out + n, sizeof(out) - 1 - n)) > 0)
		n += (size_t)k;
	out[n] = '\0';
	close(p[0]);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return out;
}

static int child_get(const char *name)
{
	char buf[512] = "";
	int rc = pyvma_start();

	if (rc)
		printf("error %d %s", rc, pyvma_last_error());
	else
		printf("%d %s", pyvma_config_get(name, buf, sizeof(buf)), buf);
	return 0;
}

#define ENV(...) ((const char *const[]){ __VA_ARGS__, NULL })

TEST(variables)
{
	CHECK(!strcmp(with_env("rx_poll", ENV("PYVMA_RX_POLL=7")), "1 7"));
	CHECK(!strcmp(with_env("rx_poll", ENV("VMA_RX_POLL=100000")), "5 10000"));
	CHECK(!strcmp(with_env("rx_poll", ENV("VMA_RX_POLL=5")), "1 1"));
	CHECK(!strcmp(with_env("rx_poll", ENV("VMA_RX_POLL=-1")), "2 -1"));
	CHECK(!strcmp(with_env("rx_poll", ENV("VMA_RX_POLL=5", "PYVMA_RX_POLL=9")), "1 9"));
	CHECK(!strcmp(with_env("log_level", ENV("VMA_TRACELEVEL=finer")), "5 debug"));
	CHECK(!strcmp(with_env("log_level", ENV("VMA_TRACELEVEL=3")), "4 info"));
	CHECK(!strcmp(with_env("log_level", ENV("VMA_UNKNOWN=3", "VMA_MEM_ALLOC_TYPE=2")), "4 warn"));
	CHECK(!strcmp(with_env("hw_ts_conversion", ENV("PYVMA_HW_TS_CONVERSION=0")), "3 off"));
	CHECK(!strcmp(with_env("hw_ts_conversion", ENV("PYVMA_HW_TS_CONVERSION=RTC")), "3 rtc"));
	CHECK(!strcmp(with_env("hw_ts_conversion", ENV("VMA_HW_TS_CONVERSION=4")), "3 ptp"));
	CHECK(!strcmp(with_env("hw_ts_conversion", ENV("VMA_UNKNOWN=4")), "4 sync"));
	CHECK(strstr(with_env("hw_ts_conversion", ENV("VMA_HW_TS_CONVERSION=7")), "VMA_HW_TS_CONVERSION: \"7\""));
	CHECK(!strcmp(with_env("tcp_timestamps", ENV("VMA_UNKNOWN=0")), "2 os"));
	CHECK(!strcmp(with_env("tcp_timestamps", ENV("VMA_TCP_TIMESTAMP_OPTION=1")), "2 on"));
	CHECK(!strcmp(with_env("tcp_timestamps", ENV("VMA_SPEC=latency")), "3 off"));
	CHECK(!strcmp(with_env("tcp_timestamps", ENV("VMA_SPEC=latency", "VMA_TCP_TIMESTAMP_OPTION=2")), "2 os"));
	CHECK(strstr(with_env("tcp_timestamps", ENV("VMA_TCP_TIMESTAMP_OPTION=3")), "VMA_TCP_TIMESTAMP_OPTION: \"3\""));
	CHECK(strstr(with_env("rx_poll", ENV("PYVMA_RX_POLLS=1")), "PYVMA_RX_POLLS"));
	CHECK(strstr(with_env("rx_poll", ENV("PYVMA_RX_POLL=soon")), "PYVMA_RX_POLL: \"soon\""));
	CHECK(strstr(with_env("rx_poll", ENV("VMA_RX_POLL=soon")), "VMA_RX_POLL: \"soon\""));
	CHECK(strstr(with_env("rx_poll", ENV("PYVMA_CONFIG=/nonexistent/file")), "/nonexistent/file"));
	CHECK(strstr(with_env("rx_poll", ENV("PYVMA_CONFIG=/")), "not a file"));
	CHECK(strstr(with_env("rx_poll", ENV("PYVMA_INTERFACES=quantum:x=1")), "quantum"));
	CHECK(strstr(with_env("port_low", ENV("PYVMA_PORT_LOW=5000", "PYVMA_PORT_HIGH=4000")), "port_low"));
}

TEST(presets)
{
	static const char *const names[] = {
#define NAME(name, text) name,
		PV_CONFIG_PRESETS(NAME)
	};
	struct pyvma_config_row row = { .name = NULL };
	char list[512] = "none", env[64];

	for (unsigned int i = 0; !row.name || strcmp(row.name, "preset"); i++)
		CHECK_EQ(pyvma_config_row(i, &row), 0);
	for (size_t i = 0; i < pv_array_size(names); i++) {
		struct pv_config cfg;

		snprintf(list + strlen(list), sizeof(list) - strlen(list), ",%s", names[i]);
		pv_config_init(&cfg);
		CHECK_EQ(pv_config_apply(&cfg, "preset", names[i], "test"), 0);
		CHECK_EQ(cfg.preset, i + 1);
		CHECK_EQ(pv_config_preset(&cfg), 0);
		pv_config_fini(&cfg);
		snprintf(env, sizeof(env), "PYVMA_PRESET=%s", names[i]);
		CHECK(strstr(with_env("preset", ENV(env)), names[i]));
	}
	CHECK(!strcmp(list, row.unit));
	CHECK(!strcmp(with_env("rx_poll", ENV("PYVMA_PRESET=latency")), "2 -1"));
	CHECK(!strcmp(with_env("rx_poll", ENV("VMA_SPEC=ultra-latency")), "2 -1"));
	CHECK(!strcmp(with_env("progress", ENV("VMA_SPEC=ultra-latency")), "1 0"));
	CHECK(!strcmp(with_env("progress", ENV("VMA_SPEC=ultra-latency", "PYVMA_PRESET=latency")), "1 1"));
	CHECK(!strcmp(with_env("preset", ENV("VMA_SPEC=10")), "13 ultra-latency"));
	CHECK(!strcmp(with_env("preset", ENV("VMA_SPEC=7750")), "4 7750"));
	CHECK(!strcmp(with_env("preset", ENV("PYVMA_PRESET=10")), "10 throughput"));
	CHECK(strstr(with_env("preset", ENV("VMA_SPEC=11000")), "VMA_SPEC: \"11000\""));
	CHECK(strstr(with_env("preset", ENV("PYVMA_PRESET=12")), "PYVMA_PRESET: \"12\""));
	/* By its own name, and be it the default. */
	CHECK(!strcmp(with_env("rx_poll", ENV("PYVMA_PRESET=latency", "PYVMA_RX_POLL=1000")), "4 1000"));
	CHECK(!strcmp(with_env("rx_poll", ENV("PYVMA_PRESET=latency", "VMA_RX_POLL=50")), "1 5"));
	CHECK(strstr(with_env("rx_poll", ENV("PYVMA_PRESET=fast")), "PYVMA_PRESET: \"fast\""));
}

TEST(a_preset_after_another)
{
	char buf[32];

	CHECK_EQ(pyvma_config_set("rx_depth", "128"), 0);
	CHECK_EQ(pyvma_config_set("preset", "throughput"), 0);
	CHECK(pyvma_config_get("rx_batch", buf, sizeof(buf)) == 2 && !strcmp(buf, "64"));
	CHECK(pyvma_config_get("rx_depth", buf, sizeof(buf)) == 3 && !strcmp(buf, "128"));
	CHECK_EQ(pyvma_config_set("preset", "latency"), 0);
	CHECK(pyvma_config_get("rx_batch", buf, sizeof(buf)) == 1 && !strcmp(buf, "8"));
	CHECK(pyvma_config_get("tx_depth", buf, sizeof(buf)) == 3 && !strcmp(buf, "256"));
	CHECK(pyvma_config_get("rx_bufs", buf, sizeof(buf)) == 4 && !strcmp(buf, "2048"));
	CHECK_EQ(pyvma_config_set("preset", "none"), 0);
	CHECK(pyvma_config_get("rx_poll", buf, sizeof(buf)) == 4 && !strcmp(buf, "1000"));
	CHECK(pyvma_config_get("rx_depth", buf, sizeof(buf)) == 3 && !strcmp(buf, "128"));
}

TEST(file_before_variables)
{
	char path[] = "/tmp/pyvma-config-XXXXXX", env[64];
	static const char text[] = "rx_poll = 11\nrx_depth = 128\n";
	int fd = mkstemp(path);

	CHECK(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
	close(fd);
	snprintf(env, sizeof(env), "PYVMA_CONFIG=%s", path);
	CHECK(!strcmp(with_env("rx_depth", ENV(env)), "3 128"));
	CHECK(!strcmp(with_env("rx_poll", ENV(env, "PYVMA_RX_POLL=9")), "1 9"));
	CHECK(!strcmp(with_env("rx_poll", ENV(env)), "2 11"));
	unlink(path);
}

TEST(settings_end_with_the_start)
{
	pyvma_sock *s;

	CHECK_EQ(pyvma_config_set("rx_poll", "5"), 0);
	CHECK_EQ(pyvma_config_set("no_such", "5"), -EINVAL);
	CHECK_EQ(pyvma_config_set(NULL, "5"), -EINVAL);
	CHECK_EQ(pyvma_start(), 0);
	CHECK_EQ(pyvma_config_set("rx_poll", "6"), -EBUSY);
	CHECK_EQ(pyvma_sock_open(2, 2, 0, &s), 0);
	CHECK_EQ(pyvma_sock_close(s), 0);
	pyvma_stop();
	CHECK_EQ(pyvma_config_set("rx_poll", "6"), 0);
	pyvma_stop();
}

/* A setting is made or refused while another thread starts the engine, never changed under its eyes. */
static _Atomic(bool) set_stop;

static void *set_texts(void *arg)
{
	(void)arg;
	while (!atomic_load(&set_stop)) {
		int rc = pyvma_config_set("log_file", "/dev/null");

		CHECK(rc == 0 || rc == -EBUSY);
	}
	return NULL;
}

TEST(settings_beside_the_start)
{
	pthread_t t;

	CHECK_EQ(pthread_create(&t, NULL, set_texts, NULL), 0);
	for (int i = 0; i < 2000; i++) {
		CHECK_EQ(pyvma_start(), 0);
		pyvma_stop();
	}
	atomic_store(&set_stop, true);
	pthread_join(t, NULL);
	CHECK_EQ(pyvma_config_set("log_file", ""), 0);
}

/* ---- interface entries ------------------------------------------------------------------------------------------------- */

TEST(good_interfaces)
{
	struct pv_ifspec s[4];

	CHECK_EQ(pv_ifspec_parse("", s, 4), 0);
	CHECK_EQ(pv_ifspec_parse(" ; ;", s, 4), 0);
	CHECK_EQ(pv_ifspec_parse("softnic:fabric=demo,port=0,addr=10.9.0.1/24,addr=fd00::1/64,mtu=1500,gw=10.9.0.254,gw=fd00::ff,"
				 "name=sn0,vlan=7,mac=02:00:00:00:00:0A,rx_depth=64,tx_depth=128;"
				 " verbs:device=mlx5_0,port=2,addr=10.8.0.1/32 ",
				 s, 4),
		 2);
	CHECK_EQ(s[0].ring, PV_IFSPEC_SOFTNIC);
	CHECK(!strcmp(s[0].fabric, "demo") && !strcmp(s[0].name, "sn0"));
	CHECK(s[0].port == 0 && s[0].mtu == 1500 && s[0].vlan == 7 && s[0].naddr == 2 && s[0].rx_depth == 64 &&
	      s[0].tx_depth == 128);
	CHECK(s[0].have_mac && s[0].mac[0] == 2 && s[0].mac[5] == 10);
	CHECK(pv_addr_is4(&s[0].gateway4) && s[0].gateway4.b[15] == 254 && s[0].gateway6.b[15] == 255);
	CHECK(s[0].addr[0].prefix_len == 24 && s[0].addr[1].prefix_len == 64);
	CHECK(s[1].ring == PV_IFSPEC_VERBS && s[1].port == 2 && !strcmp(s[1].device, "mlx5_0") && !strcmp(s[1].name, "mlx5_0.2"));
}

TEST(interfaces_of_the_kernel)
{
	struct pv_ifspec s[4];

	CHECK_EQ(pv_ifspec_parse("xdp:device=eth0;xdp:device=enp1s0f0,queues=4,mode=generic,busy_poll=20,addr=10.9.0.1/24,vlan=3;"
				 "verbs:device=mlx5_0,netdev=eth1;softnic:fabric=f,port=9,netdev=tap0,rx_depth=64",
				 s, 4),
		 4);
	CHECK(s[0].ring == PV_IFSPEC_XDP && !strcmp(s[0].netdev, "eth0") && !strcmp(s[0].name, "eth0") && !s[0].naddr);
	CHECK(s[0].queues == 0 && s[0].mode == PV_IFSPEC_AUTO && s[0].busy_poll_us == 0);
	/* With an address it is one of our own. */
	CHECK(!*s[1].netdev && !strcmp(s[1].device, "enp1s0f0") && !strcmp(s[1].name, "enp1s0f0") && s[1].vlan == 3);
	CHECK(s[1].queues == 4 && s[1].mode == PV_IFSPEC_GENERIC && s[1].busy_poll_us == 20);
	CHECK(s[2].ring == PV_IFSPEC_VERBS && !strcmp(s[2].netdev, "eth1") && !strcmp(s[2].name, "eth1") && s[2].port == 1);
	CHECK(s[3].ring == PV_IFSPEC_SOFTNIC && !strcmp(s[3].netdev, "tap0") && s[3].rx_depth == 64);
}

TEST(interfaces_by_the_device_alone)
{
	struct pv_ifspec s[4];

	CHECK_EQ(pv_ifspec_parse("xdp:eth0;verbs:mlx5_0,netdev=eth1;tap:tap0,addr=10.9.0.1/24;softnic:lab,port=2,addr=10.9.1.1/24",
				 s, 4),
		 4);
	CHECK(s[0].ring == PV_IFSPEC_XDP && !strcmp(s[0].device, "eth0") && !strcmp(s[0].netdev, "eth0"));
	CHECK(s[1].ring == PV_IFSPEC_VERBS && !strcmp(s[1].device, "mlx5_0") && !strcmp(s[1].netdev, "eth1"));
	CHECK(s[2].ring == PV_IFSPEC_TAP && !strcmp(s[2].device, "tap0") && !strcmp(s[2].name, "tap0"));
	CHECK(s[3].ring == PV_IFSPEC_SOFTNIC && !strcmp(s[3].fabric, "lab") && s[3].port == 2);
}

TEST(tap_interfaces)
{
	struct pv_ifspec s[4];

	CHECK_EQ(
	    pv_ifspec_parse(
		"tap:name=tap0,addr=10.0.0.2/24;"
		"tap:name=tap1,addr=10.1.0.2/24,addr=fd00::2/64,queues=16,gw=10.1.0.1,mac=02:00:00:00:00:0a,mtu=9000,rx_depth=64",
		s, 4),
	    2);
	CHECK(s[0].ring == PV_IFSPEC_TAP && !strcmp(s[0].device, "tap0") && !strcmp(s[0].name, "tap0") && !*s[0].netdev);
	CHECK(!s[0].queues && !s[0].have_mac && !s[0].mtu && !strcmp(pv_ifspec_kind(&s[0]), "tap"));
	CHECK(s[1].naddr == 2 && s[1].queues == 16 && s[1].have_mac && s[1].mac[5] == 10 && s[1].mtu == 9000 &&
	      s[1].rx_depth == 64);
}

static const struct {
	const char *text, *says;
} bad_interfaces[] = {
	{ "softnic", "fabric=NAME is missing" },
	{ "softnic:", "fabric=NAME is missing" },
	{ "softnic:fabric=a", "port=NUMBER is missing" },
	{ "softnic:fabric=a,port=0", "addr=ADDRESS/PREFIX is missing" },
	{ "softnic:fabric=a,port=64,addr=10.0.0.1/8", "port=64" },
	{ "softnic:fabric=a,port=-1,addr=10.0.0.1/8", "port=-1" },
	{ "softnic:fabric=a b,port=1,addr=10.0.0.1/8", "fabric=a b" },
	{ "softnic:fabric=../x,port=1,addr=10.0.0.1/8", "../x" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1", "prefix length" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/0", "1 to 32" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/33", "1 to 32" },
	{ "softnic:fabric=a,port=1,addr=fd00::1/129", "1 to 128" },
	{ "softnic:fabric=a,port=1,addr=10.0.0/8", "not an address" },
	{ "softnic:fabric=a,port=1,addr=0.0.0.0/8", "one station" },
	{ "softnic:fabric=a,port=1,addr=224.1.1.1/8", "one station" },
	{ "softnic:fabric=a,port=1,addr=ff02::1/8", "one station" },
	{ "softnic:fabric=a,port=1,addr=127.0.0.1/8", "loopback" },
	{ "softnic:fabric=a,port=1,addr=::1/128", "loopback" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,addr=10.0.0.1/16", "stands twice" },
	{ "softnic:fabric=a,port=1,port=2,addr=10.0.0.1/8", "port stands twice" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,mtu=575", "576" },
	{ "softnic:fabric=a,port=1,addr=fd00::1/8,mtu=1279", "1280" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,mtu=99999", "99999" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,gw=224.0.0.1", "router" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,gw=10.0.0.2,gw=10.0.0.3", "second gateway" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,mac=01:00:00:00:00:01", "MAC" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,mac=02-00-00-00-00-01", "MAC" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,mac=02:00:00:00:00:0g", "MAC" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,vlan=4095", "vlan=4095" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,colour=red", "colour" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,name=", "name=" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8,name=toolongtobeaname", "15 letters" },
	{ "softnic:fabric=a,port", "not KEY=VALUE" },
	{ "xdp:eth0,device=eth1", "device stands twice" },
	{ "xdp:dev=eth0", "no key \"dev\": device" },
	{ "softnic:fabric=a,port=1,device=x,addr=10.0.0.1/8", "device" },
	{ "verbs:device=mlx5_0,fabric=a,addr=10.0.0.1/8", "fabric" },
	{ "verbs:addr=10.0.0.1/8", "device=NAME is missing" },
	{ "verbs:device=mlx5_0,port=0,addr=10.0.0.1/8", "port=0" },
	{ "tun:device=eth0", "no ring \"tun\": softnic, verbs, xdp, tap or bond" },
	{ "tap:addr=10.0.0.1/8", "name=NAME is missing" },
	{ "tap:name=tap0", "addr=ADDRESS/PREFIX is missing" },
	{ "tap:name=tap0,addr=10.0.0.1/8,queues=17", "1 to 16" },
	{ "tap:name=tap0,addr=10.0.0.1/8,device=tap1", "no key \"device\": queues, mac" },
	{ "tap:name=tap0,netdev=eth0", "no key \"netdev\"" },
	{ "tap:name=tap0,addr=10.0.0.1/8;tap:name=tap0,addr=10.0.0.2/8", "the name tap0 twice" },
	{ "xdp:queues=1", "device=NAME is missing" },
	{ "xdp:device=0123456789abcdef", "network interface" },
	{ "xdp:device=a/b", "network interface" },
	{ "xdp:device=..", "network interface" },
	{ "xdp:device=eth0,queues=0", "1 to 256" },
	{ "xdp:device=eth0,mode=fast", "auto, native or generic" },
	{ "xdp:device=eth0,busy_poll=-1", "busy_poll=-1" },
	{ "xdp:device=eth0,tx_csum=device", "tx_csum=device: not stack, auto, kernel or software" },
	{ "xdp:device=eth0,netdev=eth0", "no key \"netdev\"" },
	{ "xdp:device=eth0,port=1", "no key \"port\": device, queues" },
	{ "bond:device=a/b", "network interface" },
	{ "bond:lib=x", "device=NAME is missing" },
	{ "bond:device=eth0,netdev=eth0", "no key \"netdev\": device, legs, lib, fabric, queues, mode" },
	{ "bond:device=eth0,port=1", "no key \"port\"" },
	{ "bond:device=eth0,lib=", "not a path" },
	{ "bond:device=eth0,fabric=a/b", "fabric=a/b" },
	{ "bond:device=eth0,legs=tap", "not verbs or xdp" },
	{ "bond:device=eth0,queues=2", "queues= is for legs=xdp" },
	{ "bond:device=eth0,mode=native,legs=verbs", "mode= is for legs=xdp" },
	{ "bond:device=eth0,lib=x,legs=xdp", "lib= is for legs=verbs" },
	{ "bond:device=eth0,legs=xdp,queues=0", "1 to 256" },
	{ "bond:device=eth0,addr=10.0.0.1/24", "addr= is the kernel's to say: the interface is its eth0" },
	{ "bond:device=eth0;xdp:device=eth0", "the name eth0 twice" },
	{ "xdp:device=eth0,mtu=1400", "mtu= is the kernel's to say: the interface is its eth0" },
	{ "xdp:device=eth0,gw=10.0.0.1", "gw= is the kernel's" },
	{ "xdp:device=eth0,vlan=5", "vlan= is the kernel's" },
	{ "xdp:device=eth0,name=x", "name= is the kernel's" },
	{ "xdp:device=eth0;verbs:device=mlx5_0,netdev=eth0", "the name eth0 twice" },
	{ "verbs:device=mlx5_0", "or netdev=NAME" },
	{ "verbs:device=mlx5_0,netdev=eth0,addr=10.0.0.1/8", "addr= is the kernel's" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8;softnic:fabric=a,port=1,addr=10.0.0.2/8", "name" },
	{ "softnic:fabric=a,port=1,addr=10.0.0.1/8;softnic:fabric=a,port=2,addr=10.0.0.1/8", "address in common" },
};

TEST(bad_interfaces)
{
	for (size_t i = 0; i < sizeof(bad_interfaces) / sizeof(bad_interfaces[0]); i++) {
		struct pv_ifspec s[4];
		int rc = pv_ifspec_parse(bad_interfaces[i].text, s, 4);

		if (rc != -EINVAL || !strstr(pv_error_text(), bad_interfaces[i].says))
			fprintf(stderr, "%s -> %d %s\n", bad_interfaces[i].text, rc, pv_error_text());
		CHECK_EQ(rc, -EINVAL);
		CHECK(strstr(pv_error_text(), bad_interfaces[i].says));
		CHECK(strstr(pv_error_text(), "interfaces"));
	}
	struct pv_ifspec one[1];

	CHECK_EQ(pv_ifspec_parse("verbs:device=a,addr=10.0.0.1/8;verbs:device=b,addr=10.0.0.2/8", one, 1), -E2BIG);
}

/* ---- what wraps a ring ------------------------------------------------------------------------------------------------- */

TEST(faults)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "rx_drop", "not KEY=VALUE" },     { "rx_drop=2", "rx_drop=2" },   { "rx_drop=1.1", "rx_drop=1.1" },
		{ "rx_drop=.5", "rx_drop=.5" },     { "rx_drop=0.", "rx_drop=0." }, { "rx_drop=0.1234567", "0.1234567" },
		{ "rx_drop=-0.1", "-0.1" },         { "seed=x", "seed=x" },         { "seed=-1", "seed=-1" },
		{ "tx_drop=0,colour=1", "colour" },
	};
	struct pv_fault_cfg f;

	CHECK_EQ(pv_wrap_parse_fault("", &f), 0);
	CHECK(f.rx_drop_ppm == 0 && f.seed == 1);
	CHECK_EQ(pv_wrap_parse_fault("rx_drop=0.01,tx_drop=1,rx_corrupt=0.000001,kick_again=1.0,seed=0x10", &f), 0);
	CHECK(f.rx_drop_ppm == 10000 && f.tx_drop_ppm == 1000000 && f.rx_corrupt_ppm == 1 && f.kick_again_ppm == 1000000 &&
	      f.seed == 16);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_EQ(pv_wrap_parse_fault(bad[i].text, &f), -EINVAL);
		CHECK(strstr(pv_error_text(), bad[i].says) && strstr(pv_error_text(), "fault"));
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--get"))
		return child_get(argv[2]);
	self = "/proc/self/exe";
	return test_main(argc, argv);
}
