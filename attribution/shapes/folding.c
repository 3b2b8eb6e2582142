// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Literals that consist of several tokens become one value: signed numbers, NULL, introducers. */
#include "statement.h"

bool begins_expression(const struct statement *s, ptrdiff_t at)
{
	uint32_t classes = BEGINS | (s->lexer->backtick ? BEGINS_BACKTICK : 0);
	struct token token;

	if (at < 0)
		return true;
	token = s->tokens[at];
	if (token.kind == SIGN)
		return !has_class(&s->texts, token, CLOSER);
	if (token.kind != WORD || !has_class(&s->texts, token, classes))
		return false;
	return !at || !is_sign(s->tokens[at - 1], DOT);
}

/* Returns true if NULL, TRUE or FALSE at `at` is a name or part of the statement's structure. `n`
 * tokens before `at` are folded. */
static bool is_structural(const struct statement *s, size_t n, size_t at, size_t all)
{
	if (n && s->tokens[n - 1].kind == WORD &&
	    has_class(&s->texts, s->tokens[n - 1], STRUCTURAL))
		return true;
	return (n && is_sign(s->tokens[n - 1], DOT)) ||
	       (at + 1 < all && is_sign(s->tokens[at + 1], DOT));
}

/* Strips the signs and the introducer that belong to a value. Returns how many of the n tokens
 * before the value remain. */
static size_t strip_prefixes(const struct statement *s, size_t n, struct token *value)
{
	const struct token *tokens = s->tokens;

	while (n && (is_sign(tokens[n - 1], MINUS) || is_sign(tokens[n - 1], PLUS)) &&
	       begins_expression(s, (ptrdiff_t)n - 2))
		value->spaced = tokens[--n].spaced;
	if (n && s->lexer->backtick && tokens[n - 1].kind == WORD &&
	    has_class(&s->texts, tokens[n - 1], INTRODUCER))
		value->spaced = tokens[--n].spaced;
	return n;
}

void fold_values(struct statement *s)
{
	size_t n = 0;

	for (size_t at = 0; at < s->n; at++) {
		struct token token = s->tokens[at];

		if (token.kind == WORD && has_class(&s->texts, token, CONSTANT) &&
		    !is_structural(s, n, at, s->n))
			token = (struct token){QUESTION, VALUE, token.spaced};
		if (token.kind == VALUE && n && s->tokens[n - 1].kind != VALUE)
			n = strip_prefixes(s, n, &token);
		s->tokens[n++] = token;
	}
	while (n && is_sign(s->tokens[n - 1], SEMICOLON))
		n--;
	s->n = n;
}
