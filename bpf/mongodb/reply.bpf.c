// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Replies and cursors; declared in reply.bpf.h and state.bpf.h. */
#include "reply.bpf.h"

int mongodb_reply_look(struct qj_mongodb_reply *reply, const struct qj_mongodb_window *window,
		       __u32 from, __u32 have)
{
	if (!reply || !window)
		return 0;
	return qj_mongodb_reply_part(reply, window->bytes + at_most(from, QJ_MONGODB_WINDOW), have);
}

static __always_inline struct mongodb_cursor_key cursor_key(__u64 cursor)
{
	struct mongodb_cursor_key key = {
	    .cursor = cursor,
	    .tgid = bpf_get_current_pid_tgid() >> 32,
	};

	return key;
}

int mongodb_cursor_learn(const struct qj_mongodb_reply *reply, __u64 asked, __u64 shape)
{
	struct mongodb_cursor_key key;

	if (!reply || !qj_mongodb_reply_has_cursor(reply))
		return 0;
	if (!asked && reply->cursor && shape) {
		key = cursor_key(reply->cursor);
		bpf_map_update_elem(&mongodb_cursors, &key, &shape, BPF_ANY);
	} else if (asked && !reply->cursor) {
		key = cursor_key(asked);
		bpf_map_delete_elem(&mongodb_cursors, &key);
	}
	return 0;
}

int mongodb_cursor_join(struct qj_mongodb *message, __u64 *shape)
{
	struct mongodb_cursor_key key;
	__u64 *origin;

	if (!message || !shape || !message->cursor)
		return 0;
	key = cursor_key(message->cursor);
	origin = bpf_map_lookup_elem(&mongodb_cursors, &key);
	if (!origin)
		return 0;
	message->origin = *origin;
	*shape = qj_mongodb_joined(message, *shape, message->origin);
	return 0;
}
