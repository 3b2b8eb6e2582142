// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Whatever a client claims to have compressed with Snappy: parsing ends, nothing beyond the
 * inflated bytes is read, and the message gets a shape. Build and run:
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -Ibpf -Itests/support/fuzz \
 *		tests/support/fuzz/mongodb_packed_fuzz.c -o packed_fuzz
 *	./packed_fuzz -max_total_time=60 -max_len=6000
 */
#include "mongodb_packed_host.h"

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

/* The size that a client claims. Mostly the true one, because all others are refused. */
static __u32 claimed(const __u8 *packed, size_t size)
{
	__u32 length = 0;

	for (size_t n = 0; n < size && n < QJ_SNAPPY_LENGTHS; n++) {
		length |= (__u32)(packed[n] & 0x7f) << 7 * n;
		if (packed[n] < 0x80)
			break;
	}
	return length;
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	struct qj_mongodb_packed head = {.opcode = QJ_MONGODB_MSG, .compressor = 1};
	__u32 header[4] = {0, 1, 0, QJ_MONGODB_COMPRESSED};
	struct qj_mongodb m;
	__u64 shape;
	__u8 *body;

	if (!size)
		return 0;
	head.opcode = data[0] & 1 ? QJ_MONGODB_QUERY : QJ_MONGODB_MSG;
	head.size = claimed(data + 1, size - 1);
	header[0] = QJ_MONGODB_HEADER + QJ_MONGODB_COMPRESSION + size - 1;
	body = malloc(QJ_MONGODB_COMPRESSION + size - 1);
	memcpy(body, &head, QJ_MONGODB_COMPRESSION);
	memcpy(body + QJ_MONGODB_COMPRESSION, data + 1, size - 1);
	qj_mongodb_begin(&m, 1, header);
	m.left = m.skip = 0; /* everything has been skipped */
	mongodb_unpack_host(&m, body, 1);
	free(body);
	shape = qj_mongodb_end(&m);
	if (!shape || shape == ~0ULL || m.left || m.skip)
		abort();
	if (m.inflated && m.comment_bytes && m.comment + 1 > m.body)
		abort();
	return 0;
}
