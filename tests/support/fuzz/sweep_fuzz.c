// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * libFuzzer target: the sweep on arbitrary machines, windows and segments, in batches. That batches
 * change nothing is a law of tests/fast/model/test_sweep.py.
 */
#include <linux/types.h>
#include <stdlib.h>
#include <string.h>

#include "sweep.h"

#define MAX_CPUS    9
#define MAX_WINDOWS 12
#define MAX_BATCH   8

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

struct host_input {
	const __u8 *data;
	size_t left;
};

/* The next bytes as one number, the first byte highest; zeros follow the input's end. */
static inline __u64 host_take(struct host_input *in, size_t bytes)
{
	__u64 value = 0;

	for (; bytes && in->left; bytes--, in->left--)
		value = value << 8 | *in->data++;
	return value;
}

/* A time near the others, or an arbitrary one. */
static int64_t take_time(struct host_input *in, int64_t near)
{
	uint64_t kind = host_take(in, 1);

	return kind < 250 ? (int64_t)((uint64_t)near + kind) : (int64_t)host_take(in, 8);
}

static void add_batch(struct sweep *sweep, struct host_input *in, int64_t *t_ns, bool counted)
{
	static int64_t t0_ns[MAX_BATCH], t1_ns[MAX_BATCH], group[MAX_BATCH];
	static int32_t cpu[MAX_BATCH];
	static uint64_t counters[SWEEP_COUNTERS][MAX_BATCH];
	static uint8_t valid[SWEEP_COUNTERS][MAX_BATCH];
	static float scaled[MAX_BATCH], stolen[MAX_BATCH];
	struct sweep_segments batch = {.t0_ns = t0_ns,
				       .t1_ns = t1_ns,
				       .cpu = cpu,
				       .group = group,
				       .counted = counted,
				       .scaled = counted ? scaled : NULL,
				       .stolen = counted ? NULL : stolen};

	for (; in->left && batch.n < 1 + (size_t)*t_ns % MAX_BATCH; batch.n++) {
		size_t n = batch.n;
		uint32_t bits;

		*t_ns = t0_ns[n] = take_time(in, *t_ns);
		t1_ns[n] = take_time(in, *t_ns);
		cpu[n] = (int32_t)(host_take(in, 1) % (MAX_CPUS + 2)) - 1;
		group[n] = (int64_t)host_take(in, 1) << host_take(in, 1) % 56;
		for (int i = 0; i < SWEEP_COUNTERS; i++) {
			valid[i][n] = host_take(in, 1) & 1;
			counters[i][n] = host_take(in, host_take(in, 1) & 7);
		}
		bits = (uint32_t)host_take(in, 4);
		memcpy(&scaled[n], &bits, sizeof(bits));
		stolen[n] = (float)bits / (float)UINT32_MAX;
	}
	for (int i = 0; i < SWEEP_COUNTERS; i++) {
		batch.counters[i] = counters[i];
		batch.valid[i] = valid[i];
	}
	if (!sweep_add(sweep, &batch))
		abort();
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	struct host_input in = {data, size};
	int32_t cpu_core[MAX_CPUS], core_package[MAX_CPUS], watched[MAX_CPUS], small[MAX_CPUS];
	int64_t bounds[MAX_WINDOWS + 1], t_ns = 0;
	struct sweep_machine machine = {
	    .cpus = host_take(&in, 1) % (MAX_CPUS + 1),
	    .cores = MAX_CPUS,
	    .packages = 2,
	    .watched = MAX_CPUS,
	    .cpu_core = cpu_core,
	    .core_package = core_package,
	    .cpu_watched = watched,
	    .cpu_small = small,
	};
	size_t boundaries = host_take(&in, 1) % (MAX_WINDOWS + 2);
	bool counted = host_take(&in, 1) & 1;
	struct sweep *sweep;

	for (int i = 0; i < MAX_CPUS; i++) {
		uint64_t kind = host_take(&in, 1);

		cpu_core[i] = (int32_t)(kind % MAX_CPUS);
		core_package[i] = (int32_t)(kind >> 7);
		watched[i] = kind & 64 ? i : -1;
		small[i] = kind & 32 ? 1 : 0;
	}
	for (size_t i = 0; i < boundaries; i++)
		bounds[i] = take_time(&in, i ? bounds[i - 1] : 0);
	sweep = sweep_new(&machine, bounds, boundaries, 100);
	if (!sweep)
		return 0;
	while (in.left) {
		add_batch(sweep, &in, &t_ns, counted);
		sweep_done(sweep);
		sweep_forget(sweep);
	}
	if (!sweep_finish(sweep))
		abort();
	sweep_free(sweep);
	return 0;
}
