/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of the control socket. */
#include "rt/control_msg.h"
#include "rt/error.h"
#include "test.h"

static struct pv_control_msg m;

static int parse(const char *text)
{
	return pv_control_parse(&m, text, strlen(text));
}

TEST(a_message_is_taken_apart)
{
	uint64_t n = 5;

	CHECK_EQ(parse("pyvma 1 capture\niface=sn0\nfilter=udp and port 53\ncount=12\nempty=\n"), 0);
	CHECK(!strcmp(m.verb, "capture"));
	CHECK_EQ(m.n, 4);
	CHECK(!strcmp(pv_control_value(&m, "iface"), "sn0"));
	CHECK(!strcmp(pv_control_value(&m, "filter"), "udp and port 53"));
	CHECK(!strcmp(pv_control_value(&m, "empty"), ""));
	CHECK(!pv_control_value(&m, "count2"));
	CHECK_EQ(pv_control_number(&m, "count", 12, &n), 0);
	CHECK_EQ(n, 12);
	CHECK_EQ(pv_control_number(&m, "none", 12, &n), 0);
	CHECK_EQ(n, 12);
	CHECK_EQ(pv_control_number(&m, "count", 11, &n), -EINVAL);
	CHECK_EQ(pv_control_number(&m, "empty", 11, &n), -EINVAL);
	CHECK_EQ(pv_control_number(&m, "iface", 11, &n), -EINVAL);
	CHECK_EQ(pv_control_only(&m, (const char *const[]){ "iface", "filter", "count", "empty", NULL }), 0);
	CHECK_EQ(pv_control_only(&m, (const char *const[]){ "iface", "filter", "count", NULL }), -EINVAL);
	CHECK(strstr(pv_error_text(), "\"empty\""));
	CHECK_EQ(parse("pyvma 1 hello\n"), 0);
	CHECK_EQ(m.n, 0);
}

TEST(what_is_none_is_refused)
{
	static const char *const bad[] = {
		"",
		"\n",
		"pyvma",
		"pyvma 1",
		"pyvma 1 \n",
		"pyvma 1 hello",
		"hello\n",
		"PYVMA 1 hello\n",
		"pyvma  hello\n",
		"pyvma 1 he11o\n",
		"pyvma 1 hello \n",
		"pyvma 1 hello\nkey\n",
		"pyvma 1 hello\n=value\n",
		"pyvma 1 hello\nk=v",
		"pyvma 1 hello\nKey=v\n",
		"pyvma 1 hello\nk=1\nk=2\n",
		"pyvma 1 hello\nk=\t\n",
		"pyvma -1 hello\n",
	};
	char many[512] = "pyvma 1 hello\n";
	static char big[PV_CONTROL_MSG_MAX + 1];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ(parse(bad[i]), -EBADMSG);
	CHECK_EQ(parse("pyvma 2 hello\n"), -EPROTONOSUPPORT);
	CHECK_EQ(pv_control_parse(&m, "pyvma 1 hello\nk=a\0b\n", 20), -EBADMSG);
	for (int i = 0; i <= PV_CONTROL_PAIRS; i++) {
		CHECK_EQ(parse(many), 0);
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "%c=1\n", 'a' + i);
	}
	CHECK_EQ(parse(many), -EBADMSG);
	memset(big, 'x', sizeof(big));
	CHECK_EQ(pv_control_parse(&m, big, sizeof(big)), -EBADMSG);
}

TEST(what_is_made_can_be_read)
{
	struct pv_control_msg made;
	char big[PV_CONTROL_MSG_MAX];

	pv_control_begin(&made, "error");
	pv_control_add_number(&made, "code", 22);
	pv_control_add(&made, "text", "two\nlines\tand more");
	memset(big, 'x', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	pv_control_add(&made, "big", big); /* does not fit: left out as a whole */
	CHECK_EQ(pv_control_parse(&m, made.text, made.len), 0);
	CHECK(!strcmp(m.verb, "error"));
	CHECK(!strcmp(pv_control_value(&m, "code"), "22"));
	CHECK(!strcmp(pv_control_value(&m, "text"), "two lines and more"));
	CHECK(!pv_control_value(&m, "big"));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
