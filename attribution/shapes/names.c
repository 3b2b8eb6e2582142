// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Masks names that programs generate for one use: savepoints, temporary tables, cursors, prepared
 * statements, variables. A new name must not make a new shape.
 *
 * A name counts as generated if it has a digit, or if it is asyncpg's, whose numbers are
 * hexadecimal (`__asyncpg_portal_d__`: asyncpg/connection.py). In a shape it becomes `?`. In a
 * temporary table's name, which other statements use too, each part with digits becomes `n`.
 */
#include "statement.h"

static bool is_generated(const struct statement *s, struct token token)
{
	return (token.kind == WORD || token.kind == NAME) && has_class(&s->texts, token, HAS_DIGIT);
}

static bool is_asyncpgs(const struct statement *s, struct token token)
{
	static const char begins[] = "__asyncpg_";
	size_t n = text_by(&s->texts, token.text)->length;

	return n >= sizeof(begins) - 1 &&
	       !memcmp(letters_of(&s->texts, token.text), begins, sizeof(begins) - 1);
}

static bool is_made_up(const struct statement *s, struct token token)
{
	return is_generated(s, token) ||
	       ((token.kind == WORD || token.kind == NAME) && is_asyncpgs(s, token));
}

static uint32_t fillers_after(uint32_t first)
{
	switch (first) {
	case RELEASE:
		return IN_RELEASE;
	case ROLLBACK:
		return IN_ROLLBACK;
	case DEALLOCATE:
		return IN_DEALLOCATE;
	case FETCH:
	case MOVE:
		return IN_FETCH;
	default:
		return 0;
	}
}

/* Returns the place of the name in a statement that begins at `start`; `end`: it has none. */
static size_t name_place(const struct statement *s, size_t start, size_t end)
{
	const struct token *tokens = s->tokens;
	uint32_t fillers = fillers_after(tokens[start].text);
	size_t at = start + 1;

	if (!has_class(&s->texts, tokens[start], NAMING))
		return tokens[start].text == DROP && at < end && tokens[at].text == PREPARE ? at + 1
											    : end;
	while (at < end &&
	       ((tokens[at].kind == WORD && has_class(&s->texts, tokens[at], fillers)) ||
		(fillers && tokens[at].kind == VALUE)))
		at++;
	return at;
}

static void mask_statement(struct statement *s, size_t start, size_t end)
{
	struct token *tokens = s->tokens;
	size_t place;
	bool variables;

	if (start >= end || tokens[start].kind != WORD)
		return;
	place = name_place(s, start, end);
	variables = tokens[start].text == SET || tokens[start].text == EXECUTE;
	if (place < end && is_made_up(s, tokens[place]))
		tokens[place] = (struct token){QUESTION, VALUE, tokens[place].spaced};
	/* User variables begin with one sign, system variables with two. */
	for (size_t at = start + 2; variables && at < end; at++)
		if (tokens[at - 1].text == AT_SIGN && tokens[at - 2].text != AT_SIGN &&
		    is_generated(s, tokens[at]))
			tokens[at] = (struct token){QUESTION, VALUE, tokens[at].spaced};
}

static bool is_letter(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(uint8_t c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Returns true if tmp or temp stands between underscores, digits or the ends of the name. */
static bool has_temporary_word(const uint8_t *name, size_t n)
{
	static const char *const parts[] = {"tmp", "temp"};

	for (size_t at = 0; at < n; at++) {
		if (at && name[at - 1] != '_')
			continue;
		for (size_t i = 0; i < 2; i++) {
			size_t end = at + strlen(parts[i]);

			if (end <= n && !memcmp(name + at, parts[i], end - at) &&
			    (end == n || name[end] == '_' || is_digit(name[end])))
				return true;
		}
	}
	return false;
}

/* Returns the end of a number that begins at `at`: hexadecimal if it is not part of a word, else
 * decimal; `at` if there is none. */
static size_t numbered_end(const uint8_t *name, size_t n, size_t at)
{
	size_t end = at, digit = n, digit_before = n;

	if (!at || !is_letter(name[at - 1])) {
		for (; end < n && is_hex(name[end]); end++)
			if (is_digit(name[end])) {
				digit_before = digit;
				digit = end;
			}
		if (digit < n && (end == n || !is_letter(name[end])))
			return end;
		if (digit_before < n)
			return digit; /* a word follows the last digit */
	}
	for (end = at; end < n && is_digit(name[end]);)
		end++;
	return end;
}

/* Returns the text number of a name after its numbers were replaced. */
static uint32_t mask_numbers(struct statement *s, uint32_t name)
{
	const uint8_t *letters = letters_of(&s->texts, name);
	size_t n = text_by(&s->texts, name)->length;

	s->scratch.n = 0;
	for (size_t at = 0, end; at < n; at = end) {
		uint8_t c = letters[at];

		end = numbered_end(letters, n, at);
		if (end > at)
			c = 'n';
		else
			end = at + 1;
		if (!add_bytes(&s->scratch, &c, 1))
			return NO_TEXT;
	}
	return text_number(&s->texts, s->scratch.data, s->scratch.n);
}

/* Maps the text number of each temporary table's name to its masked name (0: unchanged). Such names
 * stand in a statement that creates or drops a temporary table, or look temporary (`tmp_...`,
 * `..._temp_...`) where a table is expected. NULL if there are none, or without memory. */
static uint32_t *temporary_tables(struct statement *s, bool *ok)
{
	const struct token *tokens = s->tokens;
	size_t texts = s->texts.base->n + s->texts.n;
	bool made = s->n > 1 && (tokens[0].text == CREATE || tokens[0].text == DROP) &&
		    tokens[1].kind == WORD && has_class(&s->texts, tokens[1], TEMPORARY);
	uint32_t *becomes = NULL;

	for (size_t at = 1; at < s->n; at++) {
		uint32_t name = tokens[at].text;

		if (!has_class(&s->texts, tokens[at - 1], TABLE_FOLLOWS) ||
		    !is_generated(s, tokens[at]) || (becomes && becomes[name]))
			continue;
		if (!made && !has_temporary_word(letters_of(&s->texts, name),
						 text_by(&s->texts, name)->length))
			continue;
		if (!becomes && !(becomes = calloc(texts, sizeof(*becomes)))) {
			*ok = false;
			return NULL;
		}
		becomes[name] = mask_numbers(s, name);
		*ok &= becomes[name] != NO_TEXT;
	}
	return becomes;
}

bool mask_generated_names(struct statement *s)
{
	size_t start = 0;
	uint32_t *becomes;
	bool ok = true;

	for (size_t end = 0; end < s->n; end++)
		if (is_sign(s->tokens[end], SEMICOLON)) {
			mask_statement(s, start, end);
			start = end + 1;
		}
	mask_statement(s, start, s->n);
	becomes = temporary_tables(s, &ok);
	for (size_t at = 0; becomes && ok && at < s->n; at++) {
		struct token *token = &s->tokens[at];

		if ((token->kind == WORD || token->kind == NAME) && becomes[token->text])
			token->text = becomes[token->text];
	}
	free(becomes);
	return ok;
}
