// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Renders a shape as text with one canonical spacing, so that layout makes no difference. */
#include "statement.h"

static bool is_simple_letter(uint8_t c, bool backtick)
{
	return (c >= 'a' && c <= 'z') || c == '_' || c >= 0x80 ||
	       (backtick && c >= 'A' && c <= 'Z');
}

/* Returns true if a name needs no quotes because it has the form of a word. */
static bool is_simple(const uint8_t *name, size_t n, bool backtick)
{
	if (!n || !is_simple_letter(name[0], backtick))
		return false;
	for (size_t at = 1; at < n; at++)
		if (!is_simple_letter(name[at], backtick) && name[at] != '$' &&
		    (name[at] < '0' || name[at] > '9'))
			return false;
	return true;
}

bool quote_name(struct statement *s, uint32_t name, struct bytes *out)
{
	const uint8_t *letters = letters_of(&s->texts, name);
	size_t n = text_by(&s->texts, name)->length, begin = out->n;
	uint8_t quote = s->lexer->backtick ? '`' : '"';
	uint32_t plain;

	if (is_simple(letters, n, s->lexer->backtick)) {
		if (!add_bytes(out, letters, n))
			return false;
		for (size_t at = begin; at < out->n; at++)
			if (out->data[at] >= 'A' && out->data[at] <= 'Z')
				out->data[at] += 'a' - 'A';
		plain = text_number(&s->texts, out->data + begin, n);
		if (plain == NO_TEXT)
			return false;
		if (!(text_by(&s->texts, plain)->classes & KEYWORD))
			return true;
		out->n = begin;
		letters = letters_of(&s->texts, name);
	}
	if (!add_bytes(out, &quote, 1))
		return false;
	for (size_t at = 0; at < n; at++)
		if (!add_bytes(out, letters + at, 1) ||
		    (letters[at] == quote && !add_bytes(out, &quote, 1)))
			return false;
	return add_bytes(out, &quote, 1);
}

/* Renders a hint without its literals. */
static bool render_hint(struct statement *s, const struct token *token, struct bytes *out)
{
	const uint8_t *letters = letters_of(&s->texts, token->text);
	size_t n = text_by(&s->texts, token->text)->length, begin;
	struct statement inner = statement_of(s->lexer->hints);
	struct reduced reduced = {0};
	bool ok = add_bytes(out, "/*+ ", 4);

	/* The hint's characters are bytes. */
	s->scratch.n = 0;
	for (size_t at = 0; ok && at < n; at++) {
		uint8_t byte = letters[at];

		if (byte >= 0xe0) { /* a mark */
			at += 2;
			continue;
		}
		if (byte >= 0x80)
			byte = (uint8_t)(byte << 6 | (letters[++at] & 0x3f));
		ok = add_bytes(&s->scratch, &byte, 1);
	}
	begin = out->n;
	ok = ok && reduce(s->lexer->hints, s->scratch.data, s->scratch.n, &reduced);
	if (reduced.n > REDUCED_MAX)
		reduced.n = REDUCED_MAX;
	ok = ok && split(&inner, reduced.data, reduced.n, true) && render(&inner, out);
	while (out->n > begin && out->data[out->n - 1] == ' ')
		out->n--;
	free(reduced.data);
	statement_free(&inner);
	return ok && (token->kind == OPEN_HINT || add_bytes(out, " */", 3));
}

static bool add_text(struct statement *s, const struct token *token, struct bytes *out)
{
	if (token->kind == NAME)
		return quote_name(s, token->text, out);
	if (token->kind == HINT || token->kind == OPEN_HINT)
		return render_hint(s, token, out);
	return add_bytes(out, letters_of(&s->texts, token->text),
			 text_by(&s->texts, token->text)->length);
}

/* Returns true if a blank stands before an opening parenthesis or bracket, or before a point. */
static bool blank_before_opener(const struct statement *s, struct token last, uint32_t sign)
{
	if (sign == OPEN) {
		if (last.kind == WORD)
			return has_class(&s->texts, last, SPACED_BEFORE);
		return last.kind != NAME;
	}
	return last.kind == SIGN && last.text != CLOSE && last.text != CLOSE_SQUARE;
}

/* True if a blank stands before the token at this place; one of the two there is a sign. */
static bool blank_before(const struct statement *s, size_t at)
{
	struct token last = s->tokens[at - 1], token = s->tokens[at];
	bool sign = token.kind == SIGN, last_sign = last.kind == SIGN;

	if (!s->lexer->backtick && (is_sign(last, OPEN_BRACE) || is_sign(token, CLOSE_BRACE)))
		return false;
	if (is_sign(last, DOT) || (last_sign && has_class(&s->texts, last, TIGHT_AFTER)) ||
	    (sign && has_class(&s->texts, token, TIGHT_BEFORE)))
		return is_sign(token, CAST_SIGN) &&
		       (is_sign(last, CAST_SIGN) || is_sign(last, DOT));
	if (s->lexer->backtick) {
		if (is_sign(token, AT_SIGN))
			return token.spaced ||
			       (last_sign && last.text != AT_SIGN && last.text != CLOSE);
		if (is_sign(last, AT_SIGN))
			return false;
	}
	if (sign && (token.text == DOT || token.text == OPEN_SQUARE || token.text == OPEN))
		return blank_before_opener(s, last, token.text);
	if (sign || !last_sign || !has_class(&s->texts, last, UNARY))
		return true;
	return !begins_expression(s, (ptrdiff_t)at - 2);
}

bool render(struct statement *s, struct bytes *out)
{
	for (size_t at = 0; at < s->n; at++) {
		const struct token *token = &s->tokens[at];
		bool signs = token->kind == SIGN || (at && token[-1].kind == SIGN);

		if (at && (!signs || blank_before(s, at)) && !add_bytes(out, " ", 1))
			return false;
		if (!add_text(s, token, out))
			return false;
	}
	return true;
}
