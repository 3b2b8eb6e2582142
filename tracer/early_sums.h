/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Early kernels: rows of sums kept by the tracer, added up from records of the rings. */
#ifndef QJ_EARLY_SUMS_H
#define QJ_EARLY_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "shared.h"

struct early_sums;

struct early_sums *early_sums_new(void);
void early_sums_free(struct early_sums *sums);

/* Adds a record to its row. False: the table is full, and it went to the `other` row of its kind.
 */
bool early_sums_add(struct early_sums *sums, const struct qj_ring_sum *record);

/* The next row of a window, or NULL once it has no more, and is empty then. `at`: 0 at first. */
const struct qj_sums *early_sums_next(struct early_sums *sums, uint32_t epoch, unsigned *at,
				      const struct qj_sums_key **key);

#endif /* QJ_EARLY_SUMS_H */
