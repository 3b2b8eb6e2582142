/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The kernel `wakeups` of `qjoule-load`: a thread that sleeps, wakes at a known mean rate, and
 * computes for about 20 us each time. It shows what a wake-up costs, and what a core and a package
 * still draw after they fell asleep.
 */
#ifndef QJ_WAKEUPS_H
#define QJ_WAKEUPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WAKEUPS_MOST 20000 /* per second: above it, the work of 20 us leaves little sleep */

struct wakeups {
	uint64_t count;	   /* times that it woke and computed */
	uint64_t switches; /* voluntary context switches, as the kernel counted them */
	uint64_t late;	   /* of `count`: its time was over before it went to sleep */
	uint64_t state;	   /* of the computation */
};

/* The rate in "wakeups:RATE", per second; 0: it is no such text, or the rate is out of bounds. */
unsigned wakeups_rate(const char *text);

/* Runs in the calling thread until `stop`, or for `most` wake-ups unless that is 0. */
void wakeups_run(struct wakeups *wakeups, unsigned rate, uint64_t most, const atomic_bool *stop);

#endif /* QJ_WAKEUPS_H */
