/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Processes several bytes of a message at a time; shape.h does the same byte by byte. */
#ifndef QJ_MONGODB_CHUNK_H
#define QJ_MONGODB_CHUNK_H

#include "shape.h"

#define QJ_MONGODB_CHUNK 256 /* bytes of a body that are read at once: a power of two */
#define QJ_MONGODB_RUN	 32

/* Hashes as many kept bytes of keys and texts as there are, up to but without their end. */
static __always_inline __u32 qj_mongodb_run(struct qj_mongodb *m, const __u8 *chunk, __u32 at,
					    __u32 bytes)
{
	int is_kept = m->at == QJ_MONGODB_AT_KEPT, is_key = m->at == QJ_MONGODB_AT_KEY;
	int is_hashed = !is_key || !qj_mongodb_in_array(m);
	__u64 hash = m->hash;
	__u32 name = m->name, i;

	if (is_kept && m->number < bytes - at)
		bytes = at + m->number;
#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (i = 0; i < QJ_MONGODB_RUN; i++) {
		__u8 byte;

		if (at + i >= bytes)
			break;
		byte = chunk[(at + i) & (QJ_MONGODB_CHUNK - 1)];
		if (!byte && !is_kept)
			break;
		name = qj_mongodb_name(name, byte);
		if (is_hashed)
			hash = qj_shape_step(hash, byte, m->key);
	}
	m->hash = hash;
	m->left -= i;
	if (is_kept) {
		m->number -= i;
		if (!m->number)
			m->at = QJ_MONGODB_AT_TYPE;
	} else {
		m->name = name;
	}
	return i;
}

static __always_inline int qj_mongodb_at_run(const struct qj_mongodb *m)
{
	return m->at == QJ_MONGODB_AT_KEY || m->at == QJ_MONGODB_AT_KEPT ||
	       m->at == QJ_MONGODB_AT_ITEMS_NAME;
}

static __always_inline int qj_mongodb_at_number(const struct qj_mongodb *m)
{
	return m->at == QJ_MONGODB_AT_LENGTH || m->at == QJ_MONGODB_AT_SIZE ||
	       m->at == QJ_MONGODB_AT_FLAGS || m->at == QJ_MONGODB_AT_ITEMS_SIZE;
}

/*
 * Processes what comes next in a chunk of the body, from `at` on: bytes to skip, or a run, a number
 * or one byte. Returns how many bytes that was. At most `bytes` of the chunk may be read.
 */
static __always_inline __u32 qj_mongodb_step(struct qj_mongodb *m, const __u8 *chunk, __u32 at,
					     __u32 bytes)
{
	__u32 taken = bytes - at;

	if (m->skip) {
		taken = m->skip < taken ? m->skip : taken;
		qj_mongodb_pass(m, taken);
		return taken;
	}
	taken = 0;
	if (qj_mongodb_at_run(m)) {
		taken = qj_mongodb_run(m, chunk, at, bytes);
		if (at + taken >= bytes)
			return taken;
	} else if (qj_mongodb_at_number(m) && !m->digits && at + 4 <= bytes) {
		m->number = chunk[at & (QJ_MONGODB_CHUNK - 1)] |
			    chunk[(at + 1) & (QJ_MONGODB_CHUNK - 1)] << 8 |
			    chunk[(at + 2) & (QJ_MONGODB_CHUNK - 1)] << 16;
		m->digits = taken = 3;
		m->left -= taken;
	}
	qj_mongodb_byte(m, chunk[(at + taken) & (QJ_MONGODB_CHUNK - 1)]);
	return taken + 1;
}

/* How many of the first `bytes` of a chunk are read: none beyond the message or QJ_MONGODB_BODY. */
static __always_inline __u32 qj_mongodb_within(const struct qj_mongodb *m, __u32 bytes)
{
	__u32 seen = m->body - m->left;
	__u32 room = seen < QJ_MONGODB_BODY ? QJ_MONGODB_BODY - seen : 0;

	if (bytes > QJ_MONGODB_CHUNK)
		bytes = QJ_MONGODB_CHUNK;
	if (bytes > m->left)
		bytes = m->left;
	return bytes < room ? bytes : room;
}

#endif /* QJ_MONGODB_CHUNK_H */
