// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Takes a window's energy, records and sums, and writes them to the stream. */
#include "pump.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stacks.h"
#include "sums.h"

#define MS 1000000ull
/* A tick closes every slice within this time, even with CONFIG_HZ=100. */
#define TICKS_NS      (25 * MS)
#define PENDING_BYTES (1u << 20) /* pending bytes that are written before the flush is due */
#define TRACER_CPU    UINT32_MAX
/* For counters that do not report how often they move: RAPL's period. */
#define COUNTER_PERIOD_NS MS
/* Listing the powercap tree takes some microseconds, and seldom finds new zones. */
#define APPEARED_NS (10000 * MS)
/* Reading 128 cores takes about a millisecond, in which each is interrupted. */
#define CORES_NS (1000 * MS)
/* Counters that move less often have their own, longer windows (SLOW_NS in model/energy.py). */
#define SLOW_NS (10 * MS)

struct pump {
	struct probes *probes;
	struct energy_source *energy;
	struct stream *stream;
	struct batches *batches;
	struct sums *sums;
	struct stacks *stacks;
	struct steal *steal;
	const struct options *options;
	const struct qj_cpu *cpus;
	unsigned cpu_count;
	struct rings *rings;
	uint64_t flushed_ns;
	uint64_t window_ns; /* when the last window ended */
	uint64_t looked_ns; /* when the powercap tree was last listed */
	uint64_t cores_ns;  /* when counters of single cores were read */
	unsigned domains;   /* number of announced domains */
	uint64_t lag_ns;    /* how long before its reading a window of sums ends */
	uint64_t energy_failures;
	uint64_t energy_failures_sent;
	uint32_t loss_sent[QJ_MAX_CPUS][QJ_LOSS_SLOTS];
};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000ull, .tv_nsec = ns % 1000000000ull};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

static int take_record(void *ctx, void *data, size_t bytes)
{
	struct pump *pump = ctx;
	const struct qj_ring_head *head = data;
	const void *record = head + 1;

	(void)bytes;
	switch (head->block) {
	case QJ_BLOCK_SEGMENT:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_segment));
		break;
	case QJ_BLOCK_SEGMENT_COUNTERS:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_segment_counters));
		break;
	case QJ_BLOCK_SEGMENT_MORE:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_segment_more));
		break;
	case QJ_RING_SUM:
		if (pump->sums)
			sums_received(pump->sums, data);
		break;
	case QJ_RING_STACK:
		if (pump->stacks)
			stacks_received(pump->stacks, data);
		break;
	case QJ_RING_BATCH:
		batches_received(pump->batches, data);
		break;
	case QJ_BLOCK_QUERY:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_query));
		break;
	case QJ_BLOCK_SAMPLE:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_sample));
		break;
	case QJ_BLOCK_CHILD:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_child));
		break;
	case QJ_BLOCK_HELPER:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_helper));
		break;
	case QJ_BLOCK_WAIT_END:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_wait_end));
		break;
	case QJ_BLOCK_TASK:
		stream_add(pump->stream, head->block, record, sizeof(struct qj_task));
		break;
	case QJ_BLOCK_TEXT:
		stream_add_text(pump->stream, head->block, record, sizeof(struct qj_text),
				(const char *)record + sizeof(struct qj_text), head->text_bytes);
		break;
	case QJ_BLOCK_SESSION:
		stream_add_text(pump->stream, head->block, record, sizeof(struct qj_session),
				(const char *)record + sizeof(struct qj_session), head->text_bytes);
		break;
	}
	return stream_pending(pump->stream) > PENDING_BYTES ? -ENOBUFS : 0;
}

/* Writes records while taking them: a full ring is not first copied as a whole into our memory. */
static int take_records(struct pump *pump, uint64_t t_ns)
{
	int err;

	while ((err = rings_consume(pump->rings)) == -ENOBUFS) {
		err = stream_write(pump->stream, t_ns, 0, false);
		if (err)
			return err;
	}
	return err;
}

/*
 * Returns how long before its reading a window of sums ends. A measured counter includes the energy
 * up to its last update, on average half a period before the reading. Recorded windows are shifted
 * by that afterwards (qjoule.engine.accounts.lag_ns), but sums must end there from the start. At
 * most half a window, so that the next begins in time.
 */
static uint64_t lag_of(const struct energy_source *energy, uint64_t window_ns)
{
	uint64_t longest = 0;
	bool slow = false;

	if (energy->grade != QJ_GRADE_MEASURED)
		return 0;
	for (unsigned i = 0; i < energy->domain_count; i++) {
		uint64_t period_ns = energy->domains[i].period_ns;

		slow |= period_ns > SLOW_NS;
		if (period_ns > longest && period_ns <= SLOW_NS)
			longest = period_ns;
	}
	if (!longest && slow)
		return 0;
	if (!longest)
		longest = COUNTER_PERIOD_NS;
	return longest < window_ns ? longest / 2 : window_ns / 2;
}

struct pump *pump_new(struct probes *probes, struct energy_source *energy, struct stream *stream,
		      const struct options *options, const struct qj_cpu *cpus, unsigned cpu_count)
{
	struct pump *pump = calloc(1, sizeof(*pump));

	if (!pump)
		return NULL;
	pump->probes = probes;
	pump->energy = energy;
	pump->stream = stream;
	pump->options = options;
	pump->cpus = cpus;
	pump->cpu_count = cpu_count;
	pump->lag_ns = lag_of(energy, options->window_ms * MS);
	pump->rings =
	    rings_new(probes->ring_fds, probes->ring_count, probes->ring_bytes, take_record, pump);
	pump->batches = batches_new(probes->batches_fd, probes->cpu_limit, stream);
	pump->steal = steal_new(open("/proc/stat", O_RDONLY | O_CLOEXEC));
	if (!pump->rings || !pump->batches || !pump->steal)
		goto fail;
	if (options->stacks_hz) {
		pump->stacks =
		    stacks_new(options->table_fds, options->compiled_fds, options->table_count,
			       stream, probes->skeleton->bss->asked);
		if (!pump->stacks)
			goto fail;
	}
	if (options->mode == QJ_MODE_LIVE) {
		pump->sums = sums_new(probes, stream, cpus, cpu_count);
		if (!pump->sums)
			goto fail;
	}
	return pump;
fail:
	pump_free(pump);
	return NULL;
}

void pump_free(struct pump *pump)
{
	if (!pump)
		return;
	sums_free(pump->sums);
	stacks_free(pump->stacks);
	batches_free(pump->batches);
	steal_free(pump->steal);
	rings_free(pump->rings);
	free(pump);
}

/* System calls have deadlines by either clock. The clocks' difference changes when one is set. */
static void compare_clocks(struct pump *pump)
{
	pump->probes->skeleton->bss->control.realtime_ahead_ns =
	    now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
}

int pump_hello(struct pump *pump, const char *energy_reason)
{
	struct qj_hello hello = {
	    .version = QJ_CONTRACT_VERSION,
	    .mode = pump->options->mode,
	    .window_ns = pump->options->window_ms * MS,
	    .cpus = pump->cpu_count,
	    .counters = counters_mask(pump->probes->counters),
	    .domains = pump->energy->domain_count,
	    .grade = pump->energy->grade,
	};
	const struct qj_domain *core;

	while (energy_core(pump->energy, hello.domains - pump->energy->domain_count))
		hello.domains++;
	compare_clocks(pump);
	/* By then every busy CPU has had a tick, and its thread is known. */
	sleep_ns(TICKS_NS);
	steal_read(pump->steal);
	hello.t_ns = now_ns(CLOCK_MONOTONIC);
	hello.realtime_ns = now_ns(CLOCK_REALTIME);
	pump->flushed_ns = pump->window_ns = pump->looked_ns = hello.t_ns;
	pump->domains = hello.domains;
	if (pump->sums)
		sums_begin(pump->sums, hello.t_ns);
	strncpy(hello.energy_source, pump->energy->name, sizeof(hello.energy_source) - 1);
	strncpy(hello.energy_reason, energy_reason, sizeof(hello.energy_reason) - 1);
	stream_add(pump->stream, QJ_BLOCK_HELLO, &hello, sizeof(hello));
	for (unsigned i = 0; i < pump->cpu_count; i++)
		stream_add(pump->stream, QJ_BLOCK_CPU, &pump->cpus[i], sizeof(pump->cpus[i]));
	for (unsigned i = 0; i < pump->energy->domain_count; i++)
		stream_add(pump->stream, QJ_BLOCK_DOMAIN, &pump->energy->domains[i],
			   sizeof(pump->energy->domains[i]));
	for (unsigned i = 0; (core = energy_core(pump->energy, i)); i++)
		stream_add(pump->stream, QJ_BLOCK_DOMAIN, core, sizeof(*core));
	return stream_write(pump->stream, hello.t_ns, 0, false);
}

/* Returns the time of the reading: one recorded window ends there and the next begins. */
static uint64_t read_energy(struct pump *pump)
{
	struct qj_energy readings[ENERGY_MAX_DOMAINS];

	pump->energy_failures += energy_read(pump->energy, readings);
	for (unsigned i = 0; i < pump->energy->domain_count; i++)
		stream_add(pump->stream, QJ_BLOCK_ENERGY, &readings[i], sizeof(readings[i]));
	return pump->energy->domain_count ? readings[0].t_ns : now_ns(CLOCK_MONOTONIC);
}

/* Right after the packages, so that both readings are of the same window. */
static void read_cores(struct pump *pump, uint64_t t_ns)
{
	struct qj_energy reading;

	for (unsigned i = 0; energy_core(pump->energy, i); i++) {
		energy_read_core(pump->energy, i, &reading);
		pump->energy_failures += reading.status != 0;
		stream_add(pump->stream, QJ_BLOCK_ENERGY, &reading, sizeof(reading));
	}
	pump->cores_ns = t_ns;
}

static void report_loss(struct pump *pump, uint64_t t_ns)
{
	for (unsigned cpu = 0; cpu < pump->probes->cpu_limit; cpu++) {
		const struct qj_cpu_state *state = &pump->probes->skeleton->bss->cpus[cpu];

		for (unsigned cause = 0; cause < QJ_LOSS_MAX; cause++) {
			struct qj_loss_count loss = {
			    .t_ns = t_ns,
			    .count = state->loss[cause],
			    .lost_ns = cause == QJ_LOSS_SEGMENT ? state->lost_ns : 0,
			    .cpu = cpu,
			    .cause = cause,
			};

			if (pump->loss_sent[cpu][cause] == (uint32_t)loss.count)
				continue;
			pump->loss_sent[cpu][cause] = loss.count;
			stream_add(pump->stream, QJ_BLOCK_LOSS, &loss, sizeof(loss));
		}
	}
	if (pump->energy_failures != pump->energy_failures_sent) {
		struct qj_loss_count loss = {
		    .t_ns = t_ns,
		    .count = pump->energy_failures,
		    .cpu = TRACER_CPU,
		    .cause = QJ_LOSS_ENERGY,
		};

		pump->energy_failures_sent = pump->energy_failures;
		stream_add(pump->stream, QJ_BLOCK_LOSS, &loss, sizeof(loss));
	}
}

static void report_appeared(struct pump *pump, uint64_t t_ns)
{
	struct qj_domain found[ENERGY_MAX_DOMAINS];
	unsigned count = energy_appeared(pump->energy, found);

	for (unsigned i = 0; i < count; i++) {
		found[i].domain = pump->domains++;
		stream_add(pump->stream, QJ_BLOCK_DOMAIN, &found[i], sizeof(found[i]));
	}
	pump->looked_ns = t_ns;
}

static int flush(struct pump *pump, uint64_t t_ns)
{
	uint64_t open_ns = pump->options->window_ms * MS + TICKS_NS;

	if (t_ns - pump->looked_ns >= APPEARED_NS)
		report_appeared(pump, t_ns);
	compare_clocks(pump);
	report_loss(pump, t_ns);
	cpu_times_report(pump->probes, pump->steal, pump->stream, pump->cpus, pump->cpu_count);
	pump->flushed_ns = t_ns;
	/* If the machine booted less than a window ago, no time is known to be completely sent. */
	return stream_write(pump->stream, t_ns, t_ns > open_ns ? t_ns - open_ns : 0, false);
}

/* On early kernels the sums themselves come through the rings. */
static int drain_sums(struct pump *pump, uint64_t t_ns)
{
	int err = pump->probes->early ? take_records(pump, t_ns) : 0;

	return err ?: sums_drain(pump->sums, pump->window_ns, t_ns);
}

/* Ends the window of sums, then reads the energy drawn until then as soon as counters show it. */
static int sum_window(struct pump *pump, uint64_t *t_ns)
{
	*t_ns = pump->lag_ns ? now_ns(CLOCK_MONOTONIC) : read_energy(pump);
	sums_next_window(pump->sums, *t_ns);
	if (pump->lag_ns) {
		sleep_ns(pump->lag_ns);
		read_energy(pump);
	}
	if (pump->lag_ns < TICKS_NS)
		sleep_ns(TICKS_NS - pump->lag_ns);
	return drain_sums(pump, *t_ns);
}

int pump_window(struct pump *pump)
{
	uint64_t t_ns, since_ns;
	bool due;
	int err;

	if (pump->sums) {
		err = sum_window(pump, &t_ns);
		if (err)
			return err;
	} else {
		t_ns = read_energy(pump);
	}
	if (t_ns - pump->cores_ns >= CORES_NS)
		read_cores(pump, t_ns);
	pump->window_ns = t_ns;
	/* Windows are not exactly as long as requested: half of one early, not one late. */
	since_ns = t_ns - pump->flushed_ns + pump->options->window_ms * MS / 2;
	due = since_ns >= pump->options->flush_ms * MS;
	/* Batches first: a batch that is sent meanwhile is then in the ring. */
	if (due)
		batches_take(pump->batches);
	err = take_records(pump, t_ns);
	if (err || !due)
		return err;
	return flush(pump, t_ns);
}

int pump_finish(struct pump *pump, int reason)
{
	struct qj_end end = {.reason = reason};
	int err = 0;

	end.t_ns = read_energy(pump);
	read_cores(pump, end.t_ns);
	if (pump->sums)
		sums_next_window(pump->sums, end.t_ns);
	pump->probes->skeleton->bss->control.close_all = 1;
	sleep_ns(TICKS_NS);
	if (pump->sums)
		err = drain_sums(pump, end.t_ns);
	else
		probes_tell_open_queries(pump->probes);
	batches_take(pump->batches);
	err = take_records(pump, end.t_ns) ?: err;
	report_appeared(pump, end.t_ns);
	report_loss(pump, end.t_ns);
	cpu_times_report(pump->probes, pump->steal, pump->stream, pump->cpus, pump->cpu_count);
	stream_add(pump->stream, QJ_BLOCK_END, &end, sizeof(end));
	return stream_write(pump->stream, end.t_ns, 0, true) ?: err;
}
