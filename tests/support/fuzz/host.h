/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What hosts and fuzz targets share: inputs, pieces of them, and memory of exactly their length. */
#ifndef QJOULE_HOST_H
#define QJOULE_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

struct host_input {
	const __u8 *data;
	size_t left;
};

/* The next bytes as one number, the first byte highest; zeros follow the input's end. */
static inline __u64 host_take(struct host_input *in, size_t bytes)
{
	__u64 value = 0;

	for (; bytes && in->left; bytes--, in->left--)
		value = value << 8 | *in->data++;
	return value;
}

/* Up to `most` bytes, as many as the next byte says. */
static inline size_t host_take_bytes(struct host_input *in, void *to, size_t most)
{
	size_t bytes = host_take(in, 1) % (most + 1);

	if (bytes > in->left)
		bytes = in->left;
	memcpy(to, in->data, bytes);
	in->data += bytes;
	in->left -= bytes;
	return bytes;
}

/* The length of the next piece: 1 to `most` of the bytes that are left, pseudorandom. */
static inline size_t host_piece(__u32 *pattern, size_t most, size_t left)
{
	size_t bytes = 1 + (*pattern >> 8) % most;

	*pattern = *pattern * 1664525 + 1013904223;
	return bytes < left ? bytes : left;
}

/* In an allocation of its own, so that reading past its end is an error. */
static inline __u8 *host_copy(const void *bytes, size_t count)
{
	__u8 *copy = malloc(count ? count : 1);

	memcpy(copy, bytes, count);
	return copy;
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

#endif
