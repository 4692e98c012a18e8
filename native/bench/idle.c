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

int bench_idle(const char *interfaces, double seconds)
{
	double before = resident_mb(), after, cpu;
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct timespec settle = { .tv_nsec = 500000000 }, nap = { .tv_sec = (time_t)seconds };
	pyvma_sock *s;
	int rc;

	nap.tv_nsec = (long)((seconds - (double)nap.tv_sec) * 1e9);
	rc = interfaces ? pyvma_config_set("interfaces", interfaces) : 0;
	if (!rc)
		rc = pyvma_start();
	if (rc < 0) {
		fprintf(stderr, "pyvma-bench: %s\n", pyvma_last_error());
		return 1;
	}
	rc = pyvma_sock_open(AF_INET, SOCK_DGRAM, 0, &s);
	if (!rc)
		rc = pyvma_sock_bind(s, (struct sockaddr *)&any, sizeof(any));
	if (rc)
		return bench_fail("socket", rc);
	/* The start's own work is not idling. */
	nanosleep(&settle, NULL);
	cpu = cpu_ms();
	nanosleep(&nap, NULL);
	cpu = cpu_ms() - cpu;
	after = resident_mb();
	printf("{\"resident_mb\": %.2f, \"added_mb\": %.2f, \"cpu_percent\": %.4f, \"seconds\": %.2f}\n", after, after - before,
	       cpu / (seconds * 1e3) * 100, seconds);
	pyvma_sock_close(s);
	return 0;
}
