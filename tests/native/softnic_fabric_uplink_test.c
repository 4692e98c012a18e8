/* SPDX-License-Identifier: BSD-3-Clause */
/* The uplink against the kernel of this machine, in a network namespace of the test's own. */
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "softnic/softnic.h"
#include "softnic_fabric_util.h"

#define LIMIT_S 60
#define TAP "sntest0"

static struct fab_net net;
static uint8_t frame[2048];
static char spec[64];
static int stop[2];

static uint64_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec;
}

static int if_ioctl(unsigned long request, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	CHECK(fd >= 0);
	snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", TAP);
	rc = ioctl(fd, request, ifr);
	close(fd);
	return rc;
}

/* Waits for the device, gives it its address. */
static void address_tap(unsigned old_index)
{
	struct sockaddr_in *sin;
	struct ifreq ifr;

	for (uint64_t until = now_s() + LIMIT_S;; usleep(2000)) {
		unsigned now = if_nametoindex(TAP);

		CHECK(now_s() < until);
		memset(&ifr, 0, sizeof(ifr));
		if (now && now != old_index && !if_ioctl(SIOCGIFFLAGS, &ifr) && (ifr.ifr_flags & IFF_UP))
			break;
	}
	memset(&ifr, 0, sizeof(ifr));
	sin = (struct sockaddr_in *)(void *)&ifr.ifr_addr;
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = htonl(0x0a000009);
	CHECK_EQ(if_ioctl(SIOCSIFADDR, &ifr), 0);
	sin->sin_addr.s_addr = htonl(0xffffff00);
	CHECK_EQ(if_ioctl(SIOCSIFNETMASK, &ifr), 0);
}

static void delete_tap(void)
{
	struct {
		struct nlmsghdr n;
		struct ifinfomsg i;
	} msg = { .n = { .nlmsg_len = sizeof(msg), .nlmsg_type = RTM_DELLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		  .i = { .ifi_index = (int)if_nametoindex(TAP) } };
	char answer[1024];
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	CHECK(fd >= 0);
	CHECK_EQ(send(fd, &msg, sizeof(msg), 0), sizeof(msg));
	CHECK(recv(fd, answer, sizeof(answer), 0) >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)));
	CHECK_EQ(((struct nlmsgerr *)NLMSG_DATA(answer))->error, 0);
	close(fd);
}

static void *uplink_run(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)softnic_uplink(spec, TAP, stop[0]);
}

/* The next frame of an ethertype; others (the kernel's own IPv6 chatter) are passed over. */
static uint32_t await_type(struct sn_rxq *q, uint16_t type, uint8_t *out, uint32_t *flags)
{
	for (uint64_t until = now_s() + LIMIT_S; now_s() < until;) {
		struct sn_frame f;
		uint32_t len;

		if (!sn_rxq_peek(q, &f)) {
			sched_yield();
			continue;
		}
		len = f.len;
		memcpy(out, f.seg[0], len);
		*flags = f.flags;
		sn_rxq_pop(q);
		if (pv_get16(out + 12) == type)
			return len;
	}
	CHECK(!"a frame");
	return 0;
}

/* How many datagrams wait in a queue, which is empty then. The kernel's own IPv6 chatter is for everybody. */
static uint32_t drain_ip4(struct sn_rxq *q)
{
	struct sn_frame f;
	uint32_t n = 0;

	for (; sn_rxq_peek(q, &f); sn_rxq_pop(q))
		n += pv_get16((const uint8_t *)f.seg[0] + 12) == 0x0800;
	return n;
}

/* Answers the kernel's question for 10.0.0.0 with port 0's address; the kernel's own MAC. */
static void answer_arp(struct sn_port *p, struct sn_rxq *q, uint8_t kernel_mac[6])
{
	uint8_t arp[128];
	uint32_t flags;

	do {
		CHECK(await_type(q, 0x0806, arp, &flags) >= 42);
	} while (pv_get16(arp + 20) != 1 || memcmp(arp + 38, "\x0a\0\0\0", 4));
	memcpy(kernel_mac, arp + 6, 6);
	fab_eth(arp, 0, 0, 0x0806);
	memcpy(arp, kernel_mac, 6);
	pv_put16(arp + 20, 2);
	memcpy(arp + 32, arp + 22, 10);
	memcpy(arp + 22, arp + 6, 6);
	memcpy(arp + 28, "\x0a\0\0\0", 4);
	CHECK_EQ(fab_send(p, arp, 42), 0);
}

static void await_datagram(int s, const char *text)
{
	struct pollfd pfd = { .fd = s, .events = POLLIN };
	char buf[64] = { 0 };

	CHECK_EQ(poll(&pfd, 1, LIMIT_S * 1000), 1);
	CHECK_EQ(recv(s, buf, sizeof(buf), 0), (ssize_t)strlen(text));
	CHECK(!strcmp(buf, text));
}

/* From 10.0.0.0 port 7 to the kernel's 10.0.0.9 port 7000. */
static uint32_t datagram(const uint8_t mac[6], const char *text)
{
	uint32_t len = fab_udp4(frame, 0, 9, 7, 7000, (uint32_t)strlen(text));

	memcpy(frame, mac, 6);
	memcpy(frame + 42, text, strlen(text));
	fab_udp4_sum(frame);
	return len;
}

static void talk(int s, uint8_t mac[6])
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7), .sin_addr.s_addr = htonl(0x0a000000) };
	uint32_t len, flags;

	/* Out: the checksums were made by the kernel, not left to a device. */
	CHECK_EQ(sendto(s, "hello", 5, 0, (struct sockaddr *)&to, sizeof(to)), 5);
	answer_arp(net.port[0], net.queue[0], mac);
	CHECK_EQ(await_type(net.queue[0], 0x0800, frame, &flags), 47);
	CHECK_EQ(flags, SN_RX_IP4 | SN_RX_UDP | SN_RX_L3_OK | SN_RX_L4_OK);
	CHECK(!memcmp(frame + 42, "hello", 5));
	fab_drain(net.queue[1]);
	/* In: a damaged datagram is refused by the kernel, the next one comes. */
	len = datagram(mac, "bad");
	frame[43] ^= 1;
	CHECK_EQ(fab_send(net.port[0], frame, len), 0);
	len = datagram(mac, "good");
	CHECK_EQ(fab_send(net.port[0], frame, len), 0);
	await_datagram(s, "good");
	/* The kernel's MAC is known to be behind the uplink: no other port has seen these. */
	CHECK_EQ(drain_ip4(net.queue[1]), 0);
}

static int kernel_socket(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(7000), .sin_addr.s_addr = htonl(0x0a000009) };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(s >= 0);
	CHECK_EQ(bind(s, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return s;
}

static void in_namespace(void)
{
	struct ifreq ifr = { 0 };
	pthread_t thread;
	uint8_t mac[6];
	unsigned index;
	void *result;
	int s;

	fab_make(&net);
	for (uint32_t i = 0; i < 2; i++) {
		struct sn_port *p = fab_port(&net, i);

		fab_rule_all(p, fab_queue(p, 1024));
	}
	snprintf(spec, sizeof(spec), "%s/9,mtu=1400", net.name);
	CHECK_EQ(pipe(stop), 0);
	CHECK_EQ(pthread_create(&thread, NULL, uplink_run, NULL), 0);
	address_tap(0);
	CHECK_EQ(if_ioctl(SIOCGIFMTU, &ifr), 0);
	CHECK_EQ(ifr.ifr_mtu, 1400);
	s = kernel_socket();
	talk(s, mac);
	/* Longer than the uplink's port takes. */
	fab_eth(frame, 0, 0, 0x88b5);
	memcpy(frame, mac, 6);
	CHECK_EQ(fab_send(net.port[0], frame, 1514), 0);
	CHECK_EQ(fab_counters(fab_port(&net, 9)).rx_too_long, 1);
	/* Another program takes the device away. */
	index = if_nametoindex(TAP);
	delete_tap();
	close(s);
	address_tap(index);
	s = kernel_socket();
	talk(s, mac);
	close(s);
	CHECK_EQ(write(stop[1], "x", 1), 1);
	CHECK_EQ(pthread_join(thread, &result), 0);
	CHECK_EQ((intptr_t)result, 0);
	CHECK_EQ(if_nametoindex(TAP), 0);
	fab_done(&net);
}

TEST(uplink)
{
	int status;
	pid_t pid;

	if (access("/dev/net/tun", R_OK | W_OK))
		test_skip("no /dev/net/tun");
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		if (unshare(CLONE_NEWNET))
			_exit(77);
		in_namespace();
		exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		test_skip("no privilege to make a network namespace");
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST(uplink_refused)
{
	char name[SN_NAME_MAX + 1];

	CHECK_EQ(softnic_uplink("nothing", TAP, 0), -EINVAL);
	CHECK(strstr(softnic_open_error(), "nothing"));
	fab_name(name);
	snprintf(spec, sizeof(spec), "%s/9", name);
	CHECK_EQ(softnic_uplink(spec, "a-name-that-is-too-long", 0), -EINVAL);
	/* Not a TAP device. */
	CHECK(softnic_uplink(spec, "lo", 0) < 0);
	CHECK(strstr(softnic_open_error(), "lo"));
	CHECK(!fab_exists(name));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv);
}
