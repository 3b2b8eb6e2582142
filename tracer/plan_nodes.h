/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Matches frames of a sampled stack with nodes of a plan. The kernel side lists all nodes that the
 * stack points to, which include neighbours of the executed nodes.
 */
#ifndef QJ_PLAN_NODES_H
#define QJ_PLAN_NODES_H

#include "shared.h"
#include "unwind.h"

/*
 * A frame of a stack, and bits of nodes: `executes`: the frame's function executes them; `holds`:
 * the frame's registers point to them, whatever the function is. `shared`: the function's number
 * among those that execute nodes of several kinds, from 1. `node`: the chosen node, from 1.
 */
struct place {
	uint64_t offset;
	uint32_t module;
	uint32_t executes;
	uint32_t holds;
	uint32_t shared;
	uint32_t node;
};

/* A frame before and after the step to its caller. */
struct node_frame {
	uint64_t function; /* the function's first address */
	uint64_t registers[UNWIND_REGISTERS];
	uint64_t end; /* end of the frame's part of the stack */
	const struct unwind_saved *saved;
	bool all_registers; /* all are its own; else only those that a called function preserves */
};

/* Fills in the nodes that the frame's own values point to. */
void nodes_of_frame(const struct qj_ring_stack *s, const struct unwind_memory *stack,
		    const struct node_frame *frame, struct place *place);

/* Chooses a node for each frame that has some. The innermost frame is the first. */
void nodes_choose(const struct qj_ring_stack *s, struct place *places, unsigned count);

/* Returns a node's replacement for a frame's offset. */
uint64_t node_offset(const struct qj_plan_node *node);

#endif /* QJ_PLAN_NODES_H */
