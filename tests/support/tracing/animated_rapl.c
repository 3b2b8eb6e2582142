/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A package whose power is known: moves the energy counter of a fake powercap zone once a
 * millisecond, as RAPL does, by
 *
 *     IDLE_W * time + SHARED_W * (time with any CPU busy) + CPU_W * (busy time of all CPUs)
 *
 * or, where a file of the limit is given, at most that power in each of these milliseconds.
 *
 * Busy is a CPU that does not run its idle thread, this program included. The kernel says when:
 * one perf event per CPU records every context switch (PERF_RECORD_SWITCH_CPU_WIDE,
 * include/uapi/linux/perf_event.h). No qjoule code is involved, so it can referee qjoule.
 *
 * Usage: animated_rapl ENERGY_UJ_FILE IDLE_W SHARED_W CPU_W [POWER_LIMIT_UW_FILE]
 * Prints "ready", runs until stdin ends, then prints "seconds any_busy_s cpu_busy_s energy_uj" of
 * the time since "ready". Exit code 3: switches were lost, so the energy is not what it should be.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define MAX_CPUS       256
#define RING_PAGES     64 /* a power of two; a page contains 102 switches */
#define UPDATE_NS      1000000L
#define NS_PER_SECOND  1000000000ULL
#define EXIT_LOST      3
#define WATT_NS_PER_UJ 1000.0

struct ring {
	struct perf_event_mmap_page *page;
	int cpu;
	bool busy;
};

/* perf_event.h: the header, next_prev_pid/tid, then the sample's TID, TIME and CPU. */
struct cpu_switch {
	struct perf_event_header header;
	uint32_t other_pid, other_tid;
	uint32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu, reserved;
};

struct change {
	uint64_t t_ns;
	struct ring *ring;
	bool busy;
};

static struct ring rings[MAX_CPUS];
static struct change changes[MAX_CPUS * 16];
static int ring_count;
static unsigned busy_cpus;

static void die(const char *what)
{
	fprintf(stderr, "animated_rapl: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static void open_ring(int cpu)
{
	struct perf_event_attr attr = {
	    .type = PERF_TYPE_SOFTWARE,
	    .size = sizeof(attr),
	    .config = PERF_COUNT_SW_DUMMY,
	    .sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU,
	    .sample_id_all = 1,
	    .context_switch = 1,
	    .use_clockid = 1,
	    .clockid = CLOCK_MONOTONIC,
	};
	size_t bytes = (size_t)(RING_PAGES + 1) * (size_t)sysconf(_SC_PAGESIZE);
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	void *page;

	if (fd < 0)
		die("perf_event_open");
	page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		die("mmap");
	rings[ring_count++] = (struct ring){.page = page, .cpu = cpu};
}

/* Visiting a CPU makes it switch, so that from then on its busy state is known. */
static void visit(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static void open_rings(void)
{
	cpu_set_t all;

	if (sched_getaffinity(0, sizeof(all), &all))
		die("sched_getaffinity");
	for (int cpu = 0; cpu < MAX_CPUS; cpu++)
		if (CPU_ISSET(cpu, &all))
			open_ring(cpu);
	for (int i = 0; i < ring_count; i++)
		visit(rings[i].cpu);
	if (sched_setaffinity(0, sizeof(all), &all))
		die("sched_setaffinity");
}

/* Takes the records out of a ring; returns the number of changes so far. */
static int take(struct ring *ring, int count)
{
	char *data = (char *)ring->page + ring->page->data_offset;
	uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = ring->page->data_tail;
	const int room = (int)(sizeof(changes) / sizeof(*changes));

	while (tail < head && count < room) {
		struct cpu_switch record;
		char *into = (char *)&record;

		for (size_t i = 0; i < sizeof(record); i++) /* it may wrap around the ring's end */
			into[i] = data[(tail + i) % ring->page->data_size];
		tail += record.header.size;
		if (record.header.type == PERF_RECORD_LOST) {
			fprintf(stderr, "animated_rapl: context switches were lost\n");
			exit(EXIT_LOST);
		}
		if (record.header.type == PERF_RECORD_SWITCH_CPU_WIDE)
			changes[count++] = (struct change){
			    record.time_ns, ring,
			    /* Of the thread that comes in: some kernels omit its own record. */
			    (record.header.misc & PERF_RECORD_MISC_SWITCH_OUT ? record.other_tid
									      : record.tid) != 0};
	}
	__atomic_store_n(&ring->page->data_tail, tail, __ATOMIC_RELEASE);
	return count;
}

static int by_time(const void *a, const void *b)
{
	const struct change *first = a, *second = b;

	return (first->t_ns > second->t_ns) - (first->t_ns < second->t_ns);
}

struct books {
	uint64_t start_ns, t_ns;
	uint64_t any_busy_ns, cpu_busy_ns;
};

/*
 * A record that was still being written when the rings were read comes a little late. It counts
 * from when it was seen.
 */
static void advance(struct books *books, uint64_t to_ns)
{
	if (to_ns <= books->t_ns)
		return;
	books->cpu_busy_ns += busy_cpus * (to_ns - books->t_ns);
	if (busy_cpus)
		books->any_busy_ns += to_ns - books->t_ns;
	books->t_ns = to_ns;
}

static void settle(struct books *books)
{
	uint64_t until_ns = now_ns();
	int count = 0;

	for (int i = 0; i < ring_count; i++)
		count = take(&rings[i], count);
	qsort(changes, (size_t)count, sizeof(*changes), by_time);
	for (int i = 0; i < count; i++) {
		advance(books, changes[i].t_ns);
		busy_cpus += (unsigned)changes[i].busy - (unsigned)changes[i].ring->busy;
		changes[i].ring->busy = changes[i].busy;
	}
	advance(books, until_ns);
}

static double drawn_uj(const struct books *books, const double watts[3])
{
	return ((double)(books->t_ns - books->start_ns) * watts[0] +
		(double)books->any_busy_ns * watts[1] + (double)books->cpu_busy_ns * watts[2]) /
	       WATT_NS_PER_UJ;
}

/* What is allowed of what was drawn since the last call; `fd`: -1: all of it. */
static double limited_uj(int fd, double uj, uint64_t ns)
{
	static double limit_uw;
	char text[32] = "";
	double most_uj;

	if (fd < 0)
		return uj;
	/* Unlike in sysfs the file is empty for a moment while it is written. */
	if (pread(fd, text, sizeof(text) - 1, 0) > 0)
		limit_uw = strtod(text, NULL);
	most_uj = limit_uw * (double)ns / (double)NS_PER_SECOND;
	return uj < most_uj ? uj : most_uj;
}

static uint64_t write_energy(int fd, double uj)
{
	char text[32];
	int bytes = snprintf(text, sizeof(text), "%" PRIu64 "\n", (uint64_t)uj);

	/* The number only grows, so a reader never sees the end of an older one. */
	if (pwrite(fd, text, (size_t)bytes, 0) != bytes)
		die("energy_uj");
	return (uint64_t)uj;
}

int main(int argc, char **argv)
{
	struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};
	struct sched_param urgent = {.sched_priority = 1};
	const struct timespec update = {.tv_nsec = UPDATE_NS};
	struct books books = {0};
	uint64_t energy_uj = 0;
	double watts[3], before_uj = 0, uj = 0;
	int fd, limit = -1;

	if (argc != 5 && argc != 6)
		return 2;
	for (int i = 0; i < 3; i++)
		watts[i] = strtod(argv[i + 2], NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = open(argv[1], O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		die(argv[1]);
	if (argc == 6)
		limit = open(argv[5], O_RDONLY | O_CLOEXEC);
	if (argc == 6 && limit < 0)
		die(argv[5]);
	sched_setscheduler(0, SCHED_FIFO, &urgent); /* RAPL does not wait for a free CPU either */
	books.t_ns = now_ns();
	open_rings();
	settle(&books);
	books = (struct books){.start_ns = books.t_ns, .t_ns = books.t_ns};
	puts("ready");
	fflush(stdout);
	while (ppoll(&end, 1, &update, NULL) == 0) {
		uint64_t before_ns = books.t_ns;
		double now_uj;

		settle(&books);
		now_uj = drawn_uj(&books, watts);
		uj += limited_uj(limit, now_uj - before_uj, books.t_ns - before_ns);
		before_uj = now_uj;
		energy_uj = write_energy(fd, uj);
	}
	printf("%.9f %.9f %.9f %" PRIu64 "\n", (double)(books.t_ns - books.start_ns) / 1e9,
	       (double)books.any_busy_ns / 1e9, (double)books.cpu_busy_ns / 1e9, energy_uj);
	return 0;
}
