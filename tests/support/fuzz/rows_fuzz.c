// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* libFuzzer target: the loops over rows, on arrays of exactly their length. */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

#define MOST 64

struct input {
	const uint8_t *data;
	size_t left;
};

static uint8_t take(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->data++;
}

/* `n` items of `bytes` each, in memory of their own so that no access beyond them goes unseen. */
static void *array(struct input *in, size_t n, size_t bytes)
{
	uint8_t *out = malloc(n * bytes);

	if (n && !out)
		abort();
	for (size_t i = 0; i < n * bytes; i++)
		out[i] = i % bytes < 2 ? take(in) : 0;
	return out;
}

static void charge(struct input *in, size_t n)
{
	size_t owners = 1 + take(in) % MOST, queries = take(in) % MOST, offset = take(in) % 20;
	int64_t *t0 = array(in, n, 8), *t1 = array(in, n, 8), *of_owner = array(in, owners, 8);
	int64_t *of_query = array(in, queries, 8), *group = array(in, n, 8);
	uint32_t *owner = array(in, n, 4);
	uint64_t *query = array(in, n, 8);
	uint8_t *owner_marked = array(in, owners, 1), *query_marked = array(in, queries, 1);
	uint8_t *bits = array(in, (offset + n + 7) / 8, 1);
	struct rows_told told = {take(in) & 1 ? bits : NULL, offset};
	struct rows_groups by_owner = {0, owners, of_owner, owner_marked};
	struct rows_groups by_query = {take(in), queries, of_query, query_marked};
	struct rows_segments segments = {n, t0, t1, owner, query, told, group};
	struct rows_span span = rows_span(n, query, told);

	for (size_t i = 0; i < owners; i++)
		owner_marked[i] &= 1;
	for (size_t i = 0; i < queries; i++)
		query_marked[i] &= 1;
	if (span.least > span.greatest)
		abort();
	rows_charge(&segments, &by_owner, &by_query);
	void *all[] = {t0,    t1,    of_owner,	   of_query,	 group,
		       owner, query, owner_marked, query_marked, bits};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		free(all[i]);
}

static void sums(struct input *in, size_t n)
{
	size_t width = 1 + take(in) % 8, rows = take(in) % MOST, windows = take(in) % MOST;
	int64_t *row = array(in, n, 8), *window = array(in, n, 8);
	double *share = calloc(n + 1, sizeof(*share));
	double *values = calloc(windows * width + 1, sizeof(*values));
	double *out = array(in, rows * width, 8);
	struct rows_products products = {n, width, rows, windows, share, values, row, window, out};

	if (!share || !values)
		abort();
	rows_add_products(&products);
	rows_add(n, row, share, rows * width, out);
	free(row);
	free(window);
	free(share);
	free(values);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	size_t n = take(&in) % MOST;

	charge(&in, n);
	sums(&in, n);
	return 0;
}
