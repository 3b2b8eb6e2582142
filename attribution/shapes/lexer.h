// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The lexical automaton for one family and one session's settings. Python builds it from
 * qjoule.shapes.automaton, in the entry format of qjoule.shapes.tables.
 */
#ifndef QJOULE_LEXER_H
#define QJOULE_LEXER_H

#include "texts.h"

enum {
	STATES = 128,
	STATE_SHIFT = 6,
	EMISSIONS = 128,
	EMISSION_MAX = 8,
	REDUCED_MAX = 32768, /* characters kept of a reduced statement */
	COMMENT_DEPTH_MAX = 3,
	NAME_DIGITS_MAX = 8,
};

/* Marks of qjoule.shapes.automaton in a reduced statement. Other characters are bytes. */
enum mark {
	NUMBER = 0xe000,
	STRING,
	PARAMETER,
	RAW_TAG,
	RAW_COMMENT,
	RAW_STAR,
	UNSURE,
	DIGITS_OF_NAME,
	SECOND,
};

/* How a state handles a byte, where the table alone does not suffice. */
enum state_mode {
	MODE_PLAIN,
	MODE_VERSION,
	MODE_STAR_SLASH,
	MODE_RAW,
	MODE_TAG,
	STATE_MODES
};

/* The states in which the automaton resumes after C resolved what the table could not. */
enum resumed {
	AT_START,
	AT_SPACE,
	AT_BLOCK,
	AT_STAR,
	AT_BLOCK_OPEN,
	RESUMED
};

struct lexer {
	bool backtick; /* the family; else STANDARD */
	uint16_t moves[STATES << STATE_SHIFT];
	uint8_t column[256]; /* below 64 */
	uint8_t finals[STATES];
	uint8_t modes[STATES];
	uint8_t resumed[RESUMED];
	uint16_t emission[EMISSIONS][EMISSION_MAX];
	uint8_t emission_length[EMISSIONS];
	const struct texts *vocabulary;
	const struct lexer *hints; /* the lexer for the text of hints */
	/* Appends bytes that are not all printable ASCII as safe UTF-8. */
	bool (*decode)(void *context, const uint8_t *latin, size_t length, struct bytes *out);
	void *context;
};

struct reduced {
	uint16_t *data;
	size_t n, room;
};

/* Appends the statement without literals and comments, cut after REDUCED_MAX characters. Returns
 * false without memory. */
bool reduce(const struct lexer *lexer, const uint8_t *text, size_t length, struct reduced *out);

#endif
