// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Makes the rings, and attaches and detaches the BPF programs through the root part. */
#include "probes.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "system.h"

/* All CPU numbers are below this, including CPUs that are offline now. */
static unsigned limit_of(const struct qj_cpu *cpus, unsigned cpu_count)
{
	int possible = libbpf_num_possible_cpus();
	unsigned limit = possible > 0 ? possible : 1;

	for (unsigned c = 0; c < cpu_count; c++)
		if (cpus[c].cpu >= limit)
			limit = cpus[c].cpu + 1;
	return limit < QJ_MAX_CPUS ? limit : QJ_MAX_CPUS;
}

/* The number of rings: each serves a few CPUs, and all together stay within --ring-mb. */
static unsigned rings_for(unsigned cpus)
{
	unsigned rings = 1;

	while (rings < cpus && rings < QJ_MAX_RINGS)
		rings *= 2;
	return rings;
}

static int make_rings(struct probes *probes, const struct options *options)
{
	struct rp_request request = {.kind = RP_RING};
	unsigned bytes = 4096;

	/* A ring's size must be a power of two pages. */
	while (bytes * 2 <= options->ring_mb * 1048576u / probes->ring_count)
		bytes *= 2;
	request.size = probes->ring_bytes = bytes;
	for (; request.number < probes->ring_count; request.number++) {
		int err = root_part_ask(&request, -1, &probes->ring_fds[request.number]);

		if (err)
			return programs_complain(
			    "cannot make a ring buffer; try a smaller --ring-mb", err);
	}
	return 0;
}

static int cannot_attach(const char *what, int err)
{
	char line[128];

	snprintf(line, sizeof(line), "cannot attach %s", what);
	return programs_complain(line, err);
}

static struct rp_request request_of(const struct bpf_program *program)
{
	struct rp_request request = {.kind = RP_ATTACH};

	snprintf(request.text + RP_CODE_BYTES, sizeof(request.text) - RP_CODE_BYTES, "%s",
		 bpf_program__name(program));
	return request;
}

/* Opens one sampling event per CPU, at the requested rate. */
static int attach_sampling(struct probes *probes, const struct options *options,
			   const struct qj_cpu *cpus)
{
	struct rp_request request = request_of(probes->skeleton->progs.on_sample);
	int err = 0;

	request.size = options->stacks_hz;
	for (unsigned i = 0; !err && i < probes->cpu_count; i++) {
		request.pid = cpus[i].cpu;
		err = root_part_ask(&request, -1, NULL);
	}
	return err ? cannot_attach("what samples stacks", err) : 0;
}

/* Attaches a program; `kind`: has an attached program call it for threads of these servers. */
static int attach_for(const struct bpf_program *program, uint32_t kind)
{
	struct rp_request request = request_of(program);
	int err;

	request.number = kind;
	err = root_part_ask(&request, -1, NULL);
	return err ? cannot_attach(bpf_program__name(program), err) : 0;
}

static int attach_program(const struct bpf_program *program)
{
	return attach_for(program, 0);
}

static int attach_probe(struct probes *probes, const struct probe *probe)
{
	struct rp_request request = request_of(programs_of_role(probes->skeleton, probe->role));
	int err;

	request.pid = probe->handle;
	request.offset = probe->offset;
	request.size = probe->code_bytes;
	memcpy(request.text, probe->code, probe->code_bytes);
	err = root_part_ask(&request, -1, NULL);
	return err ? cannot_attach(probe_role_names[probe->role], err) : 0;
}

/*
 * Opens an iterator over all tasks; reading it to the end runs its program. Returns its fd or a
 * negative errno.
 */
static int open_iterator(const struct bpf_program *program)
{
	struct rp_request request = request_of(program);
	int fd, err = root_part_ask(&request, -1, &fd);

	return err ? programs_complain("cannot iterate over tasks", err) : fd;
}

static void run_iterator(int fd)
{
	char sink[256];

	while (read(fd, sink, sizeof(sink)) > 0)
		;
}

/* Adopts the threads that already exist. */
static int adopt_running(struct probes *probes)
{
	int fd = open_iterator(probes->skeleton->progs.on_alive);

	if (fd < 0)
		return fd;
	run_iterator(fd);
	close(fd);
	/* Opened now: after privileges are dropped it can only be read. */
	probes->stop_fd = open_iterator(probes->skeleton->progs.on_stop);
	return probes->stop_fd < 0 ? probes->stop_fd : 0;
}

void probes_tell_open_queries(struct probes *probes)
{
	run_iterator(probes->stop_fd);
}

/*
 * Tasks come first, so that no thread is missed in between. Context switches come last, so that the
 * work of attaching is not recorded as the machine's.
 */
static int attach_all(struct probes *probes, const struct options *options,
		      const struct qj_cpu *cpus)
{
	struct rp_request done = {.kind = RP_DONE};
	struct qjoule_bpf *s = probes->skeleton;
	struct bpf_program *tasks[] = {s->progs.on_fork, s->progs.on_exec, s->progs.on_rename,
				       s->progs.on_exit};
	int err = 0;

	for (unsigned i = 0; !err && i < sizeof(tasks) / sizeof(tasks[0]); i++)
		err = attach_program(tasks[i]);
	if (!err && bpf_program__autoload(s->progs.on_freed))
		err = attach_program(s->progs.on_freed);
	if (!err)
		err = adopt_running(probes);
	for (unsigned i = 0; !err && i < options->probe_count; i++)
		err = attach_probe(probes, &options->probes[i]);
	for (unsigned i = 0; !err && i < PROGRAMS_OF_TRAFFIC; i++) {
		struct traffic_program traffic = programs_of_traffic(s, i);

		if (bpf_program__autoload(traffic.program))
			err = attach_for(traffic.program, traffic.kind);
	}
	if (!err)
		err = attach_program(s->progs.on_tick);
	if (!err)
		err = attach_program(s->progs.on_switch);
	if (!err && bpf_program__autoload(s->progs.on_sample))
		err = attach_sampling(probes, options, cpus);
	if (!err)
		err = root_part_ask(&done, -1, NULL);
	return err;
}

int probes_attach(struct probes *probes, const struct options *options, const struct qj_cpu *cpus,
		  unsigned cpu_count)
{
	int err;

	if (root_part_socket() < 0) {
		fputs("qjoule-tracer: no root part to ask: run it through `qjoule`\n", stderr);
		return -ENOTCONN;
	}
	memset(probes, 0, sizeof(*probes));
	memset(probes->ring_fds, 0xff, sizeof(probes->ring_fds));
	probes->stop_fd = probes->batches_fd = -1;
	probes->early = early_kernel();
	probes->cpu_count = cpu_count;
	probes->cpu_limit = limit_of(cpus, cpu_count);
	probes->ring_count = rings_for(cpu_count);
	probes->counters = counters_open(options, cpus, cpu_count, probes->early);
	err = probes->counters ? 0 : programs_complain("cannot open the counters", -ENOMEM);
	if (!err)
		err = programs_load(probes, options, cpus);
	if (!err)
		err = make_rings(probes, options);
	if (!err)
		err = counters_give(probes->counters, probes->skeleton);
	if (!err)
		err = attach_all(probes, options, cpus);
	if (err)
		probes_detach(probes);
	return err;
}

void probes_detach(struct probes *probes)
{
	if (probes->skeleton && probes->stop_fd >= 0)
		close(probes->stop_fd);
	if (probes->skeleton && probes->batches_fd >= 0)
		close(probes->batches_fd);
	probes->stop_fd = probes->batches_fd = -1;
	for (int i = 0; i < QJ_MAX_RINGS; i++) {
		if (probes->ring_fds[i] >= 0)
			close(probes->ring_fds[i]);
		probes->ring_fds[i] = -1;
	}
	counters_close(probes->counters);
	probes->counters = NULL;
	qjoule_bpf__destroy(probes->skeleton);
	probes->skeleton = NULL;
}
