// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements the idle tails of sums.bpf.h. */
#include "sums.bpf.h"
#include "counted.h"

#ifdef QJ_EARLY /* needs atomic operations that return a value: the plan has no effects there */
int begin_idle(struct qj_cpu_state *cpu, __u64 now)
{
	return 0;
}

int end_idle(struct qj_cpu_state *cpu, __u64 now)
{
	return 0;
}
#else
/* Another CPU may change the count between the read and the write, but hardly ever so often. */
#define TRIES 4

/* A load that no later load overtakes. */
static __always_inline __u64 read_count(__u64 *count)
{
#if defined(__TARGET_ARCH_x86)
	return *(volatile __u64 *)count; /* x86 loads in program order */
#else
	return __sync_fetch_and_add(count, 0); /* an atomic that returns a value is a barrier */
#endif
}

/* A reader of this value also sees everything that was written before. */
static __always_inline void publish(__u64 *from_ns, __u64 now)
{
#if defined(__TARGET_ARCH_x86)
	barrier(); /* x86 stores in program order */
	*(volatile __u64 *)from_ns = now;
#else
	__sync_lock_test_and_set(from_ns, now);
#endif
}

/* The tracer may take a sum at the same time. */
static __always_inline void move_tails(__u64 *tail_ns, __u64 *to, int lengths)
{
	for (int i = 0; i < lengths; i++)
		__sync_fetch_and_add(&to[i], __sync_lock_test_and_set(&tail_ns[i], 0));
}

/* Moves a sleep's tails in a window to its owner's row. */
static __attribute__((noinline)) int
move_window_tails(struct qj_cpu_state *cpu, struct qj_idle *idle, __u32 epoch, bool package)
{
	__u32 which = idle->turn & 1;
	__u64 *tail_ns = idle->tail_ns[epoch & 1][which];
	struct qj_sums_key key;
	struct qj_sums *row;

	if (!qj_any_tail(tail_ns, package))
		return 0;
	key = idle->owners[which];
	row = sums_of(cpu, &key, epoch);
	if (!row) /* counted as loss `aggregate`; the time stays idle */
		for (int i = 0; i < QJ_PACKAGE_TAILS; i++)
			__sync_lock_test_and_set(&tail_ns[i], 0);
	else if (package)
		move_tails(tail_ns, row->package_tail_ns, QJ_PACKAGE_TAILS);
	else
		move_tails(tail_ns, row->core_tail_ns, QJ_TAILS);
	return 0;
}

static __always_inline void write_sleep(struct qj_cpu_state *cpu, struct qj_idle *idle,
					const struct qj_sums_key *owner, __u64 now, bool package)
{
	__u32 which = idle->turn & 1, epoch = control.epoch;

	if (!same_key(&idle->owners[which], owner)) {
		move_window_tails(cpu, idle, epoch, package);
		move_window_tails(cpu, idle, epoch - 1, package);
		idle->owners[which] = *owner;
	}
	idle->fell_ns[which] = now;
	publish(&idle->from_ns, now);
}

/* Records a sleep of one that `idle` counts. Returns true if it was the last one. */
static __always_inline bool count_sleep(struct qj_cpu_state *cpu, struct qj_idle *idle,
					const struct qj_sums_key *owner, __u64 now, bool package)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < TRIES; i++) {
		__u64 busy = read_count(&idle->busy);

		if (busy == 1)
			write_sleep(cpu, idle, owner, now, package);
		if (__sync_val_compare_and_swap(&idle->busy, busy, busy - 1) == busy)
			return busy == 1;
		if (busy == 1) /* another one woke meanwhile */
			*(volatile __u64 *)&idle->from_ns = 0;
	}
	/* If this proves to be the last one, its sleep stays unknown: idle has its tail. */
	__sync_fetch_and_add(&idle->busy, -1);
	return false;
}

int begin_idle(struct qj_cpu_state *cpu, __u64 now)
{
	__u32 self = bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1);
	__u32 core = plan.first_of_core[self],
	      package = plan.packages_at + plan.first_of_package[self];
	struct qj_sums_key owner = {};
	struct qj_idle *idle;

	if (!cpu)
		return 0;
	fill_key(&cpu->label, &owner);
	idle = bpf_map_lookup_elem(&idles, &core);
	if (!idle)
		return 0;
	if (plan.core_threads == 1)
		write_sleep(cpu, idle, &owner, now, false);
	else if (!count_sleep(cpu, idle, &owner, now, false))
		return 0;
	idle = bpf_map_lookup_elem(&idles, &package);
	if (idle)
		count_sleep(cpu, idle, &owner, now, true);
	return 0;
}

/* Adds the idle time [from, to), within window `epoch`, to both sleeps. */
static __attribute__((noinline)) int add_idle(struct qj_idle *idle, __u32 epoch, __u64 from,
					      __u64 to, bool package)
{
	__u32 last = idle->turn & 1, before = last ^ 1;

	qj_add_tails(idle->tail_ns[epoch & 1][last], idle->tail_ns[epoch & 1][before],
		     idle->fell_ns[last], idle->fell_ns[before], from, to, package);
	return 0;
}

/* Ends the idle time of a core or package, divided where a window ended in it. */
static __always_inline void end_sleep(struct qj_cpu_state *cpu, struct qj_idle *idle, __u64 now,
				      enum qj_woke what)
{
	__u64 fell = idle->fell_ns[idle->turn & 1], edge = control.epoch_ns;
	__u64 from = __sync_lock_test_and_set(&idle->from_ns, 0);
	__u32 epoch = control.epoch;
	bool package = what == QJ_WOKE_PACKAGE;

	if (!from && fell)
		return; /* its last sleep is unknown */
	if (now <= fell)
		return; /* one thread followed another */
	idle->asleep_ns += now - fell;
	if (!fell)
		return; /* nobody slept here yet */
	if (now - fell >= QJ_WAKE_NS)
		cpu->woke |= what;
	if (from - fell < qj_longest_tail_ns(package)) {
		if (from < edge) {
			__u64 to = now < edge ? now : edge;

			add_idle(idle, epoch - 1, from, to, package);
			from = to;
		}
		if (from < now)
			add_idle(idle, epoch, from, now, package);
	}
	idle->turn ^= 1; /* the next sleep takes the other slot */
}

int end_idle(struct qj_cpu_state *cpu, __u64 now)
{
	__u32 self = bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1);
	__u32 core = plan.first_of_core[self],
	      package = plan.packages_at + plan.first_of_package[self];
	struct qj_idle *idle;

	if (!cpu)
		return 0;
	idle = bpf_map_lookup_elem(&idles, &core);
	if (!idle || (plan.core_threads > 1 && __sync_fetch_and_add(&idle->busy, 1)))
		return 0;
	end_sleep(cpu, idle, now, QJ_WOKE_CORE);
	idle = bpf_map_lookup_elem(&idles, &package);
	if (!idle || __sync_fetch_and_add(&idle->busy, 1))
		return 0;
	end_sleep(cpu, idle, now, QJ_WOKE_PACKAGE);
	return 0;
}
#endif
