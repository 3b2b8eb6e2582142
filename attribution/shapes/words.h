// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Words and signs that mean something to the rules of shapes: the vocabulary. */
#ifndef QJOULE_WORDS_H
#define QJOULE_WORDS_H

#include "texts.h"

/* Texts that are named in the rules, by number. */
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
	/* An expression begins after it, so a sign there belongs to the number. Words that may also
	 * be columns (value, offset, top, set) are left out: no operator must be lost. */
	BEGINS = 1 << 1,
	BEGINS_BACKTICK = 1 << 2, /* reserved in MySQL, names in PostgreSQL */
	CONSTANT = 1 << 3,
	/* NULL, TRUE and FALSE after it belong to the structure: IS NULL, NOT NULL, SET NULL. */
	STRUCTURAL = 1 << 4,
	INTRODUCER = 1 << 5, /* of a character set */
	ROWS_FOLLOW = 1 << 6,
	NO_TYPE = 1 << 7,	/* before a value, makes it no typed literal */
	SEVERAL_WORDS = 1 << 8, /* may begin a type of several words */
	SPACED_BEFORE = 1 << 9, /* a blank stands between it and a parenthesis */
	KEYWORD = 1 << 10,	/* a name that is one of these keeps its quotes */
	TABLE_FOLLOWS = 1 << 11,
	TEMPORARY = 1 << 12,
	NAMING = 1 << 13, /* a statement that begins with it has a name made up by a program */
	/* Words between such a statement's first word and the name. */
	IN_RELEASE = 1 << 14,
	IN_ROLLBACK = 1 << 15,
	IN_DEALLOCATE = 1 << 16,
	IN_FETCH = 1 << 17,
	/* Of signs. */
	CLOSER = 1 << 18, /* a sign after it is an operator between two operands */
	TIGHT_BEFORE = 1 << 19,
	TIGHT_AFTER = 1 << 20,
	UNARY = 1 << 21,
	IN_TYPE = 1 << 22,
};

/* Fills an empty vocabulary. `reserved`: further keywords in lower case, separated by blanks. */
bool vocabulary_filled(struct texts *vocabulary, const char *reserved, uint64_t seed);

#endif
