/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* shape_hash.h as a host library, for tests that compare it with the Python normaliser. */
#include <stddef.h>
#include "core/shape_hash.h"

__u64 shape_host(const __u8 *text, size_t bytes, size_t step, __u64 seed, int dialect, int rules,
		 int truncated);

/* The hash of a statement, fed `step` bytes at a time (1 to QJ_SHAPE_CHUNK). */
__u64 shape_host(const __u8 *text, size_t bytes, size_t step, __u64 seed, int dialect, int rules,
		 int truncated)
{
	struct qj_shape_state s;

	qj_shape_begin(&s, seed, dialect, rules);
	for (size_t at = 0; at < bytes; at += step)
		qj_shape_feed(&s, text + at, bytes - at < step ? bytes - at : step);
	s.truncated = truncated;
	return qj_shape_end(&s);
}
