/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The symbols that shape.h hashes, and its state between two pieces of a message or of a reply.
 */
#ifndef QJ_MONGODB_SYMBOLS_H
#define QJ_MONGODB_SYMBOLS_H

#include "core/shape_hash.h"

#define QJ_MONGODB_HEADER      16
#define QJ_MONGODB_COMPRESSION 9	/* then, in OP_COMPRESSED: opcode, size, compressor */
#define QJ_MONGODB_BODY	       4080	/* bytes after the header that are read and sent */
#define QJ_MONGODB_MAX	       48000000 /* MaxMessageSizeBytes of rpc/message.h */
#define QJ_MONGODB_DEPTH       62

#define QJ_MONGODB_HAS_CHECKSUM 1 /* flag of OP_MSG: a checksum of four bytes ends the message */

enum qj_mongodb_opcode {
	QJ_MONGODB_UPDATE = 2001, /* 2001 to 2007: writes and queries of clients before 3.6 */
	QJ_MONGODB_QUERY = 2004,
	QJ_MONGODB_KILL_CURSORS = 2007,
	QJ_MONGODB_COMPRESSED = 2012,
	QJ_MONGODB_MSG = 2013,
};

/* Symbols that are hashed beside the 256 bytes of keys and of kept texts. */
enum qj_mongodb_symbol {
	QJ_MONGODB_VALUE =
	    0x100,	 /* a value, left out; several in a row in an array give one symbol */
	QJ_MONGODB_TEXT, /* a kept text follows, including its NUL */
	QJ_MONGODB_DOCUMENT,
	QJ_MONGODB_ARRAY,
	QJ_MONGODB_END,		 /* of a document or an array */
	QJ_MONGODB_BODY_SECTION, /* a section of OP_MSG: one document */
	QJ_MONGODB_ITEMS,	 /* a section: the bytes of its name follow, then its documents */
	QJ_MONGODB_NAMED,	 /* end of the section's name */
	QJ_MONGODB_CUT,		 /* the message continues beyond the bytes read */
	QJ_MONGODB_BAD,		 /* not a document */
};

enum qj_mongodb_at {
	QJ_MONGODB_AT_FLAGS = 0,
	QJ_MONGODB_AT_SECTION,
	QJ_MONGODB_AT_ITEMS_SIZE,
	QJ_MONGODB_AT_ITEMS_NAME,
	QJ_MONGODB_AT_LENGTH, /* of a document */
	QJ_MONGODB_AT_TYPE,
	QJ_MONGODB_AT_KEY,
	QJ_MONGODB_AT_SIZE, /* of a value */
	QJ_MONGODB_AT_KEPT, /* in a text that is kept */
	QJ_MONGODB_AT_REGEX,
	QJ_MONGODB_AT_CURSOR,	  /* in the number at the beginning of a getMore */
	QJ_MONGODB_AT_NAMESPACE,  /* of OP_QUERY */
	QJ_MONGODB_AT_COMPRESSOR, /* of OP_COMPRESSED */
	QJ_MONGODB_AT_DONE,
	QJ_MONGODB_AT_BAD,
	QJ_MONGODB_AT_CUT,
};

struct qj_mongodb {
	__u64 hash;
	__u64 key;	 /* odd */
	__u64 outer;	 /* hash before the current item of a section */
	__u64 last_item; /* hash of the previous item: equal ones in a row count once */
	__u64 arrays;	 /* one bit per depth: it is an array */
	__u64 values;	 /* one bit per depth: the last element of this array was a value */
	__u64 cursor;	 /* of a getMore ... */
	__u64 origin;	 /* ... and the shape of the command that opened it; 0: not known */
	__u32 opcode;
	__u32 body;   /* bytes of the message after its header */
	__u32 left;   /* how many of them have not come yet */
	__u32 skip;   /* bytes to skip */
	__u32 items;  /* value of `left` where the section ends */
	__u32 number; /* little-endian, so far; or the remaining bytes of a text */
	__u32 name;   /* hash of the current key */
	__u32 flags;
	__u32 command; /* hash of the body's first key */
	__u32 comment; /* offset in the body of the text of its `comment`, if it is a text ... */
	__u32 comment_bytes; /* ... and its length including the NUL */
	__u32 reserved;
	__u8 at;     /* enum qj_mongodb_at */
	__u8 digits; /* digits of `number` */
	__u8 type;   /* of the element */
	__u8 depth;  /* number of open documents */
	__u8 first;  /* the body's next element is its first */
	__u8 kept;   /* the value is a kept text */
	__u8 in_items;
	__u8 inflated; /* the body's bytes are in the CPU's buffer for inflated bytes */
};

/* Commands that write documents, by the FNV-1a hash of their names. */
enum qj_mongodb_asks {
	QJ_MONGODB_ASKS_INSERT = 0xc6a39628,
	QJ_MONGODB_ASKS_UPDATE = 0x280f9474,
	QJ_MONGODB_ASKS_DELETE = 0x67c2444a,
};

/* Keys are identified by their 32-bit FNV-1a hash, as in qjoule.servers.mongodb.shapes. */
#define QJ_MONGODB_FNV	     0x811c9dc5u
#define QJ_MONGODB_FNV_PRIME 0x01000193u

static __always_inline __u32 qj_mongodb_name(__u32 name, __u8 byte)
{
	return (name ^ byte) * QJ_MONGODB_FNV_PRIME;
}

/* Keys of a command whose texts are names: $db, collection, key (of distinct), ns. */
static __always_inline int qj_mongodb_is_kept(__u32 name)
{
	return name == 0x264536b5u || name == 0x7fad8491u || name == 0x6815c86cu ||
	       name == 0x463643e6u;
}

/*
 * Keys of a command whose documents are values, or do not matter: documents, document, comment,
 * lsid, $clusterTime, client, speculativeAuthenticate.
 */
static __always_inline int qj_mongodb_is_value(__u32 name)
{
	return name == 0x009017e5u || name == 0x96234bd4u || name == 0x67a6c45eu ||
	       name == 0x67fac355u || name == 0x66442be2u || name == 0x8f929c1eu ||
	       name == 0x3ac30b1du;
}

static __always_inline int qj_mongodb_is_comment(__u32 name)
{
	return name == 0x67a6c45eu;
}

/* A client's first command: hello, isMaster, ismaster. */
static __always_inline int qj_mongodb_is_hello(const struct qj_mongodb *m)
{
	return m->command == 0x4f9f2cabu || m->command == 0x7428ce83u || m->command == 0x86cd9163u;
}

static __always_inline int qj_mongodb_is_more(const struct qj_mongodb *m)
{
	return m->command == 0x79f5aae2u; /* getMore */
}

static __always_inline void qj_mongodb_emit(struct qj_mongodb *m, __u64 symbol)
{
	m->hash = qj_shape_step(m->hash, symbol, m->key);
}

static __always_inline void qj_mongodb_bad(struct qj_mongodb *m)
{
	m->at = QJ_MONGODB_AT_BAD;
	m->skip = m->left;
}

/* Collects four bytes, least significant first; true once they are complete. */
static __always_inline int qj_mongodb_number(struct qj_mongodb *m, __u8 byte)
{
	if (!m->digits)
		m->number = 0;
	m->number |= (__u32)byte << (8 * (m->digits & 3));
	m->digits = (m->digits + 1) & 3;
	return !m->digits;
}

/* State of a reply while it is parsed (reply_parts.h), and its outcome. */

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

/* Expects a reply to `request` from now on. */
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

#endif
