// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The sums of the open window by package and group, and the sorted sums of complete windows.
 *
 * Groups that ran in one window usually run in the next. So groups stay known, and sorted, from
 * window to window, until most of the known groups no longer run.
 */
#ifndef QJOULE_SWEEP_ENTRIES_H
#define QJOULE_SWEEP_ENTRIES_H

#include "sweep.h"

/* For conditions that are false for clean segments: keeps their code off the main path. */
#define RARELY(x) __builtin_expect(x, 0)
#define SELDOM	  __attribute__((noinline, cold))

struct key {
	int64_t package, group;
	uint32_t row; /* row of the group's entry */
};

struct entries {
	/* Sums of the open window, zero if a group did not run. The first entry is unused. */
	struct sweep_entry *known;
	struct key *order; /* rows of all known groups; sorted except for the last `unsorted` */
	uint32_t *places;  /* hash table of rows in `known`; 0: free */
	unsigned bits;	   /* the table has 2^bits places */
	size_t n, unsorted, finished;
	struct sweep_entry *done; /* sums of complete windows */
	size_t known_room, order_room, done_room;
};

/* Room for `need` items of `size` bytes, aligned to cache lines; false if there is no memory. */
bool sweep_make_room(void **items, size_t *room, size_t need, size_t size);

bool sweep_entries_init(struct entries *entries);
void sweep_entries_free(struct entries *entries);
/* Moves the open window's sums, sorted, to the sums of complete windows, as those of `window`. */
bool sweep_entries_close(struct entries *entries, int64_t window);

/* Returns the place at which the search for a group begins. The high bits of the product spread
 * consecutive numbers evenly. */
static inline size_t sweep_entries_hash(const struct entries *e, int64_t package, int64_t group)
{
	uint64_t x = ((uint64_t)group ^ (uint64_t)package << 48) * 0x9E3779B97F4A7C15ull;

	return (size_t)(x >> (64 - e->bits));
}

/* Continues sweep_entries_find() for a group that is not at its first place. */
struct sweep_entry *sweep_entries_seek(struct entries *entries, int64_t package, int64_t group);

/* Returns the group's entry in the open window, valid until the next call; NULL without memory. */
static inline struct sweep_entry *sweep_entries_find(struct entries *e, int64_t package,
						     int64_t group)
{
	struct sweep_entry *entry = &e->known[e->places[sweep_entries_hash(e, package, group)]];

	if (RARELY(entry->group != group || entry->package != package))
		return sweep_entries_seek(e, package, group);
	return entry;
}

#endif
