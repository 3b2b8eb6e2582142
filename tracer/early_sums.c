// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Rows of sums in the tracer's own memory, for kernels whose maps it may not read. */
#include "sums.h"

#include <stdlib.h>
#include <string.h>

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

struct early_sums *early_sums_new(void)
{
	return calloc(1, sizeof(struct early_sums)); /* pages that are not used take no memory */
}

void early_sums_free(struct early_sums *sums)
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

/* NULL: there is none, and no room for it. */
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
	if (record->calls)
		add_ended(row, record);
}

bool early_sums_add(struct early_sums *sums, const struct qj_ring_sum *record)
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

const struct qj_sums *early_sums_next(struct early_sums *sums, uint32_t epoch, unsigned *at,
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
