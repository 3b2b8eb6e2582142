/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The host's version of what mongodb_reply.bpf.h does with a piece of a server's bytes. */
#ifndef QJOULE_MONGODB_REPLY_HOST_H
#define QJOULE_MONGODB_REPLY_HOST_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mongodb/reply_walk.h"

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

/* In its own allocation, so that reading past the available bytes is an error. */
static __u32 qj_mongodb_look(struct qj_mongodb_reply *r, const struct qj_mongodb_window *window,
			     __u32 from, __u32 bytes)
{
	__u8 *part = malloc(bytes);
	__u32 taken;

	memcpy(part, window->bytes + from, bytes);
	taken = qj_mongodb_reply_part(r, part, bytes);
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
