/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Why a thread was off its CPU while it served a query.
 *
 * A thread that leaves its CPU in the middle of a query was preempted, or waits in a system call or
 * a page fault, which show the kind of wait. From its wake-up on it waits for a CPU: the
 * scheduler's own account (kernel/sched/stats.h: sched_info) says how long. Slices end and begin at
 * both moments. So a query's waits and its thread's run time add up to its latency, to the ns.
 */
#ifndef QJOULE_WAITS_BPF_H
#define QJOULE_WAITS_BPF_H

#include "state.bpf.h"

/* Threads wait on words of a glibc condition variable that are this near to each other. */
#define FUTEX_NEAR_BYTES 64
/* Error bound of the tracer's difference of the clocks, which is a window old. */
#define DEADLINE_ERROR_NS 1000000

/*
 * Counts an expired wait on a futex as a sleep, unless the thread waits for the same futex again:
 * some servers wait for a lock in pieces of a second.
 */
static __always_inline void settle_expired(struct thread_waits *waits, enum qj_wait kind)
{
	waits->ns[kind] += waits->expired_ns;
	waits->expired_ns = 0;
}

/* The wait that was drawn last has ended: its end is sent when the thread has its CPU. */
static __always_inline void end_drawn(struct thread_waits *waits, __u64 ns, __u64 runnable,
				      enum qj_wait kind)
{
	waits->drawn_whole_ns = ns;
	waits->drawn_runnable_ns = runnable;
	waits->drawn_kind = kind;
}

/* Adds a wait of `ns`, of which the thread was runnable for `runnable_ns`. */
static __always_inline void add_wait(struct thread_waits *waits, __u64 now, __u64 ns,
				     __u64 runnable_ns)
{
	__u64 runnable = runnable_ns < ns ? runnable_ns : ns;
	__u64 distance = waits->futex - waits->expired_futex + FUTEX_NEAR_BYTES;
	bool expired =
	    waits->deadline_ns && now - runnable + DEADLINE_ERROR_NS >= waits->deadline_ns;
	__u8 kind = waits->kind < QJ_WAITS ? waits->kind : QJ_WAIT_OTHER;

	waits->any = 1;
	waits->ns[QJ_WAIT_RUN_QUEUE] += runnable;
	if (draws_waits() && waits->drawn_ns == now - ns)
		end_drawn(waits, ns, runnable, expired ? QJ_WAIT_SLEEP : kind);
	if (waits->expired_ns && kind != QJ_WAIT_RUN_QUEUE) {
		bool same = kind == QJ_WAIT_LOCK && distance <= 2 * FUTEX_NEAR_BYTES;

		if (!same || !expired)
			settle_expired(waits, same ? QJ_WAIT_LOCK : QJ_WAIT_SLEEP);
	}
	if (!expired) {
		/* Linux 6.1 has lost track of the bound by here. */
		waits->ns[at_most(kind, QJ_WAITS - 1)] += ns - runnable;
		return;
	}
	waits->expired_ns += ns - runnable;
	waits->expired_futex = waits->futex;
}

/* Stores the waits at a reply. Later waits count only if the query goes on after it. */
static __always_inline void waits_mark(struct thread_state *thread)
{
	struct thread_waits *waits = &thread->waits;

	if (!waits->any)
		return;
	settle_expired(waits, thread->flags & QJ_QUERY_ERROR ? QJ_WAIT_LOCK : QJ_WAIT_SLEEP);
	__builtin_memcpy(waits->replied_ns, waits->ns, sizeof(waits->ns));
}

/* Clears the waits for the thread's next query. Most queries do not wait. */
static __always_inline void waits_clear(struct thread_waits *waits)
{
	if (!waits->any)
		return;
	waits->any = 0;
	waits->expired_ns = 0;
	__builtin_memset(waits->ns, 0, sizeof(waits->ns));
	__builtin_memset(waits->replied_ns, 0, sizeof(waits->replied_ns));
}

#endif
