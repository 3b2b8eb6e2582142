// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Loops over the rows of segments and entries for which numpy needs many passes. */
#ifndef QJOULE_SWEEP_ROWS_H
#define QJOULE_SWEEP_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arrow's validity bitmap of n values: a bit each, lowest first, from bit `offset` on. Without
 * `bits`, all values are valid. */
struct rows_validity {
	const uint8_t *bits;
	size_t offset;
};

/* The least and greatest of n ids, without nulls and zeros; both 0 if none remains. */
struct rows_span {
	uint64_t least, greatest;
};
struct rows_span rows_span(size_t n, const uint64_t *id, struct rows_validity validity);

/* Groups by id, for consecutive ids from `first` on; below 0: no group. `marked`: 0 or 1. */
struct rows_groups {
	uint64_t first;
	size_t n;
	const int64_t *group;
	const uint8_t *marked;
};

/* n segments, and the array that receives their groups. */
struct rows_segments {
	size_t n;
	const int64_t *t0_ns, *t1_ns;
	const uint32_t *owner;
	const uint64_t *query;
	struct rows_validity has_query;
	int64_t *group;
};

struct rows_time {
	uint64_t server_ns; /* time of queries and of marked owners */
	uint64_t named_ns;  /* time of marked queries */
};

/* Finds the group of each segment: its query's, or else its owner's. The last of `owners` catches
 * all other owner ids. Sums of time wrap around. */
struct rows_time rows_charge(const struct rows_segments *segments, const struct rows_groups *owners,
			     const struct rows_groups *queries);

/* Computes sums[row[i]] += share[i] * values[window[i]] for rows of `width` values, in order of i.
 * Returns false if a number is out of range; earlier rows are then already added. */
struct rows_products {
	size_t n, width, rows, windows;
	const double *share, *values;
	const int64_t *row, *window;
	double *sums;
};
bool rows_add_products(const struct rows_products *products);

/* Adds `width` columns of n values to `size` rows of sums: sums[index[i]][k] += values[k][i], in
 * order of i. Returns false if an index is not below `size`; earlier values are then already
 * added. */
bool rows_add(size_t n, size_t width, const int64_t *index, const double *values, size_t size,
	      double *sums);

#endif
