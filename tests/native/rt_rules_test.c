/* SPDX-License-Identifier: BSD-3-Clause */
/* The rule file: VMA's grammar, which rules a program gets, which of them a socket, and every mistake with its line. */
#include <arpa/inet.h>
#include <unistd.h>

#include "pyvma.h"
#include "rt/error.h"
#include "rt/rules.h"
#include "test.h"

static int parse_as(const char *program, const char *id, const char *text, struct pv_rules **out)
{
	return pv_rules_parse("r.conf", text, strlen(text), (struct pv_rules_for){ .program = program, .id = id }, out);
}

static struct pv_endpoint at(const char *addr, uint16_t port)
{
	struct pv_endpoint ep = { .port = port };
	uint8_t b[16];

	if (inet_pton(AF_INET, addr, b) == 1)
		ep.addr = pv_addr_from4(b);
	else if (inet_pton(AF_INET6, addr, b) == 1)
		ep.addr = pv_addr_from6(b);
	else
		abort();
	return ep;
}

/* The number of the rule that fits, 0: none. */
static uint32_t fits(const struct pv_rules *rules, enum pv_rule_role role, const char *addr, uint16_t port)
{
	struct pv_endpoint ep = at(addr, port);
	const struct pv_rule *r = pv_rules_match(rules, role, &ep, NULL);

	return r ? r->number : 0;
}

TEST(the_file_that_vma_ships)
{
	static const char text[] = "# a comment\n\n  # another\n"
				   "application-id * *\n"
				   "#log destination syslog\n"
				   "use os udp_connect *:53\n";
	struct pv_rules *rules;

	CHECK_EQ(parse_as("any", "VMA_DEFAULT_APPLICATION_ID", text, &rules), 0);
	CHECK_EQ(rules->n, 1);
	CHECK(rules->rule[0].kernel);
	CHECK_EQ(rules->rule[0].line, 6);
	CHECK(!strcmp(rules->rule[0].name, "rule 1 of r.conf"));
	CHECK(!strcmp(rules->rule[0].text, "use os udp_connect *:53"));
	CHECK_EQ(fits(rules, PV_RULE_UDP_CONNECT, "8.8.8.8", 53), 1);
	CHECK_EQ(fits(rules, PV_RULE_UDP_CONNECT, "fd00::1", 53), 1);
	CHECK_EQ(fits(rules, PV_RULE_UDP_CONNECT, "8.8.8.8", 54), 0);
	CHECK_EQ(fits(rules, PV_RULE_UDP_SENDER, "8.8.8.8", 53), 0);
	CHECK_EQ(fits(rules, PV_RULE_TCP_CLIENT, "8.8.8.8", 53), 0);
	pv_rules_free(rules);
}

TEST(addresses_and_ports)
{
	static const char text[] = "use os tcp_server 10.1.2.3:80\n"
				   "use os tcp_server 10.1.2.99/24:1000-2000\n"
				   "use vma tcp_server 10.0.0.0/8:*\n"
				   "use os tcp_server [fd00::1]:80\n"
				   "use os tcp_server [fd01::]/32:*\n"
				   "use os tcp_server [fd02::/33] : 5-6 # the end\r\n"
				   "use pyvma tcp_client *:*\n"
				   "use * udp_sender *:1\n"
				   "use os udp_receiver 1.2.3.4/0:*\n"
				   "use os tcp_server *:22";
	struct pv_rules *rules;

	CHECK_EQ(parse_as("p", "", text, &rules), 0);
	CHECK_EQ(rules->n, 10);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "10.1.2.3", 80), 1);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "10.1.2.3", 1000), 2);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "10.1.2.4", 2000), 2);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "10.1.2.4", 2001), 3);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "10.1.3.4", 2000), 3);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "10.255.255.255", 1), 3);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "11.0.0.0", 1), 0);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "11.0.0.0", 22), 10);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "fd00::1", 80), 4);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "fd00::2", 80), 0);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "fd01:0:ffff::", 7), 5);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "fd01:1::", 7), 0);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "fd02:0:7fff::", 5), 6);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "fd02:0:8000::", 5), 0);
	CHECK_EQ(fits(rules, PV_RULE_TCP_SERVER, "::", 22), 10);
	CHECK(!rules->rule[6].kernel && !rules->rule[7].kernel);
	CHECK_EQ(fits(rules, PV_RULE_UDP_RECEIVER, "9.9.9.9", 0), 9);
	CHECK_EQ(fits(rules, PV_RULE_UDP_RECEIVER, "::1", 0), 0);
	pv_rules_free(rules);
}

TEST(the_second_address)
{
	static const char text[] = "use os tcp_client 10.0.0.1:80:10.0.0.2:*\n"
				   "use os tcp_client *:*:[fd00::]/64:1-9\n";
	struct pv_endpoint peer = at("10.0.0.1", 80), own = at("10.0.0.2", 5000), other = at("10.0.0.3", 5000);
	struct pv_endpoint six = at("fd00::7", 9), far = at("fd00::7", 10);
	struct pv_rules *rules;

	CHECK_EQ(parse_as("p", "", text, &rules), 0);
	CHECK(pv_rules_match(rules, PV_RULE_TCP_CLIENT, &peer, &own) == &rules->rule[0]);
	CHECK(pv_rules_match(rules, PV_RULE_TCP_CLIENT, &peer, NULL) == &rules->rule[0]);
	CHECK(!pv_rules_match(rules, PV_RULE_TCP_CLIENT, &peer, &other));
	CHECK(pv_rules_match(rules, PV_RULE_TCP_CLIENT, &peer, &six) == &rules->rule[1]);
	CHECK(!pv_rules_match(rules, PV_RULE_TCP_CLIENT, &peer, &far));
	pv_rules_free(rules);
	CHECK(!pv_rules_match(NULL, PV_RULE_TCP_CLIENT, &peer, NULL));
}

TEST(whose_rules)
{
	static const char text[] =
	    "application-id db2* B1\nuse os tcp_server *:1\n"
	    "application-id t?cp *\nuse os tcp_server *:2\nuse os udp_sender *:3\nlog min-level 3 destination file x\n"
	    "application-id * 7\nuse os tcp_server *:4\n"
	    "application-id * *\nuse os tcp_server *:5\n";
	static const struct {
		const char *program, *id;
		uint32_t n, first;
	} cases[] = {
		{ "db2sysc", "B1", 1, 1 },    { "db2sysc", "B2", 1, 5 }, { "db2sysc", "", 1, 1 }, { "db2sysc", "*", 1, 1 },
		{ "ttcp", "anything", 2, 2 }, { "ttcpx", "7", 1, 4 },    { "cat", "8", 1, 5 },
	};
	struct pv_rules *rules;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		CHECK_EQ(parse_as(cases[i].program, cases[i].id, text, &rules), 0);
		CHECK_EQ(rules->n, cases[i].n);
		CHECK_EQ(rules->rule[0].number, cases[i].first);
		pv_rules_free(rules);
	}
	/* Rules before the first line of this kind are everybody's, and there are no others then. */
	CHECK_EQ(parse_as("p", "", "use os tcp_server *:1\napplication-id * *\nuse os tcp_server *:2\n", &rules), 0);
	CHECK_EQ(rules->n, 1);
	pv_rules_free(rules);
	/* A section of this program without any rule ends the search. */
	CHECK_EQ(parse_as("p", "", "application-id p *\napplication-id * *\nuse os tcp_server *:2\n", &rules), 0);
	CHECK_EQ(rules->n, 0);
	pv_rules_free(rules);
}

TEST(mistakes_have_their_line)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "\n\nuse os tcp_server *\n", "r.conf:3: ADDRESS:PORT" },
		{ "use os tcp_server *:1:*\n", "r.conf:1: ADDRESS:PORT" },
		{ "use os tcp_server *:1:*:2:*\n", "ADDRESS:PORT" },
		{ "use os tcp_server 10.0.0.256:1\n", "no address: \"10.0.0.256\"" },
		{ "use os tcp_server 10.0.0.1/33:1\n", "a prefix length is 0 to 32: \"33\"" },
		{ "use os tcp_server [fd00::1]/129:1\n", "a prefix length is 0 to 128: \"129\"" },
		{ "use os tcp_server [fd00::1:1\n", "an IPv6 address is" },
		{ "use os tcp_server [fd00::1]x:1\n", "an IPv6 address is" },
		{ "use os tcp_server fd00::1:1\n", "no address" },
		{ "use os tcp_server *:65536\n", "a port is 0 to 65535, a range of them A-B, or *: \"65536\"" },
		{ "use os tcp_server *:9-8\n", "begins with the lower one" },
		{ "use os tcp_server *:1-\n", "a port is" },
		{ "use os tcp_server *:-1\n", "a port is" },
		{ "use sdp tcp_server *:1\n", "a transport is vma, pyvma or os: \"sdp\"" },
		{ "use os server *:1\n", "a role is" },
		{ "use os tcp_server\n", "use vma|os ROLE" },
		{ "application-id x\n", "application-id wants" },
		{ "application-id x y z\n", "application-id wants" },
		{ "log destination nowhere\n", "log destination stderr" },
		{ "log min-level 0\n", "min-level" },
		{ "nonsense\n", "a line is application-id, use or log: \"nonsense\"" },
		{ "use 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n", "too many words" },
	};
	struct pv_rules *rules;
	char line[2000];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		CHECK_EQ(parse_as("p", "", cases[i].text, &rules), -EINVAL);
		CHECK(!rules);
		if (!strstr(pv_error_text(), cases[i].says))
			fprintf(stderr, "%s -> %s\n", cases[i].text, pv_error_text());
		CHECK(strstr(pv_error_text(), cases[i].says) != NULL);
	}
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	CHECK_EQ(parse_as("p", "", line, &rules), -EINVAL);
	line[0] = '#';
	CHECK_EQ(parse_as("p", "", line, &rules), 0);
	pv_rules_free(rules);
	memset(line, ' ', sizeof(line) - 1);
	CHECK_EQ(parse_as("p", "", line, &rules), -EINVAL);
}

TEST(a_list_of_them)
{
	char path[] = "/tmp/rulesXXXXXX", text[256], few[8];
	static const char all[] =
	    "1\t1\ttcp_server\tkernel\tuse os tcp_server *:1\n2\t3\tudp_sender\toffload\tuse vma  udp_sender *:2\n";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	CHECK(dprintf(fd, "use os tcp_server *:1\n\n use vma  udp_sender *:2\n") > 0);
	close(fd);
	CHECK_EQ(pyvma_rules_list(path, "p", "", NULL, 0), (int)strlen(all));
	CHECK_EQ(pyvma_rules_list(path, "p", "", text, sizeof(text)), (int)strlen(all));
	CHECK(!strcmp(text, all));
	CHECK_EQ(pyvma_rules_list(path, "p", "", few, sizeof(few)), (int)strlen(all));
	CHECK(!strncmp(few, all, sizeof(few) - 1) && !few[sizeof(few) - 1]);
	CHECK_EQ(pyvma_rules_list(NULL, "p", "", text, sizeof(text)), -EINVAL);
	unlink(path);
	CHECK_EQ(pyvma_rules_list(path, "p", "", text, sizeof(text)), -ENOENT);
	CHECK(strstr(pyvma_last_error(), path) != NULL);
	CHECK_EQ(pv_rules_open("", ""), 0);
	CHECK(!pv_rules);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
