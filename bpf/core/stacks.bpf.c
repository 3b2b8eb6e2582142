// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Samples stacks of servers' threads: on each CPU, some times a second, and where a wait begins,
 * the registers and the part of the stack that callers are found in. Libraries and many servers
 * have no frame pointers, so only tables of their files say where a caller is. The tracer reads
 * those, without rights.
 */
#include "hooks.bpf.h"
#include "slice.bpf.h"
#include "wait_samples.bpf.h"

struct stack_room_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct qj_ring_stack);
};

struct stack_room_map stack_room SEC(".maps");

/* Beside it: a value per CPU has at most 32 KiB. */
struct stack_scratch_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_scratch);
};

struct stack_scratch_map stack_scratch SEC(".maps");

extern QJ_VISIBLE struct qj_asked asked[QJ_ASKED];

#if TAKES_STACKS
/* System V ABI, AMD64 supplement, figure 3.36: DWARF register numbers. */
static __always_inline void read_registers(struct qj_ring_stack *r, const struct pt_regs *regs)
{
	r->registers[0] = regs->ax;
	r->registers[1] = regs->dx;
	r->registers[2] = regs->cx;
	r->registers[3] = regs->bx;
	r->registers[4] = regs->si;
	r->registers[5] = regs->di;
	r->registers[6] = regs->bp;
	r->registers[7] = regs->sp;
	r->registers[8] = regs->r8;
	r->registers[9] = regs->r9;
	r->registers[10] = regs->r10;
	r->registers[11] = regs->r11;
	r->registers[12] = regs->r12;
	r->registers[13] = regs->r13;
	r->registers[14] = regs->r14;
	r->registers[15] = regs->r15;
	r->registers[16] = regs->ip;
}

/*
 * The pages of the stack from `sp` on, up to the first one that is not there. Nothing is paged in:
 * this runs in an interrupt.
 */
static __always_inline __u32 read_pages(struct qj_ring_stack *r, __u64 sp)
{
	__u32 skip = sp & (QJ_STACK_PAGE - 1);
	__u64 page = sp - skip;

	if (bpf_probe_read_user(r->bytes + skip, QJ_STACK_PAGE - skip, (const void *)sp))
		return 0;
	for (__u32 i = 1; i < QJ_STACK_PAGES; i++)
		if (bpf_probe_read_user(r->bytes + i * QJ_STACK_PAGE, QJ_STACK_PAGE,
					(const void *)(page + i * QJ_STACK_PAGE)))
			return i;
	return QJ_STACK_PAGES;
}

#define VM_EXEC 4 /* include/linux/mm.h */
#define EBUSY	16

struct mapped_search {
	struct qj_ring_stack *r;
};

static long fill_mapped(struct task_struct *task, struct vm_area_struct *vma,
			struct mapped_search *search)
{
	struct qj_mapped *mapped = &search->r->mapped;
	struct inode *inode = BPF_CORE_READ(vma, vm_file, f_inode);

	if (!(BPF_CORE_READ(vma, vm_flags) & VM_EXEC))
		return 0;
	mapped->start = BPF_CORE_READ(vma, vm_start);
	mapped->end = BPF_CORE_READ(vma, vm_end);
	mapped->offset = BPF_CORE_READ(vma, vm_pgoff) << PAGE_SHIFT;
	mapped->inode = BPF_CORE_READ(inode, i_ino);
	mapped->file_bytes = BPF_CORE_READ(inode, i_size);
	return 0;
}

/* What tells one process, and its mappings, from others. An interrupt can look one of them up. */
static __always_inline void fill_process(struct qj_ring_stack *r, struct task_struct *task)
{
	const struct qj_asked *from = &asked[(__u32)task->tgid & (QJ_ASKED - 1)];
	struct mapped_search search = {.r = r};
	__u64 address = from->address;

	r->start_code = BPF_CORE_READ(task, mm, start_code);
	r->start_stack = BPF_CORE_READ(task, mm, start_stack);
	r->process_ns = BPF_CORE_READ(task, group_leader, start_time);
	r->code_pages = BPF_CORE_READ(task, mm, exec_vm);
	__builtin_memset(&r->mapped, 0, sizeof(r->mapped));
	if (from->tgid != (__u32)task->tgid)
		return;
	r->mapped.start = address; /* without code */
	r->mapped.end = address + 1;
	if (bpf_find_vma(task, address, fill_mapped, &search, 0) == -EBUSY)
		r->mapped.end = 0;
}

/* Which row of the live view the sample is of: its sums have no queries, only these. */
static __always_inline void fill_query(struct qj_ring_stack *r, const struct qj_cpu_state *cpu)
{
	bool summed = plan.mode == QJ_MODE_LIVE && cpu->owner_kind == QJ_OWNER_QUERY;

	r->shape = summed ? cpu->shape : 0;
	r->tags = summed ? cpu->tags : 0;
	r->naming = summed ? cpu->naming : 0;
}

static __always_inline bool send(struct qj_ring_stack *r)
{
	__u64 bytes = __builtin_offsetof(struct qj_ring_stack, bytes) + r->pages * QJ_STACK_PAGE;

	return output(r, bytes, sizeof(*r));
}

/*
 * Completes and sends a record with `segment` and `flags`, for the current task. What a system call
 * or an interrupt left of its own registers is in the kernel's stack.
 */
static __always_inline bool send_stack(struct qj_cpu_state *cpu, struct task_struct *task,
				       __u8 server_kind, struct qj_ring_stack *r,
				       struct stack_scratch *scratch)
{
	r->head.block = QJ_RING_STACK;
	r->head.text_bytes = 0;
	read_registers(r, (const struct pt_regs *)bpf_task_pt_regs(task));
	fill_process(r, task);
	r->pages = read_pages(r, r->registers[7]);
	r->node_count = 0;
	if (r->pages)
		hooks_sampled(server_kind, task, r, scratch);
	if (r->pages && send(r))
		return true;
	count_loss(cpu, QJ_LOSS_STACK);
	return false;
}

static __always_inline int sample_stack(const __u64 *interrupted)
{
	struct qj_cpu_state *cpu = this_cpu();
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 now = bpf_ktime_get_ns();
	struct stack_scratch *scratch;
	struct qj_ring_stack *r;
	__u32 zero = 0;

	/* An interrupt that nothing masks may come in the middle of a context switch. */
	if ((cpu->owner_kind != QJ_OWNER_QUERY && cpu->owner_kind != QJ_OWNER_SERVER) ||
	    cpu->pid != (__u32)task->pid)
		return 0;
	r = bpf_map_lookup_elem(&stack_room, &zero);
	scratch = bpf_map_lookup_elem(&stack_scratch, &zero);
	if (!r || !scratch)
		return 0;
	fill_segment(&r->segment, &cpu->label, now, now);
	fill_query(r, cpu);
	r->flags = interrupted[17] & 3 ? 0 : QJ_STACK_KERNEL; /* the code segment's privilege */
	r->probability = 0;
	send_stack(cpu, task, cpu->serving, r, scratch);
	return 0;
}

/* Segments and queries need the ring, too: stacks of waits leave them half of it. */
static __always_inline bool has_room_for_waits(void)
{
	void *ring = ring_of_cpu();

	return ring && bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) <
			   bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / 2;
}

static __always_inline void fill_wait(struct qj_ring_stack *r, const struct thread_state *thread,
				      const struct task_struct *task)
{
	const struct qj_slice_label label = {.query = thread->query,
					     .pid = task->pid,
					     .tgid = task->tgid,
					     .server = thread->server,
					     .owner_kind = QJ_OWNER_QUERY};

	fill_segment(&r->segment, &label, thread->waits.drawn_ns, thread->waits.drawn_ns);
	r->shape = r->tags = r->naming = 0;
	r->flags = QJ_STACK_WAIT;
	r->probability = thread->waits.probability;
}

/*
 * Not inline, so that the verifier checks it once. The room is not in use: an interrupt that
 * nothing masks finds the CPU's label to be another thread's.
 */
__noinline int sample_wait(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	struct stack_scratch *scratch;
	struct task_struct *task;
	struct qj_ring_stack *r;
	__u32 zero = 0;

	if (!draws_waits() || !cpu || !thread)
		return 0;
	task = bpf_get_current_task_btf();
	r = bpf_map_lookup_elem(&stack_room, &zero);
	scratch = bpf_map_lookup_elem(&stack_scratch, &zero);
	if (!r || !scratch)
		return 0;
	fill_wait(r, thread, task);
	if (!has_room_for_waits())
		count_loss(cpu, QJ_LOSS_STACK);
	else if (send_stack(cpu, task, thread->server_kind, r, scratch))
		return 0;
	thread->waits.drawn_ns = 0; /* no end */
	return 0;
}
#else
#define sample_stack(interrupted) 0
#endif

SEC("?perf_event")
int on_sample(void *ctx)
{
	return sample_stack(ctx);
}
