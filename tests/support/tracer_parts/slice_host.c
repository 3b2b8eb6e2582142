// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The end of a slice on the host, for tests/fast/tracer/test_slices.py. In one of the helpers that
 * end_slice() calls, a tick interrupts, as on_tick() does: it ends the slice, too, and labels the
 * CPU with another thread.
 */
#include <stdlib.h>
#include <string.h>

#include "core/query.bpf.c"

static struct {
	struct qj_plan plan;
} shared;
extern const volatile struct qj_plan plan __attribute__((alias("shared")));
struct qj_control control;
struct qj_cpu_state cpus[QJ_MAX_CPUS];
struct rings_map rings;
struct counter_map cycles, instructions, llc_misses;
struct more_counters_map more_counters;
struct more_readings_map more_readings;
struct sums_map sums_even, sums_odd;
struct sums_rows_map sums_rows;
struct namings_map namings;
struct threads_map threads;
struct sampled_map sampled;
__u64 samples_used_ns;

#define LABELS 2
#define ROWS   8

static struct task_struct task;
static struct more_readings readings;
static struct {
	struct qj_sums_key key;
	__u32 index;
} keys[ROWS];
static struct qj_sums rows[ROWS];
static __u32 n_rows;
static __u64 calls, interrupted_call, tick_ns;
static __u64 owned_ns[LABELS + 1]; /* by label; 0: of a record that mixes labels */

/* All that a label says is this number. */
static void label(__u64 number)
{
	struct qj_cpu_state *cpu = &cpus[0];

	cpu->query = cpu->shape = cpu->tags = cpu->naming = number;
	cpu->pid = cpu->tgid = cpu->server = number;
	cpu->owner_kind = QJ_OWNER_QUERY;
}

static void helper_called(void)
{
	if (++calls != interrupted_call)
		return;
	end_slice(&cpus[0], tick_ns);
	label(2);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

__u32 bpf_get_smp_processor_id(void)
{
	helper_called();
	return 0;
}

__u64 bpf_ktime_get_ns(void)
{
	abort();
}

__u64 bpf_get_current_pid_tgid(void)
{
	abort();
}

__u32 bpf_get_prandom_u32(void)
{
	abort();
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return &task; /* without a thread's state */
}

void *bpf_task_storage_get(void *map, struct task_struct *of, void *value, __u64 flags)
{
	abort();
}

long bpf_perf_event_read_value(void *map, __u64 flags, void *value, __u32 bytes)
{
	helper_called();
	return -2; /* ENOENT */
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	helper_called();
	if (map == &rings)
		return &rings;
	if (map == &more_readings)
		return &readings;
	if (map == &sums_rows)
		return &rows[*(const __u32 *)key];
	for (__u32 i = 0; i < n_rows; i++)
		if (!memcmp(&keys[i].key, key, sizeof(keys[i].key)))
			return &keys[i].index;
	return NULL;
}

long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags)
{
	helper_called();
	if (n_rows == ROWS)
		abort();
	memcpy(&keys[n_rows].key, key, sizeof(keys[0].key));
	keys[n_rows].index = n_rows;
	n_rows++;
	return 0;
}

void *bpf_ringbuf_reserve(void *ring, __u64 bytes, __u64 flags)
{
	helper_called();
	return malloc(bytes);
}

void bpf_ringbuf_submit(void *record, __u64 flags)
{
	const struct qj_segment *s = &((const struct qj_ring_segment *)record)->segment;
	bool consistent = s->query == s->pid && s->query == s->tgid && s->query == s->server;

	helper_called();
	owned_ns[consistent && s->query <= LABELS ? s->query : 0] += s->t1_ns - s->t0_ns;
	free(record);
}

void bpf_ringbuf_discard(void *record, __u64 flags)
{
	helper_called();
	free(record);
}

/* ---- for test_slices.py ---------------------------------------------------------------------- */

/*
 * Ends a slice of label 1 from `t0` to `now`. The tick comes at `tick`, in that call of a helper;
 * 0: none comes. `window_ns`: when the window began. Adds up the time of each label, and returns
 * how many calls there were.
 */
__u64 slice_ended(__u32 mode, __u32 counters, __u32 more, __u64 t0, __u64 now, __u64 tick,
		  __u64 window_ns, __u64 call, __u64 *ns)
{
	shared.plan.mode = mode;
	shared.plan.counters = counters;
	shared.plan.more = more;
	shared.plan.rings = 1;
	control = (struct qj_control){.epoch = 4, .epoch_ns = window_ns};
	memset(cpus, 0, sizeof(cpus[0]));
	memset(rows, 0, sizeof(rows));
	memset(owned_ns, 0, sizeof(owned_ns));
	n_rows = calls = 0;
	interrupted_call = call;
	tick_ns = tick;
	cpus[0].t0_ns = t0;
	label(1);
	end_slice(&cpus[0], now);
	for (__u32 i = 0; i < n_rows; i++) {
		const struct qj_sums_key *key = &keys[i].key;
		bool consistent = key->shape == key->server;

		owned_ns[consistent && key->shape <= LABELS ? key->shape : 0] +=
		    rows[i].used.cpu_ns;
	}
	memcpy(ns, owned_ns, sizeof(owned_ns));
	return calls;
}
