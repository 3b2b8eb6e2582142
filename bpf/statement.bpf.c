// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What statement.bpf.h declares. */
#include "statement.bpf.h"

int feed_shape(struct qj_shape_state *state, struct shape_chunk *chunk, __u32 bytes)
{
	if (state && chunk)
		qj_shape_feed(state, chunk->bytes, bytes);
	return 0;
}
