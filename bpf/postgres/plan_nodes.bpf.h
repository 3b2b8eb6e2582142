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

struct node_search {
	struct qj_ring_stack *r;
	__u64 code, code_end; /* of the executable */
};

static __always_inline bool is_code(const struct node_search *search, __u64 address)
{
	return address >= search->code && address < search->code_end;
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

	for (__u32 n = 0; n < QJ_STACK_NODES; n++)
		if (n < count && r->nodes[n].address == address)
			return 0;
	if (count >= QJ_STACK_NODES)
		return 1;
	if (read_node(search, address, &r->nodes[count]))
		r->node_count = count + 1;
	return 0;
}

/* Nothing on the stack may point to a scan whose function has ended in a call. */
static long search_children(__u32 i, struct node_search *search)
{
	struct qj_ring_stack *r = search->r;
	__u32 parent = i / 2;
	__u64 child;

	if (parent >= QJ_STACK_NODES)
		return 1;
	child = i & 1 ? r->nodes[parent].right : r->nodes[parent].left;
	return child ? add_node(search, child) : 0;
}

static long search_node(__u32 i, struct node_search *search)
{
	struct qj_ring_stack *r = search->r;
	__u64 sp = r->registers[7], word;
	__u32 at;

	if (i < QJ_REGISTERS - 1) {
		word = r->registers[i & 15];
	} else {
		at = ((sp + 7) & (QJ_STACK_PAGE - 8)) + (i - (QJ_REGISTERS - 1)) % NODE_WORDS * 8;
		if (at >= r->pages * QJ_STACK_PAGE)
			return 1;
		word = *(__u64 *)(r->bytes + at);
	}
	if (word < LOWEST_DATA || word & 7 || word >= sp || is_code(search, word))
		return 0;
	return add_node(search, word);
}

/* Hook of the core: adds what it finds to a sampled stack. */
static __always_inline void postgres_sampled(const struct qj_cpu_state *cpu,
					     struct task_struct *task, struct qj_ring_stack *r)
{
	const volatile __u64 *facts = server_plans[(cpu->server - 1) & (QJ_MAX_SERVERS - 1)].facts;
	struct node_search search = {.r = r, .code = r->start_code};

	if (!facts[QJ_POSTGRES_EXEC_SCAN])
		return;
	search.code_end = BPF_CORE_READ(task, mm, end_code);
	for (__u32 i = 0; i < QJ_NODE_FUNCTIONS; i++) {
		__u64 offset = facts[QJ_POSTGRES_EXEC_SCAN + i];

		r->functions[i] = offset ? r->start_code + offset : 0;
	}
	bpf_loop(QJ_REGISTERS - 1 + NODE_WORDS, search_node, &search, 0);
	bpf_loop(2 * r->node_count, search_children, &search, 0);
}

#endif
