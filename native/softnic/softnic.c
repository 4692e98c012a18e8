/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of softnic.h: what a test or an operator does to a device that no verb can.
 *
 * They work on a port, not on a context: each attaches, acts and detaches. The fabric stays as long as anybody is on it, so set up a
 * link or impairments while some context on the fabric is open.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"
#include "softnic/softnic.h"

int softnic_device_add(const char *spec, char *name, size_t size)
{
	struct vb_device *d;
	int rc = vb_device_add(spec, &d);

	if (rc)
		return rc;
	if (name && (size_t)snprintf(name, size, "%s", d->ibv.name) >= size)
		return -ENOSPC;
	return 0;
}

const char *softnic_open_error(void)
{
	return vb_open_error_text();
}

int vb_visit_begin(struct vb_visit *v, const char *device)
{
	const struct vb_device *d = vb_device_find(device);
	int rc;

	if (!d)
		return -ENODEV;
	rc = sn_fabric_open(d->fabric, &v->fabric);
	if (rc)
		return rc;
	rc = sn_port_attach(v->fabric, d->port, &d->cfg, &v->port);
	if (rc)
		sn_fabric_close(v->fabric);
	return rc;
}

void vb_visit_end(struct vb_visit *v)
{
	sn_port_detach(v->port);
	sn_fabric_close(v->fabric);
}

/* ---- impairments ------------------------------------------------------------------------------------------------------------------ */

struct unit {
	const char *name;
	double factor;
};

static const struct unit time_units[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { NULL, 0 } };
static const struct unit rate_units[] = { { "bit", 1e-3 }, { "kbit", 1 }, { "Mbit", 1e3 }, { "Gbit", 1e6 }, { NULL, 0 } };
static const struct unit share_units[] = { { "", 1e6 }, { "%", 1e4 }, { NULL, 0 } };
static const struct unit count_units[] = { { "", 1 }, { NULL, 0 } };

static const struct {
	const char *name;
	const struct unit *units;
	double max; /* in the target's unit */
	size_t offset;
	bool wide;
} options[] = {
	{ "loss", share_units, 1e6, offsetof(struct sn_impairments, loss_ppm), false },
	{ "duplicate", share_units, 1e6, offsetof(struct sn_impairments, duplicate_ppm), false },
	{ "corrupt", share_units, 1e6, offsetof(struct sn_impairments, corrupt_ppm), false },
	{ "reorder", share_units, 1e6, offsetof(struct sn_impairments, reorder_ppm), false },
	{ "delay", time_units, 60e9, offsetof(struct sn_impairments, delay_ns), true },
	{ "jitter", time_units, 60e9, offsetof(struct sn_impairments, jitter_ns), true },
	{ "rate", rate_units, 1e12, offsetof(struct sn_impairments, rate_kbps), true },
	{ "seed", count_units, 9007199254740992.0, offsetof(struct sn_impairments, seed), true },
};

static int option_set(struct sn_impairments *imp, size_t i, const char *text)
{
	const struct unit *u = options[i].units;
	char *end;
	double v = strtod(text, &end);

	if (end == text || !(v >= 0))
		return -EINVAL;
	/* A plain 0 needs no unit. */
	while (u->name && strcmp(u->name, end) && (v != 0 || *end))
		u++;
	if (!u->name || v * u->factor > options[i].max)
		return -EINVAL;
	if (options[i].wide)
		*(uint64_t *)((char *)imp + options[i].offset) = (uint64_t)(v * u->factor + 0.5);
	else
		*(uint32_t *)((char *)imp + options[i].offset) = (uint32_t)(v * u->factor + 0.5);
	return 0;
}

int vb_impair_parse(const char *spec, struct sn_impairments *imp)
{
	char buf[256], *save, *item;

	memset(imp, 0, sizeof(*imp));
	if (strlen(spec) >= sizeof(buf))
		return -EINVAL;
	strcpy(buf, spec);
	for (item = strtok_r(buf, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(item, '=');
		size_t i;

		if (!eq)
			return -EINVAL;
		*eq = 0;
		for (i = 0; i < pv_array_size(options) && strcmp(options[i].name, item); i++)
			;
		if (i == pv_array_size(options) || option_set(imp, i, eq + 1))
			return -EINVAL;
	}
	return 0;
}

int softnic_impair(const char *device, const char *spec)
{
	struct sn_impairments imp;
	struct vb_visit v;
	int rc = vb_impair_parse(spec, &imp);

	if (!rc)
		rc = vb_visit_begin(&v, device);
	if (rc)
		return rc;
	rc = sn_port_impair(v.port, &imp);
	vb_visit_end(&v);
	return rc;
}

/* ---- counters and link ------------------------------------------------------------------------------------------------------------- */

#define COUNTER(name)                                                                                                              \
	{                                                                                                                          \
#name, offsetof(struct sn_port_counters, name)                                                                     \
	}
static const struct {
	const char *name;
	size_t offset;
} counters[] = {
	COUNTER(tx_packets),    COUNTER(tx_bytes),      COUNTER(rx_packets),   COUNTER(rx_bytes),     COUNTER(tx_impaired_loss),
	COUNTER(tx_duplicated), COUNTER(tx_corrupted),  COUNTER(tx_reordered), COUNTER(tx_link_down), COUNTER(rx_no_rule),
	COUNTER(rx_rule_drop),  COUNTER(rx_queue_full), COUNTER(rx_too_long),  COUNTER(rx_link_down), COUNTER(tx_too_long),
};

int softnic_counters(const char *device, char *buf, size_t size)
{
	struct sn_port_counters c;
	struct vb_visit v;
	uint8_t mac[6];
	int rc = vb_visit_begin(&v, device);

	if (rc)
		return rc;
	sn_port_get_counters(v.port, &c);
	sn_port_mac(v.port, mac);
	rc = snprintf(buf, size, "{\"device\": \"%s\", \"mac\": \"%02x:%02x:%02x:%02x:%02x:%02x\", \"mtu\": %u, \"link_up\": %s",
		      device, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], sn_port_mtu(v.port),
		      sn_port_link(v.port) ? "true" : "false");
	for (size_t i = 0; i < pv_array_size(counters); i++) {
		uint64_t value = *(const uint64_t *)((const char *)&c + counters[i].offset);

		rc += snprintf((size_t)rc < size ? buf + rc : NULL, (size_t)rc < size ? size - (size_t)rc : 0, ", \"%s\": %llu",
			       counters[i].name, (unsigned long long)value);
	}
	rc += snprintf((size_t)rc < size ? buf + rc : NULL, (size_t)rc < size ? size - (size_t)rc : 0, "}");
	vb_visit_end(&v);
	return rc;
}

int softnic_plug(const char *device, int in)
{
	struct vb_visit v;
	int rc = vb_visit_begin(&v, device);

	if (rc)
		return rc;
	sn_port_plug(v.port, in != 0);
	vb_visit_end(&v);
	return 0;
}

int softnic_set_link(const char *device, int up)
{
	struct vb_visit v;
	int rc = vb_visit_begin(&v, device);

	if (rc)
		return rc;
	sn_port_set_link(v.port, up != 0);
	vb_visit_end(&v);
	return 0;
}
