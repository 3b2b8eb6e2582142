/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The outcome of a request in MongoDB's replies: `ok`, `writeErrors`, the id of a cursor that was
 * opened or exhausted, and the number of documents. Found documents are counted one by one, one
 * step each, up to a bound; the rest are skipped in one step.
 *
 * A reply is parsed part by part (a header, an element with the start of its value). If a part is
 * longer than QJ_MONGODB_PART, or there are too many parts, the outcome is unknown. Works inside
 * BPF programs and on the host. MongoDB manual, "MongoDB Wire Protocol", "Database Commands".
 */
#ifndef QJ_MONGODB_REPLY_PARTS_H
#define QJ_MONGODB_REPLY_PARTS_H

#include "elements.h"
#include "symbols.h"

#define QJ_MONGODB_KEY_MAX 48 /* bytes of a key including its NUL */

/* Keys of replies, by their FNV-1a hash. */
enum qj_mongodb_reply_key {
	QJ_MONGODB_REPLY_KEY_CURSOR = 0xe336320f,
	QJ_MONGODB_REPLY_KEY_FIRST_BATCH = 0x0a007227,
	QJ_MONGODB_REPLY_KEY_NEXT_BATCH = 0xc8f888c0,
	QJ_MONGODB_REPLY_KEY_ID = 0x37386ae0,
	QJ_MONGODB_REPLY_KEY_N = 0xeb0c3431,
	QJ_MONGODB_REPLY_KEY_OK = 0x663437af,
	QJ_MONGODB_REPLY_KEY_WRITE_ERRORS = 0x17d3e5fb,
	QJ_MONGODB_REPLY_KEY_N_ERRORS = 0x5e9f04f2, /* of a bulkWrite */
};

static __always_inline __u32 qj_mongodb_u32(const __u8 *at)
{
	return at[0] | at[1] << 8 | at[2] << 16 | (__u32)at[3] << 24;
}

static __always_inline __u64 qj_mongodb_u64(const __u8 *at)
{
	return qj_mongodb_u32(at) | (__u64)qj_mongodb_u32(at + 4) << 32;
}

/* Skips the next part; if it has more bytes than are left, this is no reply. */
static __always_inline void qj_mongodb_reply_skip(struct qj_mongodb_reply *r, __u32 taken,
						  __u64 bytes)
{
	if (taken > r->left || bytes > r->left - taken)
		r->at = QJ_MONGODB_REPLY_DONE;
	else
		r->skip = bytes;
}

/* A message's header: only the expected reply is parsed further. */
static __always_inline __u32 qj_mongodb_reply_header(struct qj_mongodb_reply *r, const __u8 *w,
						     __u32 have)
{
	__u32 length, opcode;

	if (have < QJ_MONGODB_HEADER)
		return 0;
	length = qj_mongodb_u32(w);
	if (length < QJ_MONGODB_HEADER || length > QJ_MONGODB_MAX) {
		r->at = QJ_MONGODB_REPLY_DONE;
		return QJ_MONGODB_HEADER;
	}
	r->left = length;
	opcode = qj_mongodb_u32(w + 12);
	if (qj_mongodb_u32(w + 8) == r->request)
		r->at = opcode == QJ_MONGODB_MSG ? QJ_MONGODB_REPLY_START : QJ_MONGODB_REPLY_DONE;
	else
		qj_mongodb_reply_skip(r, QJ_MONGODB_HEADER, length - QJ_MONGODB_HEADER);
	return QJ_MONGODB_HEADER;
}

/* The flags, the kind of the body, its length. */
static __always_inline __u32 qj_mongodb_reply_start(struct qj_mongodb_reply *r, const __u8 *w,
						    __u32 have)
{
	if (have < 9)
		return 0;
	r->at = w[4] ? QJ_MONGODB_REPLY_DONE : QJ_MONGODB_REPLY_BODY;
	return 9;
}

/* A document ends: the body, or `cursor` in it, or the batch in `cursor`. */
static __always_inline __u32 qj_mongodb_reply_ends(struct qj_mongodb_reply *r)
{
	if (r->at == QJ_MONGODB_REPLY_BATCH) {
		r->found |= QJ_MONGODB_FOUND_BATCH;
		r->at =
		    r->left - 1 == r->batch_end ? QJ_MONGODB_REPLY_CURSOR : QJ_MONGODB_REPLY_DONE;
	} else if (r->at == QJ_MONGODB_REPLY_CURSOR) {
		r->at = QJ_MONGODB_REPLY_BODY;
	} else {
		r->found |= QJ_MONGODB_FOUND_ALL;
		r->at = QJ_MONGODB_REPLY_DONE;
	}
	return 1;
}

/* Length of the key at the window's start including its NUL; 0: its end is not in the window. */
static __always_inline __u32 qj_mongodb_reply_key(const __u8 *w, __u32 have, __u32 *name)
{
	__u32 i;

	*name = QJ_MONGODB_FNV;
#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (i = 1; i <= QJ_MONGODB_KEY_MAX; i++) {
		if (i >= have)
			return 0;
		if (!w[i])
			return i;
		*name = qj_mongodb_name(*name, w[i]);
	}
	return 0;
}

/* True if a number is not zero: `ok` is a double, or a bool from stand-ins for mongod. */
static __always_inline int qj_mongodb_is_true(__u8 type, const __u8 *value)
{
	if (type == 0x08)
		return value[0] != 0;
	if (type == 0x10)
		return qj_mongodb_u32(value) != 0;
	return qj_mongodb_u64(value) << (type == 0x01) != 0; /* a double has two zeros */
}

/* Evaluates an element whose value is a number. */
static __always_inline void qj_mongodb_reply_number(struct qj_mongodb_reply *r, __u8 type,
						    __u32 name, const __u8 *value)
{
	int is_true = qj_mongodb_is_true(type, value);

	if (r->at == QJ_MONGODB_REPLY_CURSOR) {
		if (name == QJ_MONGODB_REPLY_KEY_ID && type == 0x12) {
			r->cursor = qj_mongodb_u64(value);
			r->found |= QJ_MONGODB_FOUND_CURSOR;
		}
	} else if (r->at != QJ_MONGODB_REPLY_BODY) {
		return;
	} else if (name == QJ_MONGODB_REPLY_KEY_N && (type == 0x10 || type == 0x12)) {
		r->n = type == 0x10 ? qj_mongodb_u32(value) : qj_mongodb_u64(value);
		r->found |= QJ_MONGODB_FOUND_N;
	} else if (name == QJ_MONGODB_REPLY_KEY_OK) {
		r->found |= is_true ? QJ_MONGODB_FOUND_OK : QJ_MONGODB_FOUND_ERROR;
	} else if (name == QJ_MONGODB_REPLY_KEY_N_ERRORS && is_true) {
		r->found |= QJ_MONGODB_FOUND_ERROR;
	}
}

/* A document or an array of `size` bytes begins; `taken` bytes include its size field. */
static __always_inline void qj_mongodb_reply_opens(struct qj_mongodb_reply *r, __u8 type,
						   __u32 name, __u32 taken, __u32 size)
{
	if (r->at == QJ_MONGODB_REPLY_BODY && type == 0x03 && name == QJ_MONGODB_REPLY_KEY_CURSOR) {
		r->at = QJ_MONGODB_REPLY_CURSOR;
		return;
	}
	qj_mongodb_reply_skip(r, taken, size - 4);
	if (r->at != QJ_MONGODB_REPLY_CURSOR || type != 0x04 ||
	    (name != QJ_MONGODB_REPLY_KEY_FIRST_BATCH && name != QJ_MONGODB_REPLY_KEY_NEXT_BATCH))
		return;
	r->batch_end = r->left - taken - r->skip;
	r->documents = 0;
	r->found &= ~QJ_MONGODB_FOUND_BATCH;
	r->skip = 0;
	r->at = QJ_MONGODB_REPLY_BATCH;
}

/* A value that begins with its size: enters `cursor` and its batch, and skips all others. */
static __always_inline __u32 qj_mongodb_reply_sized(struct qj_mongodb_reply *r, __u8 type,
						    __u32 name, const __u8 *w, __u32 at)
{
	__u32 size = qj_mongodb_u32(w + at), taken = at + 4;
	__u64 rest = size;

	if (type == 0x03 || type == 0x04 || type == 0x0f) { /* sizes that include themselves */
		if (size < 5) {
			r->at = QJ_MONGODB_REPLY_DONE;
			return taken;
		}
		if (r->at == QJ_MONGODB_REPLY_BODY && type == 0x04 && size > 5 &&
		    name == QJ_MONGODB_REPLY_KEY_WRITE_ERRORS)
			r->found |= QJ_MONGODB_FOUND_ERROR;
		if (type != 0x0f) {
			qj_mongodb_reply_opens(r, type, name, taken, size);
			return taken;
		}
		rest -= 4;
	} else if (type == 0x05) {
		rest += 1;
	} else if (type == 0x0c) {
		rest += 12;
	}
	qj_mongodb_reply_skip(r, taken, rest);
	return taken;
}

/* Counts another document (or other element) of a batch; beyond the bound, skips the rest. */
static __always_inline void qj_mongodb_reply_counts(struct qj_mongodb_reply *r, int is_document,
						    __u32 taken)
{
	if (is_document && r->documents < QJ_MONGODB_DOCUMENTS) {
		r->documents++;
	} else if (is_document) {
		r->at = QJ_MONGODB_REPLY_CURSOR;
		if (taken > r->left || r->batch_end > r->left - taken)
			r->at = QJ_MONGODB_REPLY_DONE;
		else
			r->skip = r->left - taken - r->batch_end;
	} else if (++r->elements > QJ_MONGODB_ELEMENTS) {
		r->at = QJ_MONGODB_REPLY_DONE;
	}
}

/* Parses a type, a key, and enough of the value to know its length. */
static __always_inline __u32 qj_mongodb_reply_element(struct qj_mongodb_reply *r, const __u8 *w,
						      __u32 have)
{
	int is_document = r->at == QJ_MONGODB_REPLY_BATCH;
	__u8 type = w[0];
	__u32 name, key, fixed;

	if (!type)
		return qj_mongodb_reply_ends(r);
	key = qj_mongodb_reply_key(w, have, &name);
	if (!key)
		return 0;
	key++;
	fixed = qj_mongodb_fixed(type);
	if (type == 0x01 || type == 0x08 || type == 0x10 || type == 0x12) {
		if (have < key + fixed)
			return 0;
		qj_mongodb_reply_number(r, type, name, w + key);
		key += fixed;
	} else if (fixed != 255) {
		qj_mongodb_reply_skip(r, key, fixed);
	} else if (type <= 0x0f && type != 0x0b) {
		if (have < key + 4)
			return 0;
		key = qj_mongodb_reply_sized(r, type, name, w, key);
	} else {
		r->at = QJ_MONGODB_REPLY_DONE; /* a regular expression, or an invalid type */
	}
	if (r->at != QJ_MONGODB_REPLY_DONE)
		qj_mongodb_reply_counts(r, is_document, key);
	return key;
}

/*
 * Parses the part at the start of these bytes, of which `have` (at least one) are present. Returns
 * its length; 0: more bytes are needed.
 */
static __always_inline __u32 qj_mongodb_reply_part(struct qj_mongodb_reply *r, const __u8 *w,
						   __u32 have)
{
	__u32 taken;

	if (r->at == QJ_MONGODB_REPLY_HEADER)
		taken = qj_mongodb_reply_header(r, w, have);
	else if (r->at == QJ_MONGODB_REPLY_START)
		taken = qj_mongodb_reply_start(r, w, have);
	else
		taken = qj_mongodb_reply_element(r, w, have);
	if (taken > r->left) {
		r->at = QJ_MONGODB_REPLY_DONE;
		r->found = 0;
		r->left = 0;
	} else {
		r->left -= taken;
	}
	if (!taken && have >= QJ_MONGODB_PART)
		r->at = QJ_MONGODB_REPLY_DONE;
	return taken;
}

#endif /* QJ_MONGODB_REPLY_PARTS_H */
