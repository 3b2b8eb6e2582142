// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* redis_shape.h for the host: the hash of an argument's pattern. */
#include <stddef.h>

#define QJ_DIALECT_REDIS 3
#include "core/key_shape.h"

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
