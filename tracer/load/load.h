/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The parts of `qjoule-load`: kernels, each of which keeps one CPU busy in a particular way, so
 * that the energy costs of these ways can be separated; their CPUs and memory; and wake-ups.
 */
#ifndef QJ_LOAD_H
#define QJ_LOAD_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- kernels.c ---- */

/*
 * A kernel works in pieces of well below a millisecond and checks between them if it must stop. Its
 * result depends on every piece, so no piece can be optimised away.
 */

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

/* Returns NULL if there is no such kernel. */
const struct kernel *kernel_find(const char *name);

/* ---- place.c: which CPUs to load, and how much memory fits into a cache or exceeds it ---- */

/* Parses a kernel list such as "0-3,8". Returns the number of CPUs; 0: malformed. */
int cpus_parse(const char *text, cpu_set_t *cpus);

/*
 * Bytes of memory for a kernel on `cpu` while all CPUs in `all` run it. FOOTPRINT_MEMORY is at
 * least four times this CPU's share of the last level cache among them. All together never take
 * more than a quarter of the available memory; if that leaves less than twice the share, *enough is
 * cleared.
 */
size_t place_bytes(enum footprint footprint, int cpu, const cpu_set_t *all, int *enough);

/*
 * The kernel `wakeups`: a thread that sleeps, wakes at a known mean rate, and computes for about 20
 * us each time. It measures the cost of a wake-up, and the power that a core and a package still
 * draw after they fell asleep.
 */

#define WAKEUPS_MOST 20000 /* per second: above it, the work of 20 us leaves little sleep */

struct wakeups {
	uint64_t count;	   /* times that it woke and computed */
	uint64_t switches; /* voluntary context switches, as the kernel counted them */
	uint64_t late;	   /* how many of `count` were overdue before the thread could sleep */
	uint64_t state;	   /* of the computation */
};

/* Returns the rate in "wakeups:RATE", per second; 0: other text, or the rate is out of bounds. */
unsigned wakeups_rate(const char *text);

/* Runs in the calling thread until `stop`, or for `most` wake-ups unless `most` is 0. */
void wakeups_run(struct wakeups *wakeups, unsigned rate, uint64_t most, const atomic_bool *stop);

#endif /* QJ_LOAD_H */
