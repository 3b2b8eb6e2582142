/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A load that measures its own cost. It computes on one CPU for a given CPU time, and prints as
 * JSON its CPU time by the kernel's clock and its cycles and instructions by its own perf events.
 * Those are pinned, so that they never take turns with others.
 *
 * usage: counted_load CPU CPU_MS [COMPETITORS]
 * COMPETITORS: so many further events are open on that CPU meanwhile, of `perf_event_open(2)` type
 * PERF_TYPE_RAW and config 8 (Arm's INST_RETIRED), to be more than the CPU has counters.
 */
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define INST_RETIRED  8
#define CHUNK	      20000
#define NS_PER_MS     1000000u
#define NS_PER_SECOND 1000000000ull

struct counter {
	uint64_t count, enabled_ns, running_ns;
};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static int open_event(uint32_t type, uint64_t config, pid_t pid, int cpu)
{
	struct perf_event_attr attr = {
	    .size = sizeof(attr),
	    .type = type,
	    .config = config,
	    .pinned = pid >= 0,
	    .disabled = pid >= 0,
	    .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
	};

	return (int)syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* What the event counted from its start to now; null in JSON if this machine has no such event. */
static void print_counter(const char *name, int fd)
{
	struct counter counter;

	if (fd < 0 || read(fd, &counter, sizeof(counter)) != sizeof(counter))
		printf(", \"%s\": null", name);
	else if (counter.enabled_ns != counter.running_ns)
		printf(", \"%s\": \"multiplexed\"", name);
	else
		printf(", \"%s\": %" PRIu64, name, counter.count);
}

static void compute(uint64_t cpu_ns)
{
	uint64_t end_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) + cpu_ns;
	volatile uint64_t x = 1;

	while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns)
		for (unsigned i = 0; i < CHUNK; i++)
			x = x * 6364136223846793005u + 1442695040888963407u;
}

static int begin(int fd)
{
	return fd >= 0 ? ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) : 0;
}

int main(int argc, char **argv)
{
	uint64_t t0_ns, t1_ns, cpu0_ns, cpu1_ns;
	int cpu = argc > 2 ? atoi(argv[1]) : -1;
	int cycles, instructions;
	cpu_set_t set;

	if (cpu < 0) {
		fputs("usage: counted_load CPU CPU_MS [COMPETITORS]\n", stderr);
		return 2;
	}
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("counted_load: sched_setaffinity");
		return 1;
	}
	for (int i = argc > 3 ? atoi(argv[3]) : 0; i > 0; i--) {
		if (open_event(PERF_TYPE_RAW, INST_RETIRED, -1, cpu) < 0) {
			perror("counted_load: perf_event_open of a competitor");
			return 1;
		}
	}
	cycles = open_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 0, -1);
	instructions = open_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, 0, -1);

	t0_ns = now_ns(CLOCK_MONOTONIC);
	cpu0_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	if (begin(cycles) || begin(instructions)) {
		perror("counted_load: PERF_EVENT_IOC_ENABLE");
		return 1;
	}
	compute(strtoull(argv[2], NULL, 10) * NS_PER_MS);
	cpu1_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	t1_ns = now_ns(CLOCK_MONOTONIC);
	printf("{\"pid\": %d, \"cpu\": %d, \"t0_ns\": %" PRIu64 ", \"t1_ns\": %" PRIu64
	       ", \"cpu_ns\": %" PRIu64,
	       getpid(), cpu, t0_ns, t1_ns, cpu1_ns - cpu0_ns);
	print_counter("cycles", cycles);
	print_counter("instructions", instructions);
	puts("}");
	return 0;
}
