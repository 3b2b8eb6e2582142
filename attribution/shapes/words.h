// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The vocabulary: words and signs that the rules of shapes refer to. */
#ifndef QJOULE_WORDS_H
#define QJOULE_WORDS_H

#include "texts.h"

/* Numbers of the texts that the rules refer to by name. */
enum known {
	EMPTY,
	QUESTION,
	MANY,
	OPEN,
	CLOSE,
	OPEN_SQUARE,
	CLOSE_SQUARE,
	OPEN_BRACE,
	CLOSE_BRACE,
	COLON,
	COMMA,
	SEMICOLON,
	CAST_SIGN,
	DOT,
	AT_SIGN,
	MINUS,
	PLUS,
	ARRAY,
	ROW,
	IN,
	SELECT,
	DEFAULT,
	CAST,
	AS,
	INTERVAL,
	CONVERT,
	USING,
	CREATE,
	DROP,
	PREPARE,
	SET,
	EXECUTE,
	RELEASE,
	ROLLBACK,
	DEALLOCATE,
	FETCH,
	MOVE,
	KNOWN
};

enum word_class {
	HAS_DIGIT = 1 << 0,
	/* An expression follows this word, so a sign there belongs to the number. Words that may
	 * also be columns (value, offset, top, set) are left out: no operator must be lost. */
	BEGINS = 1 << 1,
	BEGINS_BACKTICK = 1 << 2, /* like BEGINS; reserved in MySQL, a name in PostgreSQL */
	CONSTANT = 1 << 3,
	/* A NULL, TRUE or FALSE after this word is structure: IS NULL, NOT NULL, SET NULL. */
	STRUCTURAL = 1 << 4,
	INTRODUCER = 1 << 5, /* a character set's introducer */
	ROWS_FOLLOW = 1 << 6,
	NO_TYPE = 1 << 7,	/* before a value, this word does not make a typed literal */
	SEVERAL_WORDS = 1 << 8, /* may begin a type of several words */
	SPACED_BEFORE = 1 << 9, /* a blank stands between this word and a parenthesis */
	KEYWORD = 1 << 10,	/* a quoted name that equals this word keeps its quotes */
	TABLE_FOLLOWS = 1 << 11,
	TEMPORARY = 1 << 12,
	NAMING = 1 << 13, /* begins a statement with a program-generated name */
	/* Words between such a statement's first word and the name. */
	IN_RELEASE = 1 << 14,
	IN_ROLLBACK = 1 << 15,
	IN_DEALLOCATE = 1 << 16,
	IN_FETCH = 1 << 17,
	/* The flags from here on are for signs. */
	CLOSER = 1 << 18, /* a sign after it is an operator between two operands */
	TIGHT_BEFORE = 1 << 19,
	TIGHT_AFTER = 1 << 20,
	UNARY = 1 << 21,
	IN_TYPE = 1 << 22,
};

/* Fills an empty vocabulary. `reserved`: further keywords in lower case, separated by blanks. */
bool fill_vocabulary(struct texts *vocabulary, const char *reserved, uint64_t seed);

#endif
