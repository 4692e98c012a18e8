/* SPDX-License-Identifier: BSD-3-Clause */
#include "rt/agent_msg.h"

#include <string.h>

uint32_t pv_agent_parse(const void *data, size_t len, int32_t *result, const uint8_t **body, size_t *body_len)
{
	const uint8_t *at = data;
	struct pv_agent_head head;

	if (len < sizeof(head) + sizeof(*result) || len > PV_AGENT_MSG_MAX)
		return 0;
	memcpy(&head, at, sizeof(head));
	memcpy(result, at + sizeof(head), sizeof(*result));
	if (head.magic != PV_AGENT_MAGIC || head.version != PV_AGENT_VERSION || head.length != len ||
	    !(head.type & PV_AGENT_ANSWER) || *result > 0)
		return 0;
	*body = at + sizeof(head) + sizeof(*result);
	*body_len = len - sizeof(head) - sizeof(*result);
	return head.id;
}
