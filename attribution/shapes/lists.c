// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Collapses lists of values to one value: IN (?, ?), ARRAY[?, ?], VALUES (?), (?), and CQL's lists
 * [?, ?], sets {?, ?} and maps {? : ?, ? : ?}.
 *
 * An element is plain if it is a value, with or without a type, or a list of plain elements. A list
 * of plain elements becomes `(?+)`. Other elements become one if all are alike. Of the rows after
 * VALUES, the first stays, and each row with a subquery that no earlier row has.
 *
 * One pass, linear in the number of tokens at any depth: a closed list leaves few tokens, and
 * longer elements are not compared.
 */
#include "lists.h"

static uint32_t word_at(const struct lists *l, ptrdiff_t at)
{
	return at >= 0 && (size_t)at < l->n && l->out[at].kind == WORD ? l->out[at].text : EMPTY;
}

static struct group *innermost(struct lists *l)
{
	return &l->groups[l->depth - 1];
}

/* Returns true if a square bracket at this place of the output is not a subscript. */
static bool begins_operand(const struct lists *l, size_t at)
{
	return at && l->out[at - 1].kind == SIGN && !has_class(l->texts, l->out[at - 1], CLOSER);
}

/* Classifies the bracket at the end of the output. */
static struct group classify_bracket(struct lists *l, struct group *around, uint32_t sign)
{
	size_t at = l->n - 1;
	struct group group = {.use = OTHER,
			      .close = sign == OPEN	     ? CLOSE
				       : sign == OPEN_SQUARE ? CLOSE_SQUARE
							     : CLOSE_BRACE,
			      .opened = at,
			      .row = at,
			      .element = at + 1,
			      .plain = true,
			      .alike = true,
			      .rows_until = NOWHERE};
	bool begins = at == around->element && around->use != OTHER;
	uint32_t before = word_at(l, (ptrdiff_t)at - 1);

	if (sign != OPEN) {
		group.use = sign == OPEN_BRACE || before == ARRAY || begins || begins_operand(l, at)
				? LIST
				: OTHER;
		return group;
	}
	if (before == ROW) {
		group.row = at - 1;
		before = word_at(l, (ptrdiff_t)at - 2);
	}
	if (has_class(l->texts, (struct token){before, WORD, false}, ROWS_FOLLOW)) {
		group.use = ROW_OF_VALUES;
		around->rows = 0;
		around->rows_owner = ++l->owners;
	} else if (group.row && around->rows_until == group.row - 1 &&
		   l->out[group.row - 1].text == COMMA) {
		group.use = ROW_OF_VALUES;
	} else if (before == IN || begins ||
		   (around->use == LIST && group.row == around->element)) {
		group.use = LIST;
	}
	return group;
}

static void element_ends(struct lists *l, struct group *group, size_t end)
{
	const struct token *element = l->out + group->element;
	/* The comma before the dropped rows is dropped too. */
	size_t length = end > group->element ? end - group->element : 0;

	group->elements++;
	if (group->plain)
		group->plain = length <= ELEMENT_MAX &&
			       is_plain(l->texts, element, length, group->use == ROW_OF_VALUES);
	if (group->plain || !group->alike)
		return;
	if (group->elements == 1) {
		group->has_first = group->alike = length <= ALIKE_MAX;
		group->first = length;
		return;
	}
	group->alike = group->has_first && length == group->first &&
		       same_tokens(element, l->out + group->opened + 1, length);
}

static bool has_value(const struct token *tokens, size_t n)
{
	for (size_t at = 0; at < n; at++)
		if (tokens[at].kind == VALUE)
			return true;
	return false;
}

/* Collapses the elements of a list or row; its closing bracket is not in the output. */
static void close_list(struct lists *l, struct group *group)
{
	size_t inside = group->opened + 1;

	if (l->n == inside)
		return;
	if (group->element < l->n) /* else the statement is cut right after a comma */
		element_ends(l, group, l->n);
	if (group->plain) {
		l->out[inside] = (struct token){MANY, VALUE, false};
		l->n = inside + 1;
	} else if (group->use == LIST && group->alike && group->elements > 1 &&
		   has_value(l->out + inside, group->first)) {
		l->n = inside + group->first;
	}
}

/* Keeps a row of VALUES if it is the first, or has a subquery that no earlier row has. */
static bool end_row(struct lists *l, const struct group *group, struct group *around)
{
	struct kept_row row = {around->rows_owner, group->row, l->n - group->row, 0};
	bool is_short = row.length <= ALIKE_MAX, subquery = false, again = true;

	for (size_t at = group->row; is_short && at < l->n; at++)
		subquery |= is_word(l->out[at], SELECT);
	if (!around->rows || subquery) {
		again = false;
		if (is_short && !keep_row(&l->kept, l->out, l->texts->seed, row, &again))
			return false;
	}
	if (again)
		l->n = group->row - 1;
	else
		around->rows++;
	around->rows_until = l->n;
	return true;
}

/* Collapses a list that the cut leaves open, judged by its complete elements: the cut may have
 * shortened the last one, which must not change the shape. False: too few are complete. */
static bool cut_list(struct lists *l, const struct group *group)
{
	size_t inside = group->opened + 1;

	if (group->elements < LONG_LIST)
		return false;
	if (group->plain) {
		l->out[inside] = (struct token){MANY, VALUE, false};
		l->n = inside + 1;
		return true;
	}
	if (!group->alike || !has_value(l->out + inside, group->first))
		return false;
	l->n = inside + group->first;
	return true;
}

/* Closes the groups that a truncated statement leaves open, without brackets. */
static void close_cut_groups(struct lists *l)
{
	while (l->depth) {
		struct group *group = &l->groups[--l->depth];
		bool listed = group->use != OTHER || (l->n && group->rows_until == l->n - 1);

		if (listed && l->n && is_sign(l->out[l->n - 1], COMMA))
			l->n--;
		if (group->use == ROW_OF_VALUES && group[-1].rows) {
			l->n = group->row - 1;
			group[-1].rows_until = NOWHERE;
		} else if (group->use != OTHER && !cut_list(l, group)) {
			close_list(l, group);
		}
	}
}

/* Closes the innermost group, whose bracket is at the end of the output. */
static bool close_group(struct lists *l)
{
	struct group *group = &l->groups[--l->depth];
	struct token bracket = l->out[l->n - 1];

	if (group->use == OTHER)
		return true;
	l->n--;
	close_list(l, group);
	l->out[l->n++] = bracket;
	return group->use != ROW_OF_VALUES || end_row(l, group, group - 1);
}

static bool open_group(struct lists *l, uint32_t sign)
{
	if (!ensure_room((void **)&l->groups, &l->room, l->depth + 1, sizeof(*l->groups)))
		return false;
	l->groups[l->depth] = classify_bracket(l, innermost(l), sign);
	l->depth++;
	return true;
}

static bool sign_read(struct lists *l, uint32_t sign)
{
	struct group *group = innermost(l);

	if (sign == OPEN || sign == OPEN_SQUARE || (sign == OPEN_BRACE && l->braces))
		return open_group(l, sign);
	if (sign == COMMA && group->use != OTHER) {
		element_ends(l, group, l->n - 1);
		group->element = l->n;
	} else if (sign == group->close) {
		return close_group(l);
	} else if (sign == SEMICOLON) {
		group->rows_until = NOWHERE;
	}
	return true;
}

bool collapse_lists(struct statement *s, bool truncated)
{
	struct lists l = {.texts = &s->texts, .out = s->tokens, .braces = !s->lexer->backtick};
	bool ok = ensure_room((void **)&l.groups, &l.room, 1, sizeof(*l.groups));

	if (ok)
		l.groups[l.depth++] = (struct group){.close = EMPTY, .rows_until = NOWHERE};
	/* The output is never longer than the input read so far, so both share an array. */
	for (size_t at = 0; ok && at < s->n; at++) {
		struct token token = s->tokens[at];

		l.out[l.n++] = token;
		if (token.kind == SIGN)
			ok = sign_read(&l, token.text);
	}
	if (ok && truncated)
		close_cut_groups(&l);
	s->n = l.n;
	free(l.groups);
	free(l.kept.slots);
	return ok;
}
