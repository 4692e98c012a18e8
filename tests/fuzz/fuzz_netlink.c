/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as rtnetlink messages, and as the answer to a question about a route. */
#include <stdlib.h>
#include <string.h>

#include "rt/netlink.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(void *ctx, const struct pv_nl_msg *msg)
{
	uint32_t *sum = ctx;

	if (memchr(msg->name, 0, sizeof(msg->name)) == NULL || msg->kind > PV_NL_ROUTE)
		abort();
	for (size_t i = 0; i < sizeof(msg->addr); i++)
		*sum += msg->addr.b[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Messages are aligned where the kernel writes them. */
	static _Alignas(8) uint8_t buf[65536];
	struct pv_nl_answer answer;
	uint32_t sum = 0;

	if (size > sizeof(buf))
		return 0;
	memcpy(buf, data, size);
	pv_nl_parse(buf, size, use, &sum);
	pv_nl_parse_route(buf, size, &answer);
	return 0;
}
