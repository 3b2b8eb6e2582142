/* SPDX-License-Identifier: Apache-2.0 */
/* What the program in the kernel counts, and this profiler prints. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <linux/types.h>

/* Samples are counted by what the thread that ran did. */
struct sample_key {
	__u64 shape; /* 0: not known */
	__u64 query; /* its number, or 1 if each query has no row of its own; 0: none */
	__u32 tgid;  /* 0: of no server */
	__u32 tid;   /* 0: likewise */
};

#define MOST_KEYS 65536

#endif
