/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/ownfd.h"

uint64_t pv_ownfd_bits[PV_OWNFD_MAX / 64];

int pv_ownfd_next(unsigned int fd, unsigned int last)
{
	last = PV_MIN(last, PV_OWNFD_MAX - 1);
	while (fd <= last) {
		uint64_t bits = __atomic_load_n(&pv_ownfd_bits[fd / 64], __ATOMIC_RELAXED) >> fd % 64;

		if (!bits) {
			fd = (fd | 63) + 1;
			continue;
		}
		fd += (unsigned int)__builtin_ctzll(bits);
		return fd <= last ? (int)fd : -1;
	}
	return -1;
}

void pv_ownfd_none(void)
{
	for (unsigned int i = 0; i < PV_OWNFD_MAX / 64; i++)
		__atomic_store_n(&pv_ownfd_bits[i], 0, __ATOMIC_RELAXED);
}
