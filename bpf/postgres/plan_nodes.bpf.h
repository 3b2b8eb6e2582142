/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds nodes of the executor's plan that a sampled stack points to: words on it, and registers,
 * that are addresses of a PlanState. The tracer then decides which of them the thread works for.
 *
 * A word is taken for a node if what it points to has two pointers to code where a PlanState has
 * them, and a plan with an id. Whatever else a client can have put there is at most a node that no
 * function on the stack executes.
 */
#ifndef QJOULE_POSTGRES_PLAN_NODES_BPF_H
#define QJOULE_POSTGRES_PLAN_NODES_BPF_H

#include "core/state.bpf.h"

#define ROW_SLOT    216	 /* ScanState.ss_ScanTupleSlot, the same from 14 to 18 */
#define NODE_WORDS  1024 /* of the stack, from its end on: a power of two */
#define NODE_TAGS   1024 /* above every NodeTag, of which PostgreSQL 18 has some 480 */
#define NODE_IDS    (1 << 16)
#define LOWEST_DATA (1 << 16) /* mmap_min_addr */
#define GAPS_BYTES  (1ULL << 36)
#define HASH_FACTOR 0x9e3779b97f4a7c15ULL /* 2^64 over the golden ratio */
#define STRIDE	    16			  /* words that are looked at in one step */

/* PlanState, src/include/nodes/execnodes.h: its beginning, the same from 13 to 18. */
struct plan_state {
	__u32 tag;
	__u32 reserved;
	__u64 plan;
	__u64 state; /* EState of the statement that is executed */
	__u64 execute;
	__u64 execute_real;
	__u64 instrument[3];
	__u64 qual;
	__u64 left;
	__u64 right;
};

/* Plan, src/include/nodes/plannodes.h, likewise. 18 has a number in what was padding. */
struct plan {
	__u32 tag;
	__u32 reserved;
	__u64 costs[3];
	__u32 width;
	__u8 parallel[4];
	__u32 id;
};

_Static_assert(QJ_POSTGRES_FOREIGN_NEXT - QJ_POSTGRES_EXEC_SCAN == QJ_NODE_FUNCTIONS - 1,
	       "the facts that are functions follow each other");

/*
 * `first` is where in `bytes` the stack begins, `words` how many are there. A node is in
 * [data, data + data_bytes), but not in [gap, gap + gap_bytes).
 */
struct node_search {
	struct qj_ring_stack *r;
	struct stack_scratch *scratch;
	__u64 code, code_end; /* of the executable */
	__u64 data, data_bytes;
	__u64 gap, gap_bytes;
	__u32 first, words;
};

static __always_inline bool is_code(const struct node_search *search, __u64 address)
{
	return address >= search->code && address < search->code_end;
}

/*
 * Memory from malloc() is the heap's, or mapped where the kernel chooses: as high below mmap_base
 * as there is room, so that much more than all mappings together is not reached. To read elsewhere
 * is mostly a fault, which takes longest. If the stack has no limit, mmap_base is a third of all
 * addresses, and what is mapped is above it (arch_pick_mmap_layout(), arch/x86/mm/mmap.c).
 */
static __always_inline void set_ranges(struct node_search *search, const struct mm_struct *mm)
{
	__u64 base = BPF_CORE_READ(mm, mmap_base), sp = search->r->registers[7];
	__u64 reach = 4 * (BPF_CORE_READ(mm, total_vm) << PAGE_SHIFT) + GAPS_BYTES;

	search->code_end = BPF_CORE_READ(mm, end_code);
	search->data = LOWEST_DATA;
	search->data_bytes = sp - LOWEST_DATA;
	search->gap_bytes = 0;
	if (base < sp / 2 || base > sp)
		return;
	search->data = BPF_CORE_READ(mm, start_brk);
	search->data_bytes = base - search->data;
	search->gap = BPF_CORE_READ(mm, brk);
	if (base > search->gap + reach)
		search->gap_bytes = base - reach - search->gap;
}

static __always_inline bool is_data(const struct node_search *search, __u64 address)
{
	return address - search->data < search->data_bytes && !(address & 7) &&
	       address - search->gap >= search->gap_bytes;
}

/* Half of the words in question are on the stack more than once. */
static __always_inline void take_word(struct node_search *search, __u64 word)
{
	struct stack_scratch *scratch = search->scratch;
	__u64 *taken = &scratch->taken[word * HASH_FACTOR >> (64 - TAKEN_BITS)];
	__u32 count = scratch->count;

	if (!is_data(search, word) || *taken == word || count >= SCRATCH_WORDS)
		return;
	*taken = word;
	scratch->words[count] = word;
	scratch->count = count + 1;
}

static long take_register(__u32 i, struct node_search *search)
{
	take_word(search, search->r->registers[i % (QJ_REGISTERS - 1)]);
	return 0;
}

static long take_words(__u32 i, struct node_search *search)
{
	const struct qj_ring_stack *r = search->r;
	const __u64 *words = (const __u64 *)(r->bytes + (search->first & (QJ_STACK_PAGE - 8)));
	__u32 number = i % (NODE_WORDS / STRIDE) * STRIDE;

	if (number >= search->words)
		return 1;
#pragma clang loop unroll(full)
	for (__u32 n = 0; n < STRIDE; n++)
		take_word(search, words[number + n]);
	return 0;
}

static __always_inline bool read_node(const struct node_search *search, __u64 address,
				      struct qj_plan_node *out)
{
	struct plan_state node;
	struct plan plan;

	if (bpf_probe_read_user(&node, sizeof(node), (const void *)address) || !node.tag ||
	    node.tag >= NODE_TAGS || !is_code(search, node.execute) ||
	    !is_code(search, node.execute_real) ||
	    bpf_probe_read_user(&plan, sizeof(plan), (const void *)node.plan) || !plan.tag ||
	    plan.tag >= NODE_TAGS || plan.id >= NODE_IDS)
		return false;
	out->address = address;
	out->state = node.state;
	out->left = node.left;
	out->right = node.right;
	out->function = node.execute_real;
	if (bpf_probe_read_user(&out->row_slot, sizeof(out->row_slot),
				(const void *)(address + ROW_SLOT)) ||
	    out->row_slot < LOWEST_DATA)
		out->row_slot = 0;
	out->id = plan.id;
	out->kind = node.tag;
	return true;
}

/* Returns 1 if there is no room for it. */
static __always_inline long add_node(struct node_search *search, __u64 address)
{
	struct qj_ring_stack *r = search->r;
	__u32 count = r->node_count;

	if (count >= QJ_STACK_NODES)
		return 1;
	if (!read_node(search, address, &r->nodes[count]))
		return 0;
	for (__u32 n = 0; n < QJ_STACK_NODES; n++)
		if (n < count && r->nodes[n].address == address)
			return 0;
	r->node_count = count + 1;
	return 0;
}

static long search_node(__u32 i, struct node_search *search)
{
	return i < SCRATCH_WORDS ? add_node(search, search->scratch->words[i]) : 1;
}

/* Tries each word that was taken. */
static __always_inline void search_taken(struct node_search *search)
{
	bpf_loop(search->scratch->count, search_node, search, 0);
	search->scratch->count = 0;
}

/* Nothing on the stack may point to a scan whose function has ended in a call. */
static long take_children(__u32 i, struct node_search *search)
{
	const struct qj_ring_stack *r = search->r;

	if (i >= QJ_STACK_NODES)
		return 1;
	take_word(search, r->nodes[i].left);
	take_word(search, r->nodes[i].right);
	return 0;
}

/* Hook of the core: adds what it finds to a sampled stack. */
static __always_inline void postgres_sampled(struct task_struct *task, struct qj_ring_stack *r,
					     struct stack_scratch *scratch)
{
	const volatile __u64 *facts =
	    server_plans[(r->segment.server - 1) & (QJ_MAX_SERVERS - 1)].facts;
	__u32 first = (r->registers[7] + 7) & (QJ_STACK_PAGE - 8);
	struct node_search search = {.r = r,
				     .scratch = scratch,
				     .code = r->start_code,
				     .first = first,
				     .words = (r->pages * QJ_STACK_PAGE - first) / 8};

	if (!facts[QJ_POSTGRES_EXEC_SCAN])
		return;
	for (__u32 i = 0; i < QJ_NODE_FUNCTIONS; i++) {
		__u64 offset = facts[QJ_POSTGRES_EXEC_SCAN + i];

		r->functions[i] = offset ? r->start_code + offset : 0;
	}
	set_ranges(&search, task->mm);
	/* Behind the stack's end, where a step may read. */
	if (r->pages < QJ_STACK_PAGES)
		__builtin_memset(r->bytes + r->pages * QJ_STACK_PAGE, 0, STRIDE * sizeof(__u64));
	scratch->count = 0;
	__builtin_memset(scratch->taken, 0, sizeof(scratch->taken));
	bpf_loop(QJ_REGISTERS - 1, take_register, &search, 0);
	bpf_loop(NODE_WORDS / STRIDE, take_words, &search, 0);
	search_taken(&search);
	bpf_loop(r->node_count, take_children, &search, 0);
	search_taken(&search);
}

#endif
