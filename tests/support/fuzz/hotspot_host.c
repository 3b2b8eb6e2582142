// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * hotspot.bpf.h on the host, with a heap of a few KiB. Its collector moves objects between two
 * reads, and their old places are reused for something else at once.
 */
#include "host.h"

#include "shared.h"

enum {
	HEAP_BYTES = 4096,
	HANDLE = 16, /* place of the reference to the owner */
	OBJECTS = 4, /* owner, list, string, array */
	SLOT = 256,
};

static struct {
	uint8_t bytes[HEAP_BYTES];
	uint64_t at[OBJECTS];
	uint64_t to[OBJECTS];
	uint32_t moved; /* bit i: the collector moves object i */
	int reads_left; /* reads until the collector runs; below 0: never */
	uint8_t garbage[SLOT];
	const __u64 *jvm;
	bool list;
} heap;

static void collect(void);

static long bpf_probe_read_user(void *to, uint32_t size, const void *from)
{
	uint64_t at = (uint64_t)from;

	if (heap.reads_left-- == 0)
		collect();
	if (at >= HEAP_BYTES || HEAP_BYTES - at < size) {
		memset(to, 0, size); /* as the kernel's helper does */
		return -14;
	}
	memcpy(to, heap.bytes + at, size);
	return 0;
}

#include "voltdb/hotspot.bpf.h"

static void refer(uint64_t at, uint64_t object)
{
	const __u64 *jvm = heap.jvm;
	uint64_t reference = jvm[QJ_VOLTDB_OOP_BYTES] == 8
				 ? object
				 : (object - jvm[QJ_VOLTDB_OOP_BASE]) >> jvm[QJ_VOLTDB_OOP_SHIFT];

	memcpy(heap.bytes + at, &reference, jvm[QJ_VOLTDB_OOP_BYTES]);
}

static void write_references(void)
{
	const __u64 *jvm = heap.jvm;

	memcpy(heap.bytes + HANDLE, &heap.at[0], sizeof(heap.at[0]));
	refer(heap.at[0] + jvm[QJ_VOLTDB_PROCEDURE], heap.list ? heap.at[1] : heap.at[2]);
	refer(heap.at[1] + jvm[QJ_VOLTDB_ARRAY_DATA], heap.at[2]);
	refer(heap.at[2] + jvm[QJ_VOLTDB_STRING_VALUE], heap.at[3]);
}

static void collect(void)
{
	for (int i = 0; i < OBJECTS; i++) {
		if (!(heap.moved & (1u << i)))
			continue;
		memcpy(heap.bytes + heap.to[i], heap.bytes + heap.at[i], SLOT);
		memcpy(heap.bytes + heap.at[i], heap.garbage, SLOT);
		heap.at[i] = heap.to[i];
	}
	write_references();
}

static void set_up(const __u64 *jvm, const uint8_t *text, uint32_t bytes, bool list)
{
	const uint32_t one = 1;

	memset(&heap, 0, sizeof(heap));
	heap.jvm = jvm;
	heap.list = list;
	for (int i = 0; i < OBJECTS; i++) {
		heap.at[i] = 512 + i * SLOT;
		heap.to[i] = 2048 + i * SLOT;
	}
	memcpy(heap.bytes + heap.at[1] + jvm[QJ_VOLTDB_ARRAY_LENGTH], &one, sizeof(one));
	memcpy(heap.bytes + heap.at[3] + jvm[QJ_VOLTDB_ARRAY_LENGTH], &bytes, sizeof(bytes));
	memcpy(heap.bytes + heap.at[3] + jvm[QJ_VOLTDB_ARRAY_DATA], text, bytes);
	write_references();
}

/*
 * Reads a text of at most 128 bytes while a collector moves some objects before the read with this
 * number. Returns the text's length, or -1 if the result is not to be trusted.
 */
int hotspot_host(const __u64 *jvm, const uint8_t *text, uint32_t bytes, int list, int reads,
		 uint32_t moved, const uint8_t *garbage, uint8_t *out)
{
	struct java_string name;

	set_up(jvm, text, bytes, list);
	memcpy(heap.garbage, garbage, SLOT);
	heap.moved = moved;
	heap.reads_left = reads;
	if (!java_find(jvm, HANDLE, jvm[QJ_VOLTDB_PROCEDURE], list, &name) || !name.latin1 ||
	    name.bytes > 128 ||
	    bpf_probe_read_user(out, name.bytes, (const void *)java_bytes(jvm, &name)) ||
	    !java_still(jvm, HANDLE, jvm[QJ_VOLTDB_PROCEDURE], list, &name))
		return -1;
	return name.bytes;
}
