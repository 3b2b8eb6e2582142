// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Finds server threads, and reports the names of tasks. */
#include "task.bpf.h"
#include "hooks.bpf.h"

/* The server that the root part follows now, and its process. */
extern QJ_VISIBLE struct qj_running followed;

struct file_id {
	__u64 inode;
	__u32 device;
};

static __always_inline struct file_id executable_of(struct task_struct *task)
{
	struct inode *inode = BPF_CORE_READ(task, mm, exe_file, f_inode);
	struct file_id id = {.inode = BPF_CORE_READ(inode, i_ino),
			     .device = BPF_CORE_READ(inode, i_sb, s_dev)};

	return id;
}

/*
 * Finds the server whose executable this process runs, with the planned arguments where they
 * matter. Returns its id in the plan, or 0.
 */
static __always_inline __u16 server_by_executable(struct task_struct *task, __u64 arguments)
{
	struct file_id file = executable_of(task);

	for (int i = 0; i < QJ_MAX_SERVERS; i++) {
		if (!server_plans[i].kind)
			break;
		if (server_plans[i].inode != file.inode || server_plans[i].device != file.device)
			continue;
		if (server_plans[i].restart == QJ_RESTART_ANY ||
		    (server_plans[i].restart == QJ_RESTART_SAME && arguments &&
		     server_plans[i].arguments == arguments))
			return i + 1;
	}
	return 0;
}

static __always_inline __u8 kind_of(__u16 server)
{
	return server ? server_plans[(server - 1) & (QJ_MAX_SERVERS - 1)].kind : QJ_SERVER_NONE;
}

static __always_inline bool is_generic(__u16 server)
{
	return kind_of(server) == QJ_SERVER_GENERIC;
}

/*
 * Returns true if a child of a generic server is its worker, running the same executable. Any
 * listening process may be a generic server, including init.
 */
static __always_inline bool runs_executable_of(struct task_struct *child, __u16 server)
{
	__u32 i = (server - 1) & (QJ_MAX_SERVERS - 1);
	struct file_id file = executable_of(child);

	return server_plans[i].inode == file.inode && server_plans[i].device == file.device;
}

static __always_inline __u16 server_by_tgid(__u32 tgid)
{
	for (int i = 0; i < QJ_MAX_RUNNING; i++) {
		if (!plan.running[i].tgid)
			break;
		if (plan.running[i].tgid == tgid)
			return plan.running[i].server;
	}
	return 0;
}

/* The server of a thread whose process was running when tracing began. */
static __always_inline __u16 server_of_running(struct task_struct *task)
{
	__u16 server = server_by_tgid(task->tgid);

	if (!server) { /* a backend of a running postmaster */
		server = server_by_tgid(BPF_CORE_READ(task, real_parent, tgid));
		if (is_generic(server) && !runs_executable_of(task, server))
			server = 0;
	}
	if (server || plan.only_running)
		return server;
	server = server_by_executable(task, 0);
	/* All servers that ran when the plan was made are listed: others are tools. */
	return has_tools(kind_of(server)) ? 0 : server;
}

#define WAITS_AT __builtin_offsetof(struct thread_state, waits)

static __always_inline void adopt(struct task_struct *task, __u16 server, __u8 phase)
{
	struct thread_state *thread = thread_get_or_make(task);

	if (!thread) {
		count_loss(this_cpu(), QJ_LOSS_STATE);
		return;
	}
	/* In two parts, as clang makes stores of at most 1 KiB. `scratch` is written before it is
	 * read. */
	__builtin_memset(thread, 0, WAITS_AT);
	barrier();
	__builtin_memset(&thread->waits, 0,
			 __builtin_offsetof(struct thread_state, scratch) - WAITS_AT);
	thread->server = server;
	thread->server_kind = server_plans[(server - 1) & (QJ_MAX_SERVERS - 1)].kind;
	thread->attach_mode = server_plans[(server - 1) & (QJ_MAX_SERVERS - 1)].attach_mode;
	thread->phase = phase;
	thread->abi = QJ_THREADS_ABI;
	hooks_started(task, thread);
}

/* Adopts a thread that may be running on another CPU, whose state does not know it yet. */
static __always_inline void adopt_running(struct task_struct *task, __u16 server)
{
	adopt(task, server, PHASE_UNKNOWN);
	__sync_fetch_and_add(&control.adopted, 1);
}

static __always_inline __u8 owner_kind_of(struct task_struct *task, __u16 server)
{
	__u32 tgid = BPF_CORE_READ(task, tgid);

	if (server)
		return QJ_OWNER_SERVER;
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return QJ_OWNER_KERNEL;
	if (tgid == plan.tracer_tgid || tgid == plan.reader_tgid || tgid == plan.root_tgid)
		return QJ_OWNER_TRACER;
	return QJ_OWNER_PROCESS;
}

static __always_inline void emit_task(struct task_struct *task, __u8 event, __u16 server,
				      const char *comm)
{
	__u8 owner_kind = owner_kind_of(task, server);
	struct qj_ring_task *r;

	if (!may_emit_task(task, event, owner_kind)) {
		count_loss(this_cpu(), QJ_LOSS_TASK_RATE);
		return;
	}
	r = reserve(sizeof(*r));
	if (!r) {
		count_loss(this_cpu(), QJ_LOSS_TASK);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->head.block = QJ_BLOCK_TASK;
	r->task.t_ns = bpf_ktime_get_ns();
	r->task.pid = BPF_CORE_READ(task, pid);
	r->task.tgid = BPF_CORE_READ(task, tgid);
	r->task.parent_tgid = BPF_CORE_READ(task, real_parent, tgid);
	r->task.server = server;
	r->task.event = event;
	r->task.owner_kind = owner_kind;
	bpf_probe_read_kernel_str(r->task.comm, sizeof(r->task.comm), comm);
	submit(r);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct thread_state *from = thread_of(parent);
	__u16 server = from ? from->server : 0;
	const char *comm = from ? hooks_forked(from, child) : 0;

	if (server)
		adopt(child, server, PHASE_STARTUP);
	emit_task(child, QJ_TASK_FORK, server, comm ?: child->comm);
	return 0;
}

static __always_inline __u16 server_after_exec(struct task_struct *task)
{
	struct thread_state *forked = thread_of(task);
	__u16 server = 0;

	if (!plan.only_running)
		server = server_by_executable(task, plan.arguments ? arguments_of(task) : 0);
	if (server && !hooks_executed(task, kind_of(server)))
		server = 0;
	if (!server && forked && is_generic(forked->server) &&
	    runs_executable_of(task, forked->server))
		server = forked->server;
	return server;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	struct qj_cpu_state *cpu = this_cpu();
	__u64 now = bpf_ktime_get_ns();
	__u16 server;

	end_slice(cpu, now);
	server = server_after_exec(task);
	if (server)
		adopt(task, server, PHASE_STARTUP);
	else
		thread_forget(task);
	label_slice(cpu, task, now);
	emit_task(task, QJ_TASK_EXEC, server, task->comm);
	return 0;
}

static __always_inline bool is_called(struct task_struct *task, const char *comm)
{
	__u64 is[2] = {}, becomes[2] = {};

	bpf_probe_read_kernel_str(is, sizeof(is), task->comm);
	bpf_probe_read_kernel_str(becomes, sizeof(becomes), comm);
	return is[0] == becomes[0] && is[1] == becomes[1];
}

/*
 * Pools name their threads after their current work, some with each piece of work. So the work
 * under the old name ends here. The next slice begins after the event.
 */
SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
	struct thread_state *thread = thread_of(task);
	struct qj_cpu_state *cpu = this_cpu();
	bool is_worker = thread && task->pid != task->tgid;

	if (is_worker && is_called(task, comm))
		return 0;
	emit_task(task, QJ_TASK_RENAME, thread ? thread->server : 0, comm);
	if (is_worker && plan.mode == QJ_MODE_RECORD && cpu && cpu->pid == (__u32)task->pid)
		end_slice(cpu, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread_state *thread = thread_of(task);
	__u64 now = bpf_ktime_get_ns();

	if (thread) {
		helper_leave(this_cpu(), thread, now);
		query_abandon(this_cpu(), thread, now);
		send_ended(this_cpu(), thread);
		hooks_exited(this_cpu(), thread);
		thread->query = 0; /* no next query: the rest belongs to the server */
	}
	emit_task(task, QJ_TASK_EXIT, thread ? thread->server : 0, task->comm);
	return 0;
}

/* Task storage goes with its task; a hash map's entry does not. */
SEC("?tp_btf/sched_process_free")
int BPF_PROG(on_freed, struct task_struct *task)
{
	thread_forget(task);
	return 0;
}

SEC("iter/task")
int on_alive(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u16 server;

	if (!task)
		return 0;
	server = server_of_running(task);
	if (server)
		adopt_running(task, server);
	emit_task(task, QJ_TASK_ALIVE, server, task->comm);
	return 0;
}

/* Read for each followed server: some of its threads already run. */
SEC("iter/task")
int on_follow(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u16 server = followed.server;
	__u32 tgid, parent;

	if (!task || !server || thread_of(task))
		return 0;
	tgid = BPF_CORE_READ(task, tgid);
	parent = BPF_CORE_READ(task, real_parent, tgid);
	if (tgid != followed.tgid && (parent != followed.tgid || !runs_executable_of(task, server)))
		return 0;
	adopt_running(task, server);
	emit_task(task, QJ_TASK_ALIVE, server, task->comm);
	return 0;
}

/* Read once, when tracing stops. */
SEC("iter/task")
int on_stop(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread_state *thread;

	if (!task)
		return 0;
	thread = thread_of(task);
	if (thread)
		query_open(this_cpu(), thread, (__u64)task->tgid << 32 | (__u32)task->pid);
	return 0;
}
