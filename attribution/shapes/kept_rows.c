// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* A hash table of the VALUES rows that stay in the shape, by their tokens. */
#include "lists.h"

enum {
	SLOTS_MIN = 16
};

bool same_tokens(const struct token *a, const struct token *b, size_t n)
{
	for (size_t at = 0; at < n; at++)
		if (a[at].kind != b[at].kind || a[at].text != b[at].text)
			return false;
	return true;
}

static uint64_t hash_of(const struct token *tokens, size_t n, uint64_t hash)
{
	for (size_t at = 0; at < n; at++) {
		unsigned __int128 product =
		    (hash ^ tokens[at].text ^ (uint64_t)tokens[at].kind << 32);

		product *= UINT64_C(0x9e3779b97f4a7c15);
		hash = (uint64_t)product ^ (uint64_t)(product >> 64);
	}
	return hash;
}

/* Returns the slot that has the row, or the free slot where the row belongs. */
static struct kept_row *slot_of(const struct kept_rows *rows, const struct token *out,
				const struct kept_row *row)
{
	size_t slot = row->hash & (rows->room - 1);

	for (; rows->slots[slot].length; slot = (slot + 1) & (rows->room - 1)) {
		const struct kept_row *other = &rows->slots[slot];

		if (other->hash == row->hash && other->owner == row->owner &&
		    other->length == row->length &&
		    same_tokens(out + other->at, out + row->at, row->length))
			break;
	}
	return &rows->slots[slot];
}

static bool more_slots(struct kept_rows *rows)
{
	struct kept_rows larger = {.n = rows->n, .room = rows->room ? rows->room * 4 : SLOTS_MIN};

	larger.slots = calloc(larger.room, sizeof(*larger.slots));
	if (!larger.slots)
		return false;
	for (size_t i = 0; i < rows->room; i++) {
		size_t slot = rows->slots[i].hash & (larger.room - 1);

		if (!rows->slots[i].length)
			continue;
		while (larger.slots[slot].length)
			slot = (slot + 1) & (larger.room - 1);
		larger.slots[slot] = rows->slots[i];
	}
	free(rows->slots);
	*rows = larger;
	return true;
}

bool keep_row(struct kept_rows *rows, const struct token *out, uint64_t seed, struct kept_row row,
	      bool *again)
{
	struct kept_row *slot;

	if (rows->n * 2 >= rows->room && !more_slots(rows))
		return false;
	row.hash = hash_of(out + row.at, row.length, seed ^ row.owner);
	slot = slot_of(rows, out, &row);
	*again = slot->length != 0;
	if (!*again) {
		*slot = row;
		rows->n++;
	}
	return true;
}
