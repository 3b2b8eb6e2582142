// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * A reduced statement as tokens, and the steps that turn it into its shape. Each step is linear in
 * the number of tokens and returns false without memory. Recursion is never deeper than a list
 * element has tokens.
 */
#ifndef QJOULE_STATEMENT_H
#define QJOULE_STATEMENT_H

#include "lexer.h"
#include "words.h"

enum kind {
	WORD = 1,  /* keyword or unquoted identifier, lower case */
	NAME,	   /* quoted identifier, its text without quotes */
	OPEN_NAME, /* quoted identifier that the statement does not close */
	VALUE,	   /* a literal or a placeholder */
	SIGN,	   /* operator or punctuation */
	HINT,	   /* hint, its inner text */
	OPEN_HINT,
};

struct token {
	uint32_t text;
	uint8_t kind;
	bool spaced; /* a blank precedes the token in the statement */
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
/* Folds signed numbers, constants and strings with a character set into plain values; drops
 * semicolons at the end. */
void fold_values(struct statement *statement);
/* Masks names that programs generate for one use. */
bool mask_generated_names(struct statement *statement);
/* Collapses each list of values to one value. Lists that a truncated statement leaves open are
 * collapsed as if complete, so that all cuts of a long list have the same shape. */
bool collapse_lists(struct statement *statement, bool truncated);
/* Renders the shape's text, in one canonical spacing. */
bool render(struct statement *statement, struct bytes *out);
/* Renders a name, with quotes only if it would mean another name without them. */
bool quote_name(struct statement *statement, uint32_t name, struct bytes *out);

/* True if an operand follows the token at this place, so that a sign there belongs to it. */
bool begins_expression(const struct statement *statement, ptrdiff_t at);
/* Returns true if an element is a value, with or without a type, or a collapsed list of values. */
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
