// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Programs for all processes: context switches and ticks, which close slices, and reads and writes
 * of sockets, which call the server's program.
 */
#include "batch.bpf.h"
#include "hooks.bpf.h"
#include "task.bpf.h"
#include "wait_samples.bpf.h"

/*
 * Which thread runs on each CPU: from every context switch, and from the timer tick for threads
 * that keep running.
 */

/* Not inline, so that the verifier checks it once. */
__noinline int relabel(struct qj_cpu_state *cpu, __u64 now)
{
	if (!cpu)
		return 0;
	count_loss(cpu, QJ_LOSS_SWITCH);
	label_slice(cpu, bpf_get_current_task_btf(), now);
	return 0;
}

/* No slice begins before the last one ended, even if switch_time() was ahead of the clock then. */
static __always_inline __u64 not_before(const struct qj_cpu_state *cpu, __u64 now)
{
	return now > cpu->t0_ns ? now : cpu->t0_ns;
}

/*
 * Returns when this context switch began, by CLOCK_MONOTONIC. If the previous thread goes to sleep,
 * the scheduler has just read its own clock (update_rq_clock() in __schedule()), and reading
 * another one would be more than half of this program's cost. Otherwise the scheduler's clock may
 * date from when another CPU decided to switch (rq_clock_skip_update()).
 *
 * Both clocks are read once in a while. They drift apart at most as fast as NTP slews one of them,
 * by 500 ppm (adjtimex(2)). Their difference here contains the time since the scheduler read its
 * clock, in which a host may have taken the CPU away. So a lower difference is right, and a higher
 * one is used as far as two in a row agree. If both were too high, so is this time: see
 * not_before().
 */
#define READ_BOTH_NS (1 << 20)

static __always_inline __u64 switch_time(struct qj_cpu_state *cpu, struct task_struct *prev)
{
	__u64 clock, since, now;
	__s64 more, rise;

	if (IS_EARLY || !bpf_core_field_exists(prev->se.cfs_rq) || !is_asleep(prev))
		return bpf_ktime_get_ns();
	clock = prev->se.cfs_rq->rq->clock;
	since = clock - cpu->read_ns;
	if (since >= READ_BOTH_NS) {
		more = bpf_ktime_get_ns() - clock - cpu->ahead_ns;
		if (cpu->read_ns && more > (__s64)(since >> 11))
			more = since >> 11;
		rise = more > 0 ? more : 0;
		if (cpu->read_ns && more > cpu->rise_ns)
			more = cpu->rise_ns;
		cpu->rise_ns = rise;
		cpu->ahead_ns += more;
		cpu->read_ns = clock;
	}
	now = clock + cpu->ahead_ns;
	/* A query may have begun or ended since: the scheduler need not read its clock again. */
	return now > cpu->event_ns ? now : cpu->event_ns;
}

/* Not inline: the callers' stacks have too little room left. */
__noinline int account_slice_noinline(struct qj_cpu_state *cpu, __u64 t0, __u64 now)
{
	if (cpu)
		account_slice(cpu, &cpu->label, t0, now);
	return 0;
}

/*
 * Live view: returns true if the switch stays within a process outside servers. Its threads share
 * sums, so the slice may go on. A thread that was adopted meanwhile is looked up.
 */
static __always_inline bool stays_in_process(const struct qj_cpu_state *cpu,
					     const struct task_struct *prev,
					     struct task_struct *next)
{
	return plan.mode == QJ_MODE_LIVE && cpu->serving == QJ_SERVING_NONE &&
	       cpu->tgid == (__u32)next->tgid && cpu->pid == (__u32)prev->pid &&
	       cpu->adopted == *(volatile __u32 *)&control.adopted && !thread_of(next);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct qj_cpu_state *cpu = this_cpu();
	struct thread_state *thread = 0;
	bool draws = draws_waits(), drawn = false;
	__u64 now, t0;

	if (stays_in_process(cpu, prev, next)) {
		cpu->pid = next->pid;
		return 0;
	}
	now = not_before(cpu, preempt ? bpf_ktime_get_ns() : switch_time(cpu, prev));
	t0 = restart_slice_irqs_off(cpu, now);
	if (cpu->has_ended)
		thread = thread_of(prev);
	if (!preempt)
		thread = hooks_switched(cpu, prev, thread, now);
	cpu->has_ended = 0;
	if (cpu->owner_kind == QJ_OWNER_QUERY) {
		thread = thread ?: thread_of(prev);
		if (thread && thread->begin_ns) {
			wait_begin(thread, prev, now);
			if (thread->waits.kind == (IS_EARLY ? QJ_WAIT_OTHER : QJ_WAIT_NETWORK))
				hooks_blocked(cpu, thread);
			if (draws) {
				/* The last drawn wait may have ended in an unseen switch. */
				if (thread->waits.drawn_ns)
					send_wait_end(cpu, thread, prev->pid);
				drawn = draw_wait(thread, now);
			}
		}
	}
	if (t0 && cpu->pid != (__u32)prev->pid)
		count_loss(cpu, QJ_LOSS_SWITCH);
	if (!in_batches())
		account_slice_noinline(cpu, t0, now);
	else if (cpu->owner_kind != QJ_OWNER_IDLE && t0 && t0 < now)
		batch_segment(cpu, t0, now, thread);
	if (plan.samples && thread)
		send_ended(cpu, thread);
	label_slice(cpu, next, now);
	if (draws) {
		struct thread_state *woken = thread_of(next);

		if (woken && woken->waits.drawn_ns)
			send_wait_end(cpu, woken, next->pid);
		if (drawn)
			sample_wait(cpu, thread);
	}
	return 0;
}

/*
 * The scheduler's tick is a high-resolution timer and stops on idle CPUs (CONFIG_NO_HZ_IDLE), so
 * this wakes no CPU. A CPU in full dynticks mode has no tick: its slices are longer, and are
 * divided over windows by time.
 *
 * All other such timers run this program too. Most return before the clock is read, unless the
 * running task is not certain (see `serving`). A timer may use another clock, so the slice's length
 * is tested again with ours.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_tick, struct hrtimer *timer)
{
	struct qj_cpu_state *cpu = this_cpu();
	__u64 t0 = cpu->t0_ns, now;

	if (cpu->serving && (__s64)(timer->_softexpires - t0) < (__s64)plan.slice_ns &&
	    t0 >= control.epoch_ns && !control.close_all)
		return 0;
	if (IS_EARLY && cpu->exchanging)
		return 0;
	now = not_before(cpu, bpf_ktime_get_ns());
	if (!t0) {
		label_slice(cpu, bpf_get_current_task_btf(), now);
		restart_slice_irqs_off(cpu, now);
	} else {
		check_label(cpu, now);
		if (cpu->owner_kind == QJ_OWNER_IDLE)
			return 0;
		if (now - t0 < plan.slice_ns && t0 >= control.epoch_ns && !control.close_all)
			return 0;
		t0 = restart_slice_irqs_off(cpu, now);
	}
	account_slice_noinline(cpu, t0, now);
	return 0;
}

/*
 * The only programs on the tracepoints of reads and writes. A byte of the CPU's state says if a
 * server's thread runs; if not, they return at once. Otherwise they pass the event to the program
 * of that kind of server by a tail call, which the kernel makes a direct jump. So other processes
 * pay the same whatever is planned. As one program, all kinds would exceed the stack, and come near
 * the million instructions that the verifier follows.
 */

/* The program on reads, or on writes, by the kind of server. */
struct traffic_map {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, QJ_KINDS);
	__type(key, __u32);
	__type(value, __u32);
};

struct traffic_map reads SEC(".maps");
struct traffic_map writes SEC(".maps");

/*
 * Returns the kind of server whose thread is running, or QJ_SERVING_NONE. The last context switch
 * has stored it, unless the thread was adopted while it ran. A kernel may exempt its own tasks and
 * init from tracing: then only the switch to such a task was seen, not the switch from it
 * (check_label()), so the task is looked up.
 */
static __always_inline __u8 running_kind(const struct qj_cpu_state *cpu)
{
	struct thread_state *thread;

	if (cpu->adopted == *(volatile __u32 *)&control.adopted && cpu->serving)
		return cpu->serving;
	thread = thread_of(bpf_get_current_task_btf());
	return thread ? thread->server_kind : QJ_SERVING_NONE;
}

static __always_inline int call_server(void *ctx, void *programs)
{
	__u8 kind = running_kind(this_cpu());

	if (kind == QJ_SERVING_NONE)
		return 0;
#define X(name, NAME, number)                                                                      \
	if (PLANNED(NAME) && kind == QJ_SERVER_##NAME)                                             \
		bpf_tail_call_static(ctx, programs, QJ_SERVER_##NAME);
	QJ_SERVERS(X)
#undef X
	return 0;
}

SEC("?tp_btf/sock_recv_length")
int on_read(void *ctx)
{
	return call_server(ctx, &reads);
}

SEC("?tp_btf/sock_send_length")
int on_write(void *ctx)
{
	return call_server(ctx, &writes);
}
