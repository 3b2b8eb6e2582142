// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Implements the parts of state.bpf.h and reply.bpf.h on compressed requests, replies and cursors.
 */
#include "core/inflate.bpf.h"
#include "packed.h"
#include "reply.bpf.h"

struct mongodb_cursors_map mongodb_cursors SEC(".maps");

struct mongodb_unpacking {
	struct qj_mongodb *message;
	struct inflate_buffers *buffers;
	struct mongodb_chunk *chunk;
};

static long unpack_step(__u32 i, struct mongodb_unpacking *unpacking)
{
	struct qj_mongodb *m = unpacking->message;
	struct inflate_buffers *b = unpacking->buffers;
	__u64 bytes;
	__u32 at;

	if (qj_mongodb_unpacked_all(m, b))
		return 1;
	bytes = qj_mongodb_unpacked(m, b, &at);
	bytes = at_most(bytes, sizeof(unpacking->chunk->bytes));
	if (!bytes)
		return 0;
	bpf_probe_read_kernel(unpacking->chunk->bytes, bytes,
			      b->inflated + at_most(at, QJ_INFLATED_MAX));
	return !feed_mongodb(m, unpacking->chunk, bytes);
}

int unpack_mongodb(struct qj_mongodb *message, struct mongodb_chunk *chunk, __u64 addr)
{
	struct inflate_buffers *b = inflate_buffers_here();
	struct mongodb_unpacking unpacking = {.buffers = b};
	struct qj_mongodb_packed head = {};
	__u32 all, left;
	__u64 bytes;

	if (!message || !chunk || !b || !addr || message->body <= QJ_MONGODB_COMPRESSION)
		return 0;
	all = message->body - QJ_MONGODB_COMPRESSION;
	left = message->left;
	bytes = at_most(all, QJ_MONGODB_PACKED_MAX);
	if (bpf_probe_read_user(&head, QJ_MONGODB_COMPRESSION, (const void *)addr) ||
	    !qj_mongodb_can_unpack(&head) ||
	    bpf_probe_read_user(b->packed.bytes, bytes,
				(const void *)(addr + QJ_MONGODB_COMPRESSION)))
		return 0;
	if (!qj_mongodb_unpack(message, b, &head, bytes, all, plan.seed))
		return 0;
	unpacking.message = message;
	unpacking.chunk = chunk;
	bpf_loop(QJ_MONGODB_BODY, unpack_step, &unpacking, 0);
	qj_mongodb_unpack_end(message, left);
	return 0;
}

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
