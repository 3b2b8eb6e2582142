// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* A thread that wakes at random times of a known mean rate. */
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000u
#define WORK_NS	  20000u
#define STEPS	  256 /* between two looks at the clock: well below 1 us */

static const char prefix[] = "wakeups:";

unsigned wakeups_rate(const char *text)
{
	unsigned long rate;
	char *end;

	if (strncmp(text, prefix, sizeof(prefix) - 1))
		return 0;
	text += sizeof(prefix) - 1;
	if (*text < '1' || *text > '9')
		return 0;
	rate = strtoul(text, &end, 10);
	return *end || rate > WAKEUPS_MOST ? 0 : (unsigned)rate;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* A xorshift generator: jitter needs no better one. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* The arithmetic of the kernel `integer`, for WORK_NS. */
static void compute(uint64_t *state)
{
	uint64_t end_ns = now_ns() + WORK_NS, mixed = *state;

	do {
		for (unsigned step = 0; step < STEPS; step++) {
			mixed = mixed * 0xd1342543de82ef95u + 1;
			mixed ^= (mixed << 23 | mixed >> 41) + step;
		}
	} while (now_ns() < end_ns);
	*state = mixed;
}

static uint64_t switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (uint64_t)usage.ru_nvcsw;
}

/*
 * The next wake-up is due between half a period and one and a half after the one before: the mean
 * rate is exact, and no phase locks to the counter's update, which comes every millisecond. A
 * thread that is late does not catch up in a burst.
 */
void wakeups_run(struct wakeups *wakeups, unsigned rate, uint64_t most, const atomic_bool *stop)
{
	uint64_t period_ns = SECOND_NS / rate, due_ns = now_ns(), before = switches();
	uint64_t random = (due_ns ^ (uint64_t)gettid() << 32) | 1;

	/* By default the kernel may delay a wake-up by 50 us to join it with others. */
	prctl(PR_SET_TIMERSLACK, 1ul);
	while (!atomic_load(stop) && (!most || wakeups->count < most)) {
		uint64_t now = now_ns();

		due_ns += period_ns / 2 + next_random(&random) % (period_ns + 1);
		if (due_ns <= now) {
			wakeups->late++;
			due_ns = now;
		} else {
			struct timespec due = {.tv_sec = (time_t)(due_ns / SECOND_NS),
					       .tv_nsec = (long)(due_ns % SECOND_NS)};

			while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL))
				;
		}
		compute(&wakeups->state);
		wakeups->count++;
	}
	wakeups->switches = switches() - before;
}
