/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The host's version of feed_mongodb() of mongodb_text.bpf.c. */
#ifndef QJOULE_MONGODB_FEED_HOST_H
#define QJOULE_MONGODB_FEED_HOST_H

#include <stdlib.h>

#include "mongodb/chunk.h"

/* Returns how many bytes were consumed. */
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

#endif
