/* SPDX-License-Identifier: BSD-3-Clause */
/* A capture whose writer is in this process, without an engine: a device's port, sniffed. */
#ifndef PV_RT_CAPTURE_READ_H
#define PV_RT_CAPTURE_READ_H

#include "pyvma.h"
#include "rt/capture.h"

struct pv_sniffer;

/* Receives what has come, waiting for the first frame so long; how many frames, or -errno: -ENODEV, -EINTR. */
int pv_sniffer_poll(struct pv_sniffer *s, int64_t timeout_ns);
/* The ring's counts go to the reader first. */
void pv_sniffer_close(struct pv_sniffer *s);
/* The reader owns it from now on. */
void pv_capture_set_sniffer(pyvma_capture *c, struct pv_sniffer *sniffer);

#endif
