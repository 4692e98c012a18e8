/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings, from least to most: defaults, those of the preset, the file named by PYVMA_CONFIG, VMA_* variables, PYVMA_* variables, pyvma_config_set.
 *
 * A misspelt variable must not be silently without effect, so a PYVMA_* name that no row has is an error. Three names are not
 * settings: PYVMA_CONFIG (the file), PYVMA_SOFTNIC and PYVMA_SOFTNIC_OFF (the software NIC's own). VMA_* names that have no row are
 * left alone: a script written for VMA sets dozens.
 */
#include "rt/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "pyvma.h"
#include "rt/error.h"
#include "rt/log.h"

extern char **environ;

enum config_kind { KIND_BOOL, KIND_INT, KIND_LEVEL, KIND_CHOICE, KIND_TEXT };

struct config_row {
	const char *name, *def, *unit, *alias, *help;
	enum config_kind kind;
	size_t off;
	int64_t min, max, alias_div;
};

static const struct config_row config_rows[] = {
#define PV_CONFIG_ROW(k, n, d, lo, hi, u, a, div, h)                                                                               \
	{ .name = #n,                                                                                                              \
	  .def = d,                                                                                                                \
	  .unit = u,                                                                                                               \
	  .alias = a,                                                                                                              \
	  .help = h,                                                                                                               \
	  .kind = KIND_##k,                                                                                                        \
	  .off = offsetof(struct pv_config, n),                                                                                    \
	  .min = lo,                                                                                                               \
	  .max = hi,                                                                                                               \
	  .alias_div = div },
	PV_CONFIG_TABLE(PV_CONFIG_ROW)
};
#define CONFIG_ROWS pv_array_size(config_rows)

_Static_assert(CONFIG_ROWS <= 64, "the parser of files keeps a bit a setting");

static const char *const kind_names[] = { "bool", "int", "level", "choice", "text" };
static const char *const level_names[] = { "none", "error", "warn", "info", "debug" };

static pthread_mutex_t config_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct pv_config config_values;
static bool config_loaded, config_frozen;
static int config_rc;
static char config_rc_text[1024];

/* Of PV_CONFIG_LIVE; its names are those of fields, or this does not compile. */
static bool row_live(const struct config_row *row)
{
	static const size_t live[] = {
#define PV_CONFIG_LIVE_OFF(n) offsetof(struct pv_config, n),
		PV_CONFIG_LIVE(PV_CONFIG_LIVE_OFF)
	};

	for (size_t i = 0; i < pv_array_size(live); i++)
		if (live[i] == row->off)
			return true;
	return false;
}

static const struct config_row *row_find(const char *name)
{
	for (size_t i = 0; i < CONFIG_ROWS; i++)
		if (!strcmp(config_rows[i].name, name))
			return &config_rows[i];
	return NULL;
}

int pv_config_index(const char *name)
{
	const struct config_row *row = row_find(name);

	return row ? (int)(row - config_rows) : -1;
}

static void *row_field(struct pv_config *cfg, const struct config_row *row)
{
	return (char *)cfg + row->off;
}

static bool parse_bool(const char *v, bool *out)
{
	static const char *const yes[] = { "1", "true", "yes", "on" }, *const no[] = { "0", "false", "no", "off" };

	for (size_t i = 0; i < pv_array_size(yes); i++) {
		if (!strcasecmp(v, yes[i])) {
			*out = true;
			return true;
		}
		if (!strcasecmp(v, no[i])) {
			*out = false;
			return true;
		}
	}
	return false;
}

/* A decimal or 0x number with an optional K, M or G (powers of 1024). */
static bool parse_int(const char *v, int64_t *out)
{
	char *end;
	int shift = 0;

	errno = 0;
	long long n = strtoll(v, &end, v[0] == '0' && (v[1] == 'x' || v[1] == 'X') ? 16 : 10);

	if (end == v || errno || isspace((unsigned char)*v))
		return false;
	switch (*end) {
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'g':
	case 'G':
		shift = 30;
		break;
	}
	if (end[shift != 0])
		return false;
	return !__builtin_mul_overflow(n, INT64_C(1) << shift, out);
}

/* VMA's levels go from -1 (none) to 8 (all); what has no counterpart takes the nearest. */
static bool parse_level(const char *v, bool vma, int64_t *out)
{
	static const struct {
		const char *name;
		int64_t level;
	} more[] = { { "panic", 1 }, { "warning", 2 }, { "details", 4 }, { "fine", 4 }, { "finer", 4 }, { "all", 4 } };

	for (size_t i = 0; i < pv_array_size(level_names); i++)
		if (!strcasecmp(v, level_names[i])) {
			*out = (int64_t)i;
			return true;
		}
	for (size_t i = 0; i < pv_array_size(more); i++)
		if (!strcasecmp(v, more[i].name)) {
			*out = more[i].level;
			return true;
		}
	int64_t n;

	if (!parse_int(v, &n))
		return false;
	if (vma) {
		static const int8_t map[] = { 0, 1, 1, 2, 3, 4, 4, 4, 4, 4 }; /* from -1 */

		if (n < -1 || n > 8)
			return false;
		*out = map[n + 1];
		return true;
	}
	*out = n;
	return n >= 0 && n < (int64_t)pv_array_size(level_names);
}

/* The `n`-th of the names in `list`, which commas part; its length, 0: there are not so many. */
static size_t choice_name(const char *list, int64_t n, const char **name)
{
	for (; n > 0 && list; n--) {
		list = strchr(list, ',');
		list = list ? list + 1 : NULL;
	}
	*name = list;
	return list ? strcspn(list, ",") : 0;
}

/* One of the names in `list`, or its number. */
static bool parse_choice(const char *v, const char *list, int64_t *out)
{
	const char *name;
	size_t len;
	int64_t n;

	for (n = 0; (len = choice_name(list, n, &name)); n++)
		if (strlen(v) == len && !strncasecmp(v, name, len)) {
			*out = n;
			return true;
		}
	return v[0] && !v[strspn(v, "0123456789")] && (v[0] != '0' || !v[1]) && parse_int(v, out) && *out < n;
}

/* VMA_SPEC may be a number, which is not ours. */
static const char *spec_name(const char *v)
{
	static const struct {
		const char *number, *name;
	} specs[] = { { "0", "none" },        { "10", "ultra-latency" }, { "15", "latency" },  { "29", "29west" },
		      { "554", "wombat_fh" }, { "623", "mcd" },          { "624", "mcd-irq" }, { "784", "rti" } };

	for (size_t i = 0; i < pv_array_size(specs); i++)
		if (!strcmp(v, specs[i].number))
			return specs[i].name;
	return v;
}

static int row_set(struct pv_config *cfg, const struct config_row *row, const char *value, const char *where, bool vma)
{
	void *field = row_field(cfg, row);
	int64_t n;
	char *copy;

	switch (row->kind) {
	case KIND_BOOL:
		if (!parse_bool(value, field))
			return pv_error(-EINVAL, "%s: \"%s\" is not a switch: 1, true, yes, on or 0, false, no, off", where, value);
		return 0;
	case KIND_LEVEL:
		if (!parse_level(value, vma, &n))
			return pv_error(-EINVAL, "%s: \"%s\" is not a log level: none, error, warn, info, debug or 0 to 4", where,
					value);
		*(int64_t *)field = n;
		return 0;
	case KIND_CHOICE:
		if (!parse_choice(vma && !strcmp(row->name, "preset") ? spec_name(value) : value, row->unit, &n))
			return pv_error(-EINVAL, "%s: \"%s\" is not one of %s, nor the number of one, from 0", where, value,
					row->unit);
		*(int64_t *)field = n;
		return 0;
	case KIND_INT:
		if (!parse_int(value, &n))
			return pv_error(-EINVAL, "%s: \"%s\" is not a whole number (K, M or G may follow)", where, value);
		if (vma && n > 0)
			n = PV_MAX(n / row->alias_div, INT64_C(1));
		if (n < row->min || n > row->max)
			return pv_error(-EINVAL, "%s: %s is out of range: %lld to %lld%s%s", where, value, (long long)row->min,
					(long long)row->max, *row->unit ? " " : "", row->unit);
		*(int64_t *)field = n;
		return 0;
	case KIND_TEXT:
		if (strlen(value) > PV_CONFIG_TEXT_MAX)
			return pv_error(-EINVAL, "%s: longer than %d bytes", where, PV_CONFIG_TEXT_MAX);
		copy = strdup(value);
		if (!copy)
			return pv_error(-ENOMEM, "%s: no memory", where);
		free(*(char **)field);
		*(char **)field = copy;
		return 0;
	}
	return -EINVAL;
}

/* The same, by the setting's own name. */
static int row_give(struct pv_config *cfg, const struct config_row *row, const char *value, const char *where, bool vma)
{
	int rc = row_set(cfg, row, value, where, vma);

	if (!rc)
		cfg->given |= UINT64_C(1) << (row - config_rows);
	return rc;
}

int pv_config_apply(struct pv_config *cfg, const char *name, const char *value, const char *where)
{
	const struct config_row *row = row_find(name);

	if (!row)
		return pv_error(-ENOENT, "%s: there is no setting \"%s\"", where, name);
	return row_give(cfg, row, value, where, false);
}

/* One of a preset's "name=value", at `pair`, `len` bytes. */
static int preset_apply(struct pv_config *cfg, const char *pair, size_t len)
{
	const struct config_row *row;
	char text[128], *value;

	snprintf(text, sizeof(text), "%.*s", (int)len, pair);
	value = strchr(text, '=');
	if (!value)
		return pv_error(-EINVAL, "preset: \"%s\" is no setting", text);
	*value++ = '\0';
	row = row_find(text);
	if (!row)
		return pv_error(-EINVAL, "preset: there is no setting \"%s\"", text);
	return cfg->given >> (row - config_rows) & 1 ? 0 : row_set(cfg, row, value, "preset", false);
}

int pv_config_preset(struct pv_config *cfg)
{
	static const char *const presets[] = { "",
#define PV_CONFIG_PRESET_TEXT(name, text) text,
					       PV_CONFIG_PRESETS(PV_CONFIG_PRESET_TEXT) };
	const struct config_row *own = row_find("preset");
	int rc = 0;

	for (size_t i = 0; i < CONFIG_ROWS && !rc; i++) /* those of a preset before this one */
		if (!(cfg->given >> i & 1) && &config_rows[i] != own)
			rc = row_set(cfg, &config_rows[i], config_rows[i].def, config_rows[i].name, false);
	for (const char *p = presets[cfg->preset]; *p && !rc; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");

		rc = preset_apply(cfg, p, len);
		p += len;
	}
	return rc;
}

void pv_config_init(struct pv_config *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	for (size_t i = 0; i < CONFIG_ROWS; i++)
		row_set(cfg, &config_rows[i], config_rows[i].def, config_rows[i].name, false);
}

void pv_config_fini(struct pv_config *cfg)
{
	for (size_t i = 0; i < CONFIG_ROWS; i++) {
		if (config_rows[i].kind != KIND_TEXT)
			continue;
		free(*(char **)row_field(cfg, &config_rows[i]));
		*(char **)row_field(cfg, &config_rows[i]) = NULL;
	}
}

static int load_file(struct pv_config *cfg, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0) {
		int rc = -errno;

		if (fd >= 0)
			close(fd);
		return pv_error(rc, "PYVMA_CONFIG: %s: %s", path, strerror(-rc));
	}
	if (!S_ISREG(st.st_mode) || st.st_size > 1 << 20) {
		close(fd);
		return pv_error(-EINVAL, "PYVMA_CONFIG: %s: not a file of at most 1 MiB", path);
	}
	char *text = malloc((size_t)st.st_size + 1);
	ssize_t n = text ? read(fd, text, (size_t)st.st_size) : -1;
	int rc = n < 0 ? pv_error(-EIO, "PYVMA_CONFIG: %s: cannot be read", path) : pv_config_parse(cfg, text, (size_t)n, path);

	free(text);
	close(fd);
	return rc;
}

static int load_vma(struct pv_config *cfg)
{
	for (size_t i = 0; i < CONFIG_ROWS; i++) {
		const struct config_row *row = &config_rows[i];
		const char *value = row->alias ? getenv(row->alias) : NULL;
		int rc = value && *value ? row_give(cfg, row, value, row->alias, true) : 0;

		if (rc)
			return rc;
	}
	return 0;
}

static int load_env(struct pv_config *cfg)
{
	for (char **e = environ; e && *e; e++) {
		char name[64], *lower = name;
		const char *eq = strchr(*e, '=');

		if (strncmp(*e, "PYVMA_", 6) || !eq || !strncmp(*e, "PYVMA_CONFIG=", 13) || !strncmp(*e, "PYVMA_SOFTNIC=", 14) ||
		    !strncmp(*e, "PYVMA_SOFTNIC_OFF=", 18))
			continue;
		if ((size_t)(eq - *e) >= sizeof(name))
			return pv_error(-EINVAL, "%.*s: there is no such setting", (int)(eq - *e), *e);
		for (const char *c = *e + 6; c < eq; c++)
			*lower++ = (char)tolower((unsigned char)*c);
		*lower = '\0';

		char where[64];

		snprintf(where, sizeof(where), "%.*s", (int)(eq - *e), *e);
		if (!row_find(name))
			return pv_error(-EINVAL, "%s: there is no such setting (`pyvma config` lists all)", where);
		int rc = pv_config_apply(cfg, name, eq + 1, where);

		if (rc)
			return rc;
	}
	return 0;
}

/* config_mutex is held. The outcome is kept: every later caller hears of the same mistake. */
static int config_ensure(void)
{
	if (config_loaded) {
		if (config_rc)
			pv_error(config_rc, "%s", config_rc_text);
		return config_rc;
	}
	const char *path = getenv("PYVMA_CONFIG");

	pv_config_init(&config_values);
	config_rc = path && *path ? load_file(&config_values, path) : 0;
	if (!config_rc)
		config_rc = load_vma(&config_values);
	if (!config_rc)
		config_rc = load_env(&config_values);
	if (!config_rc && config_values.preset)
		config_rc = pv_config_preset(&config_values);
	if (config_rc)
		snprintf(config_rc_text, sizeof(config_rc_text), "%s", pv_error_text());
	config_loaded = true;
	return config_rc;
}

int pv_config_load(const struct pv_config **out)
{
	pthread_mutex_lock(&config_mutex);
	int rc = config_ensure();

	*out = &config_values;
	pthread_mutex_unlock(&config_mutex);
	return rc;
}

void pv_config_freeze(void)
{
	pthread_mutex_lock(&config_mutex);
	config_frozen = true;
	pthread_mutex_unlock(&config_mutex);
}

void pv_config_thaw(void)
{
	pthread_mutex_lock(&config_mutex);
	config_frozen = false;
	pthread_mutex_unlock(&config_mutex);
}

int pyvma_config_set(const char *name, const char *value)
{
	int rc;

	if (!name || !value)
		return pv_error(-EINVAL, "a setting needs a name and a value");
	pthread_mutex_lock(&config_mutex);
	rc = config_ensure();
	if (config_frozen)
		rc = pv_error(-EBUSY, "%s: settings can be made only before the first socket", name);
	else if (!rc)
		rc = row_find(name) ? pv_config_apply(&config_values, name, value, name)
				    : pv_error(-EINVAL, "%s: there is no such setting", name);
	if (!rc && !strcmp(name, "preset"))
		rc = pv_config_preset(&config_values);
	pthread_mutex_unlock(&config_mutex);
	return rc;
}

/* config_mutex is held; as snprintf. */
static int row_text(const struct config_row *row, char *buf, size_t size)
{
	const void *field = row_field(&config_values, row);
	const char *choice;
	size_t n;

	switch (row->kind) {
	case KIND_BOOL:
		return snprintf(buf, size, "%d", *(const bool *)field);
	case KIND_INT:
		return snprintf(buf, size, "%lld", (long long)*(const int64_t *)field);
	case KIND_LEVEL:
		return snprintf(buf, size, "%s", level_names[*(const int64_t *)field]);
	case KIND_CHOICE:
		n = choice_name(row->unit, *(const int64_t *)field, &choice);
		return snprintf(buf, size, "%.*s", (int)n, choice);
	case KIND_TEXT:
		return snprintf(buf, size, "%s", *(char *const *)field ? *(char *const *)field : "");
	}
	return -ENOENT;
}

int pyvma_config_get(const char *name, char *buf, size_t size)
{
	const struct config_row *row = name ? row_find(name) : NULL;
	int rc;

	if (!row)
		return pv_error(-ENOENT, "%s: there is no such setting", name ? name : "(null)");
	pthread_mutex_lock(&config_mutex);
	config_ensure();
	rc = row_text(row, buf, size);
	pthread_mutex_unlock(&config_mutex);
	return rc;
}

int pv_config_tune(const char *name, const char *value, const char *where)
{
	const struct config_row *row = row_find(name);
	int rc;

	if (!row)
		return pv_error(-ENOENT, "%s: there is no setting \"%s\"", where, name);
	if (!row_live(row))
		return pv_error(-EPERM, "%s: %s cannot change while the process runs", where, name);
	pthread_mutex_lock(&config_mutex);
	rc = row_set(&config_values, row, value, where, false);
	pthread_mutex_unlock(&config_mutex);
	return rc;
}

int pv_config_live(uint32_t i, struct pv_config_live *out)
{
	for (size_t k = 0; k < CONFIG_ROWS; k++) {
		const struct config_row *row = &config_rows[k];

		if (!row_live(row) || i--)
			continue;
		*out = (struct pv_config_live){
			.name = row->name, .type = kind_names[row->kind], .unit = row->unit, .min = row->min, .max = row->max
		};
		pthread_mutex_lock(&config_mutex);
		row_text(row, out->value, sizeof(out->value));
		pthread_mutex_unlock(&config_mutex);
		return 0;
	}
	return -ENOENT;
}

int pyvma_config_row(unsigned int i, struct pyvma_config_row *row)
{
	if (i >= CONFIG_ROWS)
		return -ENOENT;
	const struct config_row *r = &config_rows[i];
	bool given;

	pthread_mutex_lock(&config_mutex);
	given = config_values.given >> i & 1;
	pthread_mutex_unlock(&config_mutex);
	*row = (struct pyvma_config_row){ .name = r->name,
					  .type = kind_names[r->kind],
					  .unit = r->unit,
					  .vma_alias = r->alias ? r->alias : "",
					  .default_value = r->def,
					  .help = r->help,
					  .live = row_live(r),
					  .given = given };
	return 0;
}
