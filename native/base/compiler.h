/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiler helpers that every layer may use. */
#ifndef PV_BASE_COMPILER_H
#define PV_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define PV_CACHELINE 64

#define pv_likely(x) __builtin_expect(!!(x), 1)
#define pv_unlikely(x) __builtin_expect(!!(x), 0)
#define pv_aligned(n) __attribute__((aligned(n)))
#define pv_noinline __attribute__((noinline))
#define pv_inline static inline __attribute__((always_inline))
#define pv_prefetch(p) __builtin_prefetch(p)

#define pv_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define pv_array_size(a) (sizeof(a) / sizeof((a)[0]))

#define PV_MIN(a, b) ((a) < (b) ? (a) : (b))
#define PV_MAX(a, b) ((a) > (b) ? (a) : (b))

#define PV_NS_PER_US INT64_C(1000)
#define PV_NS_PER_MS INT64_C(1000000)
#define PV_NS_PER_S INT64_C(1000000000)
/* No deadline: later than any time. */
#define PV_NEVER INT64_MAX

/* What was stored before is seen before what is stored after, by other processes too. */
pv_inline void pv_fence_release(void)
{
#ifndef __SANITIZE_THREAD__ /* which knows no fences, nor readers of other processes */
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

pv_inline void pv_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

#endif
