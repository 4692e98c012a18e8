/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/ownfd.h"
#include "rt/tstamp_phc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ptp_clock.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 10u

/* The kernel's way to make a clock id of a descriptor. */
#define FD_CLOCK(fd) ((clockid_t)((~(unsigned int)(fd) << 3) | 3u))

int pv_phc_find(const char *root, const char *class, const char *name, char *path, size_t size)
{
	char dir[512], device[64] = "";
	unsigned int number;
	struct dirent *e;
	DIR *d;

	if (!*name || strchr(name, '/') || *name == '.')
		return -ENODEV;
	if ((size_t)snprintf(dir, sizeof(dir), "%s/sys/class/%s/%s/device/ptp", root, class, name) >= sizeof(dir))
		return -ENAMETOOLONG;
	d = opendir(dir);
	if (!d)
		return -ENODEV;
	while (!*device && (e = readdir(d))) {
		char end;

		if (sscanf(e->d_name, "ptp%u%c", &number, &end) == 1)
			snprintf(device, sizeof(device), "ptp%u", number);
	}
	closedir(d);
	if (!*device)
		return -ENODEV;
	return (size_t)snprintf(path, size, "%s/dev/%s", root, device) >= size ? -ENAMETOOLONG : 0;
}

int pv_phc_open(struct pv_phc *p, const char *path)
{
	p->fd = pv_ownfd(open(path, O_RDWR | O_CLOEXEC));
	/* Reading it is all that is done; some systems let users do only that. */
	if (p->fd < 0 && errno == EACCES)
		p->fd = pv_ownfd(open(path, O_RDONLY | O_CLOEXEC));
	return p->fd < 0 ? -errno : 0;
}

void pv_phc_close(struct pv_phc *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

int64_t pv_phc_ns(const struct pv_phc *p)
{
	struct timespec ts;

	return clock_gettime(FD_CLOCK(p->fd), &ts) ? 0 : ts.tv_sec * PV_NS_PER_S + ts.tv_nsec;
}

static int check(const struct pv_phc *p, const char *path, bool paired, char *err, size_t size)
{
	struct pv_tsample x;
	int rc;

	if (!pv_phc_ns(p)) {
		rc = -errno;
		snprintf(err, size, "%s cannot be read: %s", path, strerror(-rc));
		return rc;
	}
	rc = paired ? pv_phc_sample(p, &x) : 0;
	if (rc)
		snprintf(err, size, "%s cannot be compared with the host's clock: %s", path, strerror(-rc));
	return rc;
}

int pv_phc_get(struct pv_phc *p, const struct pv_phc_ask *ask, char *err, size_t size)
{
	char path[256];
	int rc = pv_phc_find(ask->root, ask->class, ask->name, path, sizeof(path));

	p->fd = -1;
	if (rc) {
		snprintf(err, size, "%s has no clock of its own (/dev/ptpN)", *ask->name ? ask->name : "the device");
		return rc;
	}
	rc = pv_phc_open(p, path);
	if (rc) {
		snprintf(err, size, "%s: %s", path, strerror(-rc));
		return rc;
	}
	/* Of one that was asked for before. */
	*err = '\0';
	rc = check(p, path, ask->paired, err, size);
	if (rc)
		pv_phc_close(p);
	return rc;
}

int pv_phc_best(const int64_t (*triple)[3], uint32_t n, struct pv_tsample *out)
{
	out->width_ns = UINT64_MAX;
	for (uint32_t i = 0; i < n; i++) {
		int64_t width = triple[i][2] - triple[i][0];

		if (width < 0 || (uint64_t)width >= out->width_ns)
			continue;
		*out = (struct pv_tsample){ .raw = (uint64_t)triple[i][1],
					    .width_ns = (uint64_t)width,
					    .ns = triple[i][0] + width / 2 };
	}
	return out->width_ns == UINT64_MAX ? -EAGAIN : 0;
}

int pv_phc_sample(const struct pv_phc *p, struct pv_tsample *out)
{
	struct ptp_sys_offset_extended ext = { .n_samples = SAMPLES };
	int64_t triple[SAMPLES][3];

	if (ioctl(p->fd, PTP_SYS_OFFSET_EXTENDED, &ext))
		return errno == ENOTTY || errno == EOPNOTSUPP ? -EOPNOTSUPP : -errno;
	for (uint32_t i = 0; i < SAMPLES; i++)
		for (uint32_t k = 0; k < 3; k++)
			triple[i][k] = ext.ts[i][k].sec * PV_NS_PER_S + ext.ts[i][k].nsec;
	return pv_phc_best((const int64_t(*)[3])triple, SAMPLES, out);
}
