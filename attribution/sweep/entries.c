// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "entries.h"

#include <stdlib.h>
#include <string.h>

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
	grown = realloc(*items, more * size);
	if (!grown)
		return false;
	*items = grown;
	*room = more;
	return true;
}

static size_t hash(int64_t package, int64_t group)
{
	uint64_t x = ((uint64_t)group ^ (uint64_t)package << 48) * 0x9E3779B97F4A7C15ull;

	return (size_t)(x ^ x >> 32);
}

/* The place of a group's entry in the open window, or the free one where it belongs. */
static struct place *find_place(const struct entries *e, int64_t package, int64_t group)
{
	for (size_t i = hash(package, group) & e->mask;; i = (i + 1) & e->mask) {
		struct place *place = &e->places[i];
		const struct sweep_entry *entry;

		if (place->window != e->window)
			return place;
		entry = &e->open[place->row];
		if (entry->group == group && entry->package == package)
			return place;
	}
}

/* A table at most half full: twice as large, or the first. */
static bool grow_table(struct entries *e)
{
	size_t places = e->places ? 2 * (e->mask + 1) : 1024;
	struct place *table = places <= UINT32_MAX ? calloc(places, sizeof(*table)) : NULL;

	if (!table)
		return false;
	free(e->places);
	e->places = table;
	e->mask = places - 1;
	e->window = 1;
	for (size_t row = 0; row < e->opened; row++) {
		const struct sweep_entry *entry = &e->open[row];

		*find_place(e, entry->package, entry->group) =
		    (struct place){e->window, (uint32_t)row};
	}
	return true;
}

struct sweep_entry *sweep_entries_find(struct entries *e, int64_t package, int64_t group)
{
	struct place *place;
	struct sweep_entry *entry;

	if (!e->places && !grow_table(e))
		return NULL;
	place = find_place(e, package, group);
	if (place->window == e->window)
		return &e->open[place->row];
	if (2 * (e->opened + 1) > e->mask) {
		if (!grow_table(e))
			return NULL;
		place = find_place(e, package, group);
	}
	if (!sweep_make_room((void **)&e->open, &e->open_room, e->opened + 1, sizeof(*e->open)))
		return NULL;
	*place = (struct place){e->window, (uint32_t)e->opened};
	entry = &e->open[e->opened++];
	memset(entry, 0, sizeof(*entry));
	entry->package = package;
	entry->group = group;
	return entry;
}

static int in_order(const void *one, const void *other)
{
	const struct sweep_entry *a = *(struct sweep_entry *const *)one;
	const struct sweep_entry *b = *(struct sweep_entry *const *)other;

	if (a->package != b->package)
		return a->package < b->package ? -1 : 1;
	return a->group < b->group ? -1 : a->group > b->group;
}

bool sweep_entries_close(struct entries *e, int64_t window)
{
	if (!e->opened)
		return true;
	if (!sweep_make_room((void **)&e->order, &e->order_room, e->opened, sizeof(*e->order)) ||
	    !sweep_make_room((void **)&e->done, &e->done_room, e->finished + e->opened,
			     sizeof(*e->done)))
		return false;
	for (size_t i = 0; i < e->opened; i++)
		e->order[i] = &e->open[i];
	qsort(e->order, e->opened, sizeof(*e->order), in_order);
	for (size_t i = 0; i < e->opened; i++) {
		e->done[e->finished] = *e->order[i];
		e->done[e->finished++].window = window;
	}
	e->opened = 0;
	if (++e->window == 0) { /* all places hold numbers of the past: start over */
		memset(e->places, 0, (e->mask + 1) * sizeof(*e->places));
		e->window = 1;
	}
	return true;
}

void sweep_entries_free(struct entries *e)
{
	free(e->open);
	free(e->done);
	free(e->order);
	free(e->places);
}
