/* SPDX-License-Identifier: BSD-3-Clause */
/* A request is checked whole before anything changes: one that is refused has changed nothing. */
#include "rt/control_tune.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pyvma.h"
#include "rt/error.h"
#include "rt/log.h"
#include "rt/stats.h"
#include "rt/stats_dump.h"
#include "rt/tune.h"

typedef int (*tune_fn)(struct pv_engine *e, const struct pv_control_msg *in, struct pv_control_msg *out);

static int verb_tunables(struct pv_engine *e, const struct pv_control_msg *in, struct pv_control_msg *out)
{
	struct pv_config_live row;
	char text[192];

	(void)e;
	(void)in;
	for (uint32_t i = 0; !pv_config_live(i, &row); i++) {
		snprintf(text, sizeof(text), "%s %s %" PRId64 " %" PRId64 " %s", row.value, row.type, row.min, row.max, row.unit);
		pv_control_add(out, row.name, text);
	}
	return 0;
}

static int verb_tune(struct pv_engine *e, const struct pv_control_msg *in, struct pv_control_msg *out)
{
	const char *name = pv_control_value(in, "name"), *value = pv_control_value(in, "value");
	char old[64], now[64];
	int rc;

	if (!name || !value)
		return pv_error(-EINVAL, "tune: a name and a value are needed");
	if (pyvma_config_get(name, old, sizeof(old)) < 0)
		return pv_error(-ENOENT, "tune: there is no setting \"%s\"", name);
	rc = pv_tune(e, name, value);
	if (rc)
		return rc;
	pyvma_config_get(name, now, sizeof(now));
	pv_control_add(out, "old", old);
	pv_control_add(out, "new", now);
	return 0;
}

/* Both are tried on a copy first. */
static int check_log(const char *level, const char *details)
{
	struct pv_config trial;
	int rc = 0;

	pv_config_init(&trial);
	if (level)
		rc = pv_config_apply(&trial, "log_level", level, "log_level");
	if (!rc && details)
		rc = pv_config_apply(&trial, "log_details", details, "log_details");
	pv_config_fini(&trial);
	return rc;
}

static int verb_log_level(struct pv_engine *e, const struct pv_control_msg *in, struct pv_control_msg *out)
{
	const char *level = pv_control_value(in, "level"), *details = pv_control_value(in, "details");
	char text[64];
	int rc = check_log(level, details);

	if (!rc && level)
		rc = pv_tune(e, "log_level", level);
	if (!rc && details)
		rc = pv_tune(e, "log_details", details);
	if (rc)
		return rc;
	pyvma_config_get("log_level", text, sizeof(text));
	pv_control_add(out, "level", text);
	pyvma_config_get("log_details", text, sizeof(text));
	pv_control_add(out, "details", text);
	return 0;
}

static int verb_zero(struct pv_engine *e, const struct pv_control_msg *in, struct pv_control_msg *out)
{
	(void)e;
	(void)in;
	(void)out;
	pv_stats_zero();
	pv_log(PV_LOG_INFO, "control: counters begin again");
	return 0;
}

static int verb_dump(struct pv_engine *e, const struct pv_control_msg *in, struct pv_control_msg *out)
{
	const char *level = pv_control_value(in, "level");
	struct pv_config trial;
	uint64_t fd = UINT64_MAX;
	uint32_t n = 0;
	int rc;

	(void)e;
	rc = pv_control_number(in, "fd", INT32_MAX, &fd);
	if (!rc && fd == UINT64_MAX)
		rc = pv_error(-EINVAL, "dump: an fd is needed, 0: all");
	pv_config_init(&trial);
	if (!rc)
		rc = pv_config_apply(&trial, "log_level", level ? level : "info", "dump");
	if (!rc && trial.log_level == PV_LOG_NONE)
		rc = pv_error(-EINVAL, "dump: at level none nothing is logged");
	if (!rc) {
		n = pv_stats_dump((int)fd, (enum pv_log_level)trial.log_level);
		if (fd && !n)
			rc = pv_error(-EBADF, "dump: %d is no socket of pyvma's", (int)fd);
	}
	if (!rc) {
		pv_control_add_number(out, "sockets", n);
		pv_control_add_number(out, "shown", pv_log_shows((enum pv_log_level)trial.log_level));
	}
	pv_config_fini(&trial);
	return rc;
}

static const struct {
	const char *name;
	tune_fn fn;
	const char *keys[4]; /* that it knows */
} verbs[] = {
	{ "tunables", verb_tunables, { NULL } },
	{ "tune", verb_tune, { "name", "value", NULL } },
	{ "stats-zero", verb_zero, { NULL } },
	{ "dump", verb_dump, { "fd", "level", NULL } },
	{ "log-level", verb_log_level, { "level", "details", NULL } },
};

/* The list of what may change goes into one message. */
#define COUNT_ONE(n) +1
_Static_assert(0 PV_CONFIG_LIVE(COUNT_ONE) <= PV_CONTROL_PAIRS, "a message has room for so many");

int pv_control_tune(struct pv_engine *e, const struct pv_control_msg *in, struct pv_control_msg *out)
{
	for (size_t i = 0; i < pv_array_size(verbs); i++) {
		int rc;

		if (strcmp(in->verb, verbs[i].name))
			continue;
		rc = pv_control_only(in, verbs[i].keys);
		return rc ? rc : verbs[i].fn(e, in, out);
	}
	return pv_error(-EOPNOTSUPP, "control: \"%s\" is not known here", in->verb);
}
