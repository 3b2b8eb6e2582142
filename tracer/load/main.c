// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * qjoule-load: keeps CPUs busy in a known way while `qjoule calibrate` measures their power.
 *
 * Needs no privilege. Prints `ready` once every thread is pinned and has its memory, and at the end
 * what each thread did, as lines of JSON. Ends after the given time, on SIGTERM or SIGINT, and when
 * its parent ends.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define PAGE_BYTES 4096

static const char usage[] =
    "usage: qjoule-load KERNEL CPUS SECONDS [PIECES]\n"
    "Keeps each of CPUS (such as 0-3,8) busy with KERNEL for SECONDS, or for PIECES of work.\n"
    "KERNEL: integer, floating_point, cache (fits the second level), stream, chase (exceed all),\n"
    "or wakeups:RATE (sleeps, and computes 20 us RATE times a second; a piece is one wake-up).\n"
    "Normally started by `qjoule calibrate`.\n";

static atomic_bool stop;
static pthread_barrier_t prepared, released;

struct worker {
	pthread_t thread;
	const struct kernel *kernel; /* NULL: wake-ups */
	unsigned rate;		     /* of wake-ups, per second */
	struct wakeups wakeups;
	int cpu;
	uint64_t pieces; /* 0: until asked to stop */
	size_t bytes;
	struct work work;
	uint64_t cpu_ns;
	int error;
};

static uint64_t thread_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Pins the thread first: memory comes from the node of the CPU that first writes to it. */
static int prepare(struct worker *worker)
{
	struct work *work = &worker->work;
	cpu_set_t own;
	int error;

	CPU_ZERO(&own);
	CPU_SET(worker->cpu, &own);
	error = pthread_setaffinity_np(pthread_self(), sizeof(own), &own);
	if (error)
		return error;
	if (worker->bytes) {
		work->bytes = (worker->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
		work->memory = mmap(NULL, work->bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (work->memory == MAP_FAILED)
			return errno;
		/* Without huge pages a chase mostly measures page tables. Not always available. */
		madvise(work->memory, work->bytes, MADV_HUGEPAGE);
	}
	if (worker->kernel)
		worker->kernel->prepare(work);
	return 0;
}

static void work_on(struct worker *worker)
{
	for (uint64_t piece = 0; !atomic_load(&stop); piece++) {
		if (worker->pieces && piece == worker->pieces)
			break;
		worker->kernel->piece(&worker->work);
	}
}

static void *run(void *argument)
{
	struct worker *worker = argument;
	uint64_t begin_ns;

	worker->error = prepare(worker);
	pthread_barrier_wait(&prepared);
	pthread_barrier_wait(&released);
	begin_ns = thread_cpu_ns();
	if (!worker->error && worker->kernel)
		work_on(worker);
	else if (!worker->error)
		wakeups_run(&worker->wakeups, worker->rate, worker->pieces, &stop);
	worker->cpu_ns = thread_cpu_ns() - begin_ns;
	return NULL;
}

/* Waits until the time is over, a signal comes, or every thread has done its pieces. */
static void wait_for_end(double seconds, const sigset_t *signals)
{
	struct timespec left = {.tv_sec = (time_t)seconds};

	left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
	sigtimedwait(signals, NULL, &left);
	atomic_store(&stop, true);
}

static int start(struct worker *workers, int count)
{
	pthread_barrier_init(&prepared, NULL, (unsigned)count + 1);
	pthread_barrier_init(&released, NULL, (unsigned)count + 1);
	for (int i = 0; i < count; i++) {
		int error = pthread_create(&workers[i].thread, NULL, run, &workers[i]);

		if (error) /* the others wait for this thread at the barrier: end them all */
			return error;
	}
	pthread_barrier_wait(&prepared);
	for (int i = 0; i < count; i++) {
		if (workers[i].error) {
			fprintf(stderr, "qjoule-load: CPU %d: %s\n", workers[i].cpu,
				strerror(workers[i].error));
			return workers[i].error;
		}
	}
	return 0;
}

static void report(const struct worker *worker)
{
	printf("{\"kernel\": \"%s\", \"cpu\": %d, \"bytes\": %zu, \"operations\": %llu, "
	       "\"cpu_ns\": %llu, \"result\": %llu}\n",
	       worker->kernel->name, worker->cpu, worker->work.bytes,
	       (unsigned long long)worker->work.operations, (unsigned long long)worker->cpu_ns,
	       (unsigned long long)worker->kernel->result(&worker->work));
}

static void report_wakeups(const struct worker *worker)
{
	const struct wakeups *wakeups = &worker->wakeups;

	printf("{\"kernel\": \"wakeups\", \"cpu\": %d, \"rate\": %u, \"wakeups\": %llu, "
	       "\"switches\": %llu, \"late\": %llu, \"cpu_ns\": %llu, \"result\": %llu}\n",
	       worker->cpu, worker->rate, (unsigned long long)wakeups->count,
	       (unsigned long long)wakeups->switches, (unsigned long long)wakeups->late,
	       (unsigned long long)worker->cpu_ns, (unsigned long long)wakeups->state);
}

static int load(struct worker *workers, int count, double seconds, bool enough)
{
	sigset_t signals;
	pid_t parent = getppid();

	/* Blocked before the threads start, so that only sigtimedwait() receives them. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	if (!workers[0].pieces)
		sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* the parent ended before prctl() took effect */
		return 1;
	if (start(workers, count))
		return 1;
	printf("{\"ready\": true, \"threads\": %d, \"exceeds_cache\": %s}\n", count,
	       enough ? "true" : "false");
	fflush(stdout);
	pthread_barrier_wait(&released);
	if (!workers[0].pieces)
		wait_for_end(seconds, &signals);
	for (int i = 0; i < count; i++) {
		pthread_join(workers[i].thread, NULL);
		if (workers[i].kernel)
			report(&workers[i]);
		else
			report_wakeups(&workers[i]);
	}
	return fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct worker workers[CPU_SETSIZE];
	const struct kernel *kernel = argc > 1 ? kernel_find(argv[1]) : NULL;
	unsigned rate = argc > 1 ? wakeups_rate(argv[1]) : 0;
	int enough = 1, count = 0;
	uint64_t pieces = 0;
	char *end = "";
	double seconds;
	cpu_set_t cpus;

	if (argc > 1 && !strcmp(argv[1], "--help")) {
		fputs(usage, stdout);
		return 0;
	}
	if ((argc != 4 && argc != 5) || (!kernel && !rate) || !cpus_parse(argv[2], &cpus)) {
		fputs(usage, stderr);
		return 2;
	}
	seconds = strtod(argv[3], &end);
	if (argc == 5 && !*end)
		pieces = strtoull(argv[4], &end, 10);
	if (*end || !(seconds > 0 && seconds <= 3600) || (argc == 5 && !pieces)) {
		fputs(usage, stderr);
		return 2;
	}
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		workers[count].kernel = kernel;
		workers[count].rate = rate;
		workers[count].cpu = cpu;
		workers[count].pieces = pieces;
		if (kernel)
			workers[count].bytes = place_bytes(kernel->footprint, cpu, &cpus, &enough);
		count++;
	}
	return load(workers, count, seconds, enough);
}
