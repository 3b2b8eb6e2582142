/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * However a MongoDB server's bytes are split into pieces, the same is taken from them, no byte
 * outside a piece or the window is touched, and parsing ends. Build and run:
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -Ibpf
 *tests/support/fuzz/mongodb_reply_fuzz.c \ -o reply_fuzz
 *	./reply_fuzz -max_total_time=60 -max_len=2000 -dict=tests/support/fuzz/mongodb_reply.dict
 */
#include <stdlib.h>

#include "mongodb_reply_host.h"

#define REQUEST 0x01020304

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

/* Each piece in its own allocation, so that reading past its end is an error. */
static struct qj_mongodb_reply taken(const __u8 *sent, size_t size, __u32 pattern, size_t most)
{
	struct qj_mongodb_reply r;

	memset(&r, 0, sizeof(r));
	qj_mongodb_reply_begin(&r, REQUEST);
	for (size_t at = 0; at < size && r.at != QJ_MONGODB_REPLY_DONE;) {
		size_t bytes = 1 + pattern % most;
		__u8 *piece;

		if (bytes > size - at)
			bytes = size - at;
		piece = malloc(bytes);
		memcpy(piece, sent + at, bytes);
		mongodb_reply_feed(&r, piece, bytes);
		free(piece);
		if (r.documents > QJ_MONGODB_DOCUMENTS || r.elements > QJ_MONGODB_ELEMENTS + 1)
			abort();
		at += bytes;
		pattern = pattern * 1664525 + 1013904223;
	}
	return r;
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	struct qj_mongodb_reply whole, pieces;
	__u32 pattern;
	__u8 *sent;

	if (size < 5)
		return 0;
	memcpy(&pattern, data, 4);
	sent = malloc(size + QJ_MONGODB_HEADER);
	memcpy(sent + QJ_MONGODB_HEADER, data + 5, size - 5);
	size -= 5;
	if (data[4] & 1) { /* most of them begin with valid bytes */
		__u32 header[4] = {QJ_MONGODB_HEADER + size, 9, REQUEST, QJ_MONGODB_MSG};

		memcpy(sent, header, sizeof(header));
		size += QJ_MONGODB_HEADER;
	} else {
		memmove(sent, sent + QJ_MONGODB_HEADER, size);
	}
	whole = taken(sent, size, 0xffffffff, 1 << 20);
	pieces = taken(sent, size, pattern, 1 + (data[4] >> 1));
	free(sent);
	if (whole.found != pieces.found || whole.cursor != pieces.cursor ||
	    whole.documents != pieces.documents || whole.n != pieces.n)
		abort();
	if (whole.at == QJ_MONGODB_REPLY_DONE && pieces.at != QJ_MONGODB_REPLY_DONE)
		abort();
	return 0;
}
