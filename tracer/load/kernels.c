// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The loops that keep a CPU busy, each with one kind of work; then wake-ups at a known rate. */
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define CHAINS	   4
#define STEPS	   8192 /* per piece, in every chain */
#define SWEEPS	   32	/* of the L1 and L2 kernels, per piece at most */
#define PIECE_SIZE 4096 /* elements or accesses of the memory kernels, per piece */

/* Uses wider vectors where the processor has them: servers use them, and they draw more power. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define WIDEST __attribute__((target_clones("default", "arch=haswell")))
#else
#define WIDEST
#endif

/* integer: four chains of multiply, rotate, add and exclusive or */

static void integer_prepare(struct work *work)
{
	for (int i = 0; i < CHAINS; i++)
		work->state[i] = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
}

static void integer_piece(struct work *work)
{
	uint64_t chain[CHAINS];

	memcpy(chain, work->state, sizeof(chain));
	for (int step = 0; step < STEPS; step++) {
		for (int i = 0; i < CHAINS; i++) {
			uint64_t mixed = chain[i] * 0xd1342543de82ef95u + 1;

			chain[i] ^= (mixed << 23 | mixed >> 41) + (uint64_t)step;
		}
	}
	memcpy(work->state, chain, sizeof(chain));
	work->operations += (uint64_t)STEPS * CHAINS;
}

static uint64_t xor_result(const struct work *work)
{
	return work->state[0] ^ work->state[1] ^ work->state[2] ^ work->state[3];
}

/* floating_point: x = x * a + b over an array in the first level cache */

static void floating_prepare(struct work *work)
{
	double *x = work->memory;

	for (size_t i = 0; i < work->bytes / sizeof(*x); i++)
		x[i] = (double)i;
}

WIDEST static void multiply_add(double *restrict x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] = x[i] * 0.75 + 0.25;
}

static void floating_piece(struct work *work)
{
	size_t count = work->bytes / sizeof(double);

	for (int sweep = 0; sweep < SWEEPS; sweep++)
		multiply_add(work->memory, count);
	work->operations += (uint64_t)SWEEPS * count;
}

/* Every x converges to 1, to the last bit or two, after about 200 sweeps. */
static uint64_t floating_result(const struct work *work)
{
	const double *x = work->memory;
	double sum = 0;

	for (size_t i = 0; i < work->bytes / sizeof(*x); i++)
		sum += x[i];
	return (uint64_t)(sum + 0.5);
}

/* cache: reads and writes a word of every line of half the second level cache */

static void clear_prepare(struct work *work)
{
	memset(work->memory, 0, work->bytes);
}

static void cache_piece(struct work *work)
{
	uint64_t *word = work->memory;
	size_t words = work->bytes / sizeof(*word), stride = LINE_BYTES / sizeof(*word);
	uint64_t sum = work->state[0];

	for (size_t i = 0; i < words; i += stride) {
		sum += word[i];
		word[i] = sum ^ i;
	}
	work->state[0] = sum;
	work->operations += words / stride;
}

/* stream: a = b/4 + 3c/4 over memory that no cache holds (like STREAM's triad) */

static void stream_prepare(struct work *work)
{
	double *x = work->memory;

	for (size_t i = 0; i < work->bytes / sizeof(*x); i++)
		x[i] = i >= work->bytes / sizeof(*x) / 3;
}

WIDEST static void triad(double *restrict a, const double *restrict b, const double *restrict c,
			 size_t count)
{
	for (size_t i = 0; i < count; i++)
		a[i] = 0.25 * b[i] + 0.75 * c[i];
}

/* The arrays rotate after each round, so that what is read was written before. */
static void stream_piece(struct work *work)
{
	size_t third = work->bytes / sizeof(double) / 3;
	size_t at = work->state[0], count = third - at < PIECE_SIZE ? third - at : PIECE_SIZE;
	double *array[3];

	for (int i = 0; i < 3; i++)
		array[i] = (double *)work->memory + third * ((work->state[1] + (uint64_t)i) % 3);
	triad(array[0] + at, array[1] + at, array[2] + at, count);
	work->operations += count;
	work->state[0] = at + count;
	if (work->state[0] == third) {
		work->state[0] = 0;
		work->state[1]++;
	}
}

/* The first array began as 0 and the others as 1: the result shows how much of it was written. */
static uint64_t stream_result(const struct work *work)
{
	const double *x = work->memory;
	uint64_t written = 0;

	for (size_t i = 0; i < work->bytes / sizeof(*x) / 3; i++)
		written += x[i] == 1.0;
	return written;
}

/* chase: every load's address is the result of the load before it */

/*
 * Line i points to line (A i + C) mod the number of lines, a power of two. This forms one cycle
 * through all lines (Hull and Dobell, SIAM Review 4, 1962), and no prefetcher follows its steps.
 */
#define CHASE_A 0x2c9277b5u
#define CHASE_C 0x3c6ef35fu

static size_t chase_lines(const struct work *work)
{
	size_t lines = 1;

	while (lines * 2 * LINE_BYTES <= work->bytes)
		lines *= 2;
	return lines;
}

static void chase_prepare(struct work *work)
{
	char *memory = work->memory;
	size_t lines = chase_lines(work);

	for (size_t i = 0; i < lines; i++) {
		uint64_t next = (i * CHASE_A + CHASE_C) & (lines - 1);

		memcpy(memory + i * LINE_BYTES, &next, sizeof(next));
	}
}

static void chase_piece(struct work *work)
{
	const char *memory = work->memory;
	uint64_t at = work->state[0];

	for (int i = 0; i < PIECE_SIZE; i++)
		memcpy(&at, memory + at * LINE_BYTES, sizeof(at));
	work->state[0] = at;
	work->operations += PIECE_SIZE;
}

static uint64_t first_result(const struct work *work)
{
	return work->state[0];
}

static const struct kernel kernels[] = {
    {"integer", FOOTPRINT_NONE, integer_prepare, integer_piece, xor_result},
    {"floating_point", FOOTPRINT_L1, floating_prepare, floating_piece, floating_result},
    {"cache", FOOTPRINT_L2, clear_prepare, cache_piece, first_result},
    {"stream", FOOTPRINT_MEMORY, stream_prepare, stream_piece, stream_result},
    {"chase", FOOTPRINT_MEMORY, chase_prepare, chase_piece, first_result},
};

const struct kernel *kernel_find(const char *name)
{
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (!strcmp(kernels[i].name, name))
			return &kernels[i];
	return NULL;
}

/* A thread that wakes at random times of a known mean rate. */

#define SECOND_NS  1000000000u
#define WORK_NS	   20000u
#define WORK_STEPS 256 /* between two readings of the clock: well below 1 us */

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
		for (unsigned step = 0; step < WORK_STEPS; step++) {
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
 * rate is exact, and the phase cannot lock to the counter's update, which comes every millisecond.
 * A thread that is late does not catch up in a burst.
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
