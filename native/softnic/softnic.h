/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libpyvma-softnic.so exports beside the libibverbs interface.
 *
 * Devices. The environment variable PYVMA_SOFTNIC names the ports that this process sees as RDMA devices:
 * "FABRIC/PORT[,mac=..][,mtu=..][,dm=BYTES][,off=A+B]", several separated by ';'. The device of demo/0 is called "softnic_demo_0".
 * `dm` is the port's device memory (262144), `off` what this device lacks: tso, dm, pacing, pacing-burst, csum, timestamps, wallclock,
 * clock (query_rt_values), clock-info (mlx5dv_get_clock_info), extended, cq-ex, inline, vlan-strip, rss, flow. PYVMA_SOFTNIC_OFF="A,B"
 * takes the same from every device of the process.
 *
 * What a client cannot read from a network interface that does not exist, it reads from the port: GID 0 is fe80::/64 with the
 * port's MAC as modified EUI-64 (as RoCE's default GID), and `max_msg_sz` is the longest frame, MTU + 18.
 */
#ifndef SN_SOFTNIC_H
#define SN_SOFTNIC_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
/* As an entry of PYVMA_SOFTNIC; writes the device's name. The fabric is opened when the device is. 0, -EINVAL (spec), -EEXIST is
 * not an error: the same spec twice is one device. */
int softnic_device_add(const char *spec, char *name, size_t size);
/* Why the last ibv_open_device of this thread failed; never NULL. */
const char *softnic_open_error(void);
/* "loss=0.01,delay=10us,jitter=1us,reorder=0.001,duplicate=0,corrupt=0,rate=1Gbit,seed=1" of a device's port; "" clears. */
int softnic_impair(const char *device, const char *spec);
/* JSON of the port's counters; length as snprintf. */
int softnic_counters(const char *device, char *buf, size_t size);
/* Link of the device's port, for all processes. */
int softnic_set_link(const char *device, int up);
/* Takes the device out of the machine, for all processes, or puts it back: what had it open gets IBV_EVENT_DEVICE_FATAL and ENODEV for good,
 * opening is ENODEV meanwhile. */
int softnic_plug(const char *device, int in);
/*
 * The clocks of the device's port, for all processes: "khz=156250,drift=100ppm,step=-10ms,bits=48,day=realtime". What is not named stays.
 * khz 1000 to 10000000: the frequency that the counter is said to have; drift: how much faster it really runs (ppm or ppb); step: it jumps;
 * bits 24 to 64: that it counts with. khz and bits are read when a program opens the device. day: the disciplined clock follows
 * CLOCK_REALTIME, or shows that time ("day=1700000000s") and runs at the rate of true time, which is CLOCK_MONOTONIC_RAW.
 */
int softnic_clock(const char *device, const char *spec);
/* A moment in all clocks, ns but the counter's ticks. */
struct softnic_stamp {
	int64_t true_ns, realtime_ns, day_ns;
	uint64_t ticks;
};
int softnic_clock_read(const char *device, struct softnic_stamp *now);
/* From now on each stamp that this process reads from a completion of the device is kept, up to 4096 of them; NULL ends it. */
int softnic_stamps_watch(const char *device);
/* The oldest of those, which are kept no longer: their number. */
int softnic_stamps_take(struct softnic_stamp *out, int max);
/* Joins the port to the TAP device `ifname` (made when missing; needs CAP_NET_ADMIN). Runs until stop_fd is readable. */
int softnic_uplink(const char *spec, const char *ifname, int stop_fd);
#pragma GCC visibility pop

#endif
