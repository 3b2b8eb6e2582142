/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* When a thread leaves its CPU in the middle of a query, and what it waits for (waits.bpf.h). */
#ifndef QJOULE_BLOCKED_BPF_H
#define QJOULE_BLOCKED_BPF_H

#include "socket.bpf.h"
#include "task.bpf.h"
#include "waits.bpf.h"

/*
 * System calls in which a thread sleeps interruptibly, by what they wait for.
 * arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h
 */
#if defined(__TARGET_ARCH_x86)
#define SYS_FUTEX    202
#define SYS_POLL     7
#define SYS_SELECT   23
#define SYS_PPOLL    271
#define SYS_PSELECT6 270
/* semop, fcntl, flock, semtimedop, futex_waitv, futex_wait */
#define LOCK_CALLS                                                                                 \
	case 65:                                                                                   \
	case 72:                                                                                   \
	case 73:                                                                                   \
	case 220:                                                                                  \
	case 449:                                                                                  \
	case 455
/* pread64, pwrite64, fsync, fdatasync, io_getevents, preadv, pwritev, preadv2, pwritev2,
 * io_pgetevents, io_uring_enter */
#define FILE_CALLS                                                                                 \
	case 17:                                                                                   \
	case 18:                                                                                   \
	case 74:                                                                                   \
	case 75:                                                                                   \
	case 208:                                                                                  \
	case 295:                                                                                  \
	case 296:                                                                                  \
	case 327:                                                                                  \
	case 328:                                                                                  \
	case 333:                                                                                  \
	case 426
/* read, write, readv, writev, connect, accept, sendto, recvfrom, sendmsg, recvmsg, epoll_wait,
 * epoll_pwait, accept4, recvmmsg, sendmmsg, epoll_pwait2 */
#define SOCKET_CALLS                                                                               \
	case 0:                                                                                    \
	case 1:                                                                                    \
	case 19:                                                                                   \
	case 20:                                                                                   \
	case 42:                                                                                   \
	case 43:                                                                                   \
	case 44:                                                                                   \
	case 45:                                                                                   \
	case 46:                                                                                   \
	case 47:                                                                                   \
	case 232:                                                                                  \
	case 281:                                                                                  \
	case 288:                                                                                  \
	case 299:                                                                                  \
	case 307:                                                                                  \
	case 441
/* nanosleep, clock_nanosleep */
#define TIMER_CALLS                                                                                \
	case 35:                                                                                   \
	case 230
#elif defined(__TARGET_ARCH_arm64)
#define SYS_FUTEX    98
#define SYS_PPOLL    73
#define SYS_PSELECT6 72
#define LOCK_CALLS                                                                                 \
	case 193:                                                                                  \
	case 25:                                                                                   \
	case 32:                                                                                   \
	case 192:                                                                                  \
	case 449:                                                                                  \
	case 455
#define FILE_CALLS                                                                                 \
	case 67:                                                                                   \
	case 68:                                                                                   \
	case 82:                                                                                   \
	case 83:                                                                                   \
	case 4:                                                                                    \
	case 69:                                                                                   \
	case 70:                                                                                   \
	case 286:                                                                                  \
	case 287:                                                                                  \
	case 292:                                                                                  \
	case 426
#define SOCKET_CALLS                                                                               \
	case 63:                                                                                   \
	case 64:                                                                                   \
	case 65:                                                                                   \
	case 66:                                                                                   \
	case 203:                                                                                  \
	case 202:                                                                                  \
	case 206:                                                                                  \
	case 207:                                                                                  \
	case 211:                                                                                  \
	case 212:                                                                                  \
	case 22:                                                                                   \
	case 242:                                                                                  \
	case 243:                                                                                  \
	case 269:                                                                                  \
	case 441
#define TIMER_CALLS                                                                                \
	case 101:                                                                                  \
	case 115
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

/* What the system call waits for in which the task sleeps. */
static __always_inline enum qj_wait syscall_wait(struct thread_waits *waits,
						 struct task_struct *task, __u64 now)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	switch ((__u32)SYSCALL_NUMBER(regs)) {
	case SYS_FUTEX:
		waits->futex = SYSCALL_FIRST(regs);
		waits->deadline_ns = futex_deadline(regs, now);
		return QJ_WAIT_LOCK;
	LOCK_CALLS:
		return QJ_WAIT_LOCK;
	FILE_CALLS:
		return QJ_WAIT_IO;
	SOCKET_CALLS:
		return QJ_WAIT_NETWORK;
	TIMER_CALLS:
		return QJ_WAIT_SLEEP;
		/* Without a descriptor they are the portable way to sleep for less than a second.
		 */
#ifdef SYS_POLL
	case SYS_POLL:
#endif
	case SYS_PPOLL:
		return SYSCALL_BUFFER(regs) ? QJ_WAIT_NETWORK : QJ_WAIT_SLEEP;
#ifdef SYS_SELECT
	case SYS_SELECT:
#endif
	case SYS_PSELECT6:
		return (__u32)SYSCALL_FIRST(regs) ? QJ_WAIT_NETWORK : QJ_WAIT_SLEEP;
	default:
		return QJ_WAIT_OTHER;
	}
}

/* A file is read or written without a chance to be interrupted, and so is a page that is missing.
 */
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
 * For how long the task, which has been asleep, has waited for a CPU. At a context switch the
 * scheduler has not yet added the last part to its account.
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
		__u64 clock = TASK_FIELD(task, se.cfs_rq->rq->clock);

		if (clock > queued_ns)
			ns += clock - queued_ns;
	}
	return ns;
}

/* The thread runs again, or is seen to run. */
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
