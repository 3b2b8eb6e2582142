// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The sums of the open window by package and group, and those of complete windows in order.
 *
 * Who ran in one window runs in the next. So groups stay known, and sorted, from window to window,
 * until most of those known no longer run.
 */
#ifndef QJOULE_SWEEP_ENTRIES_H
#define QJOULE_SWEEP_ENTRIES_H

#include "sweep.h"

/* For the compiler: what clean segments within a window never come to stays out of their way. */
#define RARELY(x) __builtin_expect(x, 0)
#define SELDOM	  __attribute__((noinline, cold))

struct key {
	int64_t package, group;
	uint32_t row; /* of its entry */
};

struct entries {
	/* Sums of the open window, without time if not seen in it. The first is nobody's. */
	struct sweep_entry *known;
	struct key *order; /* of all known; sorted but for the last `unsorted` */
	uint32_t *places;  /* hash table of rows in `known`; 0: free */
	unsigned bits;	   /* it has 2^bits places */
	size_t n, unsorted, finished;
	struct sweep_entry *done; /* of complete windows */
	size_t known_room, order_room, done_room;
};

/* Room for `need` items of `size` bytes, aligned to cache lines; false if there is no memory. */
bool sweep_make_room(void **items, size_t *room, size_t need, size_t size);

bool sweep_entries_init(struct entries *entries);
void sweep_entries_free(struct entries *entries);
/* Moves the open window's sums, sorted, to the complete ones, as `window`'s. */
bool sweep_entries_close(struct entries *entries, int64_t window);

/* Where a group's search begins. The high bits of the product spread numbers in a row evenly. */
static inline size_t sweep_entries_hash(const struct entries *e, int64_t package, int64_t group)
{
	uint64_t x = ((uint64_t)group ^ (uint64_t)package << 48) * 0x9E3779B97F4A7C15ull;

	return (size_t)(x >> (64 - e->bits));
}

/* sweep_entries_find(), for what is not at its first place. */
struct sweep_entry *sweep_entries_seek(struct entries *entries, int64_t package, int64_t group);

/* The open window's entry; NULL without memory. Good until the next call. */
static inline struct sweep_entry *sweep_entries_find(struct entries *e, int64_t package,
						     int64_t group)
{
	struct sweep_entry *entry = &e->known[e->places[sweep_entries_hash(e, package, group)]];

	if (RARELY(entry->group != group || entry->package != package))
		return sweep_entries_seek(e, package, group);
	return entry;
}

#endif
