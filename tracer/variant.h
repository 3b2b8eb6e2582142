/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The two variants of the BPF programs, and the maps that the root part gives the tracer. */
#ifndef QJ_VARIANT_H
#define QJ_VARIANT_H

#include <stdbool.h>

#include "shared.h"

#include "qjoule.skel.h"
#include "qjoule_early.skel.h"

/* The maps that the tracer reads or writes itself; the keeper writes the first. */
#define TRACER_MAPS(s)                                                                             \
	{                                                                                          \
		(s)->maps.data_servers, (s)->maps.batches, (s)->maps.bss, (s)->maps.cycles,        \
		    (s)->maps.sums_even, (s)->maps.sums_odd, (s)->maps.sums_rows,                  \
		    (s)->maps.instructions, (s)->maps.llc_misses, (s)->maps.idles,                 \
		    (s)->maps.more_counters,                                                       \
	}

/*
 * Opens the programs; `early`: those of bpf/core/state.bpf.h, which have the same maps, programs
 * and variables, in the same order (tests/fast/tracer/test_contract_headers.py). Returns NULL and
 * sets errno on failure.
 */
static inline struct qjoule_bpf *variant_open(bool early)
{
	return early ? (void *)qjoule_early_bpf__open() : qjoule_bpf__open();
}

#endif /* QJ_VARIANT_H */
