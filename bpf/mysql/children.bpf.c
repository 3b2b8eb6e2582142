// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Statements of stored procedures, functions and triggers, if requested. Each is an instruction
 * that MySQL and MariaDB execute by sp_instr_stmt::execute() (sql/sp_instr.cc, sql/sp_head.cc). It
 * first passes its text, as written in the procedure, to alloc_query().
 *
 * Nested statements count as work of the outermost one. It is recognised by the stack pointer, so a
 * missed return causes no lasting error (the kernel follows 64 nested returns).
 */
#include "command.bpf.h"

static __always_inline struct thread_state *calling_thread(void)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	return thread && thread->server_kind == QJ_SERVER_MYSQL && thread->begin_ns &&
		       !thread->borrowed
		   ? thread
		   : 0;
}

static __always_inline void end(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	__u64 now = bpf_ktime_get_ns();

	child_end(cpu, thread, now);
	claim_slice(cpu, thread, now);
}

/* sp_instr_stmt::execute(THD *, uint *) */
SEC("?uprobe")
int BPF_KPROBE(mysql_child_begin)
{
	struct thread_state *thread = calling_thread();
	struct qj_cpu_state *cpu = this_cpu();
	__u64 stack = PT_REGS_SP(ctx);

	if (!thread)
		return 0;
	if (thread->caller.query) {
		if (stack < thread->mysql.child_stack)
			return 0;
		end(cpu, thread);
	}
	thread->mysql.child_stack = stack;
	child_begin(cpu, thread, bpf_ktime_get_ns());
	return 0;
}

/*
 * alloc_query(THD *, const char *text, size_t length): the first call within has the child's text.
 */
SEC("?uprobe")
int BPF_KPROBE(mysql_child_text, __u64 thd, __u64 text, __u64 length)
{
	struct thread_state *thread = calling_thread();
	struct qj_cpu_state *cpu = this_cpu();

	if (!thread || !thread->caller.query || thread->statement_bytes || !length ||
	    length > 0xffffffff)
		return 0;
	thread->flags &= ~QJ_QUERY_NO_TEXT;
	/* No known rules: the settings are those of the procedure's creation. */
	statement_begin(thread, QJ_DIALECT_MYSQL, 0, text, length);
	statement_feed(cpu, thread, text, length);
	label_query(cpu, thread);
	return 0;
}

SEC("?uretprobe")
int BPF_KRETPROBE(mysql_child_end)
{
	struct thread_state *thread = calling_thread();

	if (thread && thread->caller.query && PT_REGS_SP(ctx) > thread->mysql.child_stack)
		end(this_cpu(), thread);
	return 0;
}
