// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* mongodb_shape.h and mongodb_reply.h for the host: messages in pieces of `step` bytes. */
#include "mongodb_host.h"

/*
 * Returns 0 if the header is not that of a request. `step` 0: as the kernel does it, without
 * looking at values.
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
		__u32 take = step && step < QJ_MONGODB_CHUNK ? step : QJ_MONGODB_CHUNK;

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
	if (m.opcode == QJ_MONGODB_COMPRESSED)
		mongodb_unpack_host(&m, message + QJ_MONGODB_HEADER, seed);
	return qj_mongodb_end(&m);
}

/* Bit 0: done, bit 1: failed, bit 2: `cursor` was set. `step` 0: all at once. `rows` of `command`.
 */
__u32 mongodb_reply_host(const __u8 *sent, size_t bytes, size_t step, __u32 request, __u64 *cursor,
			 __u32 command, __s64 *rows)
{
	struct qj_mongodb_reply r;
	__u32 said;

	qj_mongodb_reply_begin(&r, request);
	for (size_t at = 0; at < bytes; at += step) {
		if (!step || step > bytes - at)
			step = bytes - at;
		mongodb_reply_feed(&r, sent + at, step);
	}
	said = (qj_mongodb_reply_succeeded(&r) ? 1 : 0) | (qj_mongodb_reply_failed(&r) ? 2 : 0) |
	       (qj_mongodb_reply_has_cursor(&r) ? 4 : 0);
	*cursor = r.cursor;
	*rows = qj_mongodb_reply_rows(&r, command);
	return said;
}
