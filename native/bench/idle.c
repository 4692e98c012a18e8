/* SPDX-License-Identifier: BSD-3-Clause */
/* An engine that is up, with one bound socket that nobody talks to: resident memory it adds, CPU time it takes. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "pyvma.h"

/* Resident bytes of this process, shared pages of the fabric included. */
static double resident_mb(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long total = 0, resident = 0;

	if (f) {
		if (fscanf(f, "%lu %lu", &total, &resident) != 2)
			resident = 0;
		fclose(f);
	}
	return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static double cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

int bench_idle(const struct bench_opts *o)
{
	double before = resident_mb(), seconds = o->seconds, after, cpu;
	struct sockaddr_storage at = o->local;
	struct timespec settle = { .tv_nsec = 500000000 }, nap = { .tv_sec = (time_t)seconds };
	pyvma_sock *s;
	bool offloaded;
	int rc;

	nap.tv_nsec = (long)((seconds - (double)nap.tv_sec) * 1e9);
	if (!at.ss_family)
		at.ss_family = AF_INET;
	rc = o->interfaces ? pyvma_config_set("interfaces", o->interfaces) : 0;
	if (!rc)
		rc = pyvma_start();
	if (rc < 0) {
		fprintf(stderr, "pyvma-bench: %s\n", pyvma_last_error());
		return 1;
	}
	rc = pyvma_sock_open(at.ss_family, SOCK_DGRAM, 0, &s);
	if (!rc)
		rc = pyvma_sock_bind(s, (struct sockaddr *)&at,
				     at.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	if (rc)
		return bench_fail("socket", rc);
	/* The start's own work is not idling. */
	nanosleep(&settle, NULL);
	cpu = cpu_ms();
	nanosleep(&nap, NULL);
	cpu = cpu_ms() - cpu;
	after = resident_mb();
	offloaded = pyvma_sock_offload(s, NULL, 0) == PYVMA_OFFLOADED;
	printf("{\"offloaded\": %s, \"resident_mb\": %.2f, \"added_mb\": %.2f, \"cpu_percent\": %.4f, \"seconds\": %.2f}\n",
	       offloaded ? "true" : "false", after, after - before, cpu / (seconds * 1e3) * 100, seconds);
	pyvma_sock_close(s);
	return 0;
}
