// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Which thread runs on each CPU: from every context switch, and from the timer tick for threads
 * that keep running.
 */
#include "batch.bpf.h"
#include "hooks.bpf.h"

/* Not inline, so that the verifier checks it once. */
__noinline int relabel(struct qj_cpu_state *cpu, __u64 now)
{
	if (!cpu)
		return 0;
	end_slice(cpu, now);
	count_loss(cpu, QJ_LOSS_SWITCH);
	label_slice(cpu, bpf_get_current_task_btf(), now);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct qj_cpu_state *cpu = this_cpu();
	struct thread_state *thread = 0;
	__u64 now = bpf_ktime_get_ns();
	__u64 t0 = restart_slice_alone(cpu, now);

	if (cpu->has_ended)
		thread = thread_of(prev);
	if (!preempt)
		thread = hooks_switched(cpu, prev, thread, now);
	cpu->has_ended = 0;
	if (t0 && cpu->pid != (__u32)prev->pid)
		count_loss(cpu, QJ_LOSS_SWITCH);
	if (!in_batches())
		account_slice(cpu, t0, now);
	else if (cpu->owner_kind != QJ_OWNER_IDLE && t0 && t0 < now)
		batch_segment(cpu, t0, now, thread);
	if (plan.samples && thread)
		send_ended(cpu, thread);
	label_slice(cpu, next, now);
	return 0;
}

/*
 * The scheduler's tick is a high-resolution timer and stops on idle CPUs (CONFIG_NO_HZ_IDLE), so
 * this wakes no CPU. A CPU in full dynticks mode has no tick: its slices are longer, and are
 * divided over windows by time.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_tick)
{
	struct qj_cpu_state *cpu = this_cpu();
	__u64 t0 = cpu->t0_ns;
	__u64 now = bpf_ktime_get_ns();

	if (IS_EARLY && cpu->exchanging)
		return 0;
	if (!t0) {
		label_slice(cpu, bpf_get_current_task_btf(), now);
		restart_slice_alone(cpu, now);
	} else {
		check_label(cpu, now);
		if (cpu->owner_kind == QJ_OWNER_IDLE)
			return 0;
		if (now - t0 < plan.slice_ns && t0 >= control.epoch_ns && !control.close_all)
			return 0;
		t0 = restart_slice_alone(cpu, now);
	}
	account_slice(cpu, t0, now);
	return 0;
}
