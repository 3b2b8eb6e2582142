// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The sums of the open window by package and group, and those of complete windows in order. */
#ifndef QJOULE_SWEEP_ENTRIES_H
#define QJOULE_SWEEP_ENTRIES_H

#include "sweep.h"

struct place {		 /* of the hash table */
	uint32_t window; /* which window's entry this is; others' places are free */
	uint32_t row;
};

struct entries {
	struct sweep_entry *open, *done;
	struct sweep_entry **order; /* for sorting `open` */
	size_t opened, open_room, finished, done_room, order_room;
	struct place *places;
	size_t mask;
	uint32_t window; /* of the places; starts at 1 */
};

/* Room for `need` items of `size` bytes; false if there is no memory. Zeroes nothing. */
bool sweep_make_room(void **items, size_t *room, size_t need, size_t size);

/* The open window's entry, all 0 if it is new; NULL without memory. Good until the next call. */
struct sweep_entry *sweep_entries_find(struct entries *entries, int64_t package, int64_t group);
/* Moves the open window's entries, sorted, to the complete ones, as `window`'s. */
bool sweep_entries_close(struct entries *entries, int64_t window);
void sweep_entries_free(struct entries *entries);

#endif
