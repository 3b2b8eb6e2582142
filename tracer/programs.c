// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "programs.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "counters.h"
#include "loading.h"
#include "topology.h"

#define KERNEL_BTF "/sys/kernel/btf/vmlinux"

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
		plan->redis |= server->kind == QJ_SERVER_REDIS;
		plan->voltdb |= server->kind == QJ_SERVER_VOLTDB;
		plan->mongodb |=
		    server->kind == QJ_SERVER_MONGODB && server->rung == QJ_RUNG_SOCKET;
	}
	memcpy(plan->running, options->running, sizeof(plan->running));
	plan->only_running = options->only_running;
}

static int fill_plan(struct qj_plan *plan, struct probes *probes, const struct options *options,
		     const struct qj_cpu *cpus, unsigned cpu_count)
{
	if (getrandom(&plan->seed, sizeof(plan->seed), 0) != sizeof(plan->seed))
		return programs_complain("no random numbers", -errno);
	plan->mode = options->mode;
	plan->tags = options->tags;
	plan->slice_ns = (uint64_t)options->window_ms * 1000000;
	plan->rings = probes->ring_count;
	plan->counters = counters_mask(probes->counters) & ((1u << QJ_COUNTERS) - 1);
	plan->more = counters_mask(probes->counters) >> QJ_COUNTERS;
	plan->tracer_tgid = getpid();
	plan->reader_tgid = options->reader;
	/* A CPU that comes online later belongs to none that we know. */
	memset(plan->package_of, 0xff, sizeof(plan->package_of));
	for (unsigned i = 0; i < cpu_count; i++)
		plan->package_of[cpus[i].cpu % QJ_MAX_CPUS] = cpus[i].package;
	plan->core_threads = topology_rings(cpus, cpu_count, plan->next_thread);
	fill_servers(plan, options);
	return 0;
}

struct bpf_program *programs_of_role(struct qjoule_bpf *skeleton, enum probe_role role)
{
	switch (role) {
	case PROBE_MYSQL_BEGIN_COMMAND_FIRST:
		return skeleton->progs.mysql_begin_command_first;
	case PROBE_MYSQL_BEGIN_THD_FIRST:
		return skeleton->progs.mysql_begin_thd_first;
	case PROBE_MYSQL_END:
		return skeleton->progs.mysql_end;
	case PROBE_MYSQL_CLIENT:
		return skeleton->progs.mysql_client;
	case PROBE_MYSQL_LOG_THD_FIRST:
		return skeleton->progs.mysql_log_thd_first;
	case PROBE_MYSQL_LOG_LOGGER_FIRST:
		return skeleton->progs.mysql_log_logger_first;
	case PROBE_MYSQL_DATABASE:
		return skeleton->progs.mysql_database;
	case PROBE_MYSQL_DATABASE_END:
		return skeleton->progs.mysql_database_end;
	case PROBE_MYSQL_CHILD_BEGIN:
		return skeleton->progs.mysql_child_begin;
	case PROBE_MYSQL_CHILD_TEXT:
		return skeleton->progs.mysql_child_text;
	case PROBE_MYSQL_CHILD_END:
		return skeleton->progs.mysql_child_end;
	case PROBE_POSTGRES_ACTIVITY:
		return skeleton->progs.postgres_activity;
	case PROBE_POSTGRES_PORTAL_RUN:
		return skeleton->progs.postgres_portal_run;
	case PROBE_POSTGRES_FAILED:
		return skeleton->progs.postgres_failed;
	case PROBE_POSTGRES_LAUNCH_WORKERS:
		return skeleton->progs.postgres_launch_workers;
	case PROBE_POSTGRES_JOIN_LEADER:
		return skeleton->progs.postgres_join_leader;
	case PROBE_VOLTDB_BEGIN:
		return skeleton->progs.voltdb_begin;
	case PROBE_VOLTDB_END:
		return skeleton->progs.voltdb_end;
	case PROBE_CASSANDRA_REQUEST_BEGINS:
		return skeleton->progs.cassandra_request_begins;
	case PROBE_CASSANDRA_REQUEST_SAYS:
		return skeleton->progs.cassandra_request_says;
	case PROBE_CASSANDRA_REQUEST_ENDS:
		return skeleton->progs.cassandra_request_ends;
	case PROBE_CASSANDRA_CONNECTION_MET:
		return skeleton->progs.cassandra_connection_met;
	case PROBE_CASSANDRA_TASK_QUEUED:
		return skeleton->progs.cassandra_task_queued;
	case PROBE_CASSANDRA_TASK_BEGINS:
		return skeleton->progs.cassandra_task_begins;
	case PROBE_CASSANDRA_TASK_ENDS:
		return skeleton->progs.cassandra_task_ends;
	case PROBE_MONGODB_REQUEST:
		return skeleton->progs.mongodb_request;
	case PROBE_MONGODB_DONE:
		return skeleton->progs.mongodb_done;
	case PROBE_ROLES:
		break;
	}
	return NULL;
}

static void choose_redis(struct qjoule_bpf *skeleton, bool wanted)
{
	bpf_map__set_autocreate(skeleton->maps.redis_connections, wanted);
	bpf_map__set_autocreate(skeleton->maps.redis_texts, wanted);
	bpf_map__set_autocreate(skeleton->maps.redis_namings, wanted);
	bpf_program__set_autoload(skeleton->progs.redis_recv, wanted);
	bpf_program__set_autoload(skeleton->progs.redis_send, wanted);
}

static void choose_mongodb(struct qjoule_bpf *skeleton, const struct options *options)
{
	bool any = false, sockets = false;

	for (unsigned i = 0; i < options->server_count; i++) {
		if (options->servers[i].kind != QJ_SERVER_MONGODB)
			continue;
		any = true;
		sockets |= options->servers[i].rung != QJ_RUNG_SYMBOL;
	}
	bpf_map__set_autocreate(skeleton->maps.mongodb_cursors, any);
	bpf_map__set_autocreate(skeleton->maps.mongodb_connections, sockets);
	bpf_program__set_autoload(skeleton->progs.mongodb_recv, sockets);
	bpf_program__set_autoload(skeleton->progs.mongodb_send, sockets);
}

static void choose_cassandra(struct qjoule_bpf *skeleton, const struct options *options)
{
	bool counted = false;

	for (unsigned i = 0; i < options->server_count; i++)
		counted |= options->servers[i].kind == QJ_SERVER_CASSANDRA &&
			   options->servers[i].rung == QJ_RUNG_STATISTICAL;
	bpf_map__set_autocreate(skeleton->maps.cql_connections, counted);
	bpf_map__set_autocreate(skeleton->maps.cql_tagged, counted && skeleton->rodata->plan.tags);
	bpf_map__set_autocreate(skeleton->maps.cql_texts, counted);
	bpf_map__set_autocreate(skeleton->maps.cql_scratch, counted);
	bpf_map__set_autocreate(skeleton->maps.cql_packed, counted);
	bpf_program__set_autoload(skeleton->progs.cassandra_recv, counted);
}

/* Whoever reads requests on sockets inflates them; MongoDB's probes only name the map. */
static void choose_inflating(struct qjoule_bpf *skeleton, const struct options *options,
			     unsigned cpus)
{
	bool named = false, used = false;

	for (unsigned i = 0; i < options->server_count; i++) {
		const struct qj_server_plan *server = &options->servers[i];

		named |= server->kind == QJ_SERVER_MONGODB;
		used |= server->kind == QJ_SERVER_MONGODB && server->rung != QJ_RUNG_SYMBOL;
		used |= server->kind == QJ_SERVER_CASSANDRA && server->rung == QJ_RUNG_STATISTICAL;
	}
	bpf_map__set_autocreate(skeleton->maps.inflating, named || used);
	bpf_map__set_max_entries(skeleton->maps.inflating, used ? cpus : 1);
}

/* Programs are opt-in: what no server needs is not loaded. */
static void choose_programs(struct qjoule_bpf *skeleton, const struct options *options)
{
	bool agent = false, sockets = false;

	for (unsigned i = 0; i < options->server_count; i++) {
		const struct qj_server_plan *server = &options->servers[i];

		agent |= server->rung == QJ_RUNG_AGENT;
		if (server->kind != QJ_SERVER_MONGODB && server->kind != QJ_SERVER_REDIS)
			sockets |= server->rung == QJ_RUNG_SOCKET;
	}
	choose_redis(skeleton, skeleton->rodata->plan.redis);
	bpf_map__set_autocreate(skeleton->maps.voltdb_begun, skeleton->rodata->plan.voltdb);
	bpf_map__set_autocreate(skeleton->maps.agent_statements, agent);
	bpf_map__set_autocreate(skeleton->maps.agent_requests, agent);
	choose_cassandra(skeleton, options);
	choose_mongodb(skeleton, options);
	bpf_program__set_autoload(skeleton->progs.on_recv, sockets);
	for (unsigned i = 0; i < options->probe_count; i++)
		bpf_program__set_autoload(programs_of_role(skeleton, options->probes[i].role),
					  true);
}

static void size_maps(struct qjoule_bpf *skeleton, const struct options *options, unsigned cpus)
{
	if (options->mode != QJ_MODE_LIVE) {
		bpf_map__set_max_entries(skeleton->maps.sums_even, 1);
		bpf_map__set_max_entries(skeleton->maps.sums_odd, 1);
	}
	if (!skeleton->rodata->plan.tags)
		bpf_map__set_max_entries(skeleton->maps.seen_tags, 1);
	if (!skeleton->rodata->plan.tags || options->mode != QJ_MODE_LIVE)
		bpf_map__set_max_entries(skeleton->maps.namings, 1);
	bpf_map__set_max_entries(skeleton->maps.batches, cpus);
	bpf_map__set_max_entries(skeleton->maps.cycles, cpus);
	bpf_map__set_max_entries(skeleton->maps.instructions, cpus);
	bpf_map__set_max_entries(skeleton->maps.llc_misses, cpus);
	bpf_map__set_max_entries(skeleton->maps.more_counters,
				 skeleton->rodata->plan.more ? cpus * QJ_MORE : 1);
}

/* The verifier's log is long: --verbose shows it, everybody else gets one line from us. */
static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
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
	probes->skeleton = qjoule_bpf__open();
	if (!probes->skeleton)
		return programs_complain("cannot open the BPF programs", -errno);
	err = fill_plan(&probes->skeleton->rodata->plan, probes, options, cpus, probes->cpu_count);
	if (err)
		return err;
	choose_programs(probes->skeleton, options);
	size_maps(probes->skeleton, options, probes->cpu_limit);
	choose_inflating(probes->skeleton, options, probes->cpu_limit);
	err = loading_load(probes->skeleton, options->verbose);
	if (err == -ESRCH && (bpf_program__autoload(probes->skeleton->progs.on_recv) ||
			      bpf_program__autoload(probes->skeleton->progs.redis_recv) ||
			      bpf_program__autoload(probes->skeleton->progs.cassandra_recv) ||
			      bpf_program__autoload(probes->skeleton->progs.mongodb_recv))) {
		fputs("qjoule-tracer: the socket rung needs Linux 6.3 (tracepoint "
		      "sock_recv_length); use the symbol rung\n",
		      stderr);
		return err;
	}
	if (err == -EOPNOTSUPP) {
		fputs("qjoule-tracer: reading BPF maps without being root needs Linux 5.19\n",
		      stderr);
		return err;
	}
	if (err == -EPERM)
		return programs_complain("the kernel refuses BPF programs; run as root", err);
	if (err)
		return programs_complain(
		    "the kernel cannot load the BPF programs; see `qjoule doctor`", err);
	return 0;
}
