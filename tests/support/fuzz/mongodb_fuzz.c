/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * However a MongoDB message is split into pieces, its hash is the same, no byte outside a piece is
 * read, and parsing ends: every byte is consumed once. Build and run:
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -Ibpf tests/support/fuzz/mongodb_fuzz.c \
 *		-o mongodb_fuzz
 *	./mongodb_fuzz -max_total_time=60 -max_len=6000
 */
#include <stdlib.h>
#include <string.h>
#include "mongodb_feed_host.h"

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

struct reading {
	struct qj_mongodb message;
	const __u8 *at;
	size_t left;
};

/* Every piece in its own allocation, so that reading past its end is an error. */
static void feed_copy(struct reading *r, __u32 bytes)
{
	__u8 *piece;
	__u32 taken;

	if (bytes > r->left)
		bytes = r->left;
	piece = malloc(bytes ? bytes : 1);
	memcpy(piece, r->at, bytes);
	taken = qj_mongodb_feed(&r->message, piece, bytes);
	free(piece);
	if (taken > bytes || (!taken && bytes && !qj_mongodb_is_seen(&r->message)))
		abort();
	r->at += taken;
	r->left -= taken;
}

static __u64 hash(const __u8 *body, size_t size, const __u32 header[4], __u32 pattern, int skips)
{
	struct reading r = {.at = body, .left = size};

	qj_mongodb_begin(&r.message, 1, header);
	while (r.message.left) {
		__u32 unseen = qj_mongodb_unseen(&r.message);

		if (r.message.left != r.left || unseen > r.left ||
		    r.message.depth > QJ_MONGODB_DEPTH)
			abort();
		if (unseen && (skips || qj_mongodb_is_seen(&r.message))) {
			qj_mongodb_pass(&r.message, unseen);
			r.at += unseen;
			r.left -= unseen;
		} else {
			feed_copy(&r, 1 + pattern % QJ_MONGODB_CHUNK);
			pattern = pattern * 1664525 + 1013904223;
		}
	}
	if (r.left)
		abort();
	return qj_mongodb_end(&r.message);
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	static const __u32 opcodes[] = {QJ_MONGODB_MSG, QJ_MONGODB_MSG, QJ_MONGODB_QUERY,
					QJ_MONGODB_COMPRESSED, QJ_MONGODB_UPDATE};
	__u32 header[4] = {}, pattern;
	__u64 whole;

	if (size < 5)
		return 0;
	memcpy(&pattern, data, 4);
	header[3] = opcodes[data[4] % (sizeof(opcodes) / sizeof(opcodes[0]))];
	header[0] = QJ_MONGODB_HEADER + size - 5;
	data += 5;
	size -= 5;
	if (!qj_mongodb_plausible(header))
		abort();
	whole = hash(data, size, header, QJ_MONGODB_CHUNK - 1, 1);
	if (whole == 0 || whole == ~0ULL || whole != hash(data, size, header, pattern, 0) ||
	    whole != hash(data, size, header, pattern, 1))
		abort();
	return 0;
}
