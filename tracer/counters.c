// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Hardware counters: their option, a perf event per counter and CPU, and the programs' maps. */
#include "probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "root/protocol.h"
#include "system.h"

#define ALL (QJ_COUNTERS + QJ_MORE)

const char *const counter_names[QJ_COUNTERS] = {"cycles", "instructions", "llc-misses"};

struct counters {
	const struct qj_cpu *cpus;
	unsigned cpu_count;
	unsigned mask;
	int fds[]; /* cpu_count entries for each of ALL counters; -1: none */
};

/* Opens counter `i` on every CPU that has it. Prints a line on stderr if some CPUs lack it. */
static void open_on_all(struct counters *counters, unsigned i, const struct counter_option *option)
{
	unsigned missing = 0;
	char name[32];
	int err = 0;

	snprintf(name, sizeof(name), "more %u", i - QJ_COUNTERS);
	if (i < QJ_COUNTERS)
		snprintf(name, sizeof(name), "%s", counter_names[i]);

	for (unsigned c = 0; c < counters->cpu_count; c++) {
		int fd = root_part_counter(option->type, option->config, counters->cpus[c].cpu,
					   RP_COUNTER_TIMES | option->flags);

		counters->fds[i * counters->cpu_count + c] = fd;
		if (fd < 0) {
			err = -fd;
			missing++;
		}
	}
	if (err == ECONNRESET) /* the root part has ended, so attaching fails and reports it */
		return;
	if (missing == counters->cpu_count)
		fprintf(stderr, "qjoule-tracer: counter %s is not available: %s\n", name,
			strerror(err));
	else if (missing)
		fprintf(stderr, "qjoule-tracer: counter %s is not available on %u of %u CPUs: %s\n",
			name, missing, counters->cpu_count, strerror(err));
	if (missing < counters->cpu_count)
		counters->mask |= 1u << i;
}

struct counters *counters_open(const struct options *options, const struct qj_cpu *cpus,
			       unsigned cpu_count, bool early)
{
	size_t bytes = ALL * cpu_count * sizeof(int);
	struct counters *counters = calloc(1, sizeof(*counters) + bytes);
	bool asked = false;

	if (!counters)
		return NULL;
	counters->cpus = cpus;
	counters->cpu_count = cpu_count;
	memset(counters->fds, 0xff, bytes);
	for (unsigned i = 0; i < ALL; i++)
		if (options->counters[i].type != UINT32_MAX) { /* this counter was requested */
			if (!early)
				open_on_all(counters, i, &options->counters[i]);
			asked = true;
		}
	if (early && asked)
		fputs("qjoule-tracer: no counter is available: this kernel lets only root give "
		      "them to BPF programs (Linux 5.19)\n",
		      stderr);
	return counters;
}

void counters_close(struct counters *counters)
{
	if (!counters)
		return;
	for (unsigned i = 0; i < ALL * counters->cpu_count; i++)
		if (counters->fds[i] >= 0)
			close(counters->fds[i]);
	free(counters);
}

unsigned counters_mask(const struct counters *counters)
{
	return counters->mask;
}

int counters_give(const struct counters *counters, struct qjoule_bpf *skeleton)
{
	const struct bpf_map *maps[QJ_COUNTERS] = {
	    skeleton->maps.cycles,
	    skeleton->maps.instructions,
	    skeleton->maps.llc_misses,
	};

	for (unsigned i = 0; i < ALL; i++) {
		const struct bpf_map *map =
		    i < QJ_COUNTERS ? maps[i] : skeleton->maps.more_counters;

		for (unsigned c = 0; c < counters->cpu_count; c++) {
			const int *fd = &counters->fds[i * counters->cpu_count + c];
			uint32_t key = counters->cpus[c].cpu;

			if (i >= QJ_COUNTERS)
				key = key * QJ_MORE + i - QJ_COUNTERS;
			if (*fd < 0)
				continue;
			if (bpf_map_update_elem(bpf_map__fd(map), &key, fd, 0)) {
				int err = -errno;

				fprintf(stderr,
					"qjoule-tracer: cannot give the counters to BPF: %s\n",
					strerror(-err));
				return err;
			}
		}
	}
	return 0;
}

/* ---- the option ---- */

/* Parses more=TYPE:CONFIG, optionally restricted to user space or the kernel. */
static int parse_more(struct options *o, const char *value)
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
		return parse_more(o, value + 5);
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
