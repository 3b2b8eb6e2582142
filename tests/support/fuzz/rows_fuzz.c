// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* libFuzzer target: the loops over rows, on arrays of exactly their length. */
#include "host.h"

#include "rows.h"

#define MOST 64

/* `n` items of `bytes` each, in memory of their own so that no access beyond them goes unseen. */
static void *array(struct host_input *in, size_t n, size_t bytes)
{
	uint8_t *out = malloc(n * bytes);

	if (n && !out)
		abort();
	for (size_t i = 0; i < n * bytes; i++)
		out[i] = i % bytes < 2 ? host_take(in, 1) : 0;
	return out;
}

static void charge(struct host_input *in, size_t n)
{
	size_t owners = 1 + host_take(in, 1) % MOST, queries = host_take(in, 1) % MOST,
	       offset = host_take(in, 1) % 20;
	int64_t *t0 = array(in, n, 8), *t1 = array(in, n, 8), *of_owner = array(in, owners, 8);
	int64_t *of_query = array(in, queries, 8), *group = array(in, n, 8);
	uint32_t *owner = array(in, n, 4);
	uint64_t *query = array(in, n, 8);
	uint8_t *owner_marked = array(in, owners, 1), *query_marked = array(in, queries, 1);
	uint8_t *bits = array(in, (offset + n + 7) / 8, 1);
	struct rows_told told = {host_take(in, 1) & 1 ? bits : NULL, offset};
	struct rows_groups by_owner = {0, owners, of_owner, owner_marked};
	struct rows_groups by_query = {host_take(in, 1), queries, of_query, query_marked};
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

static void sums(struct host_input *in, size_t n)
{
	size_t width = 1 + host_take(in, 1) % 8, rows = host_take(in, 1) % MOST,
	       windows = host_take(in, 1) % MOST;
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

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	struct host_input in = {data, size};
	size_t n = host_take(&in, 1) % MOST;

	charge(&in, n);
	sums(&in, n);
	return 0;
}
