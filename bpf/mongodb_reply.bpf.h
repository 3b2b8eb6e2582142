/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Replies where a server keeps them: what they say of their requests, and of cursors. */
#ifndef QJOULE_MONGODB_REPLY_BPF_H
#define QJOULE_MONGODB_REPLY_BPF_H

#include "mongodb_state.bpf.h"

#define MONGODB_REPLY_STEPS (4 * QJ_MONGODB_ELEMENTS) /* of one piece */

/* In mongodb_reply.bpf.c, functions of their own: the verifier looks at each once. */
extern int mongodb_reply_part(struct qj_mongodb_reply *reply, __u32 have);
/* The cursor that a reply opens is of `shape`; the one that was asked for more may be at its end.
 */
extern int mongodb_cursor_learn(const struct qj_mongodb_reply *reply, __u64 asked, __u64 shape);

struct mongodb_reply_walk {
	struct qj_mongodb_reply *reply;
	__u64 addr;
	__u32 left;
};

static long mongodb_reply_step(__u32 i, struct mongodb_reply_walk *walk)
{
	struct qj_mongodb_reply *r = walk->reply;
	__u32 have, taken;
	__u64 bytes;

	if (!walk->left || r->at == QJ_MONGODB_REPLY_DONE)
		return 1;
	bytes = qj_mongodb_reply_pass(r, walk->left);
	if (!bytes) {
		have = r->have & (QJ_MONGODB_WINDOW - 1);
		bytes = at_most(walk->left, QJ_MONGODB_WINDOW - have);
		bytes = at_most(bytes, QJ_MONGODB_WINDOW);
		if (bpf_probe_read_user(r->window + have, bytes, (const void *)walk->addr)) {
			r->at = QJ_MONGODB_REPLY_DONE;
			return 1;
		}
		taken = mongodb_reply_part(r, have + bytes);
		r->have = taken ? 0 : have + bytes;
		if (taken)
			bytes = taken > have ? taken - have : 0;
	}
	if (!bytes || bytes > walk->left) {
		r->at = QJ_MONGODB_REPLY_DONE;
		return 1;
	}
	walk->addr += bytes;
	walk->left -= bytes;
	return 0;
}

/* The next bytes of what a server sends. */
static __always_inline void mongodb_reply_take(struct qj_mongodb_reply *reply, __u64 addr,
					       __u32 bytes)
{
	struct mongodb_reply_walk walk = {.reply = reply, .addr = addr, .left = bytes};

	bpf_loop(MONGODB_REPLY_STEPS, mongodb_reply_step, &walk, 0);
}

/* What it says, as flags of its query. */
static __always_inline __u32 mongodb_outcome(const struct qj_mongodb_reply *reply)
{
	if (qj_mongodb_reply_failed(reply))
		return QJ_QUERY_ERROR;
	return qj_mongodb_reply_succeeded(reply) ? QJ_QUERY_OK : 0;
}

#endif
