/* SPDX-License-Identifier: BSD-3-Clause */
/* Changing a live engine: what may, what may not, and that a refused request has changed nothing. */
#include "rt/control_tune.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#include "rt/config.h"
#include "rt/engine.h"
#include "rt/error.h"
#include "rt/log.h"
#include "sock_env.h"

static struct pv_control_msg in, out, seen;

/* As the progress thread does it; the answer is in `seen`. */
static __attribute__((format(printf, 1, 2))) int ask(const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	int rc;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	CHECK_EQ(pv_control_parse(&in, text, strlen(text)), 0);
	pv_control_begin(&out, "ok");
	pv_lock_get(&pv_engine.lock);
	rc = pv_control_tune(&pv_engine, &in, &out);
	pv_lock_put(&pv_engine.lock);
	CHECK_EQ(pv_control_parse(&seen, out.text, out.len), 0);
	return rc;
}

static bool answers(const char *key, const char *value)
{
	const char *v = pv_control_value(&seen, key);

	return v && !strcmp(v, value);
}

static bool setting_is(const char *name, const char *value)
{
	char text[64];

	return pyvma_config_get(name, text, sizeof(text)) > 0 && !strcmp(text, value);
}

TEST(settings_reach_the_engine)
{
	env_start();
	CHECK_EQ(ask("pyvma 1 tune\nname=rx_poll\nvalue=7\n"), 0);
	CHECK(answers("old", "1000") && answers("new", "7"));
	CHECK_EQ(pv_engine.spin_ns, 7000);
	CHECK_EQ(ask("pyvma 1 tune\nname=rx_poll\nvalue=-1\n"), 0);
	CHECK_EQ(pv_engine.spin_ns, PV_NEVER);
	CHECK_EQ(ask("pyvma 1 tune\nname=rx_poll\nvalue=1K\n"), 0);
	CHECK(answers("old", "-1") && answers("new", "1024"));
	CHECK_EQ(ask("pyvma 1 tune\nname=kernel_poll_ratio\nvalue=3\n"), 0);
	CHECK_EQ(pv_engine.kernel_ratio, 3);
	CHECK_EQ(ask("pyvma 1 tune\nname=rx_batch\nvalue=64\n"), 0);
	CHECK_EQ(pv_engine.rx_budget, 64);
	CHECK_EQ(ask("pyvma 1 tune\nname=progress_interval\nvalue=20\n"), 0);
	CHECK_EQ(pv_engine.cfg->progress_interval, 20);
	CHECK_EQ(ask("pyvma 1 tune\nname=icmp_rate\nvalue=5\n"), 0);
	CHECK_EQ(ask("pyvma 1 tune\nname=reass_timeout\nvalue=5\n"), 0);
	CHECK(setting_is("icmp_rate", "5") && setting_is("reass_timeout", "5"));
}

TEST(a_refused_request_changes_nothing)
{
	static const struct {
		const char *text;
		int rc;
	} bad[] = {
		{ "pyvma 1 tune\nname=rx_batch\nvalue=65\n", -EINVAL },
		{ "pyvma 1 tune\nname=rx_batch\nvalue=0\n", -EINVAL },
		{ "pyvma 1 tune\nname=rx_batch\nvalue=\n", -EINVAL },
		{ "pyvma 1 tune\nname=rx_batch\nvalue=many\n", -EINVAL },
		{ "pyvma 1 tune\nname=rx_batch\n", -EINVAL },
		{ "pyvma 1 tune\nvalue=1\n", -EINVAL },
		{ "pyvma 1 tune\nname=rx_batch\nvalue=1\nforce=1\n", -EINVAL },
		{ "pyvma 1 tune\nname=no_such\nvalue=1\n", -ENOENT },
		{ "pyvma 1 tune\nname=rx_depth\nvalue=64\n", -EPERM },
		{ "pyvma 1 tune\nname=interfaces\nvalue=\n", -EPERM },
		{ "pyvma 1 log-level\nlevel=loud\n", -EINVAL },
		{ "pyvma 1 log-level\nlevel=debug\ndetails=4\n", -EINVAL },
		{ "pyvma 1 log-level\nlevel=debug\ndetails=\n", -EINVAL },
		{ "pyvma 1 tunables\nname=rx_poll\n", -EINVAL },
		{ "pyvma 1 stats-zero\nall=1\n", -EINVAL },
		{ "pyvma 1 dump\n", -EINVAL },
		{ "pyvma 1 dump\nfd=-1\n", -EINVAL },
		{ "pyvma 1 dump\nfd=99999999999\n", -EINVAL },
		{ "pyvma 1 dump\nfd=0\nlevel=loud\n", -EINVAL },
		{ "pyvma 1 dump\nfd=0\nlevel=none\n", -EINVAL },
		{ "pyvma 1 dump\nfd=12345\n", -EBADF },
		{ "pyvma 1 nonsense\n", -EOPNOTSUPP },
	};

	env_start();
	CHECK_EQ(ask("pyvma 1 tune\nname=rx_batch\nvalue=32\n"), 0);
	CHECK_EQ(ask("pyvma 1 log-level\nlevel=error\ndetails=0\n"), 0);
	for (size_t i = 0; i < pv_array_size(bad); i++) {
		CHECK_EQ(ask("%s", bad[i].text), bad[i].rc);
		CHECK(*pv_error_text());
		CHECK_EQ(seen.n, 0);
	}
	CHECK_EQ(pv_engine.rx_budget, 32);
	CHECK(setting_is("rx_batch", "32") && setting_is("rx_depth", "1024") && setting_is("log_level", "error"));
	/* The program's own way to settings ends with the start, as before. */
	CHECK_EQ(pyvma_config_set("rx_batch", "1"), -EBUSY);
}

TEST(the_list_is_the_tables)
{
	struct pyvma_config_row row;
	uint32_t n = 0;

	env_start();
	CHECK_EQ(ask("pyvma 1 tunables\n"), 0);
	for (unsigned int i = 0; !pyvma_config_row(i, &row); i++) {
		const char *told = pv_control_value(&seen, row.name);
		char value[64], text[80];

		CHECK_EQ(told != NULL, row.live != 0);
		if (!told)
			continue;
		n++;
		CHECK(pyvma_config_get(row.name, value, sizeof(value)) > 0);
		snprintf(text, sizeof(text), "%s %s ", value, row.type);
		CHECK(!strncmp(told, text, strlen(text)));
	}
	CHECK_EQ(n, seen.n);
	CHECK(n >= 8);
}

/* The log goes to a file meanwhile; what `work` makes in it. */
static void logged(void (*work)(void), char *text, size_t size)
{
	char path[] = "/tmp/rt_control_tune.XXXXXX";
	int fd = mkstemp(path);
	ssize_t n;

	CHECK(fd >= 0);
	pv_log_open(PV_LOG_DEBUG, path);
	pv_log_set((enum pv_log_level)pv_engine.cfg->log_level, (int)pv_engine.cfg->log_details);
	work();
	pv_log_open(PV_LOG_ERROR, NULL);
	n = read(fd, text, size - 1);
	CHECK(n >= 0);
	text[n] = '\0';
	close(fd);
	unlink(path);
}

static void two_lines(void)
{
	pv_log(PV_LOG_WARN, "a line");
	pv_log(PV_LOG_DEBUG, "small talk");
}

TEST(the_log)
{
	char text[512], want[64];

	env_start();
	CHECK_EQ(ask("pyvma 1 log-level\nlevel=error\ndetails=0\n"), 0);
	CHECK(answers("level", "error") && answers("details", "0"));
	CHECK(pv_log_shows(PV_LOG_ERROR) && !pv_log_shows(PV_LOG_WARN));
	logged(two_lines, text, sizeof(text));
	CHECK(!*text);
	CHECK_EQ(ask("pyvma 1 log-level\nlevel=warn\n"), 0);
	CHECK(pv_log_shows(PV_LOG_WARN) && !pv_log_shows(PV_LOG_INFO));
	logged(two_lines, text, sizeof(text));
	snprintf(want, sizeof(want), "pyvma[%d] warning: a line\n", (int)getpid());
	CHECK(!strcmp(text, want));
	CHECK_EQ(ask("pyvma 1 log-level\nlevel=4\ndetails=1\n"), 0);
	CHECK(answers("level", "debug") && answers("details", "1"));
	logged(two_lines, text, sizeof(text));
	snprintf(want, sizeof(want), "pyvma[%d/%d] warning: a line\n", (int)getpid(), (int)gettid());
	CHECK(!strncmp(text, want, strlen(want)));
	CHECK(strstr(text, "debug: small talk\n"));
	CHECK_EQ(ask("pyvma 1 log-level\nlevel=warn\ndetails=3\n"), 0);
	logged(two_lines, text, sizeof(text));
	CHECK(text[4] == '-' && text[10] == ' ' && text[19] == '.' && strstr(text, want));
	/* Nothing asked: how it is. */
	CHECK_EQ(ask("pyvma 1 log-level\n"), 0);
	CHECK(answers("level", "warn") && answers("details", "3"));
	CHECK_EQ(ask("pyvma 1 log-level\nlevel=error\ndetails=0\n"), 0);
}

static void dump_all(void)
{
	CHECK_EQ(ask("pyvma 1 dump\nfd=0\nlevel=warn\n"), 0);
}

TEST(a_socket_in_the_log)
{
	struct any_addr aa, ba;
	struct sk a = sk_bound(&our_side, AF_INET, &aa), b = sk_bound(&our_side, AF_INET, &ba);
	char text[16384], want[64];

	CHECK_EQ(pyvma_sock_sendto(a.h, "hello", 5, 0, (struct sockaddr *)&ba.ss, ba.len, -1), 5);
	CHECK_EQ(pyvma_sock_recv(b.h, text, sizeof(text), 0, LONG_NS), 5);
	CHECK_EQ(ask("pyvma 1 log-level\nlevel=warn\ndetails=0\n"), 0);
	logged(dump_all, text, sizeof(text));
	CHECK(answers("sockets", "2") && answers("shown", "1"));
	snprintf(want, sizeof(want), "warning: socket fd %d: fd=%d family=inet type=datagram", b.fd, b.fd);
	CHECK(strstr(text, want) && strstr(text, " state=offloaded") && strstr(text, " nonblocking") == NULL);
	snprintf(want, sizeof(want), " local_addr=10.9.0.1 local_port=%d", addr_port(&ba));
	CHECK(strstr(text, want) && strstr(text, " rx_datagrams=1 rx_bytes=5bytes") && strstr(text, " tx_datagrams=1"));
	/* One of them, at a level that the log does not show: nothing but the count. */
	CHECK_EQ(ask("pyvma 1 dump\nfd=%d\n", a.fd), 0);
	CHECK(answers("sockets", "1") && answers("shown", "0"));
	CHECK_EQ(ask("pyvma 1 stats-zero\n"), 0);
	logged(dump_all, text, sizeof(text));
	CHECK(!strstr(text, "rx_datagrams=") && strstr(text, want));
	CHECK_EQ(ask("pyvma 1 log-level\nlevel=error\n"), 0);
	sk_close(a);
	sk_close(b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
