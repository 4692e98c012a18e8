/* SPDX-License-Identifier: BSD-3-Clause */
/* A fabric of its own for each test, and frames. */
#ifndef SOFTNIC_FABRIC_UTIL_H
#define SOFTNIC_FABRIC_UTIL_H

#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cksum.h"
#include "softnic/fabric.h"
#include "test.h"

#define FAB_MAX 64
#define FAB_LIMIT_S 60 /* for what must happen at some time */

struct fab_net {
	char name[SN_NAME_MAX + 1];
	struct sn_fabric *f;
	struct sn_port *port[FAB_MAX];
	uint32_t nports;
	struct sn_rxq *queue[FAB_MAX];
	uint32_t nqueues;
};

static struct fab_net *fab_now;

/* A name that no other test, nor another run of this one, has. */
static inline void fab_name(char name[SN_NAME_MAX + 1])
{
	static unsigned count;
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	snprintf(name, SN_NAME_MAX + 1, "t%d-%u-%lx", (int)getpid(), count++, (unsigned long)ts.tv_nsec);
}

static inline void fab_path(const char *name, char *path, size_t size)
{
	snprintf(path, size, "/dev/shm/pyvma-softnic-%u-%s", (unsigned)geteuid(), name);
}

static inline bool fab_exists(const char *name)
{
	char path[128];
	struct stat st;

	fab_path(name, path, sizeof(path));
	return stat(path, &st) == 0;
}

static inline void fab_join(struct fab_net *net, const char *name)
{
	char copy[SN_NAME_MAX + 1];
	int rc;

	snprintf(copy, sizeof(copy), "%s", name);
	memset(net, 0, sizeof(*net));
	memcpy(net->name, copy, sizeof(copy));
	rc = sn_fabric_open(net->name, &net->f);
	if (rc)
		fprintf(stderr, "%s\n", sn_error());
	CHECK_EQ(rc, 0);
	fab_now = net;
}

static inline void fab_make(struct fab_net *net)
{
	char name[SN_NAME_MAX + 1];

	fab_name(name);
	fab_join(net, name);
}

/* One more attachment to the port. */
static inline struct sn_port *fab_port(struct fab_net *net, uint32_t number)
{
	int rc = sn_port_attach(net->f, number, NULL, &net->port[net->nports]);

	if (rc)
		fprintf(stderr, "%s\n", sn_error());
	CHECK_EQ(rc, 0);
	return net->port[net->nports++];
}

static inline struct sn_rxq *fab_queue(struct sn_port *p, uint32_t slots)
{
	CHECK(fab_now->nqueues < FAB_MAX);
	CHECK_EQ(sn_rxq_create(p, slots, &fab_now->queue[fab_now->nqueues]), 0);
	return fab_now->queue[fab_now->nqueues++];
}

static inline void fab_leave(struct fab_net *net)
{
	for (uint32_t i = 0; i < net->nqueues; i++)
		sn_rxq_destroy(net->queue[i]);
	for (uint32_t i = 0; i < net->nports; i++)
		sn_port_detach(net->port[i]);
	sn_fabric_close(net->f);
}

/* The last one: nothing stays behind. */
static inline void fab_done(struct fab_net *net)
{
	fab_leave(net);
	CHECK(!fab_exists(net->name));
}

static inline uint64_t fab_rule(struct sn_port *p, struct sn_rule *rule, struct sn_rxq *q)
{
	uint64_t handle = 0;

	rule->queues = &q;
	rule->nqueues = 1;
	CHECK_EQ(sn_rule_add(p, rule, &handle), 0);
	CHECK(handle);
	return handle;
}

static inline uint64_t fab_rule_all(struct sn_port *p, struct sn_rxq *q)
{
	struct sn_rule rule = { 0 };

	return fab_rule(p, &rule, q);
}

static inline int fab_send(struct sn_port *p, const uint8_t *frame, uint32_t len)
{
	struct sn_seg seg = { frame, len };

	return sn_port_send(p, &seg, 1, 0);
}

static inline void fab_eth(uint8_t *f, uint32_t from, uint32_t to, uint16_t type)
{
	static const uint8_t base[6] = { 0x02, 0x53, 0x4e, 0, 0, 0 };

	memcpy(f, base, 6);
	memcpy(f + 6, base, 6);
	f[5] = (uint8_t)to;
	f[11] = (uint8_t)from;
	pv_put16(f + 12, type);
}

/* Both checksums of an untagged IPv4/UDP frame without options. */
static inline void fab_udp4_sum(uint8_t *f)
{
	uint32_t len = pv_get16(f + 38), src, dst;

	memcpy(&src, f + 26, 4);
	memcpy(&dst, f + 30, 4);
	pv_cksum_put(f + 24, 0);
	pv_cksum_put(f + 24, pv_cksum_finish(pv_cksum_add(f + 14, 20, 0)));
	pv_cksum_put(f + 40, 0);
	pv_cksum_put(f + 40, pv_cksum_finish_udp(pv_cksum_add(f + 34, len, pv_cksum_pseudo4(src, dst, 17, len))));
}

/* UDP over IPv4 from 10.0.0.`from` to 10.0.0.`to`; the frame's length. */
static inline uint32_t fab_udp4(uint8_t *f, uint32_t from, uint32_t to, uint16_t sport, uint16_t dport, uint32_t payload)
{
	uint8_t ip[20] = { 0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, (uint8_t)from, 10, 0, 0, (uint8_t)to };

	fab_eth(f, from, to, 0x0800);
	memcpy(f + 14, ip, 20);
	pv_put16(f + 16, (uint16_t)(28 + payload));
	pv_put16(f + 34, sport);
	pv_put16(f + 36, dport);
	pv_put16(f + 38, (uint16_t)(8 + payload));
	for (uint32_t i = 0; i < payload; i++)
		f[42 + i] = (uint8_t)(i * 7 + 1);
	fab_udp4_sum(f);
	return 42 + payload;
}

/* UDP over IPv6 from fd00::`from` to fd00::`to`. */
static inline uint32_t fab_udp6(uint8_t *f, uint32_t from, uint32_t to, uint16_t sport, uint16_t dport, uint32_t payload)
{
	uint32_t len = 8 + payload;

	fab_eth(f, from, to, 0x86dd);
	memset(f + 14, 0, 40);
	f[14] = 0x60;
	pv_put16(f + 18, (uint16_t)len);
	f[20] = 17;
	f[21] = 64;
	f[22] = f[38] = 0xfd;
	f[37] = (uint8_t)from;
	f[53] = (uint8_t)to;
	pv_put16(f + 54, sport);
	pv_put16(f + 56, dport);
	pv_put16(f + 58, (uint16_t)len);
	for (uint32_t i = 0; i < payload; i++)
		f[62 + i] = (uint8_t)(i * 5 + 3);
	pv_cksum_put(f + 60, 0);
	pv_cksum_put(f + 60, pv_cksum_finish_udp(pv_cksum_add(f + 54, len, pv_cksum_pseudo6(f + 22, f + 38, 17, len))));
	return 62 + payload;
}

/* Frames waiting in the queue, taken out. */
static inline uint32_t fab_drain(struct sn_rxq *q)
{
	struct sn_frame f;
	uint32_t n = 0;

	while (sn_rxq_peek(q, &f)) {
		sn_rxq_pop(q);
		n++;
	}
	return n;
}

static inline uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* The next frame, spinning. */
static inline void await(struct sn_rxq *q, struct sn_frame *f)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint32_t i = 1; !sn_rxq_peek(q, f); i++) {
		if (i % 1024)
			continue;
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &b);
		CHECK(b.tv_sec - a.tv_sec < FAB_LIMIT_S);
	}
}

static inline struct sn_port_counters fab_counters(const struct sn_port *p)
{
	struct sn_port_counters c;

	sn_port_get_counters(p, &c);
	return c;
}

#endif
