// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Runs a statement through the lexical automaton, which emits its structure without literals.
 *
 * The kernel side hashes the emitted text; shapes are computed from the same text, so equal hash
 * implies equal shape. What the automaton can only emit raw (see qjoule.shapes.automaton) is
 * resolved here, where all raw bytes are present. Linear in the length of the statement.
 */
#define _GNU_SOURCE
#include "lexer.h"

enum {
	EMITS_BYTE = 1 << 14,
	STEP_MAX = EMISSION_MAX + NAME_DIGITS_MAX + 1, /* characters that a byte emits at most */
};

struct reduction {
	const struct lexer *lexer;
	const uint8_t *text;
	size_t length;
	struct reduced *out; /* has room for STEP_MAX */
	uint32_t state;
	bool in_version_comment;
	bool nested; /* a version comment within another: servers may skip either */
};

static void put(struct reduced *out, uint16_t c)
{
	out->data[out->n++] = c;
}

/* Emits the digits before a place which the kernel side has not discarded yet. */
static void put_digits_before(struct reduction *r, size_t at)
{
	size_t from = at;

	while (from && at - from < NAME_DIGITS_MAX && r->text[from - 1] >= '0' &&
	       r->text[from - 1] <= '9')
		from--;
	for (; from < at; from++)
		put(r->out, r->text[from]);
}

static void put_emission(struct reduction *r, uint32_t number, size_t at)
{
	const uint16_t *emission = r->lexer->emission[number];
	size_t length = r->lexer->emission_length[number];

	for (size_t i = 0; i < length; i++)
		put(r->out, emission[i]);
	if (length == 1 && emission[0] == DIGITS_OF_NAME)
		put_digits_before(r, at);
}

/* Skips $tag$...$tag$; the opening tag, already emitted, becomes a string. */
static size_t dollar_quoted(struct reduction *r, size_t at)
{
	const uint8_t *text = r->text, *found;
	size_t begin = at, tag;

	while (begin && text[begin - 1] != '$')
		begin--;
	begin -= begin > 0;
	tag = at + 1 - begin;
	r->out->n -= tag - 1 < r->out->n ? tag - 1 : r->out->n;
	put(r->out, STRING);
	r->state = r->lexer->resumed[AT_START];
	found = memmem(text + at + 1, r->length - at - 1, text + begin, tag);
	return found ? (size_t)(found - text) + tag : r->length;
}

static size_t deep_comment(struct reduction *r, size_t at)
{
	size_t depth = COMMENT_DEPTH_MAX + 1;

	r->state = r->lexer->resumed[AT_BLOCK];
	for (at++; at + 1 < r->length; at++) {
		bool opens = r->text[at] == '/' && r->text[at + 1] == '*';
		bool closes = r->text[at] == '*' && r->text[at + 1] == '/';

		if (!opens && !closes)
			continue;
		at++;
		depth += opens ? 1 : (size_t)-1;
		if (!depth) {
			r->state = r->lexer->resumed[AT_SPACE];
			return at + 1;
		}
	}
	return r->length;
}

/* Resolves what the automaton could not decide. Sets the state; returns where to continue. */
static size_t resolve(struct reduction *r, uint32_t number, size_t at)
{
	size_t length = r->lexer->emission_length[number];
	uint16_t last = length ? r->lexer->emission[number][length - 1] : 0;

	if (last == RAW_TAG)
		return dollar_quoted(r, at);
	if (last == RAW_COMMENT)
		return deep_comment(r, at);
	if (r->nested) {
		put(r->out, UNSURE);
		return r->length;
	}
	if (r->in_version_comment) { /* the comment has ended, and this `*` is an operator */
		r->in_version_comment = false;
		put(r->out, '/');
		put(r->out, '*');
		r->state = r->lexer->resumed[AT_STAR];
	} else {
		r->state = r->lexer->resumed[AT_BLOCK_OPEN];
	}
	return at + 1;
}

static void put_final(struct reduction *r)
{
	uint32_t number = r->lexer->finals[r->state];

	for (size_t i = 0; i < r->lexer->emission_length[number]; i++)
		put(r->out, r->lexer->emission[number][i]);
}

bool reduce(const struct lexer *lexer, const uint8_t *text, size_t length, struct reduced *out)
{
	struct reduction r = {lexer, text, length, out, 0, false, false};

	for (size_t at = 0;;) {
		uint32_t move, following, number;

		if (out->n + STEP_MAX > out->room &&
		    !ensure_room((void **)&out->data, &out->room, out->n + STEP_MAX,
				 sizeof(*out->data)))
			return false;
		/* A tag that crosses the end may yet turn out to be a string. */
		if (at >= length || (out->n > REDUCED_MAX && lexer->modes[r.state] != MODE_TAG))
			break;
		move = lexer->moves[r.state << STATE_SHIFT | lexer->column[text[at]]];
		following = move >> STATE_SHIFT & (STATES - 1);
		number = (move & 63) | (move >> 13 & 1) << 6;
		if (lexer->modes[following] == MODE_RAW) {
			at = resolve(&r, number, at);
			continue;
		}
		if (lexer->modes[following] == MODE_VERSION) {
			r.nested |= r.in_version_comment && lexer->modes[r.state] != MODE_VERSION;
			r.in_version_comment = true;
		} else if (lexer->modes[r.state] == MODE_STAR_SLASH) {
			r.in_version_comment = false;
		}
		if (number)
			put_emission(&r, number, at);
		if (move & EMITS_BYTE)
			put(out, text[at]);
		r.state = following;
		at++;
	}
	put_final(&r);
	return true;
}
