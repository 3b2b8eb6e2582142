/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How idle time is divided between the owners whose sleeps began it: docs/model.md, "Effects", and
 * attribution/sweep/tails.c, which does the same for recordings. Used by the BPF programs, the
 * tracer and tests.
 */
#ifndef QJ_TAILS_H
#define QJ_TAILS_H

#include "qjoule.h"

#define QJ_LONGEST_TAIL_NS (QJ_TAIL_NS << (QJ_TAILS - 1))

/* Of [from, to), the time less than `length_ns` after `since_ns`, which is not after `from_ns`. */
static inline __u64 qj_within(__u64 from_ns, __u64 to_ns, __u64 since_ns, __u64 length_ns)
{
	__u64 after = from_ns - since_ns, ns = to_ns - from_ns;
	__u64 most = after < length_ns ? length_ns - after : 0;

	return ns < most ? ns : most;
}

/*
 * Adds the idle time [from, to) to the sums of the sleep that began it, and of the sleep before:
 * where both tails last, each has half, to the ns.
 */
static inline __attribute__((always_inline)) void qj_add_tails(__u64 own[QJ_TAILS],
							       __u64 before[QJ_TAILS],
							       __u64 fell_ns, __u64 before_ns,
							       __u64 from_ns, __u64 to_ns)
{
	int shared = before_ns && from_ns - before_ns < QJ_LONGEST_TAIL_NS;

	if (from_ns - fell_ns >= QJ_LONGEST_TAIL_NS)
		return;
#pragma GCC unroll 5
	for (int i = 0; i < QJ_TAILS; i++) {
		__u64 length_ns = QJ_TAIL_NS << i, half = 0;

		if (shared) {
			half = qj_within(from_ns, to_ns, before_ns, length_ns) / 2;
			before[i] += half;
		}
		own[i] += qj_within(from_ns, to_ns, fell_ns, length_ns) - half;
	}
}

#endif /* QJ_TAILS_H */
