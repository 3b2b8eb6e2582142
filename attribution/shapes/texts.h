// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Texts of tokens, each stored once: equal texts have equal numbers. A statement's numbers continue
 * those of the vocabulary, which all statements share.
 */
#ifndef QJOULE_TEXTS_H
#define QJOULE_TEXTS_H

#include "buffers.h"

struct text {
	size_t at; /* offset in `letters` */
	uint32_t length, hash;
	uint32_t classes; /* `enum word_class` */
};

struct texts {
	const struct texts *base; /* numbers below base->n belong to `base` */
	uint64_t seed;		  /* random, so that clients cannot construct hash collisions */
	struct bytes letters;	  /* UTF-8 */
	struct text *text;
	size_t n, room;
	uint32_t *slots; /* number + 1 by hash; 0: free */
	size_t slot_mask;
};

#define NO_TEXT UINT32_MAX /* memory ran out */

/* Returns the number of a text, adding it if it is new; `NO_TEXT` without memory. */
uint32_t text_number(struct texts *texts, const uint8_t *data, size_t length);
void texts_free(struct texts *texts);

static inline const struct texts *owner_of(const struct texts *texts, uint32_t *number)
{
	if (texts->base) {
		if (*number < texts->base->n)
			return texts->base;
		*number -= (uint32_t)texts->base->n;
	}
	return texts;
}

static inline const struct text *text_by(const struct texts *texts, uint32_t number)
{
	texts = owner_of(texts, &number);
	return &texts->text[number];
}

static inline const uint8_t *letters_of(const struct texts *texts, uint32_t number)
{
	texts = owner_of(texts, &number);
	return texts->letters.data + texts->text[number].at;
}

#endif
