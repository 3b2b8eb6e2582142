// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * loops CPU
 *
 * Tight loops of what qjoule's hooks are on, pinned to one CPU. Each line "KIND TURNS OPERATIONS"
 * of the standard input is answered by a line of TURNS numbers: nanoseconds per operation, or 0 for
 * a turn in which another thread ran on this CPU.
 *
 *   read    recv() on an empty TCP socket: the tracepoint sock_recv_length fires for every result
 *   query   a COM_QUERY as MySQL's server reads it: recv() of its header, of its text, of nothing
 *   write   send() on a TCP socket whose buffer is full: sock_send_length, likewise
 *   switch  context switches between two threads on this CPU
 *   timer   expiries of high-resolution timers, TIMERS at the same moment
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define TIMERS	  500
#define SECOND_NS 1000000000ull
#define GAP_NS	  1000ull    /* a longer step between two clock readings is an interrupt */
#define AFTER_NS  1000000ull /* by then all timers have expired */
#define AHEAD_NS  2000000ull /* setting all timers takes less */

static int reads, writes, client;
static int commands[2]; /* its server's and its client's end */
static int timers[TIMERS];
static _Atomic int turn; /* which of the two threads may run */

static void die(const char *what)
{
	fprintf(stderr, "loops: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* A connection over loopback: `*server` accepted it. */
static void connect_pair(int *server, int *peer)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listening = socket(AF_INET, SOCK_STREAM, 0);

	*peer = socket(AF_INET, SOCK_STREAM, 0);
	if (listening < 0 || *peer < 0 || bind(listening, (struct sockaddr *)&address, size) ||
	    listen(listening, 1) || getsockname(listening, (struct sockaddr *)&address, &size) ||
	    connect(*peer, (struct sockaddr *)&address, size))
		die("connect");
	*server = accept(listening, NULL, NULL);
	if (*server < 0)
		die("accept");
	close(listening);
}

static void open_sockets(void)
{
	static char bytes[65536];
	int peer, small = 4096;

	connect_pair(&reads, &client);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, commands))
		die("socketpair");
	connect_pair(&writes, &peer);
	setsockopt(writes, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	for (int full = 0; full < 300;) { /* the peer's kernel still takes some, late */
		full = send(writes, bytes, sizeof(bytes), MSG_DONTWAIT) < 0 ? full + 1 : 0;
		if (full)
			usleep(1000);
	}
}

static void open_timers(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int i = 0; i < TIMERS; i++) {
		timers[i] = timerfd_create(CLOCK_MONOTONIC, 0);
		if (timers[i] < 0)
			die("timerfd_create");
	}
}

/* A command of MySQL's protocol first (COM_PING), so that a planned server knows its client. */
static double turn_of_reads(unsigned count)
{
	static const char ping[] = {1, 0, 0, 0, 14};
	char byte[sizeof(ping)];
	uint64_t from_ns;

	if (send(client, ping, sizeof(ping), 0) != sizeof(ping) ||
	    recv(reads, byte, 4, MSG_WAITALL) != 4 || recv(reads, byte, 1, 0) != 1)
		die("ping");
	from_ns = now_ns();
	for (unsigned i = 0; i < count; i++)
		if (recv(reads, byte, sizeof(byte), MSG_DONTWAIT) >= 0)
			die("recv");
	return (double)(now_ns() - from_ns) / count;
}

static double turn_of_queries(unsigned count)
{
	static const char text[] = "SELECT c FROM sbtest1 WHERE id=50123";
	char command[4 + sizeof(text)] = {sizeof(text), 0, 0, 0, 3}, bytes[sizeof(command)];
	uint64_t from_ns;

	memcpy(command + 5, text, sizeof(text) - 1);
	from_ns = now_ns();
	for (unsigned i = 0; i < count; i++)
		if (send(commands[1], command, sizeof(command), 0) != sizeof(command) ||
		    recv(commands[0], bytes, 4, 0) != 4 ||
		    recv(commands[0], bytes, sizeof(text), 0) != sizeof(text) ||
		    recv(commands[0], bytes, sizeof(bytes), MSG_DONTWAIT) >= 0)
			die("query");
	return (double)(now_ns() - from_ns) / count;
}

static double turn_of_writes(unsigned count)
{
	uint64_t from_ns = now_ns();
	char byte = 0;

	for (unsigned i = 0; i < count; i++)
		if (send(writes, &byte, 1, MSG_DONTWAIT) >= 0)
			die("send");
	return (double)(now_ns() - from_ns) / count;
}

/* Lets the other thread run until it hands over in turn. */
static void hand_over(int other)
{
	atomic_store(&turn, other);
	syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	while (atomic_load(&turn) == other)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, other, NULL, NULL, 0);
}

static void *partner(void *unused)
{
	while (atomic_load(&turn) == 0)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	for (;;)
		hand_over(0);
	return unused;
}

static long switches(int whose)
{
	struct rusage usage;

	getrusage(whose, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* Per switch that the kernel counted: a wake-up may preempt, or not. */
static double turn_of_switches(unsigned count)
{
	long before = switches(RUSAGE_SELF);
	uint64_t from_ns = now_ns();

	for (unsigned i = 0; i < count; i += 2)
		hand_over(1);
	return (double)(now_ns() - from_ns) / (switches(RUSAGE_SELF) - before);
}

/* How long the interrupts from `due_ns` on kept this thread from reading the clock. */
static uint64_t interrupted_ns(uint64_t due_ns)
{
	uint64_t last_ns = now_ns(), next_ns, sum_ns = 0;

	if (last_ns >= due_ns)
		return 0;
	while (last_ns < due_ns + AFTER_NS) {
		next_ns = now_ns();
		if (next_ns >= due_ns && next_ns - last_ns > GAP_NS)
			sum_ns += next_ns - last_ns;
		last_ns = next_ns;
	}
	return sum_ns;
}

/* 0 if this thread did not run when the timers expired. */
static double turn_of_timers(unsigned count)
{
	uint64_t sum_ns = 0, part_ns;

	for (unsigned done = 0; done < count; done += TIMERS) {
		uint64_t due_ns = now_ns() + AHEAD_NS;
		struct itimerspec due = {
		    .it_value = {.tv_sec = due_ns / SECOND_NS, .tv_nsec = due_ns % SECOND_NS}};

		for (int i = 0; i < TIMERS; i++)
			timerfd_settime(timers[i], TFD_TIMER_ABSTIME, &due, NULL);
		part_ns = interrupted_ns(due_ns);
		if (!part_ns)
			return 0;
		sum_ns += part_ns;
	}
	return (double)sum_ns / count;
}

static double turn_of(const char *kind, unsigned count)
{
	long before = switches(RUSAGE_THREAD);
	double ns = 0;

	if (!strcmp(kind, "switch"))
		return turn_of_switches(count);
	if (!strcmp(kind, "read"))
		ns = turn_of_reads(count);
	else if (!strcmp(kind, "query"))
		ns = turn_of_queries(count);
	else if (!strcmp(kind, "write"))
		ns = turn_of_writes(count);
	else if (!strcmp(kind, "timer"))
		ns = turn_of_timers(count);
	return switches(RUSAGE_THREAD) == before ? ns : 0;
}

int main(int argc, char **argv)
{
	char line[64], kind[16];
	unsigned turns, count;
	pthread_t thread;
	struct sched_param first = {.sched_priority = 1};
	cpu_set_t cpus;

	if (argc != 2) {
		fprintf(stderr, "usage: loops CPU\n");
		return 2;
	}
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[1]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		die("sched_setaffinity");
	if (sched_setscheduler(0, SCHED_FIFO, &first)) /* before whatever else runs on this CPU */
		die("sched_setscheduler");
	open_sockets();
	open_timers();
	if (pthread_create(&thread, NULL, partner, NULL))
		die("pthread_create");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%15s %u %u", kind, &turns, &count) != 3)
			return 2;
		for (unsigned i = 0; i < turns; i++)
			printf("%.2f ", turn_of(kind, count));
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
