// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Decides if a list element is plain: a value, with or without a type, or a list of plain ones. */
#include "statement.h"

/* A token's text, the same for all values. */
static uint32_t text_in(const struct token *element, size_t at)
{
	return element[at].kind == VALUE ? (uint32_t)QUESTION : element[at].text;
}

static bool reads(const struct token *element, size_t n, const enum known *texts, size_t all)
{
	if (n != all)
		return false;
	for (size_t at = 0; at < n; at++)
		if (text_in(element, at) != texts[at])
			return false;
	return true;
}

static bool is_list(const struct token *element, size_t n)
{
	static const enum known round[] = {ROW, OPEN, QUESTION, CLOSE};
	static const enum known square[] = {ARRAY, OPEN_SQUARE, QUESTION, CLOSE_SQUARE};

	static const enum known empty[] = {OPEN_SQUARE, CLOSE_SQUARE};
	static const enum known brace[] = {OPEN_BRACE, QUESTION, CLOSE_BRACE};

	return reads(element, n, round, 4) || reads(element, n, round + 1, 3) ||
	       reads(element, n, square, 4) || reads(element, n, square + 1, 3) ||
	       reads(element, n, brace, 3) || reads(element, n, empty, 2);
}

/* Returns true if the tokens are names, lengths and brackets of types. */
static bool is_type(const struct texts *texts, const struct token *tokens, size_t n)
{
	for (size_t at = 0; at < n; at++)
		if (tokens[at].kind == SIGN && !has_class(texts, tokens[at], IN_TYPE))
			return false;
	return n > 0;
}

/* Returns the place of the first AS in CAST(... AS type); 0 for anything else. */
static size_t cast_split(const struct token *element, size_t n)
{
	if (n < 3 || text_in(element, 0) != CAST || text_in(element, 1) != OPEN ||
	    text_in(element, n - 1) != CLOSE)
		return 0;
	for (size_t at = 2; at + 1 < n; at++)
		if (text_in(element, at) == AS)
			return at;
	return 0;
}

static bool is_interval_or_conversion(const struct token *e, size_t n)
{
	if (n == 3)
		return text_in(e, 0) == INTERVAL && text_in(e, 1) == QUESTION;
	return n == 6 && text_in(e, 0) == CONVERT && text_in(e, 1) == OPEN &&
	       text_in(e, 2) == QUESTION && (text_in(e, 3) == USING || text_in(e, 3) == COMMA) &&
	       text_in(e, 5) == CLOSE;
}

/* A value after the words of a type: DATE '...', or TIMESTAMP WITH TIME ZONE '...'. */
static bool is_typed(const struct texts *texts, const struct token *element, size_t n)
{
	if (n < 2 || text_in(element, n - 1) != QUESTION || element[0].kind != WORD ||
	    has_class(texts, element[0], NO_TYPE))
		return false;
	if (n > 2 && !has_class(texts, element[0], SEVERAL_WORDS))
		return false;
	for (size_t at = 1; at + 1 < n; at++)
		if (element[at].kind != WORD)
			return false;
	return true;
}

bool is_plain(const struct texts *texts, const struct token *element, size_t n, bool in_row)
{
	size_t split;

	for (size_t at = 1; at < n; at++)
		if (is_sign(element[at], CAST_SIGN))
			return is_type(texts, element + at + 1, n - at - 1) &&
			       is_plain(texts, element, at, in_row);
	for (size_t at = 1; !in_row && at + 1 < n; at++) /* in a map */
		if (is_sign(element[at], COLON))
			return is_plain(texts, element, at, true) &&
			       is_plain(texts, element + at + 1, n - at - 1, true);
	if (n == 1 && text_in(element, 0) == QUESTION)
		return true;
	if (n == 1 && text_in(element, 0) == DEFAULT)
		return in_row;
	if (is_list(element, n))
		return true;
	split = cast_split(element, n);
	if (split)
		return is_plain(texts, element + 2, split - 2, false) &&
		       is_type(texts, element + split + 1, n - split - 2);
	return is_interval_or_conversion(element, n) || is_typed(texts, element, n);
}
