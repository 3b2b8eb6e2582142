// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "counters.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "qjoule.skel.h"
#include "root_part.h"

struct counters {
	const struct qj_cpu *cpus;
	unsigned cpu_count;
	unsigned mask;
	int fds[]; /* cpu_count for each counter, -1 none */
};

/* Opens counter `i` on every CPU that has it; says on stderr if some have not. */
static void open_on_all(struct counters *counters, int i, uint32_t type, uint64_t config)
{
	unsigned missing = 0;
	int err = 0;

	for (unsigned c = 0; c < counters->cpu_count; c++) {
		int fd = root_part_counter(type, config, counters->cpus[c].cpu, true);

		counters->fds[i * counters->cpu_count + c] = fd;
		if (fd < 0) {
			err = -fd;
			missing++;
		}
	}
	if (err == ECONNRESET) /* nothing can be attached: that is told then */
		return;
	if (missing == counters->cpu_count)
		fprintf(stderr, "qjoule-tracer: counter %s is not available: %s\n",
			counter_names[i], strerror(err));
	else if (missing)
		fprintf(stderr, "qjoule-tracer: counter %s is not available on %u of %u CPUs: %s\n",
			counter_names[i], missing, counters->cpu_count, strerror(err));
	if (missing < counters->cpu_count)
		counters->mask |= 1u << i;
}

struct counters *counters_open(const struct options *options, const struct qj_cpu *cpus,
			       unsigned cpu_count)
{
	size_t bytes = QJ_COUNTERS * cpu_count * sizeof(int);
	struct counters *counters = calloc(1, sizeof(*counters) + bytes);

	if (!counters)
		return NULL;
	counters->cpus = cpus;
	counters->cpu_count = cpu_count;
	memset(counters->fds, 0xff, bytes);
	for (int i = 0; i < QJ_COUNTERS; i++) {
		uint32_t type = options->counters[i].type;

		if (type == UINT32_MAX) /* not asked for */
			continue;
		open_on_all(counters, i, type, options->counters[i].config);
	}
	return counters;
}

void counters_close(struct counters *counters)
{
	if (!counters)
		return;
	for (unsigned i = 0; i < QJ_COUNTERS * counters->cpu_count; i++)
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

	for (int i = 0; i < QJ_COUNTERS; i++) {
		if (!(counters->mask & (1u << i)))
			continue;
		for (unsigned c = 0; c < counters->cpu_count; c++) {
			const int *fd = &counters->fds[i * counters->cpu_count + c];

			if (*fd < 0)
				continue;
			if (bpf_map_update_elem(bpf_map__fd(maps[i]), &counters->cpus[c].cpu, fd,
						0)) {
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
