// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Splits a reduced statement into tokens: words, names, values, operators. */
#include "statement.h"

/* Letters, digits, control bytes that are no blanks, and all bytes above ASCII. */
static const bool word_byte[256] = {
    [0 ... 8] = true,	  [0x0e ... 0x1f] = true, ['$'] = true,
    ['0' ... '9'] = true, ['A' ... 'Z'] = true,	  ['_'] = true,
    ['a' ... 'z'] = true, [0x7f] = true,	  [0x80 ... 0xff] = true,
};

enum {
	VERSION_MIN = 5,
	VERSION_MAX = 6
};

struct scan {
	const uint16_t *c;
	size_t n;
	bool backtick;
};

static uint16_t char_at(const struct scan *scan, size_t at)
{
	return at < scan->n ? scan->c[at] : 0;
}

static bool is_one_of(uint16_t c, const char *characters)
{
	return c && c < 0x80 && strchr(characters, c);
}

static bool is_alphanumeric(uint16_t c)
{
	return c < 0x80 && c != '_' && c != '$' && c > 0x1f && c != 0x7f && word_byte[c];
}

static size_t run_end(const struct scan *scan, size_t at)
{
	while (at < scan->n && scan->c[at] < 0x100 && word_byte[scan->c[at]])
		at++;
	return at;
}

/* The end of a word; `at` if none begins there. A two-byte character's second byte may be any
 * sign. */
static size_t word_end(const struct scan *scan, size_t at)
{
	size_t end = run_end(scan, at);

	if (end == at || !scan->backtick)
		return end;
	while (end + 1 < scan->n && scan->c[end] == SECOND)
		end = run_end(scan, end + 2);
	return end;
}

/* Returns the end of a value; `at` if none begins there. */
static size_t value_end(const struct scan *scan, size_t at)
{
	uint16_t c = scan->c[at], next = char_at(scan, at + 1);

	if (c >= NUMBER && c <= PARAMETER)
		return at + 1;
	if (c == '?') {
		bool many = next == '+' && (at + 2 == scan->n || is_one_of(scan->c[at + 2], ")]}"));
		return at + 1 + many;
	}
	if (next == STRING && is_one_of(c, scan->backtick ? "nNxXbB" : "eEbBxXnN"))
		return at + 2;
	if (scan->backtick && c == '_') {
		size_t end = at + 1;

		while (end < scan->n && is_alphanumeric(scan->c[end]))
			end++;
		return end > at + 1 && char_at(scan, end) == STRING ? end + 1 : at;
	}
	if (!scan->backtick && is_one_of(c, "uU") && next == '&' && char_at(scan, at + 2) == STRING)
		return at + 3;
	return at;
}

/* Returns the end of a quoted name and sets `closed` if its closing quote is there. A doubled quote
 * is part of the name. */
static size_t name_end(const struct scan *scan, size_t at, bool *closed)
{
	uint16_t quote = scan->c[at++];

	*closed = false;
	for (; at < scan->n; at++) {
		if (scan->c[at] != quote)
			continue;
		if (char_at(scan, at + 1) != quote) {
			*closed = true;
			return at + 1;
		}
		at++;
	}
	return at;
}

static size_t hint_end(const struct scan *scan, size_t at, bool *closed)
{
	for (at += 3; at + 1 < scan->n; at++)
		if (scan->c[at] == '*' && scan->c[at + 1] == '/') {
			*closed = true;
			return at + 2;
		}
	*closed = false;
	return scan->n;
}

static size_t digits_end(const struct scan *scan, size_t at)
{
	while (at < scan->n && scan->c[at] >= '0' && scan->c[at] <= '9')
		at++;
	return at;
}

/* Returns the end of a version comment's version: five or six digits. Any other count of digits
 * belongs to the comment's code. */
static size_t version_end(const struct scan *scan, size_t at)
{
	size_t end;

	at += scan->c[at + 2] == 'M' ? 4 : 3;
	end = digits_end(scan, at);
	if (end < at + VERSION_MIN)
		return at;
	return end < at + VERSION_MAX ? end : at + VERSION_MAX;
}

static size_t sign_end(const struct scan *scan, size_t at)
{
	static const char *const shared[] = {"<=", ">=", "<>", "!=", ":=", "->>",
					     "->", "||", "&&", "<<", ">>"};
	static const char *const standard[] = {"=>", "#>>", "#>",  "@>", "<@",
					       "@@", "~*",  "!~*", "!~", "::"};
	size_t n = sizeof(shared) / sizeof(*shared);
	size_t all = n + (scan->backtick ? 0 : sizeof(standard) / sizeof(*standard));

	if (!is_one_of(scan->c[at], "<>!:-|&=#@~"))
		return at + 1;
	if (scan->backtick && scan->c[at] == '<' && char_at(scan, at + 1) == '=' &&
	    char_at(scan, at + 2) == '>')
		return at + 3;
	for (size_t i = 0; i < all; i++) {
		const char *sign = i < n ? shared[i] : standard[i - n];
		size_t length = strlen(sign), same = 0;

		while (same < length && char_at(scan, at + same) == (uint8_t)sign[same])
			same++;
		if (same == length)
			return at + length;
	}
	return at + 1;
}

static bool push(struct statement *s, enum kind kind, uint32_t text, bool spaced)
{
	if (text == NO_TEXT ||
	    !ensure_room((void **)&s->tokens, &s->room, s->n + 1, sizeof(*s->tokens)))
		return false;
	s->tokens[s->n++] = (struct token){text, (uint8_t)kind, spaced};
	return true;
}

/* Appends characters that are bytes as safe text, without the marks among them. */
static bool add_safe(struct statement *s, const uint16_t *c, size_t n)
{
	struct bytes *out = &s->scratch, raw = {0};
	size_t begin = out->n;
	bool printable = true, ok;

	if (!ensure_room((void **)&out->data, &out->room, begin + n, 1))
		return false;
	for (size_t i = 0; i < n; i++)
		if (c[i] < 0x100) {
			printable &= c[i] >= ' ' && c[i] < 0x7f;
			out->data[out->n++] = (uint8_t)c[i];
		}
	if (printable)
		return true;
	ok = add_bytes(&raw, out->data + begin, out->n - begin);
	out->n = begin;
	ok = ok && s->lexer->decode(s->lexer->context, raw.data, raw.n, out);
	free(raw.data);
	return ok;
}

static uint32_t scratch_number(struct statement *s)
{
	return text_number(&s->texts, s->scratch.data, s->scratch.n);
}

/* Lower-cases only ASCII: case folding of the rest differs between servers. */
static bool push_word(struct statement *s, const uint16_t *c, size_t n, bool spaced)
{
	s->scratch.n = 0;
	if (!add_safe(s, c, n))
		return false;
	for (size_t i = 0; i < s->scratch.n; i++)
		if (s->scratch.data[i] >= 'A' && s->scratch.data[i] <= 'Z')
			s->scratch.data[i] += 'a' - 'A';
	return push(s, WORD, scratch_number(s), spaced);
}

static bool push_name(struct statement *s, const uint16_t *c, size_t n, bool closed, bool spaced)
{
	uint8_t quote = (uint8_t)c[0], *data;
	size_t kept = 0;

	s->scratch.n = 0;
	if (!closed)
		return add_bytes(&s->scratch, &quote, 1) && add_safe(s, c + 1, n - 1) &&
		       push(s, OPEN_NAME, scratch_number(s), spaced);
	if (!add_safe(s, c + 1, n - 2))
		return false;
	data = s->scratch.data;
	for (size_t i = 0; i < s->scratch.n; i++) {
		data[kept++] = data[i];
		if (data[i] == quote && i + 1 < s->scratch.n && data[i + 1] == quote)
			i++;
	}
	s->scratch.n = kept;
	return push(s, NAME, scratch_number(s), spaced);
}

/* Pushes a token whose text is copied from the statement. */
static bool push_as_is(struct statement *s, enum kind kind, const uint16_t *c, size_t n,
		       bool spaced)
{
	s->scratch.n = 0;
	for (size_t i = 0; i < n; i++)
		if (!add_character(&s->scratch, c[i]))
			return false;
	return push(s, kind, scratch_number(s), spaced);
}

struct splitting {
	struct statement *s;
	struct scan scan;
	bool in_hint, spaced, version_open;
	size_t skip_to;
};

/* Adds a name, hint, version comment, word or sign; returns its end, 0 without memory. */
static size_t split_other(struct splitting *p, size_t at)
{
	const uint16_t *c = p->scan.c + at;
	uint16_t next = char_at(&p->scan, at + 1), third = char_at(&p->scan, at + 2);
	bool skipped = at < p->skip_to, comment = p->scan.backtick && *c == '/' && next == '*';
	bool closed, ok = true;
	size_t end;

	if (*c == '"' || (*c == '`' && p->scan.backtick)) {
		end = name_end(&p->scan, at, &closed);
		ok = skipped || push_name(p->s, c, end - at, closed, p->spaced);
	} else if (comment && third == '+') {
		end = hint_end(&p->scan, at, &closed);
		if (!skipped && !p->in_hint)
			ok = push_as_is(p->s, closed ? HINT : OPEN_HINT, c + 3,
					end - at - 3 - (closed ? 2 : 0), p->spaced);
	} else if (comment &&
		   (third == '!' || (third == 'M' && char_at(&p->scan, at + 3) == '!'))) {
		end = version_end(&p->scan, at);
		p->version_open |= !skipped;
		ok = skipped || push_as_is(p->s, SIGN, c, end - at, p->spaced);
		if (digits_end(&p->scan, end) > end) {
			end = digits_end(&p->scan, end);
			ok = ok && (skipped || push(p->s, VALUE, QUESTION, true));
		}
	} else if ((end = word_end(&p->scan, at)) > at) {
		ok = skipped || push_word(p->s, c, end - at, p->spaced);
	} else if (p->version_open && !skipped && *c == '*' && next == '/') {
		end = at + 1;
		p->version_open = false;
		p->skip_to = at + 2;
		ok = push_as_is(p->s, SIGN, c, 2, p->spaced);
	} else {
		end = sign_end(&p->scan, at);
		ok = skipped || push_as_is(p->s, SIGN, c, end - at, p->spaced);
	}
	return ok ? end : 0;
}

bool split(struct statement *s, const uint16_t *reduced, size_t n, bool in_hint)
{
	struct splitting p = {s, {reduced, n, s->lexer->backtick}, in_hint, false, false, 0};
	size_t at = 0, end;

	while (at < n) {
		bool skipped = at < p.skip_to;

		if (reduced[at] == ' ') {
			p.spaced = true;
			at++;
			continue;
		}
		end = at + 2;
		if (p.scan.backtick && reduced[at] == NUMBER &&
		    char_at(&p.scan, at + 1) == DIGITS_OF_NAME)
			end = word_end(&p.scan, at + 2);
		if (end > at + 2) {
			if (!push_word(s, reduced + at + 2, end - at - 2, p.spaced))
				return false;
		} else if ((end = value_end(&p.scan, at)) > at) {
			if (!push(s, VALUE, QUESTION, p.spaced))
				return false;
		} else if (!(end = split_other(&p, at))) {
			return false;
		}
		if (!skipped)
			p.spaced = false;
		at = end;
	}
	return true;
}
