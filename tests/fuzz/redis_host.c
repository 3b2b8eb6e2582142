// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* redis_shape.h for the host: the hash of an argument's pattern. */
#include <stddef.h>

#define QJ_DIALECT_REDIS 3
#include "redis/shape.h"

__u64 redis_pattern_host(const __u8 *argument, size_t bytes, __u64 seed)
{
	struct qj_redis_pattern p;
	__u64 key = qj_redis_key(seed);

	if (bytes > QJ_REDIS_KEY)
		bytes = QJ_REDIS_KEY;
	qj_redis_pattern_begin(&p, qj_redis_name_byte(seed, 'g', key), key);
	for (size_t i = 0; i < bytes; i++)
		qj_redis_byte(&p, argument[i]);
	return qj_redis_end(qj_redis_pattern_end(&p, bytes));
}
