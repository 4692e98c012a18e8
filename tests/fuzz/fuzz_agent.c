/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as the daemon's answer. */
#include "fuzz.h"

#include "rt/agent_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *body = NULL;
	int32_t result = 1;
	size_t len = 0;
	uint32_t id = pv_agent_parse(data, size, &result, &body, &len);

	if (!id)
		return 0;
	REQUIRE(result <= 0 && size <= PV_AGENT_MSG_MAX);
	REQUIRE(body >= data && body + len == data + size);
	return 0;
}
