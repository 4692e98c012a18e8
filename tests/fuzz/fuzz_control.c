/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of the control socket, filters in words, and frames to match them with: any bytes give an answer or an error with a text. */
#include "fuzz.h"

#include <errno.h>

#include "rt/config.h"
#include "rt/control_msg.h"
#include "rt/error.h"
#include "rt/filter.h"

static void message(const uint8_t *data, size_t size)
{
	static const char *const keys[] = { "iface", "snaplen", "count", "bytes", "filter", NULL };
	static struct pv_control_msg in, out;
	uint64_t n = 7;
	int rc = pv_control_parse(&in, data, size);

	REQUIRE(rc == 0 || *pv_error_text());
	REQUIRE(in.n <= PV_CONTROL_PAIRS);
	pv_control_begin(&out, rc ? "error" : in.verb);
	for (uint32_t i = 0; i < in.n; i++) {
		REQUIRE(pv_control_value(&in, in.pair[i].key) == in.pair[i].value);
		pv_control_add(&out, in.pair[i].key, in.pair[i].value);
	}
	REQUIRE(out.len <= PV_CONTROL_MSG_MAX);
	(void)pv_control_only(&in, keys);
	rc = pv_control_number(&in, "count", 1000, &n);
	REQUIRE(rc == -EINVAL || n <= 1000);
	for (uint32_t i = 0; i < in.n; i++) {
		rc = pv_config_tune(in.pair[i].key, in.pair[i].value, "tune");
		REQUIRE(rc == 0 || ((rc == -ENOENT || rc == -EPERM || rc == -EINVAL) && *pv_error_text()));
	}
	/* What was taken apart and put together is the same message. */
	if (out.len && pv_control_parse(&in, out.text, out.len) == 0)
		REQUIRE(in.n <= PV_CONTROL_PAIRS);
}

static void filter(struct script *s)
{
	char text[PV_FILTER_TEXT_MAX + 8];
	uint8_t frame[256];
	struct pv_filter f;
	struct pv_pkt pkt = { .data = frame, .buf = frame };
	uint32_t n = script_bytes(s, (uint8_t *)text, sizeof(text) - 1);
	int rc;

	text[n] = '\0';
	rc = pv_filter_parse(text, &f);
	REQUIRE(rc == 0 || *pv_error_text());
	REQUIRE(f.n <= PV_FILTER_TERMS);
	pkt.len = script_bytes(s, frame, sizeof(frame));
	pkt.flags = script_8(s) & 1 ? PV_PKT_VLAN : 0;
	pkt.vlan_tci = script_16(s);
	if (rc == 0)
		(void)pv_filter_match(&f, &pkt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = { data + 1, data + size };

	if (!size)
		return 0;
	if (data[0] & 1)
		message(data + 1, size - 1);
	else
		filter(&s);
	return 0;
}
