// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "entries.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BITS 10

bool sweep_make_room(void **items, size_t *room, size_t need, size_t size)
{
	size_t more = *room ? *room : 64;
	void *grown;

	if (need <= *room)
		return true;
	while (more < need) {
		if (more > SIZE_MAX / 2)
			return false;
		more *= 2;
	}
	if (more > SIZE_MAX / size)
		return false;
	grown = aligned_alloc(64, more * size); /* `more` is a multiple of 64 */
	if (!grown)
		return false;
	if (*items)
		memcpy(grown, *items, *room * size);
	free(*items);
	*items = grown;
	*room = more;
	return true;
}

/* ---- finding -------------------------------------------------------------------------------- */

/* Returns the place of a group, or the free place where it belongs. */
static uint32_t *find_place(const struct entries *e, int64_t package, int64_t group)
{
	size_t mask = ((size_t)1 << e->bits) - 1;

	for (size_t i = sweep_entries_hash(e, package, group);; i = (i + 1) & mask) {
		const struct sweep_entry *entry = &e->known[e->places[i]];

		if (!e->places[i] || (entry->group == group && entry->package == package))
			return &e->places[i];
	}
}

/* Makes a hash table of 2^bits places that holds all known groups. */
static bool make_table(struct entries *e, unsigned bits)
{
	uint32_t *places = bits < 32 ? calloc((size_t)1 << bits, sizeof(*places)) : NULL;

	if (!places)
		return false;
	free(e->places);
	e->places = places;
	e->bits = bits;
	for (size_t i = 0; i < e->n; i++)
		*find_place(e, e->order[i].package, e->order[i].group) = e->order[i].row;
	return true;
}

bool sweep_entries_init(struct entries *e)
{
	if (!sweep_make_room((void **)&e->known, &e->known_room, 1, sizeof(*e->known)) ||
	    !make_table(e, FIRST_BITS))
		return false;
	e->known[0] = (struct sweep_entry){.package = -1};
	return true;
}

struct sweep_entry *sweep_entries_seek(struct entries *e, int64_t package, int64_t group)
{
	uint32_t *place = find_place(e, package, group), row = (uint32_t)e->n + 1;

	if (*place)
		return &e->known[*place];
	if (4 * (e->n + 1) > (size_t)1 << e->bits) { /* at most a quarter full */
		if (!make_table(e, e->bits + 1))
			return NULL;
		place = find_place(e, package, group);
	}
	if (!sweep_make_room((void **)&e->known, &e->known_room, row + 1, sizeof(*e->known)) ||
	    !sweep_make_room((void **)&e->order, &e->order_room, row, sizeof(*e->order)))
		return NULL;
	*place = row;
	e->order[e->n++] = (struct key){package, group, row};
	e->known[row] = (struct sweep_entry){.package = package, .group = group};
	e->unsorted++;
	return &e->known[row];
}

/* ---- closing -------------------------------------------------------------------------------- */

static int in_order(const void *one, const void *other)
{
	const struct key *a = one, *b = other;

	if (a->package != b->package)
		return a->package < b->package ? -1 : 1;
	return a->group < b->group ? -1 : a->group > b->group;
}

static bool has_tail(const struct sweep_entry *entry)
{
	return entry->effects[SWEEP_CORE_TAIL + SWEEP_TAILS - 1] > 0 ||
	       entry->effects[SWEEP_PACKAGE_TAIL + SWEEP_TAILS - 1] > 0 ||
	       entry->effects[SWEEP_PACKAGE_LONG_TAIL + SWEEP_LONG_TAILS - 1] > 0;
}

bool sweep_entries_close(struct entries *e, int64_t window)
{
	size_t before = e->finished;

	if (!sweep_make_room((void **)&e->done, &e->done_room, e->finished + e->n,
			     sizeof(*e->done)))
		return false;
	if (e->unsorted)
		qsort(e->order, e->n, sizeof(*e->order), in_order);
	e->unsorted = 0;
	for (size_t i = 0; i < e->n; i++) {
		struct sweep_entry *entry = &e->known[e->order[i].row];

		if (!entry->cpu_ns && !has_tail(entry))
			continue;
		entry->window = window;
		e->done[e->finished++] = *entry;
		*entry = (struct sweep_entry){.package = entry->package, .group = entry->group};
	}
	if (e->n > 1024 + 4 * (e->finished - before)) {
		e->n = 0;
		return make_table(e, FIRST_BITS);
	}
	return true;
}

void sweep_entries_free(struct entries *e)
{
	free(e->known);
	free(e->order);
	free(e->places);
	free(e->done);
}
