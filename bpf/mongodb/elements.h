/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The parts of a MongoDB message, for shape.h: sections of documents, and the elements of
 * documents. Every length is a client's claim: a length that leads out of the message ends the
 * shape.
 */
#ifndef QJ_MONGODB_ELEMENTS_H
#define QJ_MONGODB_ELEMENTS_H

#include "symbols.h"

static __always_inline void qj_mongodb_section(struct qj_mongodb *m, __u8 kind)
{
	if (kind == 0) {
		qj_mongodb_emit(m, QJ_MONGODB_BODY_SECTION);
		m->first = 1;
		m->type = 3;
		m->at = QJ_MONGODB_AT_LENGTH;
	} else if (kind == 1) {
		qj_mongodb_emit(m, QJ_MONGODB_ITEMS);
		m->at = QJ_MONGODB_AT_ITEMS_SIZE;
	} else {
		qj_mongodb_bad(m);
	}
}

/* A section of documents begins or continues: `left` bytes of the message follow. */
static __always_inline void qj_mongodb_next_item(struct qj_mongodb *m)
{
	if (m->left <= m->items) {
		m->in_items = 0;
		m->at = QJ_MONGODB_AT_SECTION;
		return;
	}
	m->in_items = 1;
	m->outer = m->hash;
	m->hash = m->key;
	m->type = 3;
	m->at = QJ_MONGODB_AT_LENGTH;
}

static __always_inline void qj_mongodb_item_ends(struct qj_mongodb *m)
{
	__u64 item = m->hash;

	m->hash = m->outer;
	if (item != m->last_item)
		qj_mongodb_emit(m, item);
	m->last_item = item;
}

static __always_inline void qj_mongodb_items_named(struct qj_mongodb *m)
{
	qj_mongodb_emit(m, QJ_MONGODB_NAMED);
	m->last_item = 0;
	if (m->left <= m->items || !qj_mongodb_is_value(m->name)) {
		qj_mongodb_next_item(m);
		return;
	}
	qj_mongodb_emit(m, QJ_MONGODB_VALUE);
	m->skip = m->left - m->items;
	m->at = QJ_MONGODB_AT_SECTION;
}

static __always_inline void qj_mongodb_document_ends(struct qj_mongodb *m)
{
	qj_mongodb_emit(m, QJ_MONGODB_END);
	m->depth--;
	if (m->depth)
		return;
	if (m->opcode == QJ_MONGODB_QUERY) { /* the fields to return may follow */
		m->at = QJ_MONGODB_AT_DONE;
		m->skip = m->left;
	} else if (m->in_items) {
		qj_mongodb_item_ends(m);
		qj_mongodb_next_item(m);
	} else {
		m->at = QJ_MONGODB_AT_SECTION;
	}
}

static __always_inline int qj_mongodb_in_array(const struct qj_mongodb *m)
{
	return (m->arrays >> (m->depth & 63)) & 1;
}

/* The length of a document or array was read: its elements follow. */
static __always_inline void qj_mongodb_opens(struct qj_mongodb *m)
{
	__u64 bit;

	if (m->number < 5 || m->number - 4 > m->left || m->depth >= QJ_MONGODB_DEPTH) {
		qj_mongodb_bad(m);
		return;
	}
	m->depth++;
	bit = 1ULL << (m->depth & 63);
	m->arrays = m->type == 4 ? m->arrays | bit : m->arrays & ~bit;
	m->values &= ~bit;
	m->at = QJ_MONGODB_AT_TYPE;
}

static __always_inline void qj_mongodb_type(struct qj_mongodb *m, __u8 type)
{
	if (!type) {
		qj_mongodb_document_ends(m);
		return;
	}
	m->type = type;
	m->name = QJ_MONGODB_FNV;
	m->at = QJ_MONGODB_AT_KEY;
}

/* Length of a value whose type alone determines it; 15: not determined by the type. */
static __always_inline __u32 qj_mongodb_fixed(__u8 type)
{
	switch (type) {
	case 0x01: /* double */
	case 0x09: /* date */
	case 0x11: /* timestamp */
	case 0x12: /* int64 */
		return 8;
	case 0x06: /* undefined */
	case 0x0a: /* null */
	case 0x7f: /* largest key */
	case 0xff: /* smallest key */
		return 0;
	case 0x07: /* object id */
		return 12;
	case 0x08: /* bool */
		return 1;
	case 0x10: /* int32 */
		return 4;
	case 0x13: /* decimal128 */
		return 16;
	}
	return 255;
}

static __always_inline void qj_mongodb_value(struct qj_mongodb *m)
{
	__u64 bit = 1ULL << (m->depth & 63);

	if (!qj_mongodb_in_array(m)) {
		qj_mongodb_emit(m, QJ_MONGODB_VALUE);
	} else if (!(m->values & bit)) {
		m->values |= bit;
		qj_mongodb_emit(m, QJ_MONGODB_VALUE);
	}
}

/* An element's key is complete, and its value follows. */
static __always_inline void qj_mongodb_keyed(struct qj_mongodb *m)
{
	int top = m->depth == 1 && !qj_mongodb_in_array(m);
	int first = top && m->first;
	__u32 fixed = qj_mongodb_fixed(m->type);

	if (first)
		m->command = m->name;
	m->first = 0;
	m->kept = 0;
	m->digits = 0;
	if ((m->type == 3 || m->type == 4) && !(top && qj_mongodb_is_value(m->name))) {
		m->values &= ~(1ULL << (m->depth & 63));
		qj_mongodb_emit(m, m->type == 3 ? QJ_MONGODB_DOCUMENT : QJ_MONGODB_ARRAY);
		m->at = QJ_MONGODB_AT_LENGTH;
		return;
	}
	if (m->type == 2 && top && (first || qj_mongodb_is_kept(m->name))) {
		qj_mongodb_emit(m, QJ_MONGODB_TEXT);
		m->kept = 1;
	} else {
		qj_mongodb_value(m);
	}
	m->at = QJ_MONGODB_AT_TYPE;
	if (first && m->type == 0x12 && qj_mongodb_is_more(m)) {
		m->at = QJ_MONGODB_AT_CURSOR;
		m->number = 0;
	} else if (fixed != 255)
		m->skip = fixed;
	else if (m->type == 0x0b) {
		m->at = QJ_MONGODB_AT_REGEX;
		m->number = 2;
	} else if (m->type <= 0x0f)
		m->at = QJ_MONGODB_AT_SIZE;
	else
		qj_mongodb_bad(m);
}

/* The size of a value was read: skips the value, unless it is kept. */
static __always_inline void qj_mongodb_sized(struct qj_mongodb *m)
{
	__u32 more = 0;

	if (m->type == 5) /* binary: a subtype */
		more = 1;
	else if (m->type == 0x0c) /* a reference (DBPointer): an object id */
		more = 12;
	else if (m->type == 3 || m->type == 4 ||
		 m->type == 0x0f) { /* sizes that include themselves */
		if (m->number < 4) {
			qj_mongodb_bad(m);
			return;
		}
		m->number -= 4;
	}
	if (m->number > m->left || more > m->left - m->number) {
		qj_mongodb_bad(m);
		return;
	}
	if (m->type == 2 && m->depth == 1 && !m->in_items && qj_mongodb_is_comment(m->name)) {
		m->comment = m->body - m->left;
		m->comment_bytes = m->number;
	}
	m->at = QJ_MONGODB_AT_TYPE;
	if (m->kept && m->number)
		m->at = QJ_MONGODB_AT_KEPT;
	else
		m->skip = m->number + more;
}

#endif /* QJ_MONGODB_ELEMENTS_H */
