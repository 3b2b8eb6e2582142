/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The shape of a MongoDB message as a keyed 64-bit hash: the command, its collection and database,
 * and the keys of its documents, without their values. qjoule.servers.mongodb.shapes reads the same
 * symbols from the same bytes and makes the shape's text only from them, so equal hashes imply
 * equal shapes, up to chance. Works inside BPF programs and on the host.
 *
 * A message is fed in pieces of any size. Its documents form a tree without pointers: each element
 * is a type, a key and a value, and a document ends at a zero type. So the bytes are processed in
 * order, and values are skipped. At most QJ_MONGODB_BODY bytes of a message's body are read.
 * MongoDB manual, "MongoDB Wire Protocol"; bsonspec.org, version 1.1.
 */
#ifndef QJ_MONGODB_SHAPE_H
#define QJ_MONGODB_SHAPE_H

#include "elements.h"

/* True if a message's header is plausible: its length and opcode are those of a request. */
static __always_inline int qj_mongodb_plausible(const __u32 header[4])
{
	__u32 opcode = header[3];

	return header[0] >= QJ_MONGODB_HEADER && header[0] <= QJ_MONGODB_MAX && !header[2] &&
	       ((opcode >= QJ_MONGODB_UPDATE && opcode <= QJ_MONGODB_KILL_CURSORS) ||
		opcode == QJ_MONGODB_COMPRESSED || opcode == QJ_MONGODB_MSG);
}

/* Begins a message after its header of four numbers: length, id, the id it answers, opcode. */
static __always_inline void qj_mongodb_begin(struct qj_mongodb *m, __u64 seed,
					     const __u32 header[4])
{
	__u64 key = qj_shape_mix(seed + 0x9e3779b97f4a7c15ULL) | 1;

	__builtin_memset(m, 0, sizeof(*m));
	m->key = key;
	m->hash = qj_shape_mix(seed ^ key ^ header[3]);
	m->opcode = header[3];
	m->body = m->left = header[0] - QJ_MONGODB_HEADER;
	if (m->opcode == QJ_MONGODB_QUERY) {
		m->skip = 4; /* flags */
		m->at = QJ_MONGODB_AT_NAMESPACE;
	} else if (m->opcode == QJ_MONGODB_COMPRESSED) {
		m->skip = 8; /* the original opcode, the size before compression */
		m->at = QJ_MONGODB_AT_COMPRESSOR;
	} else if (m->opcode != QJ_MONGODB_MSG) {
		m->skip = m->left;
		m->at = QJ_MONGODB_AT_DONE;
	}
}

/* After the sections, a checksum may end the message. */
static __always_inline void qj_mongodb_settle(struct qj_mongodb *m)
{
	if (m->at == QJ_MONGODB_AT_SECTION && !m->skip && (m->flags & QJ_MONGODB_HAS_CHECKSUM) &&
	    m->left == 4) {
		m->at = QJ_MONGODB_AT_DONE;
		m->skip = 4;
	}
}

/* The next byte of a message's body. */
static __always_inline void qj_mongodb_byte(struct qj_mongodb *m, __u8 byte)
{
	m->left--;
	if (m->skip) {
		m->skip--;
		qj_mongodb_settle(m);
		return;
	}
	switch (m->at) {
	case QJ_MONGODB_AT_KEY:
		if (!byte) {
			qj_mongodb_keyed(m);
			break;
		}
		m->name = qj_mongodb_name(m->name, byte);
		if (!qj_mongodb_in_array(m))
			qj_mongodb_emit(m, byte);
		break;
	case QJ_MONGODB_AT_TYPE:
		qj_mongodb_type(m, byte);
		break;
	case QJ_MONGODB_AT_LENGTH:
		if (qj_mongodb_number(m, byte))
			qj_mongodb_opens(m);
		break;
	case QJ_MONGODB_AT_SIZE:
		if (qj_mongodb_number(m, byte))
			qj_mongodb_sized(m);
		break;
	case QJ_MONGODB_AT_KEPT:
		qj_mongodb_emit(m, byte);
		m->number--;
		if (!m->number)
			m->at = QJ_MONGODB_AT_TYPE;
		break;
	case QJ_MONGODB_AT_CURSOR:
		m->cursor |= (__u64)byte << (8 * (m->number & 7));
		if (++m->number == 8)
			m->at = QJ_MONGODB_AT_TYPE;
		break;
	case QJ_MONGODB_AT_REGEX:
		if (!byte && !--m->number)
			m->at = QJ_MONGODB_AT_TYPE;
		break;
	case QJ_MONGODB_AT_FLAGS:
		if (qj_mongodb_number(m, byte)) {
			m->flags = m->number;
			m->at = QJ_MONGODB_AT_SECTION;
		}
		break;
	case QJ_MONGODB_AT_SECTION:
		qj_mongodb_section(m, byte);
		break;
	case QJ_MONGODB_AT_ITEMS_SIZE:
		if (!qj_mongodb_number(m, byte))
			break;
		if (m->number < 5 || m->number - 4 > m->left) {
			qj_mongodb_bad(m);
			break;
		}
		m->items = m->left - (m->number - 4);
		m->name = QJ_MONGODB_FNV;
		m->at = QJ_MONGODB_AT_ITEMS_NAME;
		break;
	case QJ_MONGODB_AT_ITEMS_NAME:
		if (!byte) {
			qj_mongodb_items_named(m);
			break;
		}
		m->name = qj_mongodb_name(m->name, byte);
		qj_mongodb_emit(m, byte);
		break;
	case QJ_MONGODB_AT_NAMESPACE:
		qj_mongodb_emit(m, byte);
		if (byte)
			break;
		m->skip = 8; /* number to skip, number to return */
		m->first = 1;
		m->type = 3;
		m->at = QJ_MONGODB_AT_LENGTH;
		break;
	case QJ_MONGODB_AT_COMPRESSOR:
		qj_mongodb_emit(m, byte);
		m->at = QJ_MONGODB_AT_DONE;
		m->skip = m->left;
		break;
	}
	qj_mongodb_settle(m);
}

/*
 * The limit of a body is reached: skips the rest. The shape is still complete if the rest is only
 * part of one value, the last one.
 */
static __always_inline void qj_mongodb_cut(struct qj_mongodb *m)
{
	__u32 checksum = m->flags & QJ_MONGODB_HAS_CHECKSUM ? 4 : 0;

	if (m->skip == m->left)
		return;
	if (m->at == QJ_MONGODB_AT_SECTION && m->left - m->skip == checksum)
		m->at = QJ_MONGODB_AT_DONE;
	else
		m->at = QJ_MONGODB_AT_CUT;
	m->skip = m->left;
}

/* True if no later byte can change the shape. */
static __always_inline int qj_mongodb_is_seen(struct qj_mongodb *m)
{
	if (m->body - m->left < QJ_MONGODB_BODY)
		return 0;
	qj_mongodb_cut(m);
	return 1;
}

/* How many of the next bytes can be skipped. */
static __always_inline __u32 qj_mongodb_unseen(struct qj_mongodb *m)
{
	qj_mongodb_is_seen(m);
	return m->skip < m->left ? m->skip : m->left;
}

/* Skips that many bytes. */
static __always_inline void qj_mongodb_pass(struct qj_mongodb *m, __u32 bytes)
{
	m->left -= bytes;
	m->skip -= bytes;
	qj_mongodb_settle(m);
}

static __always_inline __u64 qj_mongodb_named(__u64 hash)
{
	hash = qj_shape_mix(hash);
	return hash + 1 < 2 ? 1 : hash;
}

/* The shape of a getMore whose cursor was opened by a message with the shape `origin`. */
static __always_inline __u64 qj_mongodb_joined(const struct qj_mongodb *m, __u64 shape,
					       __u64 origin)
{
	return qj_mongodb_named(qj_shape_step(shape, origin, m->key));
}

/* Returns the final shape at the message's end: never 0 (unknown text) nor ~0 (the `other` row). */
static __always_inline __u64 qj_mongodb_end(struct qj_mongodb *m)
{
	if (m->at != QJ_MONGODB_AT_DONE && m->at != QJ_MONGODB_AT_SECTION) {
		if (m->in_items)
			m->hash = qj_shape_step(m->outer, m->hash, m->key);
		qj_mongodb_emit(m, m->at == QJ_MONGODB_AT_CUT ? QJ_MONGODB_CUT : QJ_MONGODB_BAD);
	}
	return qj_mongodb_named(m->hash);
}

/* Processes several bytes of a message at a time; shape.h does the same byte by byte. */

#define QJ_MONGODB_CHUNK 256 /* bytes of a body that are read at once: a power of two */
#define QJ_MONGODB_RUN	 32

/* Hashes a run of kept bytes of keys and texts, without their final NUL. */
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
 * Processes the next item in a chunk of the body, from `at` on: bytes to skip, a run, a number or
 * one byte. Returns its length. At most `bytes` of the chunk may be read.
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

#endif
