// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "ends.h"

#include <stdlib.h>

bool sweep_ends_init(struct ends *ends, uint32_t cpus)
{
	size_t n = cpus ? cpus : 1, all = 1;

	for (ends->top = 0; n > 1 || !ends->top; ends->top++) {
		n = (n + SWEEP_CHILDREN - 1) / SWEEP_CHILDREN;
		all += n * SWEEP_CHILDREN;
	}
	ends->level[0] = calloc(all, sizeof(*ends->level[0]));
	if (!ends->level[0])
		return false;
	for (size_t i = 0; i < all; i++)
		ends->level[0][i].t_ns = SWEEP_NEVER;
	n = cpus ? cpus : 1;
	for (unsigned i = 0; i < ends->top; i++) {
		n = (n + SWEEP_CHILDREN - 1) / SWEEP_CHILDREN;
		ends->level[i + 1] = ends->level[i] + n * SWEEP_CHILDREN;
	}
	return true;
}

void sweep_ends_free(struct ends *ends)
{
	free(ends->level[0]);
}
