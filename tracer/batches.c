// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Reads memory that the pump shares with the programs: rings, batches of segments, and busy and
 * idle times of each CPU.
 */
#include "pump.h"

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Reads BPF ring buffers through shared memory. */

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

/* Takes each segment once, from the rings or from the batches that wait on idle CPUs. */

/* The last take from a batch through shared memory: this many bytes of this generation. */
struct take {
	uint64_t generation;
	uint32_t bytes;
};

struct batches {
	struct stream *stream;
	struct qj_batch *shared; /* one per CPU, written by the kernel */
	/* Per CPU the last two takes: the batch of the earlier one may still be in a ring. */
	struct take (*takes)[2];
	size_t bytes;
	unsigned cpus;
};

struct batches *batches_new(int map_fd, unsigned cpus, struct stream *stream)
{
	struct batches *batches = calloc(1, sizeof(*batches));
	size_t page = sysconf(_SC_PAGESIZE);

	if (!batches)
		return NULL;
	batches->stream = stream;
	batches->cpus = cpus;
	batches->takes = calloc(cpus, sizeof(*batches->takes));
	batches->bytes = (cpus * sizeof(struct qj_batch) + page - 1) / page * page;
	batches->shared = mmap(NULL, batches->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
	if (!batches->takes || batches->shared == MAP_FAILED) {
		free(batches->takes);
		free(batches);
		return NULL;
	}
	return batches;
}

void batches_free(struct batches *batches)
{
	if (!batches)
		return;
	munmap(batches->shared, batches->bytes);
	free(batches->takes);
	free(batches);
}

/* Adds the records from `first` to `end`, both offsets of record boundaries. */
static void add_records(struct batches *batches, const uint8_t *bytes, uint32_t first, uint32_t end)
{
	struct qj_segment segment;
	uint32_t at = first;

	while (at + sizeof(segment) <= end) {
		bool query_follows;

		memcpy(&segment, bytes + at, sizeof(segment));
		at += sizeof(segment);
		query_follows = segment.counted == QJ_BATCH_QUERY_FOLLOWS;
		segment.counted = 0;
		stream_add(batches->stream, QJ_BLOCK_SEGMENT, &segment, sizeof(segment));
		if (query_follows && at + sizeof(struct qj_query) <= end) {
			stream_add(batches->stream, QJ_BLOCK_QUERY, bytes + at,
				   sizeof(struct qj_query));
			at += sizeof(struct qj_query);
		}
	}
}

static uint32_t taken_of(const struct batches *batches, uint32_t cpu, uint64_t generation)
{
	for (int i = 0; i < 2; i++)
		if (batches->takes[cpu][i].generation == generation)
			return batches->takes[cpu][i].bytes;
	return 0;
}

static void note_take(struct batches *batches, uint32_t cpu, uint64_t generation, uint32_t bytes)
{
	struct take *takes = batches->takes[cpu];

	if (takes[0].generation != generation)
		takes[1] = takes[0];
	takes[0] = (struct take){.generation = generation, .bytes = bytes};
	/* Informs the kernel side, so that a full ring does not count this part as lost. */
	__atomic_store_n(&batches->shared[cpu].taken, generation << 16 | bytes, __ATOMIC_RELEASE);
}

void batches_received(struct batches *batches, const struct qj_batch *batch)
{
	if (batch->cpu >= batches->cpus || batch->used > QJ_BATCH_BYTES)
		return;
	add_records(batches, batch->bytes, taken_of(batches, batch->cpu, batch->generation),
		    batch->used);
}

static void take(struct batches *batches, uint32_t cpu)
{
	struct qj_batch *batch = &batches->shared[cpu];
	uint8_t copy[QJ_BATCH_BYTES];
	uint64_t generation = __atomic_load_n(&batch->generation, __ATOMIC_ACQUIRE);
	uint32_t used = __atomic_load_n(&batch->used, __ATOMIC_ACQUIRE);
	uint32_t first = taken_of(batches, cpu, generation);

	if (used > QJ_BATCH_BYTES || first >= used)
		return;
	memcpy(copy, batch->bytes, used);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	/* If the batch was sent meanwhile, it is in the ring, and our copy may be torn. */
	if (__atomic_load_n(&batch->generation, __ATOMIC_RELAXED) != generation)
		return;
	note_take(batches, cpu, generation, used);
	add_records(batches, copy, first, used);
}

void batches_take(struct batches *batches)
{
	for (uint32_t cpu = 0; cpu < batches->cpus; cpu++)
		take(batches, cpu);
}

/* Busy and idle time of each CPU, from the clocks that the programs keep. */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

struct cpu_times {
	uint64_t t_ns;
	uint64_t busy_ns;
	uint64_t idle_ns;
};

/*
 * Busy and idle time of a CPU up to now, including the open slice: on an idle CPU it may last for a
 * second, since nothing wakes the CPU. Reads the time between two equal readings of the clock, so
 * the time is not before the clock was set and sums never step back.
 */
static struct cpu_times cpu_times(const struct qj_cpu_state *state)
{
	struct cpu_times books;
	uint64_t clock, since, all;

	do {
		clock = __atomic_load_n(&state->busy_clock, __ATOMIC_ACQUIRE);
		since = __atomic_load_n(&state->since_ns, __ATOMIC_ACQUIRE);
		books.t_ns = now_ns();
	} while (__atomic_load_n(&state->busy_clock, __ATOMIC_ACQUIRE) != clock);
	all = since && since < books.t_ns ? books.t_ns - since : 0;
	books.busy_ns = qj_busy_at(clock, books.t_ns);
	books.idle_ns = all > books.busy_ns ? all - books.busy_ns : 0;
	return books;
}

void cpu_times_report(const struct probes *probes, struct steal *steal, struct stream *stream,
		      const struct qj_cpu *cpus, unsigned cpu_count)
{
	steal_read(steal);
	for (unsigned i = 0; i < cpu_count; i++) {
		unsigned cpu = cpus[i].cpu % QJ_MAX_CPUS;
		struct cpu_times books = cpu_times(&probes->skeleton->bss->cpus[cpu]);
		struct qj_cpu_time time = {
		    .t_ns = books.t_ns,
		    .busy_ns = books.busy_ns,
		    .idle_ns = books.idle_ns,
		    .steal_ns = steal_ns(steal, cpu),
		    .cpu = cpu,
		};

		stream_add(stream, QJ_BLOCK_CPU_TIME, &time, sizeof(time));
	}
}

uint64_t cpu_times_busy_ns(void *ctx, unsigned package)
{
	const struct probes *probes = ctx;
	const struct qj_plan *plan = &probes->skeleton->rodata->plan;
	uint64_t busy = 0;

	for (unsigned cpu = 0; cpu < QJ_MAX_CPUS; cpu++)
		if (plan->package_of[cpu] == package)
			busy += cpu_times(&probes->skeleton->bss->cpus[cpu]).busy_ns;
	return busy;
}
