/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process's memory for the core: heap for tables; for buffers anonymous pages, from huge pages when asked for and there, and not
 * inherited by a forked child (a copy-on-write of a page that a device writes into would part the two).
 */
#ifndef PV_RT_MEM_H
#define PV_RT_MEM_H

#include <stdbool.h>

#include "base/mem.h"

/* The table lives as long as the process. */
const struct pv_mem *pv_mem_system(bool huge_pages);
/* Bytes of buffer memory that came from huge pages so far. */
size_t pv_mem_huge_bytes(void);

#endif
