/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring/pcap.h"
#include "rt/clock.h"
#include "rt/error.h"
#include "rt/log.h"
#include "rt/mem.h"

struct pv_wrap {
	int fd;
	bool failed; /* said once */
};

/* ---- fault ------------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t off;
} chances[] = {
#define CHANCE(n)                                                                                                                  \
	{                                                                                                                          \
#n, offsetof(struct pv_fault_cfg, n##_ppm)                                                                         \
	}
	CHANCE(rx_post_short), CHANCE(tx_post_short), CHANCE(reap_none),   CHANCE(kick_again), CHANCE(link_flap), CHANCE(rx_drop),
	CHANCE(rx_duplicate),  CHANCE(rx_corrupt),    CHANCE(rx_truncate), CHANCE(tx_drop),    CHANCE(error),
};

/* 0, 1, 0.25: at most six places, exactly in millionths. */
static bool parse_chance(const char *v, uint32_t *ppm)
{
	uint32_t n = 0, scale = 100000;

	if ((*v != '0' && *v != '1') || (v[1] && v[1] != '.'))
		return false;
	n = *v == '1' ? 1000000 : 0;
	if (v[1] == '.') {
		const char *d = v + 2;

		for (; *d >= '0' && *d <= '9' && scale; d++, scale /= 10)
			n += (uint32_t)(*d - '0') * scale;
		if (d == v + 2 || *d)
			return false;
	}
	*ppm = n;
	return n <= 1000000;
}

static int parse_pair(char *pair, struct pv_fault_cfg *out)
{
	char *eq = strchr(pair, '='), *end;

	if (!eq)
		return pv_error(-EINVAL, "fault: \"%s\" is not KEY=VALUE", pair);
	*eq = '\0';
	if (!strcmp(pair, "seed")) {
		errno = 0;
		out->seed = strtoull(eq + 1, &end, 0);
		if (errno || end == eq + 1 || *end || eq[1] == '-')
			return pv_error(-EINVAL, "fault: seed=%s is not a number", eq + 1);
		return 0;
	}
	for (size_t i = 0; i < pv_array_size(chances); i++) {
		uint32_t ppm;

		if (strcmp(pair, chances[i].name))
			continue;
		if (!parse_chance(eq + 1, &ppm))
			return pv_error(-EINVAL, "fault: %s=%s is not a chance from 0 to 1, as 0.01", pair, eq + 1);
		memcpy((char *)out + chances[i].off, &ppm, sizeof(ppm));
		return 0;
	}
	return pv_error(-EINVAL, "fault: there is no \"%s\"", pair);
}

int pv_wrap_parse_fault(const char *text, struct pv_fault_cfg *out)
{
	char *copy = strdup(text), *save = NULL;
	int rc = copy ? 0 : -ENOMEM;

	memset(out, 0, sizeof(*out));
	out->seed = 1;
	for (char *p = copy ? strtok_r(copy, ",", &save) : NULL; p && !rc; p = strtok_r(NULL, ",", &save))
		rc = parse_pair(p, out);
	free(copy);
	return rc;
}

/* ---- pcap -------------------------------------------------------------------------------------------------------------- */

static void sink(void *ctx, const void *data, size_t len)
{
	struct pv_wrap *w = ctx;

	/* A record is written whole or not at all as long as the disk has room. */
	if (!w->failed && write(w->fd, data, len) != (ssize_t)len) {
		w->failed = true;
		pv_log(PV_LOG_ERROR, "pcap_file: %s; no frame is recorded from now on", strerror(errno));
	}
}

static int64_t stamp(void *ctx)
{
	(void)ctx;
	return pv_clock_kernel_ns() + pv_clock_realtime_offset_ns();
}

static int open_file(const struct pv_config *cfg, const char *name, bool several, int *fd)
{
	char path[PV_CONFIG_TEXT_MAX + 64], full[PV_CONFIG_TEXT_MAX + 128];

	snprintf(full, sizeof(full), "%s%s%s", cfg->pcap_file, several ? "." : "", several ? name : "");
	pv_log_expand_pid(full, path, sizeof(path));
	*fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return *fd < 0 ? pv_error(-errno, "pcap_file: %s: %s", path, strerror(errno)) : 0;
}

static int record(struct pv_ring *ring, struct pv_wrap *w, const struct pv_config *cfg)
{
	const struct pv_pcap_cfg pc = { .sink = sink, .now_ns = stamp, .ctx = w, .format = PV_PCAP_NG };
	int rc = pv_pcap_add(ring, pv_mem_system(cfg->huge_pages), &pc);

	return rc ? pv_error(rc, "pcap_file: %s", strerror(-rc)) : 0;
}

int pv_wrap_open(struct pv_ring **ring, struct pv_wrap **wrap, const struct pv_config *cfg, const char *name, bool several)
{
	struct pv_fault_cfg fc;
	struct pv_wrap *w = NULL;
	struct pv_ring *outer;
	int rc;

	*wrap = NULL;
	rc = pv_wrap_parse_fault(cfg->fault, &fc);
	if (rc)
		return rc;
	if (*cfg->pcap_file) {
		w = calloc(1, sizeof(*w));
		rc = w ? open_file(cfg, name, several, &w->fd) : pv_error(-ENOMEM, "pcap_file: no memory");
		if (rc) {
			free(w);
			return rc;
		}
	}
	/* The record shows what the stack sees: faults are beneath it. */
	if (*cfg->fault) {
		rc = pv_fault_open(&outer, pv_mem_system(cfg->huge_pages), *ring, &fc);
		if (rc)
			rc = pv_error(rc, "fault: %s", strerror(-rc));
		else
			*ring = outer;
	}
	if (!rc && w)
		rc = record(*ring, w, cfg);
	if (rc) {
		pv_wrap_close(w);
		return rc;
	}
	*wrap = w;
	return 0;
}

void pv_wrap_close(struct pv_wrap *wrap)
{
	if (!wrap)
		return;
	close(wrap->fd);
	free(wrap);
}
