/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Why a thread was off its CPU while it served a query.
 *
 * A thread that leaves its CPU in the middle of a query was preempted, or waits in a system call or
 * a page fault, which say for what. From the moment in which it is woken up it waits for a CPU: the
 * scheduler's own account of that (kernel/sched/stats.h: sched_info) says how long. Both moments
 * are those at which slices end and begin. So a query's waits and the time in which its thread ran
 * add up to its latency, to the nanosecond.
 */
#ifndef QJOULE_WAITS_BPF_H
#define QJOULE_WAITS_BPF_H

#include "state.bpf.h"

/* A condition variable of glibc has words this near to each other that threads wait on. */
#define FUTEX_NEAR_BYTES 64
/* By how much the tracer's difference of the clocks may be wrong: it is a window old. */
#define DEADLINE_ERROR_NS 1000000

/*
 * A wait on a futex that has expired was a sleep, unless the thread goes on to wait for the same
 * futex: some servers wait for a lock in pieces of a second.
 */
static __always_inline void settle_expired(struct thread_waits *waits, enum qj_wait kind)
{
	waits->ns[kind] += waits->expired_ns;
	waits->expired_ns = 0;
}

/* Adds a wait that lasted `ns`, of which the thread could have run for `runnable_ns`. */
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
	if (waits->expired_ns && kind != QJ_WAIT_RUN_QUEUE) {
		bool same = kind == QJ_WAIT_LOCK && distance <= 2 * FUTEX_NEAR_BYTES;

		if (!same || !expired)
			settle_expired(waits, same ? QJ_WAIT_LOCK : QJ_WAIT_SLEEP);
	}
	if (!expired) {
		/* Linux 6.1 has forgotten the bound by here. */
		waits->ns[at_most(kind, QJ_WAITS - 1)] += ns - runnable;
		return;
	}
	waits->expired_ns += ns - runnable;
	waits->expired_futex = waits->futex;
}

/* A query ends, or may have ended, with its reply: later waits are not its own, unless it goes on.
 */
static __always_inline void waits_mark(struct thread_state *thread)
{
	struct thread_waits *waits = &thread->waits;

	if (!waits->any)
		return;
	settle_expired(waits, thread->flags & QJ_QUERY_ERROR ? QJ_WAIT_LOCK : QJ_WAIT_SLEEP);
	__builtin_memcpy(waits->replied_ns, waits->ns, sizeof(waits->ns));
}

/* The thread's next query has waited for nothing. Most queries do not wait. */
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
