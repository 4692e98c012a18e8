/* SPDX-License-Identifier: BSD-3-Clause */
/* Filters of captures: their words, and which frames they take. */
#include <arpa/inet.h>

#include "base/bytes.h"
#include "rt/error.h"
#include "rt/filter.h"
#include "test.h"

static uint8_t frame[128];

/* An Ethernet frame with a VLAN tag (0: none) and UDP or TCP over IPv4 or IPv6. */
static struct pv_pkt make(uint16_t vlan, const char *src, uint16_t sport, const char *dst, uint16_t dport, uint8_t proto)
{
	bool is6 = strchr(src, ':') != NULL;
	uint8_t *p = frame + 12, *ip;
	struct pv_pkt pkt = { .data = frame, .buf = frame };

	memset(frame, 0, sizeof(frame));
	if (vlan) {
		pv_put16(p, 0x8100);
		pv_put16(p + 2, vlan);
		p += 4;
	}
	pv_put16(p, is6 ? 0x86dd : 0x0800);
	ip = p + 2;
	if (is6) {
		ip[0] = 0x60;
		ip[6] = proto;
		CHECK_EQ(inet_pton(AF_INET6, src, ip + 8), 1);
		CHECK_EQ(inet_pton(AF_INET6, dst, ip + 24), 1);
	} else {
		ip[0] = 0x45;
		ip[9] = proto;
		CHECK_EQ(inet_pton(AF_INET, src, ip + 12), 1);
		CHECK_EQ(inet_pton(AF_INET, dst, ip + 16), 1);
	}
	p = ip + (is6 ? 40 : 20);
	pv_put16(p, sport);
	pv_put16(p + 2, dport);
	pkt.len = (uint32_t)(p + 8 - frame);
	return pkt;
}

static bool takes(const char *text, const struct pv_pkt *pkt)
{
	struct pv_filter f;
	int rc = pv_filter_parse(text, &f);

	if (rc)
		fprintf(stderr, "%s: %s\n", text, pv_error_text());
	CHECK_EQ(rc, 0);
	return pv_filter_match(&f, pkt);
}

TEST(words_over_ipv4)
{
	static const char *const yes[] = {
		"",
		"ip",
		"udp",
		"not tcp",
		"host 10.0.0.1",
		"src host 10.0.0.1",
		"dst host 10.0.0.2",
		"port 53",
		"dst port 53",
		"src port 4000",
		"udp port 53",
		"udp and port 53 and host 10.0.0.2",
		"net 10.0.0.0/8",
		"src net 10.0.0.1/32",
		"dst net 10.0.0.2/31",
		"not net 10.1.0.0/16",
		"net 0.0.0.0/0",
		"not vlan",
		"not host fd00::1",
		" ip  and  udp ",
	};
	static const char *const no[] = {
		"ip6",     "tcp",           "not udp",           "icmp",
		"arp",     "host 10.0.0.3", "dst host 10.0.0.1", "src host 10.0.0.2",
		"port 54", "src port 53",   "udp and port 54",   "net 10.0.0.4/30",
		"vlan",    "vlan 7",        "host ::1",          "ip and not ip",
	};
	struct pv_pkt pkt = make(0, "10.0.0.1", 4000, "10.0.0.2", 53, 17);

	for (size_t i = 0; i < pv_array_size(yes); i++)
		CHECK(takes(yes[i], &pkt));
	for (size_t i = 0; i < pv_array_size(no); i++)
		CHECK(!takes(no[i], &pkt));
}

TEST(words_over_ipv6)
{
	struct pv_pkt pkt = make(7, "fd00::1", 4000, "fd00::2", 443, 6);

	CHECK(takes("ip6 and tcp and vlan 7", &pkt));
	CHECK(takes("vlan", &pkt));
	CHECK(takes("src host fd00::1 and dst port 443", &pkt));
	CHECK(takes("net fd00::/64", &pkt));
	CHECK(!takes("vlan 8", &pkt));
	CHECK(!takes("net fd01::/16", &pkt));
	CHECK(!takes("ip", &pkt));
	/* The tag that the ring took away is looked at, too. */
	pkt = make(0, "fd00::1", 4000, "fd00::2", 443, 6);
	CHECK(!takes("vlan 9", &pkt));
	pkt.flags |= PV_PKT_VLAN;
	pkt.vlan_tci = 0xe009;
	CHECK(takes("vlan 9", &pkt));
}

/* Ports of later fragments are not there; what is cut short has no fields; extension headers are stepped over. */
TEST(what_is_not_there_does_not_match)
{
	struct pv_pkt pkt = make(0, "10.0.0.1", 4000, "10.0.0.2", 53, 17);

	pv_put16(frame + 14 + 6, 0x0010);
	CHECK(takes("udp", &pkt));
	CHECK(!takes("port 53", &pkt));
	pv_put16(frame + 14 + 6, 0x2000); /* the first fragment has them */
	CHECK(takes("port 53", &pkt));
	for (uint32_t len = 0; len < 38; len++) {
		pkt.len = len;
		CHECK(!takes("port 53", &pkt));
		CHECK(takes("not port 53", &pkt));
	}
	pkt = make(0, "fd00::1", 4000, "fd00::2", 443, 0);
	frame[14 + 40] = 17; /* hop-by-hop options, then UDP */
	frame[14 + 41] = 0;
	pv_put16(frame + 14 + 48, 5);
	pv_put16(frame + 14 + 50, 6);
	pkt.len = 14 + 56;
	CHECK(takes("udp and src port 5 and dst port 6", &pkt));
	frame[14 + 41] = 255; /* options beyond the end */
	CHECK(!takes("port 6", &pkt));
}

TEST(arp_has_addresses)
{
	struct pv_pkt pkt = { .data = frame, .buf = frame, .len = 42 };

	memset(frame, 0, sizeof(frame));
	pv_put16(frame + 12, 0x0806);
	pv_put16(frame + 16, 0x0800);
	memcpy(frame + 28, (const uint8_t[]){ 10, 0, 0, 1 }, 4);
	memcpy(frame + 38, (const uint8_t[]){ 10, 0, 0, 9 }, 4);
	CHECK(takes("arp and host 10.0.0.9", &pkt));
	CHECK(takes("src host 10.0.0.1", &pkt));
	CHECK(!takes("udp", &pkt));
	CHECK(!takes("host 10.0.0.2", &pkt));
}

TEST(bad_words_are_named)
{
	static const struct {
		const char *text, *hint;
	} bad[] = {
		{ "nonsense", "\"nonsense\"" },
		{ "host", "host needs" },
		{ "host 10.0.0", "10.0.0" },
		{ "net 10.0.0.0", "net needs" },
		{ "net 10.0.0.0/33", "net needs" },
		{ "net fd00::/129", "net needs" },
		{ "port", "port needs" },
		{ "port 65536", "65536" },
		{ "port http", "http" },
		{ "port -1", "-1" },
		{ "udp and", "nothing follows" },
		{ "udp or tcp", "\"or\"" },
		{ "src", "\"\"" },
		{ "src tcp", "\"tcp\"" },
		{ "not", "\"\"" },
		{ "vlan 4095", "4095" },
		{ "(udp)", "(udp)" },
	};
	char longest[PV_FILTER_TEXT_MAX + 2];
	struct pv_filter f;

	for (size_t i = 0; i < pv_array_size(bad); i++) {
		CHECK_EQ(pv_filter_parse(bad[i].text, &f), -EINVAL);
		if (!strstr(pv_error_text(), bad[i].hint))
			fprintf(stderr, "%s: %s\n", bad[i].text, pv_error_text());
		CHECK(strstr(pv_error_text(), bad[i].hint) != NULL);
	}
	memset(longest, ' ', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	CHECK_EQ(pv_filter_parse(longest, &f), -E2BIG);
	CHECK_EQ(pv_filter_parse("ip ip ip ip ip ip ip ip ip ip ip ip ip ip ip ip", &f), 0);
	CHECK_EQ(f.n, PV_FILTER_TERMS);
	CHECK_EQ(pv_filter_parse("ip ip ip ip ip ip ip ip ip ip ip ip ip ip ip ip ip", &f), -E2BIG);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
