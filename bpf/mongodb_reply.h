/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The server's side of MongoDB's protocol, as far as it says what became of a request: `ok`,
 * `writeErrors`, the id of a cursor that was opened or is at its end. Documents
 * that were found are passed over in one step, so a reply takes as many steps as it has elements.
 *
 * A reply is taken part by part (a header, an element with the start of its value), each in a
 * window; where a part does not fit, or there are too many, nothing is claimed. Works inside BPF
 * programs and on the host. MongoDB manual, "MongoDB Wire Protocol", "Database Commands".
 */
#ifndef QJ_MONGODB_REPLY_H
#define QJ_MONGODB_REPLY_H

#include "mongodb_elements.h"

#define QJ_MONGODB_WINDOW   64 /* a power of two; a part is shorter */
#define QJ_MONGODB_KEY_MAX  48 /* bytes of a key, its NUL with it */
#define QJ_MONGODB_ELEMENTS 256

enum qj_mongodb_reply_at {
	QJ_MONGODB_REPLY_HEADER = 0,
	QJ_MONGODB_REPLY_START, /* flags, and the length of the document */
	QJ_MONGODB_REPLY_BODY,
	QJ_MONGODB_REPLY_CURSOR, /* in the document `cursor` */
	QJ_MONGODB_REPLY_DONE,	 /* with the reply, or with trying */
};

enum qj_mongodb_said {
	QJ_MONGODB_SAID_OK = 1,
	QJ_MONGODB_SAID_ERROR = 2,
	QJ_MONGODB_SAID_CURSOR = 4, /* `cursor` below is known; 0: at its end */
	QJ_MONGODB_SAID_ALL = 8,    /* the reply was understood up to its end */
};

struct qj_mongodb_reply {
	__u64 cursor;
	__u32 request;	/* id of the request that is waited for */
	__u32 left;	/* bytes of the message still to come */
	__u32 skip;	/* bytes to pass over */
	__u16 elements; /* so far */
	__u8 at;	/* enum qj_mongodb_reply_at */
	__u8 said;	/* enum qj_mongodb_said */
	__u8 have;	/* bytes in the window */
	__u8 reserved[7];
	__u8 window[2 * QJ_MONGODB_WINDOW]; /* room for a piece wherever it begins */
};

/* Keys of replies, by their FNV-1a. */
enum qj_mongodb_reply_key {
	QJ_MONGODB_REPLY_KEY_CURSOR = 0xe336320f,
	QJ_MONGODB_REPLY_KEY_ID = 0x37386ae0,
	QJ_MONGODB_REPLY_KEY_OK = 0x663437af,
	QJ_MONGODB_REPLY_KEY_WRITE_ERRORS = 0x17d3e5fb,
	QJ_MONGODB_REPLY_KEY_N_ERRORS = 0x5e9f04f2, /* of a bulkWrite */
};

/* A reply to `request` is waited for. */
static __always_inline void qj_mongodb_reply_begin(struct qj_mongodb_reply *r, __u32 request)
{
	r->cursor = 0;
	r->request = request;
	r->left = 0;
	r->skip = 0;
	r->elements = 0;
	r->at = QJ_MONGODB_REPLY_HEADER;
	r->said = 0;
	r->have = 0;
}

static __always_inline __u32 qj_mongodb_u32(const __u8 *at)
{
	return at[0] | at[1] << 8 | at[2] << 16 | (__u32)at[3] << 24;
}

static __always_inline __u64 qj_mongodb_u64(const __u8 *at)
{
	return qj_mongodb_u32(at) | (__u64)qj_mongodb_u32(at + 4) << 32;
}

/* Bytes of the next part to pass over; more than are left: this is no reply. */
static __always_inline void qj_mongodb_reply_skip(struct qj_mongodb_reply *r, __u32 taken,
						  __u64 bytes)
{
	if (taken > r->left || bytes > r->left - taken)
		r->at = QJ_MONGODB_REPLY_DONE;
	else
		r->skip = bytes;
}

/* A message's header: only the reply that is waited for is looked into. */
static __always_inline __u32 qj_mongodb_reply_header(struct qj_mongodb_reply *r, __u32 have)
{
	const __u8 *w = r->window;
	__u32 length;

	if (have < QJ_MONGODB_HEADER)
		return 0;
	length = qj_mongodb_u32(w);
	if (length < QJ_MONGODB_HEADER || length > QJ_MONGODB_MAX) {
		r->at = QJ_MONGODB_REPLY_DONE;
		return QJ_MONGODB_HEADER;
	}
	r->left = length;
	if (qj_mongodb_u32(w + 8) == r->request && qj_mongodb_u32(w + 12) == QJ_MONGODB_MSG)
		r->at = QJ_MONGODB_REPLY_START;
	else
		qj_mongodb_reply_skip(r, QJ_MONGODB_HEADER, length - QJ_MONGODB_HEADER);
	return QJ_MONGODB_HEADER;
}

/* Flags, the body's kind, its length. */
static __always_inline __u32 qj_mongodb_reply_start(struct qj_mongodb_reply *r, __u32 have)
{
	if (have < 9)
		return 0;
	r->at = r->window[4] ? QJ_MONGODB_REPLY_DONE : QJ_MONGODB_REPLY_BODY;
	return 9;
}

/* A document ends: the body, or `cursor` in it. */
static __always_inline __u32 qj_mongodb_reply_ends(struct qj_mongodb_reply *r)
{
	if (r->at == QJ_MONGODB_REPLY_CURSOR) {
		r->at = QJ_MONGODB_REPLY_BODY;
	} else {
		r->said |= QJ_MONGODB_SAID_ALL;
		r->at = QJ_MONGODB_REPLY_DONE;
	}
	return 1;
}

/* Length of the key at the start of the window, its NUL with it; 0: its end is not there. */
static __always_inline __u32 qj_mongodb_reply_key(const struct qj_mongodb_reply *r, __u32 have,
						  __u32 *name)
{
	__u32 i;

	*name = QJ_MONGODB_FNV;
#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (i = 1; i <= QJ_MONGODB_KEY_MAX; i++) {
		if (i >= have)
			return 0;
		if (!r->window[i])
			return i;
		*name = qj_mongodb_name(*name, r->window[i]);
	}
	return 0;
}

/* Whether a number is not zero: `ok` is a double, a bool where a driver's stand-in answers. */
static __always_inline int qj_mongodb_is_true(__u8 type, const __u8 *value)
{
	if (type == 0x08)
		return value[0] != 0;
	if (type == 0x10)
		return qj_mongodb_u32(value) != 0;
	return qj_mongodb_u64(value) << (type == 0x01) != 0; /* a double has two zeros */
}

/* What an element whose value is a number says. */
static __always_inline void qj_mongodb_reply_number(struct qj_mongodb_reply *r, __u8 type,
						    __u32 name, const __u8 *value)
{
	int is_true = qj_mongodb_is_true(type, value);

	if (r->at == QJ_MONGODB_REPLY_CURSOR) {
		if (name == QJ_MONGODB_REPLY_KEY_ID && type == 0x12) {
			r->cursor = qj_mongodb_u64(value);
			r->said |= QJ_MONGODB_SAID_CURSOR;
		}
	} else if (name == QJ_MONGODB_REPLY_KEY_OK) {
		r->said |= is_true ? QJ_MONGODB_SAID_OK : QJ_MONGODB_SAID_ERROR;
	} else if (name == QJ_MONGODB_REPLY_KEY_N_ERRORS && is_true) {
		r->said |= QJ_MONGODB_SAID_ERROR;
	}
}

/* A value that begins with its size: goes into `cursor`, and over all others. */
static __always_inline __u32 qj_mongodb_reply_sized(struct qj_mongodb_reply *r, __u8 type,
						    __u32 name, __u32 at)
{
	__u32 size = qj_mongodb_u32(r->window + at);
	__u64 rest = size;

	if (type == 0x03 || type == 0x04 || type == 0x0f) { /* sizes that count themselves */
		if (size < 5) {
			r->at = QJ_MONGODB_REPLY_DONE;
			return at + 4;
		}
		rest -= 4;
	} else if (type == 0x05) {
		rest += 1;
	} else if (type == 0x0c) {
		rest += 12;
	}
	if (r->at == QJ_MONGODB_REPLY_BODY && name == QJ_MONGODB_REPLY_KEY_WRITE_ERRORS &&
	    type == 0x04 && size > 5)
		r->said |= QJ_MONGODB_SAID_ERROR;
	if (r->at == QJ_MONGODB_REPLY_BODY && name == QJ_MONGODB_REPLY_KEY_CURSOR && type == 0x03)
		r->at = QJ_MONGODB_REPLY_CURSOR;
	else
		qj_mongodb_reply_skip(r, at + 4, rest);
	return at + 4;
}

/* A type, a key, and of its value what tells how long it is. */
static __always_inline __u32 qj_mongodb_reply_element(struct qj_mongodb_reply *r, __u32 have)
{
	__u8 type = r->window[0];
	__u32 name, key, fixed;

	if (!type)
		return have ? qj_mongodb_reply_ends(r) : 0;
	key = qj_mongodb_reply_key(r, have, &name);
	if (!key)
		return 0;
	key++;
	fixed = qj_mongodb_fixed(type);
	if (type == 0x01 || type == 0x08 || type == 0x10 || type == 0x12) {
		if (have < key + fixed)
			return 0;
		qj_mongodb_reply_number(r, type, name, r->window + key);
		key += fixed;
	} else if (fixed != 255) {
		qj_mongodb_reply_skip(r, key, fixed);
	} else if (type <= 0x0f && type != 0x0b) {
		if (have < key + 4)
			return 0;
		key = qj_mongodb_reply_sized(r, type, name, key);
	} else {
		r->at = QJ_MONGODB_REPLY_DONE; /* a regular expression, or no type at all */
	}
	if (++r->elements > QJ_MONGODB_ELEMENTS)
		r->at = QJ_MONGODB_REPLY_DONE;
	return key;
}

/*
 * Takes the part that begins with the window, of which `have` bytes are there: returns its bytes.
 * 0: more are needed.
 */
static __always_inline __u32 qj_mongodb_reply_part(struct qj_mongodb_reply *r, __u32 have)
{
	__u32 taken;

	if (r->at == QJ_MONGODB_REPLY_HEADER)
		taken = qj_mongodb_reply_header(r, have);
	else if (r->at == QJ_MONGODB_REPLY_START)
		taken = qj_mongodb_reply_start(r, have);
	else
		taken = qj_mongodb_reply_element(r, have);
	if (taken > r->left) {
		r->at = QJ_MONGODB_REPLY_DONE;
		r->said = 0;
		r->left = 0;
	} else {
		r->left -= taken;
	}
	if (!taken && have >= QJ_MONGODB_WINDOW)
		r->at = QJ_MONGODB_REPLY_DONE;
	return taken;
}

/* How many of the next bytes need not be looked at. */
static __always_inline __u32 qj_mongodb_reply_pass(struct qj_mongodb_reply *r, __u32 bytes)
{
	__u32 pass = r->skip < bytes ? r->skip : bytes;

	r->skip -= pass;
	r->left -= pass;
	return pass;
}

/* What a reply says holds once all of it was understood: an error may come behind an `ok`. */
static __always_inline int qj_mongodb_reply_failed(const struct qj_mongodb_reply *r)
{
	return (r->said & QJ_MONGODB_SAID_ALL) && (r->said & QJ_MONGODB_SAID_ERROR);
}

static __always_inline int qj_mongodb_reply_succeeded(const struct qj_mongodb_reply *r)
{
	return (r->said & QJ_MONGODB_SAID_ALL) && (r->said & QJ_MONGODB_SAID_OK) &&
	       !(r->said & QJ_MONGODB_SAID_ERROR);
}

static __always_inline int qj_mongodb_reply_has_cursor(const struct qj_mongodb_reply *r)
{
	return (r->said & QJ_MONGODB_SAID_ALL) && (r->said & QJ_MONGODB_SAID_CURSOR);
}

#endif /* QJ_MONGODB_REPLY_H */
