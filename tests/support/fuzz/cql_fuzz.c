// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A connection's bytes yield the same requests in one read as in many, as long as they are CQL.
 * Whatever they are, nothing beyond them is read.
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -Ibpf -Ibuild/bpf -Itests/support/fuzz \
 *		tests/support/fuzz/cql_fuzz.c -o cql_fuzz
 *	./cql_fuzz -max_total_time=60 -max_len=4096 -dict=tests/support/fuzz/cql_fuzz.dict
 */
#include "cql_host.h"

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

static struct host_log whole, split;

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	struct cql_connection one = {0}, other = {0};
	__u32 pattern;

	if (size < 6)
		return 0;
	memcpy(&pattern, data, sizeof(pattern));
	one.at = other.at = data[4] & 1 ? CQL_AT_ENVELOPE : CQL_AT_UNKNOWN;
	one.want = other.want = CQL_HEADER;
	if (data[4] & 2) {
		one.framing = other.framing = data[4] & 4 ? CQL_SEGMENTS : CQL_SEGMENTS_LZ4;
		one.segment_have = other.segment_have = CQL_TRAILER;
	}
	one.compressor = other.compressor = data[4] >> 3 & 3; /* any, even invalid */
	if (one.compressor > QJ_INFLATE_SNAPPY)
		one.compressor = other.compressor = QJ_INFLATE_NONE;
	data += 5;
	size -= 5;
	memset(&whole, 0, sizeof(whole));
	memset(&split, 0, sizeof(split));
	memset(&host_tags, 0, sizeof(host_tags));
	host_read(&one, data, size, &whole);
	for (size_t at = 0; at < size && !split.lost;) {
		size_t bytes = 1 + (pattern >> 8) % 64;

		if (bytes > size - at)
			bytes = size - at;
		host_read(&other, data + at, bytes, &split);
		at += bytes;
		pattern = pattern * 1664525 + 1013904223;
	}
	if (whole.lost || split.lost)
		return 0;
	if (whole.count != split.count ||
	    memcmp(whole.requests, split.requests, sizeof(whole.requests)))
		abort();
	if (whole.tags_bytes != split.tags_bytes ||
	    memcmp(whole.tags, split.tags, whole.tags_bytes))
		abort();
	return 0;
}
