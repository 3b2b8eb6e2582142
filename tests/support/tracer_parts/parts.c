// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Parts of the programs and the tracer that need no kernel, compiled for the host. See parts.py. */
#include "core/counted.h"

unsigned counted(const struct qj_reading *before, const struct qj_reading *now,
		 unsigned long long *increment)
{
	__u64 out;
	unsigned share = qj_counted(before, now, &out);

	*increment = out;
	return share;
}

unsigned long long busy_at(unsigned long long clock, unsigned long long t_ns)
{
	return qj_busy_at(clock, t_ns);
}

unsigned long long busy_set(unsigned long long clock, int busy, unsigned long long now_ns)
{
	return qj_busy_set(clock, busy, now_ns);
}

long long busy_between(unsigned long long before_ns, unsigned long long now_ns)
{
	return qj_busy_between(before_ns, now_ns);
}
