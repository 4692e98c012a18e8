/* SPDX-License-Identifier: BSD-3-Clause */
/* Rule files: any bytes give rules or an error that names a line; and whatever was read can be asked about any address. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rt/error.h"
#include "rt/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		abort();
}

static void ask(const struct pv_rules *rules, const uint8_t *data, size_t size)
{
	struct pv_endpoint first = { .port = 80 }, second = { .port = 1024 };

	memcpy(&first.addr, data, size < 16 ? size : 16);
	second.addr = pv_addr_from4("\x7f\0\0\1");
	for (int role = 0; role < PV_RULE_ROLES; role++) {
		const struct pv_rule *r = pv_rules_match(rules, (enum pv_rule_role)role, &first, role & 1 ? &second : NULL);

		must(!r || (r->role == (enum pv_rule_role)role && r >= rules->rule && r < rules->rule + rules->n));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pv_rules_for who = { .program = "program", .id = "id" };
	struct pv_rules *rules;
	char *text = malloc(size ? size : 1);
	int rc;

	memcpy(text, data, size); /* no byte more than there is */
	rc = pv_rules_parse("fuzz.conf", text, size, who, &rules);
	must(rc == 0 ? rules != NULL : !rules && !strncmp(pv_error_text(), "fuzz.conf:", 10));
	if (rules) {
		for (uint32_t i = 0; i < rules->n; i++) {
			const struct pv_rule *r = &rules->rule[i];

			must(r->number && r->line && strstr(r->name, "fuzz.conf") && !strncmp(r->text, "use", 3));
			must(r->first.low <= r->first.high && r->second.low <= r->second.high && (rules->roles >> r->role & 1));
		}
		ask(rules, data, size);
	}
	pv_rules_free(rules);
	free(text);
	return 0;
}
