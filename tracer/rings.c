// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Reads BPF ring buffers through shared memory. */
#include "pump.h"

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * A page with the consumer's position, which we write; a page with the producers'; then the data,
 * mapped twice so that no record is cut at the end (kernel/bpf/ringbuf.c).
 */
struct ring {
	uint64_t *consumer;
	const uint8_t *produced;
	const uint8_t *data;
};

struct rings {
	rings_take *take;
	void *ctx;
	size_t bytes, page;
	unsigned count;
	struct ring rings[QJ_MAX_RINGS];
};

static bool map_ring(struct rings *rings, struct ring *ring, int fd)
{
	void *consumer = mmap(NULL, rings->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *produced;

	if (consumer == MAP_FAILED)
		return false;
	produced = mmap(NULL, rings->page + 2 * rings->bytes, PROT_READ, MAP_SHARED, fd,
			(off_t)rings->page);
	if (produced == MAP_FAILED) {
		munmap(consumer, rings->page);
		return false;
	}
	*ring = (struct ring){consumer, produced, (const uint8_t *)produced + rings->page};
	return true;
}

struct rings *rings_new(const int *fds, unsigned count, size_t bytes, rings_take *take, void *ctx)
{
	struct rings *rings = calloc(1, sizeof(*rings));

	if (!rings)
		return NULL;
	rings->take = take;
	rings->ctx = ctx;
	rings->bytes = bytes;
	rings->page = sysconf(_SC_PAGESIZE);
	for (; rings->count < count; rings->count++) {
		if (!map_ring(rings, &rings->rings[rings->count], fds[rings->count])) {
			rings_free(rings);
			return NULL;
		}
	}
	return rings;
}

void rings_free(struct rings *rings)
{
	if (!rings)
		return;
	for (unsigned i = 0; i < rings->count; i++) {
		munmap(rings->rings[i].consumer, rings->page);
		munmap((void *)rings->rings[i].produced, rings->page + 2 * rings->bytes);
	}
	free(rings);
}

static int consume(const struct rings *rings, const struct ring *ring)
{
	const uint64_t *producer = (const uint64_t *)ring->produced;
	uint64_t at = *ring->consumer;
	int err = 0;

	while (!err && at < __atomic_load_n(producer, __ATOMIC_ACQUIRE)) {
		const uint8_t *head = ring->data + (at & (rings->bytes - 1));
		uint32_t word = __atomic_load_n((const uint32_t *)head, __ATOMIC_ACQUIRE);
		uint32_t length = word & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

		if (word & BPF_RINGBUF_BUSY_BIT) /* reserved, not yet submitted */
			break;
		if (!(word & BPF_RINGBUF_DISCARD_BIT))
			err = rings->take(rings->ctx, (void *)(head + BPF_RINGBUF_HDR_SZ), length);
		at += (length + BPF_RINGBUF_HDR_SZ + 7) & ~7u;
		__atomic_store_n(ring->consumer, at, __ATOMIC_RELEASE);
	}
	return err < 0 ? err : 0;
}

int rings_consume(struct rings *rings)
{
	int err = 0;

	for (unsigned i = 0; !err && i < rings->count; i++)
		err = consume(rings, &rings->rings[i]);
	return err;
}
