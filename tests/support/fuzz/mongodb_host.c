// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What the BPF programs of bpf/mongodb do around its portable headers, as a library. */
#include "inflate_host.h"
#include "mongodb/shape.h"
#include "mongodb/packed.h"
#include "mongodb/reply_walk.h"

/* As feed_mongodb() of text.bpf.c. Returns how many bytes were consumed. */
static inline __u32 qj_mongodb_feed(struct qj_mongodb *m, const __u8 *chunk, __u32 bytes)
{
	__u32 at = 0;

	bytes = qj_mongodb_within(m, bytes);
	while (at < bytes) {
		__u32 taken = qj_mongodb_step(m, chunk, at, bytes);

		if (!taken || taken > bytes - at)
			abort();
		at += taken;
	}
	return at;
}

/*
 * As unpack_mongodb() of messages.bpf.c. `m`: an OP_COMPRESSED of which nothing is left to parse;
 * `body`: all that arrived of it.
 */
static inline void mongodb_unpack_host(struct qj_mongodb *m, const __u8 *body, __u64 seed)
{
	struct inflate_buffers *b = &host_buffers;
	struct qj_mongodb_packed head = {0};
	__u32 all, bytes, left = m->left;

	if (m->body <= QJ_MONGODB_COMPRESSION)
		return;
	all = m->body - QJ_MONGODB_COMPRESSION;
	bytes = at_most(all, QJ_MONGODB_PACKED_MAX);
	memcpy(&head, body, QJ_MONGODB_COMPRESSION);
	if (!qj_mongodb_can_unpack(&head))
		return;
	memcpy(b->packed.bytes, body + QJ_MONGODB_COMPRESSION, bytes);
	if (!qj_mongodb_unpack(m, b, &head, bytes, all, seed))
		return;
	while (!qj_mongodb_unpacked_all(m, b)) {
		__u32 at, next = qj_mongodb_unpacked(m, b, &at);
		__u8 *piece;

		if (next > QJ_MONGODB_CHUNK || at + next > b->done)
			abort();
		piece = host_copy(b->inflated + at, next);
		if (next && !qj_mongodb_feed(m, piece, next))
			abort(); /* it would never end */
		free(piece);
	}
	qj_mongodb_unpack_end(m, left);
}

/* ---- replies: as reply.bpf.h ---------------------------------------------------------------- */

static long qj_mongodb_read(void *to, __u32 bytes, __u64 from)
{
	if (!bytes || bytes > QJ_MONGODB_WINDOW)
		abort();
	memcpy(to, (const void *)from, bytes);
	return 0;
}

static void qj_mongodb_keep(struct qj_mongodb_reply *r, const struct qj_mongodb_window *window,
			    __u32 from, __u32 bytes)
{
	if (!bytes || bytes >= QJ_MONGODB_PART)
		abort();
	r->have = bytes;
	memcpy(r->part, window->bytes + from, bytes);
}

static __u32 qj_mongodb_look(struct qj_mongodb_reply *r, const struct qj_mongodb_window *window,
			     __u32 from, __u32 bytes)
{
	__u8 *part = host_copy(window->bytes + from, bytes);
	__u32 taken = qj_mongodb_reply_part(r, part, bytes);

	free(part);
	if (taken > bytes)
		abort();
	return taken;
}

static inline void mongodb_reply_feed(struct qj_mongodb_reply *r, const __u8 *piece, size_t bytes)
{
	struct qj_mongodb_window window;
	struct qj_mongodb_walk walk = {
	    .reply = r, .window = &window, .addr = (__u64)piece, .left = bytes};

	qj_mongodb_take_up(&walk);
	for (int i = 0; i < QJ_MONGODB_REPLY_STEPS && !qj_mongodb_walk_ends(&walk); i++)
		qj_mongodb_walk_step(&walk);
	if (!qj_mongodb_walk_ends(&walk))
		r->at = QJ_MONGODB_REPLY_DONE;
}

/*
 * Returns 0 if the header is not that of a request. `step` 0: as the kernel does it, without
 * looking at values.
 */
__u64 mongodb_host(const __u8 *message, size_t bytes, size_t step, __u64 seed)
{
	struct qj_mongodb m;
	__u32 header[4];
	size_t at = QJ_MONGODB_HEADER;

	if (bytes < QJ_MONGODB_HEADER)
		return 0;
	memcpy(header, message, sizeof(header));
	if (!qj_mongodb_plausible(header) || header[0] != bytes)
		return 0;
	qj_mongodb_begin(&m, seed, header);
	while (m.left) {
		__u32 unseen = qj_mongodb_unseen(&m);
		__u32 take = step && step < QJ_MONGODB_CHUNK ? step : QJ_MONGODB_CHUNK;

		if (unseen &&
		    (!step || m.at == QJ_MONGODB_AT_CUT || m.body - m.left >= QJ_MONGODB_BODY)) {
			qj_mongodb_pass(&m, unseen);
			at += unseen;
			continue;
		}
		if (take > bytes - at)
			take = bytes - at;
		at += qj_mongodb_feed(&m, message + at, take);
	}
	if (m.opcode == QJ_MONGODB_COMPRESSED)
		mongodb_unpack_host(&m, message + QJ_MONGODB_HEADER, seed);
	return qj_mongodb_end(&m);
}

/* Bit 0: done, bit 1: failed, bit 2: `cursor` was set. `step` 0: all at once. `rows` of `command`.
 */
__u32 mongodb_reply_host(const __u8 *sent, size_t bytes, size_t step, __u32 request, __u64 *cursor,
			 __u32 command, __s64 *rows)
{
	struct qj_mongodb_reply r;
	__u32 flags;

	qj_mongodb_reply_begin(&r, request);
	for (size_t at = 0; at < bytes; at += step) {
		if (!step || step > bytes - at)
			step = bytes - at;
		mongodb_reply_feed(&r, sent + at, step);
	}
	flags = (qj_mongodb_reply_succeeded(&r) ? 1 : 0) | (qj_mongodb_reply_failed(&r) ? 2 : 0) |
		(qj_mongodb_reply_has_cursor(&r) ? 4 : 0);
	*cursor = r.cursor;
	*rows = qj_mongodb_reply_rows(&r, command);
	return flags;
}
