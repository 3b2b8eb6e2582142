// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * qjoule-tracer: has the root part load and attach the programs, and pumps records until it is
 * asked to stop. It never has privileges.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "energy/energy.h"
#include "options.h"
#include "probes.h"
#include "pump.h"
#include "stream.h"
#include "system.h"

#define STOP 1

static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
	(void)number;
	stopping = 1;
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN); /* a closed reader appears as an error of write() */
	signal(SIGXFSZ, SIG_IGN); /* so does a file that may not grow */
}

/*
 * Sleeps until the deadline. Returns 0, STOP if it is time to stop, or -ECONNRESET if the root part
 * has ended, which also detaches everything it had attached.
 */
static int wait_until(const struct timespec *deadline, int control_fd)
{
	/* End of file or any byte on it is a request to stop. poll() ignores a negative fd. */
	struct pollfd polled[] = {{.fd = control_fd, .events = POLLIN}, {.fd = root_part_socket()}};
	struct timespec now, left;
	char byte;
	int ready;

	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		left.tv_sec = deadline->tv_sec - now.tv_sec;
		left.tv_nsec = deadline->tv_nsec - now.tv_nsec;
		if (left.tv_nsec < 0) {
			left.tv_nsec += 1000000000;
			left.tv_sec--;
		}
		/* Already late: still check whether to stop. */
		if (left.tv_sec < 0)
			left = (struct timespec){0};
		if (stopping)
			return STOP;
		ready = ppoll(polled, 2, &left, NULL);
		if (!ready)
			return stopping ? STOP : 0;
		if (ready < 0)
			continue;
		if (!polled[0].revents)
			return -ECONNRESET;
		if (read(control_fd, &byte, 1) >= 0 || errno != EINTR)
			return STOP;
	}
}

static void advance(struct timespec *deadline, unsigned ms)
{
	struct timespec now;

	deadline->tv_nsec += (long)(ms % 1000) * 1000000;
	deadline->tv_sec += ms / 1000 + deadline->tv_nsec / 1000000000;
	deadline->tv_nsec %= 1000000000;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (deadline->tv_sec < now.tv_sec) /* the machine or this process slept: do not catch up */
		*deadline = now;
}

static int pump_until_stopped(struct pump *pump, const struct options *options)
{
	struct timespec deadline;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &deadline);
	do {
		err = pump_window(pump);
		advance(&deadline, options->window_ms);
		if (!err)
			err = wait_until(&deadline, options->control_fd);
	} while (!err);
	if (err == STOP)
		err = 0;
	if (err != -EPIPE)
		pump_finish(pump, -err);
	return err;
}

static int open_energy(const struct options *options, const struct qj_cpu *cpus, unsigned cpu_count,
		       struct probes *probes, struct energy_env *env, struct energy_source **energy,
		       char why[ENERGY_WHY_BYTES])
{
	static uint16_t dies[QJ_MAX_CPUS];
	int err;

	env->cpus = cpus;
	env->cpu_count = cpu_count;
	if (topology_dies(options->cpu_topology, cpus, cpu_count, dies))
		env->dies = dies;
	env->amd = topology_amd();
	env->of_packages = env->dies && env->amd;
	env->single_cores = options->mode == QJ_MODE_RECORD; /* the live view does not use them */
	env->busy_ns = cpu_times_busy_ns;
	env->ctx = probes;
	env->host_root = options->host_root;
	env->curve = options->curve;
	env->curve_label = options->curve_label;
	env->curve_errors = options->curve_errors;
	err = energy_open(options->energy, env, energy, why, ENERGY_WHY_BYTES);
	if (err)
		fprintf(stderr, "qjoule-tracer: %s\n", why);
	return err;
}

/* Only a measured total can contain the energy of tails and wake-ups. */
static bool uses_effects(const struct options *options, const struct energy_source *energy)
{
	return options->mode == QJ_MODE_LIVE &&
	       (energy->grade == QJ_GRADE_MEASURED || energy->grade == QJ_GRADE_SIMULATED);
}

static const char *why_stopped(int err)
{
	switch (err) {
	case -ECONNRESET:
		return "the root part (qjoule-root) has ended, and nothing is attached any more";
	case -EFBIG:
		return "what was captured has reached its limit (--spool-mb)";
	default:
		return strerror(-err);
	}
}

/*
 * Gives our writes the lowest disk priority, where the scheduler knows priorities (ionice(1)). Not
 * the idle class: beside a disk that never idles, all records would be lost.
 */
static void write_behind_others(void)
{
	const int process = 1, best_effort = 2 << 13,
		  last = 7; /* linux/ioprio.h, IOPRIO_WHO_PROCESS */

	syscall(SYS_ioprio_set, process, 0, best_effort | last);
}

int main(int argc, char **argv)
{
	static struct qj_cpu cpus[QJ_MAX_CPUS];
	struct options options;
	struct energy_env env = {0};
	struct energy_source *energy = NULL;
	struct probes probes = {0};
	struct spool *spool = NULL;
	struct stream *stream = NULL;
	struct pump *pump = NULL;
	char why[ENERGY_WHY_BYTES];
	int cpu_count, err;

	if (privileges_hide()) {
		perror("qjoule-tracer: cannot hide from other processes");
		return 1;
	}
	if (options_parse(&options, argc, argv))
		return 2;
	root_part_use(options.root_fd);
	if (isatty(STDOUT_FILENO)) {
		fputs("qjoule-tracer: the stream is binary: redirect it, or use `qjoule record`\n",
		      stderr);
		return 2;
	}
	cpu_count = topology_read(options.cpu_topology, cpus);
	if (cpu_count < 0) {
		fprintf(stderr, "qjoule-tracer: cannot read the CPUs of this machine: %s\n",
			strerror(-cpu_count));
		return 1;
	}
	catch_signals();
	write_behind_others();
	err = open_energy(&options, cpus, cpu_count, &probes, &env, &energy, why);
	if (!err) {
		options.effects = uses_effects(&options, energy);
		err = probes_attach(&probes, &options, cpus, cpu_count);
	}
	if (err)
		goto out;

	err = -ENOMEM;
	if (options.spool_files)
		spool = spool_new(options.spool_fds, options.spool_files, options.spool_bytes,
				  options.spool_turn_ns, options.compress);
	if (spool || !options.spool_files)
		stream = stream_new(STDOUT_FILENO, spool);
	if (stream)
		pump = pump_new(&probes, energy, stream, &options, cpus, cpu_count);
	if (pump)
		err = privileges_confine(options.mode == QJ_MODE_LIVE && !probes.early,
					 options.spool_files > 1);
	if (!err)
		err = pump_hello(pump, why);
	if (!err)
		err = pump_until_stopped(pump, &options);
	if (err && err != -EPIPE)
		fprintf(stderr, "qjoule-tracer: stopped: %s\n", why_stopped(err));
out:
	pump_free(pump);
	stream_free(stream);
	spool_free(spool);
	probes_detach(&probes);
	energy_close(energy);
	return err ? 1 : 0;
}
