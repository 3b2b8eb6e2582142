// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Loops over the rows of segments and entries for which numpy needs many passes. */
#ifndef QJOULE_SWEEP_ROWS_H
#define QJOULE_SWEEP_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which of n values are there: a bit each, the lowest first, from bit `offset` on, as in Arrow.
 * Without `bits`, all are. */
struct rows_told {
	const uint8_t *bits;
	size_t offset;
};

/* The least and greatest of n ids that are there and not 0; both 0 if there is none. */
struct rows_span {
	uint64_t least, greatest;
};
struct rows_span rows_span(size_t n, const uint64_t *id, struct rows_told told);

/* Groups by id, for consecutive ids from `first` on; a group below 0 is none. `marked`: 0 or 1. */
struct rows_groups {
	uint64_t first;
	size_t n;
	const int64_t *group;
	const uint8_t *marked;
};

/* n segments, and where their groups go. */
struct rows_segments {
	size_t n;
	const int64_t *t0_ns, *t1_ns;
	const uint32_t *owner;
	const uint64_t *query;
	struct rows_told has_query;
	int64_t *group;
};

struct rows_time {
	uint64_t server_ns; /* of queries, and of owners that are marked */
	uint64_t named_ns;  /* of queries that are marked */
};

/* Finds the group of each segment: its query's, or else its owner's. The last of `owners` stands
 * for all that are not among them. Sums of time wrap around. */
struct rows_time rows_charge(const struct rows_segments *segments, const struct rows_groups *owners,
			     const struct rows_groups *queries);

/* sums[row[i]] += share[i] * values[window[i]] for rows of `width` values, in order of i. False,
 * with some of it done, if a number is out of range. */
struct rows_products {
	size_t n, width, rows, windows;
	const double *share, *values;
	const int64_t *row, *window;
	double *sums;
};
bool rows_add_products(const struct rows_products *products);

/* sums[index[i]] += value[i], in order of i. False, with some of it done, if an index is not below
 * `size`. */
bool rows_add(size_t n, const int64_t *index, const double *value, size_t size, double *sums);

#endif
