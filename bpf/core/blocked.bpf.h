/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Classifies what a thread waits for when it leaves its CPU within a query (waits.bpf.h). */
#ifndef QJOULE_BLOCKED_BPF_H
#define QJOULE_BLOCKED_BPF_H

#include <asm/unistd.h>

#include "socket.bpf.h"
#include "task.bpf.h"
#include "waits.bpf.h"

/*
 * What a thread waits for when it sleeps interruptibly in a system call; 0: anything. Calls that
 * are newer than the kernel headers have the same numbers on all architectures.
 */
#define NR_FUTEX_WAIT 455
#define CALLS	      512 /* a power of two */

static const __u8 wait_of_call[CALLS] = {
    [__NR_futex] = QJ_WAIT_LOCK,
    [__NR_futex_waitv] = QJ_WAIT_LOCK,
    [NR_FUTEX_WAIT] = QJ_WAIT_LOCK,
    [__NR_semop] = QJ_WAIT_LOCK,
    [__NR_semtimedop] = QJ_WAIT_LOCK,
    [__NR_fcntl] = QJ_WAIT_LOCK,
    [__NR_flock] = QJ_WAIT_LOCK,
    [__NR_pread64] = QJ_WAIT_IO,
    [__NR_pwrite64] = QJ_WAIT_IO,
    [__NR_preadv] = QJ_WAIT_IO,
    [__NR_pwritev] = QJ_WAIT_IO,
    [__NR_preadv2] = QJ_WAIT_IO,
    [__NR_pwritev2] = QJ_WAIT_IO,
    [__NR_fsync] = QJ_WAIT_IO,
    [__NR_fdatasync] = QJ_WAIT_IO,
    [__NR_io_getevents] = QJ_WAIT_IO,
    [__NR_io_pgetevents] = QJ_WAIT_IO,
    [__NR_io_uring_enter] = QJ_WAIT_IO,
    [__NR_read] = QJ_WAIT_NETWORK,
    [__NR_write] = QJ_WAIT_NETWORK,
    [__NR_readv] = QJ_WAIT_NETWORK,
    [__NR_writev] = QJ_WAIT_NETWORK,
    [__NR_connect] = QJ_WAIT_NETWORK,
    [__NR_accept] = QJ_WAIT_NETWORK,
    [__NR_accept4] = QJ_WAIT_NETWORK,
    [__NR_sendto] = QJ_WAIT_NETWORK,
    [__NR_sendmsg] = QJ_WAIT_NETWORK,
    [__NR_sendmmsg] = QJ_WAIT_NETWORK,
    [__NR_recvfrom] = QJ_WAIT_NETWORK,
    [__NR_recvmsg] = QJ_WAIT_NETWORK,
    [__NR_recvmmsg] = QJ_WAIT_NETWORK,
    [__NR_epoll_pwait] = QJ_WAIT_NETWORK,
    [__NR_epoll_pwait2] = QJ_WAIT_NETWORK,
    [__NR_ppoll] = QJ_WAIT_NETWORK,
    [__NR_pselect6] = QJ_WAIT_NETWORK,
    [__NR_nanosleep] = QJ_WAIT_SLEEP,
    [__NR_clock_nanosleep] = QJ_WAIT_SLEEP,
#if defined(__TARGET_ARCH_x86)
    [__NR_epoll_wait] = QJ_WAIT_NETWORK,
    [__NR_poll] = QJ_WAIT_NETWORK,
    [__NR_select] = QJ_WAIT_NETWORK,
#endif
};

#if defined(__TARGET_ARCH_x86)
#define IS_POLL(number)	  ((number) == __NR_poll || (number) == __NR_ppoll)
#define IS_SELECT(number) ((number) == __NR_select || (number) == __NR_pselect6)
#else
#define IS_POLL(number)	  ((number) == __NR_ppoll)
#define IS_SELECT(number) ((number) == __NR_pselect6)
#endif

#define TASK_UNINTERRUPTIBLE 2 /* include/linux/sched.h */

/* include/uapi/linux/futex.h */
#define FUTEX_COMMAND	     127
#define FUTEX_WAIT	     0
#define FUTEX_WAIT_BITSET    9
#define FUTEX_CLOCK_REALTIME 256
#define FOREVER_S	     (1ULL << 33)

/* When a wait on a futex expires, by CLOCK_MONOTONIC; 0: never. */
static __always_inline __u64 futex_deadline(const struct pt_regs *regs, __u64 now)
{
	__u64 operation = SYSCALL_BUFFER(regs), command = operation & FUTEX_COMMAND;
	__u64 time[2], ns;

	if ((command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET) || !SYSCALL_FOURTH(regs) ||
	    bpf_probe_read_user(time, sizeof(time), (const void *)SYSCALL_FOURTH(regs)) ||
	    time[0] > FOREVER_S)
		return 0;
	ns = time[0] * 1000000000 + time[1];
	if (command == FUTEX_WAIT)
		return now + ns;
	return operation & FUTEX_CLOCK_REALTIME ? ns - control.realtime_ahead_ns : ns;
}

/* The kind of wait of a task that sleeps in a system call. */
static __always_inline enum qj_wait syscall_wait(struct thread_waits *waits,
						 struct task_struct *task, __u64 now)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u32 number = SYSCALL_NUMBER(regs);

	if (number == __NR_futex) {
		waits->futex = SYSCALL_FIRST(regs);
		waits->deadline_ns = futex_deadline(regs, now);
	}
	/* Without a descriptor these calls portably sleep for less than a second. */
	if ((IS_POLL(number) && !SYSCALL_BUFFER(regs)) ||
	    (IS_SELECT(number) && !(__u32)SYSCALL_FIRST(regs)))
		return QJ_WAIT_SLEEP;
	return number < CALLS ? wait_of_call[number & (CALLS - 1)] ?: QJ_WAIT_OTHER : QJ_WAIT_OTHER;
}

/* Reads and writes of files, and page faults, sleep uninterruptibly. */
static __always_inline enum qj_wait wait_kind(struct thread_waits *waits, struct task_struct *task,
					      __u64 now)
{
	if (state_of(task) & TASK_UNINTERRUPTIBLE || BPF_CORE_READ_BITFIELD(task, in_iowait))
		return QJ_WAIT_IO;
	return IS_EARLY ? QJ_WAIT_OTHER : syscall_wait(waits, task, now);
}

/* `task` leaves its CPU in the middle of its thread's query. */
static __always_inline void wait_begin(struct thread_state *thread, struct task_struct *task,
				       __u64 now)
{
	struct thread_waits *waits = &thread->waits;

	thread->off_ns = now;
	waits->deadline_ns = 0;
	if (!is_asleep(task)) {
		waits->kind = QJ_WAIT_RUN_QUEUE;
		return;
	}
	waits->kind = wait_kind(waits, task, now);
	if (bpf_core_field_exists(task->sched_info.run_delay))
		waits->run_delay_ns = TASK_FIELD(task, sched_info.run_delay);
}

/*
 * Returns for how long the task, which has been asleep, has waited for a CPU. At a context switch
 * the scheduler has not yet added the last part to its account.
 */
static __always_inline __u64 runnable_since(const struct thread_waits *waits,
					    struct task_struct *task)
{
	__u64 queued_ns, ns;

	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	ns = TASK_FIELD(task, sched_info.run_delay) - waits->run_delay_ns;
	queued_ns = TASK_FIELD(task, sched_info.last_queued);
	if (queued_ns && bpf_core_field_exists(task->se.cfs_rq)) {
		__u64 clock = IS_EARLY ? BPF_CORE_READ(task, se.cfs_rq, rq, clock)
				       : task->se.cfs_rq->rq->clock;

		if (clock > queued_ns)
			ns += clock - queued_ns;
	}
	return ns;
}

/* The thread runs again, or was found running. */
static __always_inline void wait_end(struct thread_state *thread, struct task_struct *task,
				     __u64 now)
{
	struct thread_waits *waits = &thread->waits;
	__u64 ns = now - thread->off_ns;

	if (now > thread->off_ns)
		add_wait(waits, now, ns,
			 waits->kind == QJ_WAIT_RUN_QUEUE ? ns : runnable_since(waits, task));
	thread->off_ns = 0;
}

#endif
