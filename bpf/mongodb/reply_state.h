/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* State of a reply while it is parsed (reply_parts.h), and its outcome at the end. */
#ifndef QJ_MONGODB_REPLY_STATE_H
#define QJ_MONGODB_REPLY_STATE_H

#include "symbols.h"

#define QJ_MONGODB_PART	     64 /* a power of two; parts are shorter */
#define QJ_MONGODB_ELEMENTS  256
#define QJ_MONGODB_DOCUMENTS 128 /* more than a first batch has by default (101) */

enum qj_mongodb_reply_at {
	QJ_MONGODB_REPLY_HEADER = 0,
	QJ_MONGODB_REPLY_START, /* flags, and the length of the document */
	QJ_MONGODB_REPLY_BODY,
	QJ_MONGODB_REPLY_CURSOR, /* in the document `cursor` */
	QJ_MONGODB_REPLY_BATCH,	 /* in its array `firstBatch` or `nextBatch` */
	QJ_MONGODB_REPLY_DONE,	 /* the reply is complete, or parsing was given up */
};

enum qj_mongodb_found {
	QJ_MONGODB_FOUND_OK = 1,
	QJ_MONGODB_FOUND_ERROR = 2,
	QJ_MONGODB_FOUND_CURSOR = 4, /* `cursor` below is known; 0: exhausted */
	QJ_MONGODB_FOUND_ALL = 8,    /* the reply was understood to its end */
	QJ_MONGODB_FOUND_BATCH = 16, /* `documents` below is known */
	QJ_MONGODB_FOUND_N = 32,     /* `n` below is known */
};

struct qj_mongodb_reply {
	__u64 cursor;
	__u64 n;	 /* of a write: the number of documents it affected */
	__u32 documents; /* documents in the batch so far */
	__u32 batch_end; /* value of `left` where the batch ends */
	__u32 request;	 /* id of the request whose reply is expected */
	__u32 left;	 /* bytes of the message still to come */
	__u32 skip;	 /* bytes to skip */
	__u16 elements;	 /* elements so far, not counting documents */
	__u8 at;	 /* enum qj_mongodb_reply_at */
	__u8 found;	 /* enum qj_mongodb_found */
	__u8 have;	 /* bytes of a part that continues in the next send */
	__u8 reserved[7];
	__u8 part[QJ_MONGODB_PART];
};

/* From here on a reply to `request` is expected. */
static __always_inline void qj_mongodb_reply_begin(struct qj_mongodb_reply *r, __u32 request)
{
	r->cursor = 0;
	r->n = 0;
	r->documents = 0;
	r->batch_end = 0;
	r->request = request;
	r->left = 0;
	r->skip = 0;
	r->elements = 0;
	r->at = QJ_MONGODB_REPLY_HEADER;
	r->found = 0;
	r->have = 0;
}

/* The outcome is known only once all of the reply was understood: an error may follow an `ok`. */
static __always_inline int qj_mongodb_reply_failed(const struct qj_mongodb_reply *r)
{
	return (r->found & QJ_MONGODB_FOUND_ALL) && (r->found & QJ_MONGODB_FOUND_ERROR);
}

static __always_inline int qj_mongodb_reply_succeeded(const struct qj_mongodb_reply *r)
{
	return (r->found & QJ_MONGODB_FOUND_ALL) && (r->found & QJ_MONGODB_FOUND_OK) &&
	       !(r->found & QJ_MONGODB_FOUND_ERROR);
}

/*
 * Documents that a request found or wrote, depending on its command; -1: not known. Only for these
 * commands is `n` the number of documents written or deleted.
 */
static __always_inline __s64 qj_mongodb_reply_rows(const struct qj_mongodb_reply *r, __u32 command)
{
	if (!(r->found & QJ_MONGODB_FOUND_ALL))
		return -1;
	if (r->found & QJ_MONGODB_FOUND_BATCH)
		return r->documents;
	if ((r->found & QJ_MONGODB_FOUND_N) &&
	    (command == QJ_MONGODB_ASKS_INSERT || command == QJ_MONGODB_ASKS_UPDATE ||
	     command == QJ_MONGODB_ASKS_DELETE) &&
	    r->n <= 0x7fffffff)
		return r->n;
	return -1;
}

static __always_inline int qj_mongodb_reply_has_cursor(const struct qj_mongodb_reply *r)
{
	return (r->found & QJ_MONGODB_FOUND_ALL) && (r->found & QJ_MONGODB_FOUND_CURSOR);
}

#endif /* QJ_MONGODB_REPLY_STATE_H */
