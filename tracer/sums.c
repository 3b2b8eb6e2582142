// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Drains a window's sums from the programs' rows, or on early kernels from its own. */
#include "sums.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/counted.h"

/* Rows of sums in the tracer's own memory, for kernels whose maps it may not read. */

#define SLOTS (4 * QJ_SUMS_ROWS) /* a power of two */
/* For `other` rows of each package and kind, which are made when a table is full. */
#define OTHERS (QJ_MAX_CPUS * (QJ_OWNER_TRACER + 1))

/* The rows of a window; `slots` is a hash table of row numbers, plus 1. */
struct table {
	unsigned used;
	uint32_t slots[SLOTS];
	struct qj_sums_key keys[QJ_SUMS_ROWS + OTHERS];
	struct qj_sums rows[QJ_SUMS_ROWS + OTHERS];
};

/* By the last bit of the window's number. */
struct early_sums {
	struct table tables[2];
};

static struct early_sums *early_sums_new(void)
{
	return calloc(1, sizeof(struct early_sums)); /* pages that are not used take no memory */
}

static void early_sums_free(struct early_sums *sums)
{
	free(sums);
}

static uint32_t hash_of(const struct qj_sums_key *key)
{
	const uint64_t *words = (const uint64_t *)key;
	uint64_t hash = 0;

	_Static_assert(sizeof(*key) % sizeof(*words) == 0, "a key is not of whole words");
	for (unsigned i = 0; i < sizeof(*key) / sizeof(*words); i++)
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 32;
	return hash & (SLOTS - 1);
}

/* Finds or makes the key's row; NULL without room. */
static struct qj_sums *row_of(struct table *table, const struct qj_sums_key *key, unsigned most)
{
	uint32_t slot = hash_of(key);

	for (; table->slots[slot]; slot = (slot + 1) & (SLOTS - 1)) {
		unsigned row = table->slots[slot] - 1;

		if (!memcmp(&table->keys[row], key, sizeof(*key)))
			return &table->rows[row];
	}
	if (table->used == most)
		return NULL;
	table->keys[table->used] = *key;
	table->slots[slot] = ++table->used;
	return &table->rows[table->used - 1];
}

static void add_ended(struct qj_sums *row, const struct qj_ring_sum *record)
{
	row->latency[record->bucket % QJ_LATENCY_BUCKETS]++;
	if (record->flags & QJ_QUERY_WAITS)
		row->waited_ns += record->latency_ns;
	for (int i = 0; i < QJ_WAITS && record->flags & QJ_QUERY_WAITS; i++)
		row->wait_ns[i] += record->wait_ns[i];
	if (record->flags & QJ_QUERY_ERROR)
		row->errors++;
	else if (!(record->flags & QJ_QUERY_OK))
		row->unanswered += record->calls;
	if (record->flags & QJ_QUERY_ROWS)
		row->rows += record->rows;
	else
		row->rowless += record->calls;
}

static void add(struct qj_sums *row, const struct qj_ring_sum *record)
{
	row->used.cpu_ns += record->cpu_ns;
	row->used.overlap_ns += record->overlap_ns;
	row->latency_ns += record->latency_ns;
	row->calls += record->calls;
	row->helpers_ns += record->helper_ns;
	for (int i = 0; i < QJ_WAITS && record->helper_ns; i++)
		row->helpers_wait_ns[i] += record->wait_ns[i];
	if (record->calls)
		add_ended(row, record);
}

/* Adds a record to its row. False: the table is full, and the `other` row of its kind gets it. */
static bool early_sums_add(struct early_sums *sums, const struct qj_ring_sum *record)
{
	struct table *table = &sums->tables[record->epoch & 1];
	struct qj_sums *row = row_of(table, &record->key, QJ_SUMS_ROWS);
	struct qj_sums_key other = {
	    .shape = record->key.owner_kind == QJ_OWNER_QUERY ? ~0ull : 0,
	    .package = record->key.package,
	    .owner_kind = record->key.owner_kind,
	};

	if (row) {
		add(row, record);
		return true;
	}
	row = row_of(table, &other, QJ_SUMS_ROWS + OTHERS);
	if (row)
		add(row, record);
	return false;
}

/* A window's next row; NULL after the last one, and empties the window. `at`: 0 at first. */
static const struct qj_sums *early_sums_next(struct early_sums *sums, uint32_t epoch, unsigned *at,
					     const struct qj_sums_key **key)
{
	struct table *table = &sums->tables[epoch & 1];

	if (*at < table->used) {
		*key = &table->keys[*at];
		return &table->rows[(*at)++];
	}
	memset(table->rows, 0, table->used * sizeof(table->rows[0]));
	memset(table->slots, 0, sizeof(table->slots));
	table->used = 0;
	return NULL;
}

/* Most machines need few of a window's rows: more are mapped once they are in use. */
#define FIRST_ROWS 512

struct half {
	struct qj_sums *rows;
	uint32_t count;
};
_Static_assert(QJ_SUMS_ROWS % 4096 == 0, "the rows of odd windows begin with a page");

struct sums {
	struct qjoule_bpf *skeleton;
	struct stream *stream;
	struct idle_times *idle_times; /* NULL: effects are not summed */
	struct early_sums *early;      /* NULL: the rows are in the kernel's maps */
	unsigned counters;
	unsigned package_count;
	uint16_t packages[QJ_MAX_CPUS];
	struct half halves[2];
	/* Keys of the drained rows, and their indices in `sums_rows`. */
	struct qj_sums_key *keys;
	uint32_t *indices;
};

static int map_of(const struct sums *sums, uint32_t epoch)
{
	return bpf_map__fd(epoch & 1 ? sums->skeleton->maps.sums_odd
				     : sums->skeleton->maps.sums_even);
}

/* Creates the `other` rows for a full map. */
static int make_others(const struct sums *sums, uint32_t epoch)
{
	volatile uint32_t *taken = &sums->skeleton->bss->control.rows[epoch & 1];

	for (unsigned p = 0; p < sums->package_count; p++) {
		for (unsigned kind = QJ_OWNER_QUERY; kind <= QJ_OWNER_TRACER; kind++) {
			struct qj_sums_key key = {
			    .shape = kind == QJ_OWNER_QUERY ? ~0ull : 0,
			    .package = sums->packages[p],
			    .owner_kind = kind,
			};

			uint32_t index = (epoch & 1) * QJ_SUMS_ROWS +
					 __atomic_fetch_add(taken, 1, __ATOMIC_RELAXED);

			if (bpf_map_update_elem(map_of(sums, epoch), &key, &index, BPF_NOEXIST) &&
			    errno != EEXIST)
				return -errno;
		}
	}
	return 0;
}

static void note_package(struct sums *sums, uint16_t package)
{
	for (unsigned p = 0; p < sums->package_count; p++)
		if (sums->packages[p] == package)
			return;
	sums->packages[sums->package_count++] = package;
}

static void unmap_rows(struct half *half)
{
	if (half->rows)
		munmap(half->rows, half->count * sizeof(*half->rows));
}

/* Maps the programs' rows of an even or odd window, at least the first `count`. */
static int map_rows(struct sums *sums, uint32_t epoch, uint32_t count)
{
	struct half *half = &sums->halves[epoch & 1], more = {.count = half->count ?: FIRST_ROWS};

	while (more.count < count)
		more.count *= 2;
	if (more.count == half->count)
		return 0;
	more.rows = mmap(NULL, more.count * sizeof(*more.rows), PROT_READ | PROT_WRITE, MAP_SHARED,
			 bpf_map__fd(sums->skeleton->maps.sums_rows),
			 (epoch & 1) * QJ_SUMS_ROWS * sizeof(*more.rows));
	if (more.rows == MAP_FAILED)
		return -errno;
	unmap_rows(half);
	*half = more;
	return 0;
}

/* Maps the programs' rows and creates the first ones, or makes early kernels' own table. */
static bool make_rows(struct sums *sums, bool early)
{
	if (early) {
		sums->early = early_sums_new();
		return sums->early;
	}
	sums->keys = calloc(QJ_SUMS_ROWS, sizeof(*sums->keys));
	sums->indices = calloc(QJ_SUMS_ROWS, sizeof(*sums->indices));
	return sums->keys && sums->indices && !make_others(sums, 0) && !make_others(sums, 1);
}

struct sums *sums_new(const struct probes *probes, struct stream *stream, const struct qj_cpu *cpus,
		      unsigned cpu_count)
{
	struct qjoule_bpf *skeleton = probes->skeleton;
	struct sums *sums = calloc(1, sizeof(*sums));

	if (!sums)
		return NULL;
	sums->skeleton = skeleton;
	sums->stream = stream;
	sums->counters = skeleton->rodata->plan.counters;
	for (unsigned i = 0; i < cpu_count; i++)
		note_package(sums, cpus[i].package);
	if (skeleton->rodata->plan.effects)
		sums->idle_times = idle_times_new(skeleton, stream, cpus, cpu_count);
	if ((skeleton->rodata->plan.effects && !sums->idle_times) ||
	    !make_rows(sums, probes->early)) {
		sums_free(sums);
		return NULL;
	}
	return sums;
}

void sums_free(struct sums *sums)
{
	if (!sums)
		return;
	idle_times_free(sums->idle_times);
	early_sums_free(sums->early);
	unmap_rows(&sums->halves[0]);
	unmap_rows(&sums->halves[1]);
	free(sums->keys);
	free(sums->indices);
	free(sums);
}

void sums_next_window(struct sums *sums, uint64_t t_ns)
{
	volatile struct qj_control *control = &sums->skeleton->bss->control;

	/* In this order, a program in between puts at most a whole slice into the new window. */
	control->epoch++;
	control->epoch_ns = t_ns;
	control->tagged = 0;
	if (sums->idle_times)
		idle_times_next_window(sums->idle_times, t_ns);
}

void sums_begin(struct sums *sums, uint64_t t_ns)
{
	if (sums->idle_times)
		idle_times_next_window(sums->idle_times, t_ns);
}

static void add_row(const struct sums *sums, const struct qj_sums_key *key,
		    const struct qj_sums *row, uint64_t t0_ns, uint64_t t1_ns)
{
	struct qj_aggregate a = sums_aggregate(key, t0_ns, t1_ns);

	if (!row->used.cpu_ns && !row->calls && !row->helpers_ns &&
	    !qj_any_tail(row->package_tail_ns, true) && !qj_any_tail(row->core_tail_ns, false))
		return;
	a.cpu_ns = row->used.cpu_ns;
	a.overlap_ns = row->used.overlap_ns;
	a.scaled_ns = row->used.scaled_ns;
	a.latency_ns = row->latency_ns;
	a.package_wakes = row->used.package_wakes;
	a.core_wakes = row->used.core_wakes;
	a.calls = row->calls;
	a.rows = row->rows;
	a.errors = row->errors;
	a.unanswered = row->unanswered;
	a.rowless = row->rowless;
	for (int i = 0; i < QJ_COUNTERS; i++)
		if (sums->counters & (1u << i) && row->used.counted_ns[i] == row->used.cpu_ns)
			a.valid |= 1u << i;
	memcpy(a.counters, row->used.counters, sizeof(a.counters));
	memcpy(a.counted_ns, row->used.counted_ns, sizeof(a.counted_ns));
	memcpy(a.overlap_counters, row->used.overlap_counters, sizeof(a.overlap_counters));
	memcpy(a.package_tail_ns, row->package_tail_ns, sizeof(a.package_tail_ns));
	memcpy(a.core_tail_ns, row->core_tail_ns, sizeof(a.core_tail_ns));
	a.waited_ns = row->waited_ns;
	memcpy(a.wait_ns, row->wait_ns, sizeof(a.wait_ns));
	a.helpers_ns = row->helpers_ns;
	memcpy(a.helpers_wait_ns, row->helpers_wait_ns, sizeof(a.helpers_wait_ns));
	memcpy(a.latency, row->latency, sizeof(a.latency));
	stream_add(sums->stream, QJ_BLOCK_AGGREGATE, &a, sizeof(a));
}

void sums_received(struct sums *sums, const struct qj_ring_sum *record)
{
	uint32_t *lost = &sums->skeleton->bss->cpus[0].loss[QJ_LOSS_AGGREGATE];

	if (!early_sums_add(sums->early, record))
		__atomic_fetch_add(lost, 1, __ATOMIC_RELAXED); /* the programs count there too */
}

static int drain_early(struct sums *sums, uint32_t epoch, uint64_t t0_ns, uint64_t t1_ns)
{
	const struct qj_sums_key *key;
	const struct qj_sums *row;
	unsigned at = 0;

	while ((row = early_sums_next(sums->early, epoch, &at, &key)))
		add_row(sums, key, row, t0_ns, t1_ns);
	return 0;
}

/* Moves row i of those just read into the stream. */
static int drain_row(struct sums *sums, uint32_t epoch, uint32_t i, uint64_t t0_ns, uint64_t t1_ns)
{
	uint32_t number = sums->indices[i] & (QJ_SUMS_ROWS - 1);
	struct qj_sums *row;

	if (map_rows(sums, epoch, number + 1))
		return -1;
	row = &sums->halves[epoch & 1].rows[number];
	add_row(sums, &sums->keys[i], row, t0_ns, t1_ns);
	memset(row, 0, sizeof(*row));
	return 0;
}

int sums_drain(struct sums *sums, uint64_t t0_ns, uint64_t t1_ns)
{
	LIBBPF_OPTS(bpf_map_batch_opts, opts);
	uint32_t before = sums->skeleton->bss->control.epoch - 1;
	uint32_t position, count;
	bool first = true;
	int err = 0;

	if (sums->early)
		return drain_early(sums, before, t0_ns, t1_ns);
	/* First: a program may meanwhile move its sums to rows, which are then still drained. */
	if (sums->idle_times)
		idle_times_drain(sums->idle_times, before, t0_ns, t1_ns);
	while (!err) {
		count = QJ_SUMS_ROWS;
		err = bpf_map_lookup_and_delete_batch(map_of(sums, before),
						      first ? NULL : &position, &position,
						      sums->keys, sums->indices, &count, &opts);
		if (err && err != -ENOENT)
			return err;
		first = false;
		for (uint32_t i = 0; i < count; i++)
			if (drain_row(sums, before, i, t0_ns, t1_ns))
				return -errno;
	}
	sums->skeleton->bss->control.rows[before & 1] = 0;
	return make_others(sums, before);
}
