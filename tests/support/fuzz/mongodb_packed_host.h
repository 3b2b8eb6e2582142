/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The host's version of unpack_mongodb() of mongodb_packed.bpf.c. */
#ifndef QJOULE_MONGODB_PACKED_HOST_H
#define QJOULE_MONGODB_PACKED_HOST_H

#include "inflate_host.h"
#include "mongodb_feed_host.h"
#include "mongodb/packed.h"

/* `m`: an OP_COMPRESSED of which nothing is left to parse; `body`: all that arrived of it. */
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
		__u8 *piece = malloc(next ? next : 1);

		if (next > QJ_MONGODB_CHUNK || at + next > b->done)
			abort();
		memcpy(piece, b->inflated + at, next);
		if (next && !qj_mongodb_feed(m, piece, next))
			abort(); /* it would never end */
		free(piece);
	}
	qj_mongodb_unpack_end(m, left);
}

#endif
