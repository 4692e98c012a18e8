/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Capabilities that a device can be told to lack, so that programs meet the hardware that they do not have: "off=A+B" in a device's
 * specification, or PYVMA_SOFTNIC_OFF="A,B" for all devices that a process opens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softnic/vb.h"

static const struct {
	const char *name;
	uint32_t cap;
} names[] = {
	{ "tso", VB_CAP_TSO },
	{ "dm", VB_CAP_DM },
	{ "pacing", VB_CAP_PACING },
	{ "pacing-burst", VB_CAP_PACING_BURST },
	{ "csum", VB_CAP_CSUM },
	{ "timestamps", VB_CAP_TIMESTAMPS },
	{ "wallclock", VB_CAP_WALLCLOCK },
	{ "clock", VB_CAP_CLOCK },
	{ "clock-info", VB_CAP_CLOCK_INFO },
	{ "extended", VB_CAP_EXTENDED },
	{ "cq-ex", VB_CAP_CQ_EX },
	{ "inline", VB_CAP_INLINE },
	{ "vlan-strip", VB_CAP_VLAN_STRIP },
	{ "rss", VB_CAP_RSS },
	{ "flow", VB_CAP_FLOW },
};

static uint32_t find(const char *s, size_t len)
{
	for (size_t i = 0; i < pv_array_size(names); i++) {
		if (strlen(names[i].name) == len && !memcmp(names[i].name, s, len))
			return names[i].cap;
	}
	return 0;
}

int vb_caps_parse(const char *s, size_t len, char sep, uint32_t *off)
{
	const char *end = s + len, *next;

	for (;; s = next + 1) {
		uint32_t cap;

		next = memchr(s, sep, (size_t)(end - s));
		cap = find(s, (size_t)((next ? next : end) - s));
		if (!cap)
			return -EINVAL;
		*off |= cap;
		if (!next)
			return 0;
	}
}

int vb_caps_from_env(uint32_t *off)
{
	const char *s = getenv("PYVMA_SOFTNIC_OFF");
	char known[192];
	size_t n = 0;

	if (!s || !*s || !vb_caps_parse(s, strlen(s), ',', off))
		return 0;
	for (size_t i = 0; i < pv_array_size(names) && n < sizeof(known); i++)
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "", names[i].name);
	vb_open_error("PYVMA_SOFTNIC_OFF=\"%.64s\": names separated by commas, of %s", s, known);
	return -EINVAL;
}
