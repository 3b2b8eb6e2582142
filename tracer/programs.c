// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Configures the BPF programs before they are loaded: the plan, and which of them are needed. */
#include "probes.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "system.h"
#include "variant.h"

#define WAIT_PERIODS 8 /* in a second */
#define WAIT_SHARE   4 /* stacks per drawn wait: several kinds have draws */

int programs_complain(const char *what, int err)
{
	if (err == -ECONNRESET)
		fputs("qjoule-tracer: the root part (qjoule-root) has ended\n", stderr);
	else
		fprintf(stderr, "qjoule-tracer: %s: %s\n", what, strerror(-err));
	return err;
}

static void fill_servers(struct qj_plan *plan, const struct options *options)
{
	for (unsigned i = 0; i < options->server_count; i++) {
		const struct qj_server_plan *server = &options->servers[i];

		plan->servers[i] = *server;
		plan->arguments |= server->restart == QJ_RESTART_SAME;
		plan->kinds |= 1u << server->kind;
		plan->kind_attach_modes[server->kind] |= 1u << server->attach_mode;
	}
	memcpy(plan->running, options->running, sizeof(plan->running));
	plan->only_running = options->only_running;
}

/* A short period divides a flood. */
static void plan_waits(struct qj_plan *plan, const struct options *options, bool early)
{
	unsigned per_s = (options->stacks_hz + WAIT_SHARE - 1) / WAIT_SHARE;

	if (options->mode != QJ_MODE_RECORD || !per_s || early)
		return;
	plan->waits = (per_s + WAIT_PERIODS - 1) / WAIT_PERIODS;
	plan->wait_period_ns = plan->waits * 1000000000ull / per_s;
}

static int fill_plan(struct qj_plan *plan, struct probes *probes, const struct options *options,
		     const struct qj_cpu *cpus, unsigned cpu_count)
{
	if (getrandom(&plan->seed, sizeof(plan->seed), 0) != sizeof(plan->seed))
		return programs_complain("no random numbers", -errno);
	plan->mode = options->mode;
	plan->tags = options->tags && !probes->early;
	if (options->tags && probes->early)
		fputs("qjoule-tracer: tags that clients send to servers are not read: this "
		      "kernel lacks bpf_loop() (Linux 5.17)\n",
		      stderr);
	plan->samples = options->mode == QJ_MODE_LIVE && !probes->early ? options->samples : 0;
	if (options->samples && probes->early)
		fputs("qjoule-tracer: no sample of queries is drawn: this kernel is older than "
		      "Linux 5.17\n",
		      stderr);
	if (options->stacks_hz && probes->early)
		fputs(
		    "qjoule-tracer: no stacks are sampled: this kernel is older than Linux 5.19\n",
		    stderr);
	plan_waits(plan, options, probes->early);
	plan->effects = options->effects && !probes->early;
	plan->packages_at = probes->cpu_limit;
	plan->slice_ns = (uint64_t)options->window_ms * 1000000;
	plan->rings = probes->ring_count;
	plan->counters = counters_mask(probes->counters) & ((1u << QJ_COUNTERS) - 1);
	plan->more = counters_mask(probes->counters) >> QJ_COUNTERS;
	plan->tracer_tgid = getpid();
	plan->reader_tgid = options->reader;
	/* CPUs that come online later belong to no known package. */
	memset(plan->package_of, 0xff, sizeof(plan->package_of));
	for (unsigned i = 0; i < cpu_count; i++)
		plan->package_of[cpus[i].cpu % QJ_MAX_CPUS] = cpus[i].package;
	plan->core_threads = topology_rings(cpus, cpu_count, plan->next_thread);
	topology_firsts(cpus, cpu_count, plan->first_of_core, plan->first_of_package);
	fill_servers(plan, options);
	return 0;
}

struct bpf_program *programs_of_role(struct qjoule_bpf *skeleton, enum probe_role role)
{
	switch (role) {
#define X(name, text, SERVER)                                                                      \
	case PROBE_##name:                                                                         \
		return skeleton->progs.name;
		QJ_ROLES(X)
#undef X
	case PROBE_ROLES:
		break;
	}
	return NULL;
}

struct traffic_program programs_of_traffic(struct qjoule_bpf *skeleton, unsigned number)
{
	struct traffic_program all[] = {
#define X(name, kind)                                                                              \
	{skeleton->progs.name, kind}, {skeleton->progs.name##_inet, 0},                            \
	    {skeleton->progs.name##_inet6, 0}, {skeleton->progs.name##_unix, 0},
	    QJ_PROGRAM_NAMES(X)
#undef X
		{skeleton->progs.on_read, 0},
	    {skeleton->progs.on_write, 0},
	};

	return all[number];
}

/*
 * Where the kernel lacks the tracepoints of sockets, loads instead the programs at the returns of
 * the functions behind them (bpf/core/socket.bpf.h).
 */
static void replace_tracepoints(struct qjoule_bpf *skeleton)
{
	if (libbpf_find_vmlinux_btf_id("sock_recv_length", BPF_TRACE_RAW_TP) >= 0)
		return;
#define X(name, kind)                                                                              \
	if (bpf_program__autoload(skeleton->progs.name)) {                                         \
		bpf_program__set_autoload(skeleton->progs.name, false);                            \
		bpf_program__set_autoload(skeleton->progs.name##_inet, true);                      \
		bpf_program__set_autoload(skeleton->progs.name##_inet6, true);                     \
		bpf_program__set_autoload(skeleton->progs.name##_unix, true);                      \
	}
	QJ_PROGRAM_NAMES(X)
#undef X
}

/* Loads the program on a tracepoint that calls this program of a server
 * (bpf/core/segments.bpf.c). */
static void load_caller(struct qjoule_bpf *skeleton, struct traffic_program called)
{
	if (!called.kind || !bpf_program__autoload(called.program))
		return;
	bpf_program__set_autoload(strstr(bpf_program__section_name(called.program), "recv")
				      ? skeleton->progs.on_read
				      : skeleton->progs.on_write,
				  true);
}

/* Programs and maps are opt-in: unneeded ones are neither loaded nor made. */
static void choose_programs(struct qjoule_bpf *skeleton, const struct options *options, bool early)
{
	const struct qj_plan *plan = &skeleton->rodata->plan;

	for (unsigned i = 0; i < PROGRAMS_OF_TRAFFIC; i++)
		bpf_program__set_autoload(programs_of_traffic(skeleton, i).program, false);
#define X(name, kind, attach_modes)                                                                \
	if (plan->kind_attach_modes[kind] & (attach_modes))                                        \
		bpf_program__set_autoload(skeleton->progs.name, true);
	QJ_PROGRAMS(X)
#undef X
#define X(name, server_kind, fact)                                                                 \
	for (unsigned i = 0; i < options->server_count; i++)                                       \
		if (options->servers[i].kind == (server_kind) && options->servers[i].facts[fact])  \
			bpf_program__set_autoload(skeleton->progs.name, true);
	QJ_PROGRAMS_WITH(X)
#undef X
	bpf_program__set_autoload(skeleton->progs.on_sample, options->stacks_hz && !early);
	bpf_map__set_autocreate(skeleton->maps.stack_room, options->stacks_hz && !early);
	bpf_map__set_autocreate(skeleton->maps.stack_scratch, options->stacks_hz && !early);
	bpf_map__set_autocreate(skeleton->maps.wait_counts, plan->waits);
	for (unsigned i = 0; i < options->probe_count; i++)
		bpf_program__set_autoload(programs_of_role(skeleton, options->probes[i].role),
					  true);
	if (!early)
		replace_tracepoints(skeleton);
	for (unsigned i = 0; i < PROGRAMS_OF_TRAFFIC; i++)
		load_caller(skeleton, programs_of_traffic(skeleton, i));
}

/* True if servers need programs beside probes: all such programs are on reads and writes. */
static bool loads_servers_programs(struct qjoule_bpf *skeleton)
{
	for (unsigned i = 0; i < PROGRAMS_OF_TRAFFIC; i++)
		if (bpf_program__autoload(programs_of_traffic(skeleton, i).program))
			return true;
	return false;
}

static void choose_maps(struct qjoule_bpf *skeleton, unsigned cpus)
{
	const struct qj_plan *plan = &skeleton->rodata->plan;
	bool inflate = false;

#define X(part, kind, attach_modes) part |= !!(plan->kind_attach_modes[kind] & (attach_modes));
	QJ_NEEDS(X)
#undef X
#define X(name, kind, attach_modes) bpf_map__set_autocreate(skeleton->maps.name, false);
	QJ_MAPS(X)
	QJ_MAPS_WITH_TAGS(X)
#undef X
	bpf_map__set_autocreate(skeleton->maps.inflating, inflate);
	bpf_map__set_max_entries(skeleton->maps.inflating, inflate ? cpus : 1);
#define X(name, kind, attach_modes)                                                                \
	if (plan->kind_attach_modes[kind] & (attach_modes))                                        \
		bpf_map__set_autocreate(skeleton->maps.name, true);
	QJ_MAPS(X)
	if (plan->tags) {
		QJ_MAPS_WITH_TAGS(X)
	}
#undef X
}

static void size_maps(struct qjoule_bpf *skeleton, const struct options *options, unsigned cpus)
{
	if (options->mode != QJ_MODE_LIVE) {
		bpf_map__set_max_entries(skeleton->maps.sums_even, 1);
		bpf_map__set_max_entries(skeleton->maps.sums_odd, 1);
		bpf_map__set_max_entries(skeleton->maps.sums_rows, 1);
	}
	if (!skeleton->rodata->plan.tags)
		bpf_map__set_max_entries(skeleton->maps.seen_tags, 1);
	if (!skeleton->rodata->plan.tags || options->mode != QJ_MODE_LIVE)
		bpf_map__set_max_entries(skeleton->maps.namings, 1);
	if (!skeleton->rodata->plan.samples)
		bpf_map__set_max_entries(skeleton->maps.sampled, 1);
	bpf_map__set_max_entries(skeleton->maps.idles,
				 skeleton->rodata->plan.effects ? 2 * cpus : 1);
	bpf_map__set_max_entries(skeleton->maps.batches, cpus);
	bpf_map__set_max_entries(skeleton->maps.cycles, cpus);
	bpf_map__set_max_entries(skeleton->maps.instructions, cpus);
	bpf_map__set_max_entries(skeleton->maps.llc_misses, cpus);
	bpf_map__set_max_entries(skeleton->maps.more_counters,
				 skeleton->rodata->plan.more ? cpus * QJ_MORE : 1);
}

/* The verifier's log is long: --verbose shows it, otherwise one line of ours is printed. */
static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

/*
 * Frees memory that only opening needed: the pages of the programs' ELF files, which the page cache
 * still has, and libbpf's freed memory.
 */
static void free_loading_memory(void)
{
	const uintptr_t page = sysconf(_SC_PAGESIZE);
	size_t bytes[2];
	const void *files[] = {qjoule_bpf__elf_bytes(&bytes[0]),
			       qjoule_early_bpf__elf_bytes(&bytes[1])};

	for (unsigned i = 0; i < 2; i++) {
		uintptr_t begin = ((uintptr_t)files[i] + page - 1) / page * page;
		uintptr_t end = ((uintptr_t)files[i] + bytes[i]) / page * page;

		madvise((void *)begin, end - begin, MADV_DONTNEED);
	}
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

int programs_load(struct probes *probes, const struct options *options, const struct qj_cpu *cpus)
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
	probes->skeleton = variant_open(probes->early);
	if (!probes->skeleton)
		return programs_complain("cannot open the BPF programs", -errno);
	err = fill_plan(&probes->skeleton->rodata->plan, probes, options, cpus, probes->cpu_count);
	if (err)
		return err;
	choose_programs(probes->skeleton, options, probes->early);
	size_maps(probes->skeleton, options, probes->cpu_limit);
	choose_maps(probes->skeleton, probes->cpu_limit);
	bpf_program__set_autoload(probes->skeleton->progs.on_freed, probes->early);
	err = loading_load(probes, options->verbose);
	if (err == -ESRCH && loads_servers_programs(probes->skeleton)) {
		fputs("qjoule-tracer: the socket mode needs Linux 6.3 (tracepoint "
		      "sock_recv_length), or 5.19 with fexit programs; use the symbol mode\n",
		      stderr);
		return err;
	}
	if (err == -EPERM)
		return programs_complain(
		    "the kernel refuses BPF programs; run as root, and see `qjoule doctor`", err);
	if (err)
		return programs_complain(
		    "the kernel cannot load the BPF programs; see `qjoule doctor`", err);
	free_loading_memory();
	return 0;
}
