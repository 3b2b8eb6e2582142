// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "probes.h"

#include "counters.h"
#include "topology.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define KERNEL_BTF "/sys/kernel/btf/vmlinux"

static int complain(const char *what, int err)
{
	fprintf(stderr, "qjoule-tracer: %s: %s\n", what, strerror(-err));
	return err;
}

/* One ring for a few CPUs each, all together within --ring-mb. */
static unsigned rings_for(unsigned cpus)
{
	unsigned rings = 1;

	while (rings < cpus && rings < QJ_MAX_RINGS)
		rings *= 2;
	return rings;
}

static int fill_servers(struct qj_plan *plan, const struct options *options)
{
	for (unsigned i = 0; i < options->server_count; i++) {
		struct stat st;

		if (stat(options->server_path[i], &st)) {
			fprintf(stderr, "qjoule-tracer: cannot read the executable %s: %s\n",
				options->server_path[i], strerror(errno));
			return -errno;
		}
		plan->servers[i] = options->servers[i];
		plan->servers[i].inode = st.st_ino;
		/* MKDEV() of the kernel: include/linux/kdev_t.h */
		plan->servers[i].device = major(st.st_dev) << 20 | minor(st.st_dev);
	}
	memcpy(plan->running, options->running, sizeof(plan->running));
	plan->only_running = options->only_running;
	return 0;
}

static int fill_plan(struct qj_plan *plan, struct probes *probes, const struct options *options,
		     const struct qj_cpu *cpus, unsigned cpu_count)
{
	if (getrandom(&plan->seed, sizeof(plan->seed), 0) != sizeof(plan->seed))
		return complain("no random numbers", -errno);
	plan->mode = options->mode;
	plan->slice_ns = (uint64_t)options->window_ms * 1000000;
	plan->rings = probes->ring_count;
	plan->counters = counters_mask(probes->counters);
	plan->tracer_tgid = getpid();
	plan->reader_tgid = options->reader;
	/* A CPU that comes online later belongs to none that we know. */
	memset(plan->package_of, 0xff, sizeof(plan->package_of));
	for (unsigned i = 0; i < cpu_count; i++)
		plan->package_of[cpus[i].cpu % QJ_MAX_CPUS] = cpus[i].package;
	plan->core_threads = topology_rings(cpus, cpu_count, plan->next_thread);
	return fill_servers(plan, options);
}

static struct bpf_program *program_of(struct qjoule_bpf *skeleton, enum probe_role role)
{
	switch (role) {
	case PROBE_MYSQL_BEGIN_COMMAND_FIRST:
		return skeleton->progs.on_command_command_first;
	case PROBE_MYSQL_BEGIN_THD_FIRST:
		return skeleton->progs.on_command_thd_first;
	case PROBE_MYSQL_END:
		return skeleton->progs.on_command_end;
	case PROBE_PG_ACTIVITY:
		return skeleton->progs.on_activity;
	case PROBE_PG_PORTAL_RUN:
		return skeleton->progs.on_portal_run;
	case PROBE_PG_LAUNCH_WORKERS:
		return skeleton->progs.on_launch_workers;
	case PROBE_PG_JOIN_LEADER:
		return skeleton->progs.on_join_leader;
	case PROBE_ROLES:
		break;
	}
	return NULL;
}

/* Programs are opt-in: what no server needs is not loaded. */
static void choose_programs(struct qjoule_bpf *skeleton, const struct options *options)
{
	for (unsigned i = 0; i < options->server_count; i++)
		if (options->servers[i].rung == QJ_RUNG_SOCKET)
			bpf_program__set_autoload(skeleton->progs.on_recv, true);
	for (unsigned i = 0; i < options->probe_count; i++)
		bpf_program__set_autoload(program_of(skeleton, options->probes[i].role), true);
}

/* CPUs have numbers below this, those included that are offline now. */
static unsigned limit_of(const struct qj_cpu *cpus, unsigned cpu_count)
{
	int possible = libbpf_num_possible_cpus();
	unsigned limit = possible > 0 ? possible : 1;

	for (unsigned c = 0; c < cpu_count; c++)
		if (cpus[c].cpu >= limit)
			limit = cpus[c].cpu + 1;
	return limit < QJ_MAX_CPUS ? limit : QJ_MAX_CPUS;
}

static void size_maps(struct qjoule_bpf *skeleton, const struct options *options, unsigned cpus)
{
	if (options->mode != QJ_MODE_LIVE) {
		bpf_map__set_max_entries(skeleton->maps.sums_even, 1);
		bpf_map__set_max_entries(skeleton->maps.sums_odd, 1);
	}
	bpf_map__set_max_entries(skeleton->maps.batches, cpus);
	bpf_map__set_max_entries(skeleton->maps.cycles, cpus);
	bpf_map__set_max_entries(skeleton->maps.instructions, cpus);
	bpf_map__set_max_entries(skeleton->maps.llc_misses, cpus);
}

static int make_rings(struct probes *probes, const struct options *options)
{
	int outer = bpf_map__fd(probes->skeleton->maps.rings);
	unsigned bytes = 4096;

	/* A ring's size is a power of two pages. */
	while (bytes * 2 <= options->ring_mb * 1048576u / probes->ring_count)
		bytes *= 2;
	for (uint32_t i = 0; i < probes->ring_count; i++) {
		int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ring", 0, 0, bytes, NULL);

		if (fd < 0)
			return complain("cannot make a ring buffer; try a smaller --ring-mb", fd);
		probes->ring_fds[i] = fd;
		if (bpf_map_update_elem(outer, &i, &fd, 0))
			return complain("cannot set up the ring buffers", -errno);
	}
	return 0;
}

static int keep(struct probes *probes, struct bpf_link *link, const char *what)
{
	if (!link) {
		char line[128];

		snprintf(line, sizeof(line), "cannot attach %s", what);
		return complain(line, -errno);
	}
	probes->links[probes->link_count++] = link;
	return 0;
}

static int attach_program(struct probes *probes, struct bpf_program *program)
{
	return keep(probes, bpf_program__attach(program), bpf_program__name(program));
}

static int attach_probe(struct probes *probes, const struct options *options,
			const struct probe *probe)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = probe->role == PROBE_MYSQL_END);

	/* By inode, for every process: a server that restarts is probed from its first query. */
	return keep(probes,
		    bpf_program__attach_uprobe_opts(program_of(probes->skeleton, probe->role), -1,
						    options->server_path[probe->server - 1],
						    probe->offset, &opts),
		    probe_role_names[probe->role]);
}

/* An iterator over all tasks: to run its program, read it to the end. Returns its fd or an error.
 */
static int open_iterator(struct bpf_program *program)
{
	struct bpf_link *link = bpf_program__attach(program);
	int fd;

	if (!link)
		return complain("cannot iterate over tasks", -errno);
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0)
		complain("cannot iterate over tasks", fd);
	bpf_link__destroy(link); /* the iterator keeps what it needs */
	return fd;
}

static void run_iterator(int fd)
{
	char sink[256];

	while (read(fd, sink, sizeof(sink)) > 0)
		;
}

/* Adopts the threads that exist. */
static int adopt_running(struct probes *probes)
{
	int fd = open_iterator(probes->skeleton->progs.on_alive);

	if (fd < 0)
		return fd;
	run_iterator(fd);
	close(fd);
	/* Opened now: once privileges are dropped it can only be read. */
	probes->stop_fd = open_iterator(probes->skeleton->progs.on_stop);
	return probes->stop_fd < 0 ? probes->stop_fd : 0;
}

void probes_tell_open_queries(struct probes *probes)
{
	run_iterator(probes->stop_fd);
}

/*
 * Tasks first, so that no thread is missed between; context switches last, so that our own work
 * of attaching is not recorded as the machine's.
 */
static int attach_all(struct probes *probes, const struct options *options)
{
	struct qjoule_bpf *s = probes->skeleton;
	struct bpf_program *tasks[] = {s->progs.on_fork, s->progs.on_exec, s->progs.on_rename,
				       s->progs.on_exit};
	int err = 0;

	for (unsigned i = 0; !err && i < sizeof(tasks) / sizeof(tasks[0]); i++)
		err = attach_program(probes, tasks[i]);
	if (!err)
		err = adopt_running(probes);
	for (unsigned i = 0; !err && i < options->probe_count; i++)
		err = attach_probe(probes, options, &options->probes[i]);
	if (!err && bpf_program__autoload(s->progs.on_recv))
		err = attach_program(probes, s->progs.on_recv);
	if (!err)
		err = attach_program(probes, s->progs.on_tick);
	if (!err)
		err = attach_program(probes, s->progs.on_switch);
	return err;
}

/* The verifier's log is long: --verbose shows it, everybody else gets one line from us. */
static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

static int open_and_load(struct probes *probes, const struct options *options,
			 const struct qj_cpu *cpus)
{
	int err;

	if (!options->verbose)
		libbpf_set_print(quiet);
	if (access(KERNEL_BTF, R_OK)) {
		fputs("qjoule-tracer: no " KERNEL_BTF
		      ": the kernel needs CONFIG_DEBUG_INFO_BTF=y\n",
		      stderr);
		return -ENOENT;
	}
	probes->skeleton = qjoule_bpf__open();
	if (!probes->skeleton)
		return complain("cannot open the BPF programs", -errno);
	err = fill_plan(&probes->skeleton->rodata->plan, probes, options, cpus, probes->cpu_count);
	if (err)
		return err;
	choose_programs(probes->skeleton, options);
	size_maps(probes->skeleton, options, probes->cpu_limit);
	err = qjoule_bpf__load(probes->skeleton);
	if (err == -ESRCH && bpf_program__autoload(probes->skeleton->progs.on_recv)) {
		fputs("qjoule-tracer: the socket rung needs Linux 6.3 (tracepoint "
		      "sock_recv_length); use the symbol rung\n",
		      stderr);
		return err;
	}
	if (err == -EPERM)
		return complain("the kernel refuses BPF programs; run as root", err);
	if (err)
		return complain("the kernel cannot load the BPF programs; see `qjoule doctor`",
				err);
	return 0;
}

int probes_attach(struct probes *probes, const struct options *options, const struct qj_cpu *cpus,
		  unsigned cpu_count)
{
	int err;

	memset(probes, 0, sizeof(*probes));
	memset(probes->ring_fds, 0xff, sizeof(probes->ring_fds));
	probes->stop_fd = -1;
	probes->cpu_count = cpu_count;
	probes->cpu_limit = limit_of(cpus, cpu_count);
	probes->ring_count = rings_for(cpu_count);
	probes->counters = counters_open(options, cpus, cpu_count);
	err = probes->counters ? 0 : complain("cannot open the counters", -ENOMEM);
	if (!err)
		err = open_and_load(probes, options, cpus);
	if (!err)
		err = make_rings(probes, options);
	if (!err)
		err = counters_give(probes->counters, probes->skeleton);
	if (!err)
		err = attach_all(probes, options);
	if (err)
		probes_detach(probes);
	return err;
}

void probes_detach(struct probes *probes)
{
	if (probes->skeleton && probes->stop_fd >= 0)
		close(probes->stop_fd);
	probes->stop_fd = -1;
	while (probes->link_count)
		bpf_link__destroy(probes->links[--probes->link_count]);
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
