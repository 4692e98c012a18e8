/* SPDX-License-Identifier: BSD-3-Clause */
/* A NIC's clock as the kernel offers it: /dev/ptpN, found by the interface or the RDMA device that it belongs to. */
#ifndef PV_RT_TSTAMP_PHC_H
#define PV_RT_TSTAMP_PHC_H

#include <stddef.h>

#include "rt/tstamp_conv.h"

struct pv_phc {
	int fd; /* -1: none */
};

/*
 * The path of the clock of `name`, an interface (class "net") or an RDMA device (class "infiniband"): by the tree of sysfs below `root`
 * ("" for the machine's own; tests have one of theirs), and below it too. 0, -ENODEV (it has none), -ENAMETOOLONG.
 */
int pv_phc_find(const char *root, const char *class, const char *name, char *path, size_t size);
/* 0, -errno. */
int pv_phc_open(struct pv_phc *p, const char *path);
void pv_phc_close(struct pv_phc *p);
/* The clock of `name`, found, open and seen to run, and with `paired` to be compared with CLOCK_REALTIME, too. 0; or -errno, why in `err`. */
struct pv_phc_ask {
	const char *root, *class, *name;
	bool paired;
};
int pv_phc_get(struct pv_phc *p, const struct pv_phc_ask *ask, char *err, size_t size);
/* Nanoseconds of the clock; 0: it cannot be read. */
int64_t pv_phc_ns(const struct pv_phc *p);
/* The clock against CLOCK_REALTIME, the kernel reading the two around each other: `raw` is the clock's nanoseconds. 0, -EOPNOTSUPP
 * (the driver cannot), -errno. */
int pv_phc_sample(const struct pv_phc *p, struct pv_tsample *out);

/* The tightest of what PTP_SYS_OFFSET_EXTENDED answered, each {before, clock, after} in nanoseconds. 0 or -EAGAIN. */
int pv_phc_best(const int64_t (*triple)[3], uint32_t n, struct pv_tsample *out);

#endif
