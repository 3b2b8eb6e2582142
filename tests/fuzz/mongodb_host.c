// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* mongodb_shape.h for the host: the hash of a message, fed in pieces of `step` bytes. */
#include <stddef.h>
#include <string.h>

#include "mongodb_shape.h"

/* 0: the header is not that of a request. `step` 0: as the kernel does, without a look at values.
 */
__u64 mongodb_host(const __u8 *message, size_t bytes, size_t step, __u64 seed)
{
	struct qj_mongodb m;
	__u32 header[4];
	size_t at = QJ_MONGODB_HEADER;

	if (bytes < QJ_MONGODB_HEADER)
		return 0;
	memcpy(header, message, sizeof(header));
	if (!qj_mongodb_plausible(header) || header[0] != bytes)
		return 0;
	qj_mongodb_begin(&m, seed, header);
	while (m.left) {
		__u32 unseen = qj_mongodb_unseen(&m);
		__u32 take = step && step < QJ_SHAPE_CHUNK ? step : QJ_SHAPE_CHUNK;

		if (unseen &&
		    (!step || m.at == QJ_MONGODB_AT_CUT || m.body - m.left >= QJ_MONGODB_BODY)) {
			qj_mongodb_pass(&m, unseen);
			at += unseen;
			continue;
		}
		if (take > bytes - at)
			take = bytes - at;
		at += qj_mongodb_feed(&m, message + at, take);
	}
	return qj_mongodb_end(&m);
}
