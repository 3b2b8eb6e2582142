/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The kernels of `qjoule-load`: each keeps one CPU busy in one particular way, so that the energy
 * costs of these ways can be separated. A kernel works in pieces of well below a millisecond and
 * checks between them whether to stop. Its result depends on every piece, so no piece can be
 * optimised away.
 */
#ifndef QJ_KERNELS_H
#define QJ_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define LINE_BYTES 64

/* The state of a kernel: its own memory, local to its CPU, and its progress. */
struct work {
	void *memory;
	size_t bytes;
	uint64_t state[4];
	uint64_t operations; /* instructions in a chain, elements, or memory accesses */
};

enum footprint {
	FOOTPRINT_NONE,
	FOOTPRINT_L1,
	FOOTPRINT_L2,
	FOOTPRINT_MEMORY
};

struct kernel {
	const char *name;
	enum footprint footprint;
	void (*prepare)(struct work *work);
	void (*piece)(struct work *work);
	uint64_t (*result)(const struct work *work);
};

/* NULL: there is no such kernel. */
const struct kernel *kernel_find(const char *name);

#endif /* QJ_KERNELS_H */
