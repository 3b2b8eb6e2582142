/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Reads replies in the server's memory: the outcome of requests, and cursors. */
#ifndef QJOULE_MONGODB_REPLY_BPF_H
#define QJOULE_MONGODB_REPLY_BPF_H

#include "state.bpf.h"
#include "reply_walk.h"

/* Separate functions in messages.bpf.c: the verifier checks each once. */
extern int mongodb_reply_look(struct qj_mongodb_reply *reply,
			      const struct qj_mongodb_window *window, __u32 from, __u32 have);
/*
 * Stores `shape` for the cursor that a reply opens, and deletes an exhausted one.
 */
extern int mongodb_cursor_learn(const struct qj_mongodb_reply *reply, __u64 asked, __u64 shape);

static __always_inline long qj_mongodb_read(void *to, __u32 bytes, __u64 from)
{
	return bpf_probe_read_user(to, at_most(bytes, QJ_MONGODB_WINDOW), (const void *)from);
}

static __always_inline void qj_mongodb_keep(struct qj_mongodb_reply *r,
					    const struct qj_mongodb_window *window, __u32 from,
					    __u32 bytes)
{
	r->have = bytes & (QJ_MONGODB_PART - 1);
	bpf_probe_read_kernel(r->part, r->have & (QJ_MONGODB_PART - 1),
			      window->bytes + at_most(from, QJ_MONGODB_WINDOW));
}

static __always_inline __u32 qj_mongodb_look(struct qj_mongodb_reply *r,
					     const struct qj_mongodb_window *window, __u32 from,
					     __u32 bytes)
{
	return mongodb_reply_look(r, window, from, bytes);
}

static long mongodb_reply_step(__u32 i, struct qj_mongodb_walk *walk)
{
	if (qj_mongodb_walk_ends(walk))
		return 1;
	qj_mongodb_walk_step(walk);
	return 0;
}

/* The next bytes that a server sends. */
static __always_inline void mongodb_reply_take(struct thread_state *thread,
					       struct qj_mongodb_reply *reply, __u64 addr,
					       __u32 bytes)
{
	struct qj_mongodb_walk walk = {
	    .reply = reply,
	    .window = (struct qj_mongodb_window *)thread->scratch,
	    .addr = addr,
	    .left = bytes,
	};

	_Static_assert(sizeof(*walk.window) <= sizeof(thread->scratch), "no room");
	qj_mongodb_take_up(&walk);
	bpf_loop(QJ_MONGODB_REPLY_STEPS, mongodb_reply_step, &walk, 0);
	if (!qj_mongodb_walk_ends(&walk))
		reply->at = QJ_MONGODB_REPLY_DONE;
}

/* The reply's outcome as flags of its query. */
static __always_inline __u32 mongodb_outcome(const struct qj_mongodb_reply *reply)
{
	if (qj_mongodb_reply_failed(reply))
		return QJ_QUERY_ERROR;
	return qj_mongodb_reply_succeeded(reply) ? QJ_QUERY_OK : 0;
}

/* Documents as rows of a query, with an additional flag, if they are known. */
static __always_inline __u32 mongodb_rows(const struct qj_mongodb_reply *reply, __u32 command,
					  __u64 *rows)
{
	__s64 documents = qj_mongodb_reply_rows(reply, command);

	if (documents < 0)
		return 0;
	*rows = documents;
	return QJ_QUERY_ROWS;
}

#endif
