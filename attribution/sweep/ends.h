// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A tournament tree of the times at which open segments end.
 *
 * The leaves are the CPUs, and each node holds the earliest of its eight children. The eight are
 * compared without a branch, so unlike in a heap no comparison can be mispredicted. Of equal ends,
 * the one of the lowest CPU comes first.
 */
#ifndef QJOULE_SWEEP_ENDS_H
#define QJOULE_SWEEP_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#define SWEEP_NEVER    INT64_MAX /* the end of a CPU without an open segment */
#define SWEEP_CHILDREN 8
#define SWEEP_LEVELS   12 /* enough for 2^32 CPUs and the root */

struct end {
	int64_t t_ns;
	uint32_t cpu;
};

struct ends {
	struct end *level[SWEEP_LEVELS]; /* leaves first; the last is the root alone */
	unsigned top;			 /* the root's level */
};

bool sweep_ends_init(struct ends *ends, uint32_t cpus);
void sweep_ends_free(struct ends *ends);

static inline struct end sweep_ends_first(const struct ends *ends)
{
	return *ends->level[ends->top];
}

static inline const struct end *sweep_sooner(const struct end *a, const struct end *b)
{
	return b->t_ns < a->t_ns ? b : a;
}

static inline struct end sweep_first_of(const struct end child[SWEEP_CHILDREN])
{
	return *sweep_sooner(
	    sweep_sooner(sweep_sooner(child, child + 1), sweep_sooner(child + 2, child + 3)),
	    sweep_sooner(sweep_sooner(child + 4, child + 5), sweep_sooner(child + 6, child + 7)));
}

/* Adds a segment that ends at `t_ns` to a CPU that had none. */
static inline void sweep_ends_add(struct ends *ends, uint32_t cpu, int64_t t_ns)
{
	uint32_t place = cpu;

	ends->level[0][place].t_ns = t_ns;
	ends->level[0][place].cpu = cpu;
	for (unsigned i = 1; i <= ends->top; i++) {
		struct end *node = &ends->level[i][place /= SWEEP_CHILDREN];

		if (node->t_ns < t_ns || (node->t_ns == t_ns && node->cpu < cpu))
			return;
		*node = (struct end){t_ns, cpu};
	}
}

/* Replaces the first end by a later end of the same CPU, `t_ns`, or by SWEEP_NEVER. */
static inline void sweep_ends_move_first(struct ends *ends, int64_t t_ns)
{
	uint32_t place = sweep_ends_first(ends).cpu;

	ends->level[0][place].t_ns = t_ns;
	for (unsigned i = 0; i < ends->top; i++) {
		const struct end *children = &ends->level[i][place & ~(SWEEP_CHILDREN - 1u)];

		ends->level[i + 1][place /= SWEEP_CHILDREN] = sweep_first_of(children);
	}
}

#endif
