/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The host's version of what the BPF programs of bpf/mongodb do around its portable headers. */
#ifndef QJOULE_MONGODB_HOST_H
#define QJOULE_MONGODB_HOST_H

#include "inflate_host.h"
#include "mongodb/chunk.h"
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
 * As unpack_mongodb() of packed.bpf.c. `m`: an OP_COMPRESSED of which nothing is left to parse;
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

#endif
