/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* shape_hash.h as a host library, for tests that compare it with Python's. */
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

/* The hash of an argument's pattern. */
__u64 redis_pattern_host(const __u8 *argument, size_t bytes, __u64 seed)
{
	struct qj_key_pattern p;
	__u64 key = qj_key_seeded(seed);

	if (bytes > QJ_KEY_BYTES)
		bytes = QJ_KEY_BYTES;
	qj_key_pattern_begin(&p, qj_key_name_byte(seed, 'g', key), key);
	for (size_t i = 0; i < bytes; i++)
		qj_key_byte(&p, argument[i]);
	return qj_key_end(qj_key_pattern_end(&p, bytes));
}
