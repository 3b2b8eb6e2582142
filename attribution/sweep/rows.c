// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "rows.h"

static inline bool is_valid(struct rows_validity validity, size_t i)
{
	size_t at = validity.offset + i;

	return validity.bits[at / 8] >> at % 8 & 1;
}

/* Returns the id of row i, or 0 if it is null. Does not branch: nulls cannot be predicted. */
static inline uint64_t id_of(const uint64_t *id, struct rows_validity validity, size_t i)
{
	return validity.bits ? id[i] & -(uint64_t)is_valid(validity, i) : id[i];
}

struct rows_span rows_span(size_t n, const uint64_t *id, struct rows_validity validity)
{
	uint64_t before = UINT64_MAX, greatest = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t one = id_of(id, validity, i);

		before = one - 1 < before ? one - 1 : before; /* 0 becomes the greatest */
		greatest = one > greatest ? one : greatest;
	}
	return (struct rows_span){greatest ? before + 1 : 0, greatest};
}

struct rows_time rows_charge(const struct rows_segments *segments, const struct rows_groups *owners,
			     const struct rows_groups *queries)
{
	static const int64_t no_group = -1;
	static const uint8_t not_marked;
	struct rows_time time = {0};

	for (size_t i = 0; i < segments->n; i++) {
		uint64_t ns = (uint64_t)segments->t1_ns[i] - (uint64_t)segments->t0_ns[i];
		uint64_t query = id_of(segments->query, segments->has_query, i);
		uint64_t at = query - queries->first;
		size_t last = owners->n - 1;
		size_t owner = segments->owner[i] < last ? segments->owner[i] : last;
		bool known = (query != 0) & (at < queries->n);
		const int64_t *group = known ? &queries->group[at] : &no_group;
		const uint8_t *named = known ? &queries->marked[at] : &not_marked;
		bool grouped = *group >= 0;

		segments->group[i] = *(grouped ? group : &owners->group[owner]);
		time.server_ns += ns & -(uint64_t)(grouped | owners->marked[owner]);
		time.named_ns += ns & -(uint64_t)*named;
	}
	return time;
}

bool rows_add_products(const struct rows_products *p)
{
	for (size_t i = 0; i < p->n; i++) {
		uint64_t window = (uint64_t)p->window[i], row = (uint64_t)p->row[i];
		const double *values = p->values;
		double *sums = p->sums, share = p->share[i];

		if (window >= p->windows || row >= p->rows)
			return false;
		values += window * p->width;
		sums += row * p->width;
		for (size_t k = 0; k < p->width; k++)
			sums[k] += share * values[k];
	}
	return true;
}

bool rows_add(size_t n, size_t width, const int64_t *index, const double *values, size_t size,
	      double *sums)
{
	for (size_t i = 0; i < n; i++) {
		if ((uint64_t)index[i] >= size)
			return false;
		for (size_t k = 0; k < width; k++)
			sums[(size_t)index[i] * width + k] += values[k * n + i];
	}
	return true;
}
