/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What mongodb_reply.bpf.h does with a piece of what a server sends, on the host. */
#ifndef QJOULE_MONGODB_REPLY_HOST_H
#define QJOULE_MONGODB_REPLY_HOST_H

#include <stddef.h>
#include <string.h>

#include "mongodb_reply.h"

/* Returns how many parts were looked at. */
static inline size_t mongodb_reply_feed(struct qj_mongodb_reply *r, const __u8 *piece, size_t bytes)
{
	size_t parts = 0;

	while (bytes && r->at != QJ_MONGODB_REPLY_DONE) {
		__u32 passed = qj_mongodb_reply_pass(r, bytes), have = r->have, taken;

		if (!passed) {
			passed = QJ_MONGODB_WINDOW - have;
			passed = bytes < passed ? bytes : passed;
			memcpy(r->window + have, piece, passed);
			taken = qj_mongodb_reply_part(r, have + passed);
			r->have = taken ? 0 : have + passed;
			if (taken)
				passed = taken > have ? taken - have : 0;
			parts++;
		}
		if (!passed || passed > bytes) {
			r->at = QJ_MONGODB_REPLY_DONE;
			break;
		}
		piece += passed;
		bytes -= passed;
	}
	return parts;
}

#endif
