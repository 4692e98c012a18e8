/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings from a file, single values, and interface entries: any bytes give settings or an error with a text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rt/config.h"
#include "rt/error.h"
#include "rt/ifspec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		abort();
}

static void fuzz_interfaces(const char *text)
{
	static struct pv_ifspec specs[8];
	int n = pv_ifspec_parse(text, specs, 8);

	must(n <= 8 && (n >= 0 || *pv_error_text()));
	for (int i = 0; i < n; i++) {
		must(specs[i].naddr <= PV_IFACE_ADDR_MAX && !specs[i].naddr == (*specs[i].netdev != '\0'));
		must(memchr(specs[i].netdev, 0, sizeof(specs[i].netdev)) != NULL);
		must(memchr(specs[i].name, 0, sizeof(specs[i].name)) != NULL && *specs[i].name);
		must(specs[i].vlan <= 4094 && !(specs[i].mac[0] & 1));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pv_config cfg;
	char *text;

	if (!size)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	pv_config_init(&cfg);
	if (data[0] & 1) {
		fuzz_interfaces(text);
	} else {
		int rc = pv_config_parse(&cfg, text, size - 1, "fuzz");

		must(rc == 0 || *pv_error_text());
		must(cfg.rx_poll >= -1 && cfg.rx_depth >= 16 && cfg.rx_depth <= 32768 && cfg.log_level <= 4);
	}
	pv_config_fini(&cfg);
	free(text);
	return 0;
}
