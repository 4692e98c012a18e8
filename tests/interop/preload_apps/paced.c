/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * paced FAMILY HERE THERE PORT INTERVAL_NS FILE: numbered datagrams to THERE, one each interval, and what comes from there, each by a thread of
 * its own, until the input ends and then a second has passed without a datagram. It begins when a line of input has come. FILE gets two
 * tables of numbers of 64 bits, each after its length: when each datagram was sent; and the number of each that came, and when it did.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define MOST 4000000u
#define SIZE 100
#define BEHIND 10 /* so many intervals late it begins anew, instead of sending them at once */

struct came {
	uint64_t number, at_ns;
};

static uint64_t *sent, nsent, ncame;
static struct came *came;
static int fd;
static _Atomic(bool) over;

static _Noreturn void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void *hear(void *arg)
{
	char buf[2048];

	(void)arg;
	while (ncame < MOST) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		if (n == SIZE) {
			memcpy(&came[ncame].number, buf, sizeof(uint64_t));
			came[ncame++].at_ns = now_ns();
		} else if (n < 0 && over) {
			break;
		}
	}
	return NULL;
}

static void *tell(void *arg)
{
	uint64_t interval = *(uint64_t *)arg, next = now_ns();
	char buf[SIZE] = "";

	while (!over && nsent < MOST) {
		struct timespec ts = { .tv_sec = (time_t)(next / 1000000000u), .tv_nsec = (long)(next % 1000000000u) };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		memcpy(buf, &nsent, sizeof(nsent));
		sent[nsent++] = now_ns();
		if (send(fd, buf, sizeof(buf), 0) < 0)
			perror("send");
		next += interval;
		if (sent[nsent - 1] > next + BEHIND * interval)
			next = sent[nsent - 1];
	}
	return NULL;
}

static struct sockaddr_storage address(int family, const char *host, const char *port)
{
	struct sockaddr_storage a = { .ss_family = (sa_family_t)family };
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;
	struct sockaddr_in *four = (struct sockaddr_in *)&a;

	if (inet_pton(family, host, family == AF_INET ? (void *)&four->sin_addr : (void *)&six->sin6_addr) != 1)
		fail(host);
	four->sin_port = htons((uint16_t)atoi(port));
	return a;
}

static void save(const char *name)
{
	FILE *f = fopen(name, "w");

	if (!f || fwrite(&nsent, sizeof(nsent), 1, f) != 1 || fwrite(sent, sizeof(*sent), nsent, f) != nsent ||
	    fwrite(&ncame, sizeof(ncame), 1, f) != 1 || fwrite(came, sizeof(*came), ncame, f) != ncame || fclose(f))
		fail(name);
}

int main(int argc, char **argv)
{
	struct timeval second = { .tv_sec = 1 };
	struct sockaddr_storage here, there;
	pthread_t hearer, teller;
	int family, big = 4 << 20;
	uint64_t interval;
	char line[16];

	if (argc != 7)
		return 2;
	family = atoi(argv[1]) == 4 ? AF_INET : AF_INET6;
	here = address(family, argv[2], argv[4]);
	there = address(family, argv[3], argv[4]);
	interval = strtoull(argv[5], NULL, 10);
	sent = calloc(MOST, sizeof(*sent));
	came = calloc(MOST, sizeof(*came));
	fd = socket(family, SOCK_DGRAM, 0);
	if (!sent || !came || fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &big, sizeof(big)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second)) || bind(fd, (struct sockaddr *)&here, sizeof(here)) ||
	    connect(fd, (struct sockaddr *)&there, sizeof(there)))
		fail(argv[2]);
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin) || pthread_create(&hearer, NULL, hear, NULL) ||
	    pthread_create(&teller, NULL, tell, &interval))
		fail("begin");
	while (fgets(line, sizeof(line), stdin))
		;
	over = true;
	pthread_join(teller, NULL);
	pthread_join(hearer, NULL);
	save(argv[6]);
	return 0;
}
