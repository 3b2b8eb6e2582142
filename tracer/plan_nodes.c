// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Which node of a plan the frames of a sampled stack work for. */
#include "plan_nodes.h"

#include <string.h>

/* Registers that a called function gives back as they were: rbx, rbp, r12 to r15. */
#define PRESERVED (1u << 3 | 1u << 6 | 0xfu << 12)

_Static_assert(QJ_STACK_NODES <= 32, "a node is a bit");

static unsigned nodes_in(const struct qj_ring_stack *s)
{
	return s->node_count < QJ_STACK_NODES ? s->node_count : QJ_STACK_NODES;
}

static uint32_t at_address(const struct qj_ring_stack *s, uint32_t nodes, uint64_t address)
{
	for (unsigned i = 0; i < nodes_in(s); i++)
		if (nodes & 1u << i && s->nodes[i].address == address)
			return 1u << i;
	return 0;
}

/* From 1; 0: none of these. */
static uint32_t shared_function(const struct qj_ring_stack *s, uint64_t function)
{
	for (unsigned i = 0; i < QJ_NODE_FUNCTIONS; i++)
		if (s->functions[i] == function)
			return i + 1;
	return 0;
}

static uint32_t with_row_slot(const struct qj_ring_stack *s, uint64_t address)
{
	uint32_t nodes = 0;

	for (unsigned i = 0; address && i < nodes_in(s); i++)
		if (s->nodes[i].row_slot == address)
			nodes |= 1u << i;
	return nodes;
}

/* What ExecScan() calls finds the next row of the same node. */
static bool is_of_scan_above(const struct place *place, const struct place *above)
{
	return place->shared > QJ_NODE_ACCESS && above->shared == 1 && above->node;
}

static bool is_slot(const struct unwind_saved *saved, uint64_t address)
{
	for (unsigned i = 0; i < UNWIND_REGISTERS; i++)
		if (saved->registers & 1u << i && saved->at[i] == address)
			return true;
	return false;
}

static uint32_t held(const struct qj_ring_stack *s, uint32_t nodes, const uint64_t *registers,
		     uint32_t which)
{
	uint32_t found = 0;

	for (unsigned i = 0; i < UNWIND_IP; i++)
		if (which & 1u << i)
			found |= at_address(s, nodes, registers[i]);
	return found;
}

/*
 * What a function has not saved, or has saved of a register, is its caller's, who holds addresses
 * of neighbours, too. A function that finds the next row of a scan may not keep the scan's address,
 * but where the row goes: SeqNext() of PostgreSQL 18.
 */
void nodes_of_frame(const struct qj_ring_stack *s, const struct unwind_memory *stack,
		    const struct node_frame *frame, struct place *place)
{
	uint32_t preserved = PRESERVED & frame->saved->registers, nodes = 0, scans = 0;
	uint32_t own = frame->all_registers ? ~0u : preserved;
	bool finds_rows;

	place->shared = shared_function(s, frame->function);
	place->holds = held(s, ~0u, frame->registers, preserved);
	finds_rows = place->shared > QJ_NODE_ACCESS;
	for (unsigned i = 0; i < nodes_in(s); i++)
		if (place->shared || s->nodes[i].function == frame->function)
			nodes |= 1u << i;
	if (!nodes)
		return;
	place->executes = held(s, nodes, frame->registers, own);
	for (unsigned i = 0; finds_rows && i < UNWIND_IP; i++)
		if (own & 1u << i)
			scans |= with_row_slot(s, frame->registers[i]);
	for (uint64_t at = frame->registers[UNWIND_SP];
	     at >= stack->from && at + 8 <= frame->end && at + 8 <= stack->to; at += 8) {
		uint64_t word;

		memcpy(&word, stack->bytes + (at - stack->from), sizeof(word));
		if (is_slot(frame->saved, at))
			continue;
		place->executes |= at_address(s, nodes, word);
		scans |= finds_rows ? with_row_slot(s, word) : 0;
	}
	place->executes = scans ?: place->executes;
}

static uint32_t children_of(const struct qj_ring_stack *s, const struct qj_plan_node *node,
			    uint32_t nodes)
{
	return at_address(s, nodes, node->left) | at_address(s, nodes, node->right);
}

static uint32_t of_statement(const struct qj_ring_stack *s, uint64_t state)
{
	uint32_t nodes = 0;

	for (unsigned i = 0; i < nodes_in(s); i++)
		if (s->nodes[i].state == state)
			nodes |= 1u << i;
	return nodes;
}

/* One of these: a child of `parent`, or one in a register, if there is one, or nobody's child. */
static unsigned choose(const struct qj_ring_stack *s, uint32_t nodes, uint32_t holds,
		       const struct qj_plan_node *parent)
{
	uint32_t children = parent ? children_of(s, parent, nodes) : 0, below = 0;

	if (children)
		return __builtin_ctz(children & holds ?: children);
	for (unsigned i = 0; i < nodes_in(s); i++)
		if (nodes & 1u << i)
			below |= children_of(s, &s->nodes[i], nodes);
	nodes = nodes & ~below ?: nodes;
	return __builtin_ctz(nodes & holds ?: nodes);
}

/*
 * From the outermost frame on. Nodes of another statement, which a function in the first one
 * executes, are part of the node that calls the function: their ids are of another plan.
 */
void nodes_choose(const struct qj_ring_stack *s, struct place *places, unsigned count)
{
	const struct qj_plan_node *last = NULL;
	unsigned outermost = count - 1;
	uint32_t left = ~0u;

	while (count--) {
		struct place *place = &places[count];
		uint32_t nodes = place->executes & left;

		if (!nodes || (count < outermost && is_of_scan_above(place, place + 1)))
			continue;
		place->node = choose(s, nodes, place->holds, last) + 1;
		last = &s->nodes[place->node - 1];
		left &= of_statement(s, last->state) & ~(1u << (place->node - 1));
	}
}

uint64_t node_offset(const struct qj_plan_node *node)
{
	return QJ_NODE | (uint64_t)(node->kind & 0xffff) << QJ_NODE_KIND | node->id;
}
