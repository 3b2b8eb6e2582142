// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#ifndef QJOULE_LISTS_H
#define QJOULE_LISTS_H

#include "statement.h"

enum {
	ELEMENT_MAX = 16, /* tokens of a plain element */
	ALIKE_MAX = 64,	  /* tokens of an element or row that is compared with others */
	LONG_LIST = 4,	  /* complete elements that suffice to classify a cut list */
};

#define NOWHERE SIZE_MAX

enum use {
	OTHER, /* a function's arguments, a subquery, a parenthesis */
	LIST,
	ROW_OF_VALUES,
};

/* An open bracket. All positions are in the output. */
struct group {
	enum use use;
	uint32_t close;
	size_t opened;	/* place of the bracket */
	size_t row;	/* the row's first token: at the bracket or at ROW */
	size_t element; /* first token of the current element */
	size_t elements;
	bool plain;	   /* all elements so far are plain */
	bool alike;	   /* all elements so far equal the first */
	bool has_first;	   /* the first is short, and not plain */
	size_t first;	   /* length of the first */
	size_t rows_until; /* a row of VALUES within this group ends here */
	size_t rows;	   /* rows kept of the latest VALUES */
	uint64_t rows_owner;
};

/* A kept row of VALUES in the output. */
struct kept_row {
	uint64_t owner;
	size_t at, length; /* 0: no row */
	uint64_t hash;
};

struct kept_rows {
	struct kept_row *slots;
	size_t n, room;
};

struct lists {
	const struct texts *texts;
	struct token *out;
	size_t n;
	struct group *groups;
	size_t depth, room;
	bool braces; /* braces enclose lists too */
	struct kept_rows kept;
	uint64_t owners;
};

/* Keeps a row; sets `again` if the same VALUES already has it. Returns false without memory. */
bool keep_row(struct kept_rows *rows, const struct token *out, uint64_t seed, struct kept_row row,
	      bool *again);
bool same_tokens(const struct token *a, const struct token *b, size_t n);

#endif
