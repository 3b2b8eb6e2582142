// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The sweep on arbitrary machines, windows and segments, under the sanitizers.
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
 *		-Iattribution/sweep tests/support/fuzz/sweep_fuzz.c \
 *		attribution/sweep/{sweep,events,tails,ends,entries}.c -o sweep_fuzz
 *	./sweep_fuzz -max_total_time=60 -max_len=4096
 *
 * Each input runs twice, in one batch and in many: the results must be the same bytes.
 */
#include "host.h"

#include "sweep.h"

#define MAX_CPUS     9
#define MAX_WINDOWS  12
#define MAX_SEGMENTS 200

/* A time near the others, or an arbitrary one. */
static int64_t take_time(struct host_input *in, int64_t near)
{
	uint64_t kind = host_take(in, 1);

	return kind < 250 ? (int64_t)((uint64_t)near + kind) : (int64_t)host_take(in, 8);
}

struct columns {
	int64_t t0_ns[MAX_SEGMENTS], t1_ns[MAX_SEGMENTS], group[MAX_SEGMENTS];
	int32_t cpu[MAX_SEGMENTS];
	uint64_t counters[SWEEP_COUNTERS][MAX_SEGMENTS];
	uint8_t valid[SWEEP_COUNTERS][MAX_SEGMENTS];
	float scaled[MAX_SEGMENTS];
};

static size_t take_columns(struct host_input *in, struct columns *c)
{
	int64_t t_ns = 0;
	size_t n = 0;

	for (; in->left && n < MAX_SEGMENTS; n++) {
		t_ns = c->t0_ns[n] = take_time(in, t_ns);
		c->t1_ns[n] = take_time(in, t_ns);
		c->cpu[n] = (int32_t)(host_take(in, 1) % (MAX_CPUS + 2)) - 1;
		c->group[n] = (int64_t)host_take(in, 1) << host_take(in, 1) % 56;
		for (int i = 0; i < SWEEP_COUNTERS; i++) {
			uint64_t kind = host_take(in, 1);

			c->valid[i][n] = kind & 1;
			c->counters[i][n] = kind < 240 ? kind * 17 : host_take(in, 8);
		}
		uint32_t bits = (uint32_t)host_take(in, 4);
		memcpy(&c->scaled[n], &bits, sizeof(bits));
	}
	return n;
}

/* All bytes that a sweep returned, and how many. */
struct output {
	uint8_t *bytes;
	size_t used;
};

static void keep(struct output *out, const void *data, size_t bytes)
{
	if (!bytes)
		return;
	out->bytes = realloc(out->bytes, out->used + bytes);
	if (!out->bytes)
		abort();
	memcpy(out->bytes + out->used, data, bytes);
	out->used += bytes;
}

/* Entries, windows, watched times and anomalies, each in a separate run. */
static void collect(struct output out[4], struct sweep *sweep, bool last)
{
	struct sweep_result r = sweep_done(sweep);

	keep(&out[0], r.entry, r.entries * sizeof(*r.entry));
	keep(&out[1], r.window, r.windows * r.packages * sizeof(*r.window));
	keep(&out[2], r.watched_ns, r.windows * r.watched * sizeof(*r.watched_ns));
	if (last)
		keep(&out[3], &r.anomalies, sizeof(r.anomalies));
	sweep_forget(sweep);
}

static bool run(struct output out[4], const struct sweep_machine *machine, const int64_t *bounds,
		size_t boundaries, const struct columns *c, size_t n, size_t step, bool counters)
{
	struct sweep *sweep = sweep_new(machine, bounds, boundaries, 100);

	memset(out, 0, 4 * sizeof(*out));
	if (!sweep)
		return false;
	for (size_t i = 0; i < n; i += step) {
		struct sweep_segments part = {
		    .n = n - i < step ? n - i : step,
		    .t0_ns = c->t0_ns + i,
		    .t1_ns = c->t1_ns + i,
		    .cpu = c->cpu + i,
		    .group = c->group + i,
		    .counted = counters,
		    .scaled = counters ? c->scaled + i : NULL,
		};
		for (int k = 0; k < SWEEP_COUNTERS; k++) {
			part.counters[k] = c->counters[k] + i;
			part.valid[k] = c->valid[k] + i;
		}

		if (!sweep_add(sweep, &part))
			abort();
		collect(out, sweep, false);
	}
	if (!sweep_finish(sweep))
		abort();
	collect(out, sweep, true);
	sweep_free(sweep);
	return true;
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	static struct columns columns;
	struct host_input in = {data, size};
	int32_t cpu_core[MAX_CPUS], core_package[MAX_CPUS], watched[MAX_CPUS];
	int64_t bounds[MAX_WINDOWS + 1];
	struct sweep_machine machine = {
	    .cpus = host_take(&in, 1) % (MAX_CPUS + 1),
	    .cores = MAX_CPUS,
	    .packages = 2,
	    .watched = MAX_CPUS,
	    .cpu_core = cpu_core,
	    .core_package = core_package,
	    .cpu_watched = watched,
	};
	size_t boundaries = host_take(&in, 1) % (MAX_WINDOWS + 2), n, step;
	struct output whole[4], parts[4];
	bool counters;

	for (int i = 0; i < MAX_CPUS; i++) {
		uint64_t kind = host_take(&in, 1);

		cpu_core[i] = (int32_t)(kind % MAX_CPUS);
		core_package[i] = (int32_t)(kind >> 7);
		watched[i] = kind & 64 ? i : -1;
	}
	for (size_t i = 0; i < boundaries; i++)
		bounds[i] = take_time(&in, i ? bounds[i - 1] : 0);
	step = 1 + host_take(&in, 1) % 8;
	counters = host_take(&in, 1) & 1;
	n = take_columns(&in, &columns);
	if (run(whole, &machine, bounds, boundaries, &columns, n, MAX_SEGMENTS, counters)) {
		run(parts, &machine, bounds, boundaries, &columns, n, step, counters);
		for (int i = 0; i < 4; i++) {
			if (whole[i].used != parts[i].used ||
			    (whole[i].used &&
			     memcmp(whole[i].bytes, parts[i].bytes, whole[i].used)))
				abort();
			free(parts[i].bytes);
		}
	}
	for (int i = 0; i < 4; i++)
		free(whole[i].bytes);
	return 0;
}
