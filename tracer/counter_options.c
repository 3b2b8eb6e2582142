// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "options.h"

#include <linux/perf_event.h>
#include <string.h>

#include "probes.h"
#include "root/protocol.h"

/* more=TYPE:CONFIG, and whether it counts user space or the kernel only. */
static int more(struct options *o, const char *value)
{
	struct counter_option *counter = &o->counters[QJ_COUNTERS + o->more_counters];
	const char *where = strrchr(value, ':');
	char config[24] = "";
	uint64_t type;

	if (o->more_counters == QJ_MORE || !plan_number(value, ':', UINT32_MAX - 1, &type, &value))
		return -1;
	counter->flags = 0;
	if (!strcmp(where, ":u"))
		counter->flags = RP_COUNTER_USER;
	else if (!strcmp(where, ":k"))
		counter->flags = RP_COUNTER_KERNEL;
	else
		where = value + strlen(value);
	if (where < value || (size_t)(where - value) >= sizeof(config))
		return -1;
	memcpy(config, value, where - value);
	if (!plan_number(config, '\0', UINT64_MAX, &counter->config, NULL))
		return -1;
	counter->type = type;
	o->more_counters++;
	return 0;
}

int counter_option(struct options *o, const char *value)
{
	static const uint64_t hardware[] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
					    PERF_COUNT_HW_CACHE_MISSES};
	size_t length = strcspn(value, "=");
	uint64_t type = PERF_TYPE_HARDWARE, config;

	if (!strncmp(value, "more=", 5))
		return more(o, value + 5);
	for (int i = 0; i < QJ_COUNTERS; i++) {
		if (strlen(counter_names[i]) != length || strncmp(counter_names[i], value, length))
			continue;
		config = hardware[i];
		value += length;
		if (*value && (!plan_number(value + 1, ':', UINT32_MAX - 1, &type, &value) ||
			       !plan_number(value, '\0', UINT64_MAX, &config, NULL)))
			return -1;
		o->counters[i].type = type;
		o->counters[i].config = config;
		return 0;
	}
	return -1;
}
