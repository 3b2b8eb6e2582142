/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Requests that a client compressed by Snappy, once their bytes are in a buffer. They are inflated
 * as far as a shape needs, and then read like plain ones. The reader inflates zlib and Zstandard,
 * whose bit-level codes need trees. MongoDB manual, "MongoDB Wire Protocol", OP_COMPRESSED.
 */
#ifndef QJ_MONGODB_PACKED_H
#define QJ_MONGODB_PACKED_H

#include "core/inflate.h"
#include "shape.h"

#define QJ_MONGODB_SNAPPY     1 /* MessageCompressorId */
#define QJ_MONGODB_PACKED_MAX (QJ_MONGODB_BODY - QJ_MONGODB_COMPRESSION)

struct qj_mongodb_packed {
	__u32 opcode;
	__u32 size; /* length of the uncompressed body, as the client claims */
	__u8 compressor;
	__u8 reserved[3];
};

static __always_inline int qj_mongodb_can_unpack(const struct qj_mongodb_packed *head)
{
	const __u32 header[4] = {QJ_MONGODB_HEADER + head->size, 0, 0, head->opcode};

	return head->compressor == QJ_MONGODB_SNAPPY && head->opcode != QJ_MONGODB_COMPRESSED &&
	       head->size && head->size <= QJ_MONGODB_MAX && qj_mongodb_plausible(header);
}

/*
 * Inflates the `bytes` in the buffer, out of `all` that were sent. Returns true if they are valid
 * so far; the message then starts again as the uncompressed one.
 */
static __always_inline int qj_mongodb_unpack(struct qj_mongodb *m, struct inflate_buffers *b,
					     const struct qj_mongodb_packed *head, __u32 bytes,
					     __u32 all, __u64 seed)
{
	__u32 header[4] = {QJ_MONGODB_HEADER + head->size, 0, 0, head->opcode};

	inflate_begin(b, QJ_INFLATE_SNAPPY, bytes);
	if (snappy_length(b) != head->size)
		return 0;
	b->limit = head->size < QJ_MONGODB_BODY ? head->size : QJ_MONGODB_BODY;
	inflate_run(b);
	if (!b->done || (bytes == all && b->done < b->limit))
		return 0;
	qj_mongodb_begin(m, seed, header);
	m->inflated = 1;
	return 1;
}

/* How many bytes from `at` in the buffer to feed next; 0: none, after skipping some. */
static __always_inline __u32 qj_mongodb_unpacked(struct qj_mongodb *m,
						 const struct inflate_buffers *b, __u32 *at)
{
	__u32 unseen = qj_mongodb_unseen(m);

	*at = m->body - m->left;
	if (unseen) {
		qj_mongodb_pass(m, unseen);
		return 0;
	}
	return b->done - *at < QJ_MONGODB_CHUNK ? b->done - *at : QJ_MONGODB_CHUNK;
}

static __always_inline int qj_mongodb_unpacked_all(const struct qj_mongodb *m,
						   const struct inflate_buffers *b)
{
	return !m->left || m->body - m->left >= b->done;
}

/* Called after the last of them; `left` bytes of the compressed message are still to be skipped. */
static __always_inline void qj_mongodb_unpack_end(struct qj_mongodb *m, __u32 left)
{
	if (m->left)
		qj_mongodb_cut(m);
	m->left = m->skip = left;
}

#endif /* QJ_MONGODB_PACKED_H */
