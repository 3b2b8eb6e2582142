/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The kernels of `qjoule-load`: each keeps one CPU busy in one way, so that what that way costs can
 * be told apart. A kernel works in pieces of well below a millisecond and looks whether to stop
 * between them. Its result depends on every piece, so no piece can be left out.
 */
#ifndef QJ_KERNELS_H
#define QJ_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define LINE_BYTES 64

/* What a kernel works on: memory of its own, local to its CPU, and where it has got to. */
struct work {
	void *memory;
	size_t bytes;
	uint64_t state[4];
	uint64_t operations; /* instructions in a chain, elements, or accesses to memory */
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
