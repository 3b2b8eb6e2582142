/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * However a statement is split into chunks, its hash is the same, and no byte outside a chunk is
 * read. Build and run:
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -Ibpf tests/support/fuzz/shape_fuzz.c -o
 *shape_fuzz
 *	./shape_fuzz -dict=tests/support/fuzz/shape_fuzz.dict -max_total_time=60 -max_len=4096
 */
#include <stdlib.h>
#include <string.h>
#include "core/shape_hash.h"

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

/* Every chunk in its own allocation, so that reading past its end is an error. */
static void feed_copy(struct qj_shape_state *s, const __u8 *text, __u32 bytes)
{
	__u8 *chunk = malloc(bytes ? bytes : 1);

	memcpy(chunk, text, bytes);
	qj_shape_feed(s, chunk, bytes);
	free(chunk);
}

static __u64 whole(const __u8 *text, size_t size, __u64 seed, __u8 dialect, __u8 rules)
{
	struct qj_shape_state s;

	qj_shape_begin(&s, seed, dialect, rules);
	for (size_t at = 0; at < size; at += QJ_SHAPE_CHUNK)
		feed_copy(&s, text + at, size - at < QJ_SHAPE_CHUNK ? size - at : QJ_SHAPE_CHUNK);
	return qj_shape_end(&s);
}

static __u64 split(const __u8 *text, size_t size, __u64 seed, __u8 dialect, __u8 rules,
		   __u32 pattern)
{
	struct qj_shape_state s;

	qj_shape_begin(&s, seed, dialect, rules);
	for (size_t at = 0; at < size;) {
		__u32 bytes = pattern % (QJ_SHAPE_CHUNK + 1);

		if (bytes > size - at)
			bytes = size - at;
		feed_copy(&s, text + at, bytes);
		at += bytes;
		pattern = pattern * 1664525 + 1013904223;
	}
	return qj_shape_end(&s);
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	__u32 pattern;
	__u64 hash;
	__u8 dialect, rules;

	if (size < 5)
		return 0;
	memcpy(&pattern, data, 4);
	dialect = 1 + (data[4] & 1);
	rules = data[4] >> 1;
	data += 5;
	size -= 5;
	hash = whole(data, size, pattern, dialect, rules);
	if (hash == 0 || hash == ~0ULL ||
	    hash != split(data, size, pattern, dialect, rules, pattern))
		abort();
	return 0;
}
