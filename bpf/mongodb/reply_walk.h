/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Walks through a sent piece of a reply. Its bytes are read one window at a time. A part that
 * crosses the window's end is read again from its own start. The unparsed end of a piece is stored
 * with the reply for the next piece.
 */
#ifndef QJ_MONGODB_REPLY_WALK_H
#define QJ_MONGODB_REPLY_WALK_H

#include "reply_parts.h"

#define QJ_MONGODB_WINDOW 192 /* bytes that are read at once */
/* One parse, skip and read for each element, document and window. */
#define QJ_MONGODB_REPLY_STEPS (4 * (QJ_MONGODB_ELEMENTS + QJ_MONGODB_DOCUMENTS))

/* Buffer for parsing a reply, with room for a part or a piece at any offset. */
struct qj_mongodb_window {
	__u8 bytes[QJ_MONGODB_WINDOW + QJ_MONGODB_PART];
};

struct qj_mongodb_walk {
	struct qj_mongodb_reply *reply;
	struct qj_mongodb_window *window;
	__u64 addr; /* address of the first byte after the window */
	__u32 left; /* remaining bytes of the piece from there */
	__u32 from; /* offset in the window of the next part's first byte ... */
	__u32 have; /* ... and the window's end */
	__u8 done;  /* the piece is done */
};

/* The program and its tests implement this differently. */
static long qj_mongodb_read(void *to, __u32 bytes, __u64 from);
static void qj_mongodb_keep(struct qj_mongodb_reply *r, const struct qj_mongodb_window *window,
			    __u32 from, __u32 bytes);
static __u32 qj_mongodb_look(struct qj_mongodb_reply *r, const struct qj_mongodb_window *window,
			     __u32 from, __u32 bytes);

/* Skips bytes, first those in the window. */
static __always_inline void qj_mongodb_pass_over(struct qj_mongodb_walk *walk)
{
	struct qj_mongodb_reply *r = walk->reply;
	__u32 here = walk->have - walk->from;
	__u32 beyond;

	here = r->skip < here ? r->skip : here;
	beyond = r->skip - here < walk->left ? r->skip - here : walk->left;
	walk->from += here;
	walk->addr += beyond;
	walk->left -= beyond;
	r->skip -= here + beyond;
	r->left -= here + beyond;
}

/* Reads more bytes after those in the window, which then begins with the current part. */
static __always_inline long qj_mongodb_refill(struct qj_mongodb_walk *walk)
{
	__u32 bytes, have, back = walk->have - walk->from;

	if (walk->from) { /* all of these belong to this piece, because the part before them did */
		walk->addr -= back;
		walk->left += back;
		walk->from = walk->have = 0;
	}
	have = walk->have & (QJ_MONGODB_PART - 1); /* a longer part would have ended the parse */
	bytes = QJ_MONGODB_WINDOW - have;
	bytes = walk->left < bytes ? walk->left : bytes;
	if (qj_mongodb_read(walk->window->bytes + have, bytes, walk->addr))
		return -1;
	walk->have += bytes;
	walk->addr += bytes;
	walk->left -= bytes;
	return 0;
}

static __always_inline void qj_mongodb_walk_step(struct qj_mongodb_walk *walk)
{
	struct qj_mongodb_reply *r = walk->reply;
	__u32 taken;

	if (r->skip)
		qj_mongodb_pass_over(walk);
	if (walk->from < walk->have) {
		taken = qj_mongodb_look(r, walk->window, walk->from, walk->have - walk->from);
		walk->from += taken;
		if (taken || r->at == QJ_MONGODB_REPLY_DONE)
			return;
		if (!walk->left)
			qj_mongodb_keep(r, walk->window, walk->from, walk->have - walk->from);
	}
	if (!walk->left)
		walk->done = walk->from >= walk->have || r->have;
	else if (qj_mongodb_refill(walk))
		r->at = QJ_MONGODB_REPLY_DONE;
}

/* Prepends the bytes stored from the previous piece. */
static __always_inline void qj_mongodb_take_up(struct qj_mongodb_walk *walk)
{
	struct qj_mongodb_reply *r = walk->reply;

	if (!r->have)
		return;
	__builtin_memcpy(walk->window->bytes, r->part, sizeof(r->part));
	walk->have = r->have & (QJ_MONGODB_PART - 1);
	r->have = 0;
}

static __always_inline int qj_mongodb_walk_ends(const struct qj_mongodb_walk *walk)
{
	return walk->done || walk->reply->at == QJ_MONGODB_REPLY_DONE;
}

#endif /* QJ_MONGODB_REPLY_WALK_H */
