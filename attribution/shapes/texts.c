// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "texts.h"
#include "words.h"

enum {
	SLOTS_MIN = 64
};

static uint64_t mixed(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint32_t hash_of(uint64_t seed, const uint8_t *data, size_t length)
{
	uint64_t hash = seed ^ length, word;

	for (; length >= 8; data += 8, length -= 8) {
		memcpy(&word, data, 8);
		hash = mixed(hash ^ word, seed | 1);
	}
	word = 0;
	memcpy(&word, data, length);
	hash = mixed(hash ^ word, seed | 1);
	return (uint32_t)(hash ^ hash >> 32);
}

/* Returns the slot that has the text, or the free slot where the text belongs. */
static size_t slot_of(const struct texts *texts, const uint8_t *data, size_t length, uint32_t hash)
{
	size_t slot = hash & texts->slot_mask;

	for (; texts->slots[slot]; slot = (slot + 1) & texts->slot_mask) {
		const struct text *text = &texts->text[texts->slots[slot] - 1];

		if (text->hash == hash && text->length == length &&
		    !memcmp(texts->letters.data + text->at, data, length))
			break;
	}
	return slot;
}

static bool more_slots(struct texts *texts)
{
	size_t slots = texts->slots ? (texts->slot_mask + 1) * 4 : SLOTS_MIN;
	uint32_t *larger = calloc(slots, sizeof(*larger));

	if (!larger)
		return false;
	free(texts->slots);
	texts->slots = larger;
	texts->slot_mask = slots - 1;
	for (size_t i = 0; i < texts->n; i++) {
		size_t slot = texts->text[i].hash & texts->slot_mask;

		while (larger[slot])
			slot = (slot + 1) & texts->slot_mask;
		larger[slot] = (uint32_t)i + 1;
	}
	return true;
}

static bool has_digit(const uint8_t *data, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (data[i] >= '0' && data[i] <= '9')
			return true;
	return false;
}

uint32_t text_number(struct texts *texts, const uint8_t *data, size_t length)
{
	const struct texts *base = texts->base;
	uint32_t hash, first = 0;
	struct text *text;
	size_t slot;

	if (!length) /* `data` may be null */
		data = (const uint8_t *)"";
	hash = hash_of(texts->seed, data, length);
	if (base) {
		slot = slot_of(base, data, length, hash);
		if (base->slots[slot])
			return base->slots[slot] - 1;
		first = (uint32_t)base->n;
	}
	if ((!texts->slots || texts->n * 2 > texts->slot_mask) && !more_slots(texts))
		return NO_TEXT;
	slot = slot_of(texts, data, length, hash);
	if (texts->slots[slot])
		return texts->slots[slot] - 1 + first;
	if (!ensure_room((void **)&texts->text, &texts->room, texts->n + 1, sizeof(*text)))
		return NO_TEXT;
	text = &texts->text[texts->n];
	*text = (struct text){texts->letters.n, (uint32_t)length, hash,
			      has_digit(data, length) ? HAS_DIGIT : 0};
	if (!add_bytes(&texts->letters, data, length))
		return NO_TEXT;
	texts->slots[slot] = (uint32_t)++texts->n;
	return (uint32_t)texts->n - 1 + first;
}

void texts_free(struct texts *texts)
{
	free(texts->letters.data);
	free(texts->text);
	free(texts->slots);
	*texts = (struct texts){0};
}
