// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A reduced statement as tokens, and the steps that turn it into its shape. Each step is linear in
 * the number of tokens and returns false if memory runs out. None recurses deeper than an element
 * of a list has tokens.
 */
#ifndef QJOULE_STATEMENT_H
#define QJOULE_STATEMENT_H

#include "lexer.h"
#include "words.h"

enum kind {
	WORD = 1,  /* keyword or unquoted identifier, lower case */
	NAME,	   /* quoted identifier, without its quotes */
	OPEN_NAME, /* quoted identifier that the statement does not close */
	VALUE,	   /* a literal or a placeholder */
	SIGN,	   /* operator or punctuation */
	HINT,	   /* the inner text */
	OPEN_HINT,
};

struct token {
	uint32_t text;
	uint8_t kind;
	bool spaced; /* a blank stands before it in the statement */
};

struct statement {
	const struct lexer *lexer;
	struct texts texts;
	struct token *tokens;
	size_t n, room;
	struct bytes scratch;
};

/* A statement without tokens. */
struct statement statement_of(const struct lexer *lexer);
void statement_free(struct statement *statement);

/* Splits a reduced statement; inside a hint, further hints are left out. */
bool split(struct statement *statement, const uint16_t *reduced, size_t n, bool in_hint);
/* Signed numbers, constants and strings with a character set become plain values; semicolons at the
 * end are left out. */
void fold_values(struct statement *statement);
/* Names that programs make up for one use. */
bool mask_generated_names(struct statement *statement);
/* Lists of values as one value. Lists that the end of a truncated statement leaves open are
 * collapsed as if they were complete, so that all cuts of a long list have the same shape. */
bool collapse_lists(struct statement *statement, bool truncated);
/* The shape's text, in one canonical spacing. */
bool render(struct statement *statement, struct bytes *out);
/* A name, quoted only if it would mean another name without quotes. */
bool quote_name(struct statement *statement, uint32_t name, struct bytes *out);

/* Whether an operand follows the token at this place, so that a sign after it is part of it. */
bool begins_expression(const struct statement *statement, ptrdiff_t at);
/* Whether an element of a list is a value, with or without a type, or a collapsed list of values.
 */
bool is_plain(const struct texts *texts, const struct token *element, size_t n, bool in_row);

static inline bool has_class(const struct texts *texts, struct token token, uint32_t classes)
{
	return text_by(texts, token.text)->classes & classes;
}

static inline bool is_sign(struct token token, enum known text)
{
	return token.kind == SIGN && token.text == text;
}

static inline bool is_word(struct token token, enum known text)
{
	return token.kind == WORD && token.text == text;
}

#endif
