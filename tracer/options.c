// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Parses the command line. */
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "energy/energy.h"
#include "system.h"

#define SPOOL_BYTES   (16ull << 30)
#define SPOOL_TURN_NS (60 * 1000000000ull)

static const char usage[] =
    "usage: qjoule-tracer [options] >stream\n"
    "Attaches to database servers and writes what it sees as a binary stream (bpf/qjoule.h).\n"
    "Normally started by `qjoule record` or `qjoule top`.\n"
    "\n"
    "  --mode record|live            a record per segment, or sums per window\n"
    "  --window-ms N                 between two readings of the energy counters (20)\n"
    "  --flush-ms N                  between two writes to the stream (200)\n"
    "  --ring-mb N                   memory of all ring buffers together (8)\n"
    "  --energy SPEC                 auto, or one of --energy-sources\n"
    "  --energy-sources              list them: name, grade, whether auto tries it, its spec\n"
    "  --host-root DIR               for auto: a powercap-like tree given by the hypervisor\n"
    "  --curve W0,W10,W50,W100       for auto: package watts at these loads, the last resort;\n"
    "                                then those of its DRAM, then of the machine's rest\n"
    "  --curve-label TEXT            where the curve is from\n"
    "  --curve-errors E[,E[,E]]      relative 95 % errors of the curve, of DRAM, of the rest\n"
    "  --server ID:KIND:ATTACH_MODE:DEVICE:INODE\n"
    "                                an executable; KIND and ATTACH_MODE: see below\n"
    "  --running ID:TGID             a process of that server that runs already\n"
    "  --only-running                no other processes than those (and their children)\n"
    "  --restart ID:never|HASH       no later process of that executable is this server, or\n"
    "                                only those whose arguments have this hash\n"
    "  --fact ID:NAME:NUMBER         what that server's programs need to know: see below\n"
    "  --probe ID:ROLE:HANDLE:OFFSET:CODE\n"
    "                                a probe point: the root part's handle of the file, the\n"
    "                                offset in it, and the instruction there, in hexadecimal\n"
    "  --cpu-topology DIR            a tree like /sys/devices/system/cpu to take cores from\n"
    "  --tags                        read what clients say of their queries to the server\n"
    "  --samples N                   live: queries to draw for the sample, of each statement in\n"
    "                                five minutes (0: none)\n"
    "  --stacks HZ                   stacks to sample in a second of CPU time (0: none)\n"
    "  --stack-tables FD             a server's modules, to follow its stacks with\n"
    "  --compiled FD                 likewise, what that server's JVM has compiled\n"
    "  --counter cycles|instructions|llc-misses[=TYPE:CONFIG]\n"
    "                                a counter to read, by default the hardware's\n"
    "  --counter more=TYPE:CONFIG[:u|:k]\n"
    "                                a further one, told with segments; u: of user space\n"
    "                                alone, k: of the kernel; may be repeated\n"
    "  --reader PID                  who reads the stream: counted as tracer\n"
    "  --control-fd FD               stop at its end of file\n"
    "  --root FD                     the root part's socket: it loads and attaches\n"
    "  --spool-fd FD                 a file that takes segments, queries, energy and CPU time;\n"
    "                                may be repeated: files of a ring, written over in turn\n"
    "  --spool-mb N                  stop when it would be larger (16384); a ring stays below\n"
    "  --spool-turn-ms N             time that each file of the ring takes (60000)\n"
    "  --compress                    compress it (zstd)\n"
    "  --verbose                     what libbpf and the kernel's verifier say\n"
    "  --version                     of qjoule, and of the contract that the stream follows\n";

static int fail(const char *option, const char *value)
{
	fprintf(stderr, "qjoule-tracer: bad value '%s' for %s; see --help\n", value, option);
	return -1;
}

static int parse_unsigned(const char *value, unsigned min, unsigned max, unsigned *out)
{
	uint64_t n;

	if (!plan_number(value, '\0', max, &n, NULL) || n < min)
		return -1;
	*out = n;
	return 0;
}

enum {
	OPT_MODE = 256,
	OPT_WINDOW,
	OPT_FLUSH,
	OPT_RING,
	OPT_ENERGY,
	OPT_HOST_ROOT,
	OPT_CURVE,
	OPT_CURVE_LABEL,
	OPT_CURVE_ERRORS,
	OPT_SERVER,
	OPT_RUNNING,
	OPT_ONLY_RUNNING,
	OPT_RESTART,
	OPT_FACT,
	OPT_PROBE,
	OPT_CPU_TOPOLOGY,
	OPT_TAGS,
	OPT_SAMPLES,
	OPT_STACKS,
	OPT_STACK_TABLES,
	OPT_COMPILED,
	OPT_COUNTER,
	OPT_READER,
	OPT_CONTROL_FD,
	OPT_ROOT,
	OPT_SPOOL_FD,
	OPT_SPOOL_MB,
	OPT_SPOOL_TURN,
	OPT_COMPRESS,
	OPT_VERBOSE,
	OPT_ENERGY_SOURCES,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option long_options[] = {
    {"mode", required_argument, NULL, OPT_MODE},
    {"window-ms", required_argument, NULL, OPT_WINDOW},
    {"flush-ms", required_argument, NULL, OPT_FLUSH},
    {"ring-mb", required_argument, NULL, OPT_RING},
    {"energy", required_argument, NULL, OPT_ENERGY},
    {"host-root", required_argument, NULL, OPT_HOST_ROOT},
    {"curve", required_argument, NULL, OPT_CURVE},
    {"curve-label", required_argument, NULL, OPT_CURVE_LABEL},
    {"curve-errors", required_argument, NULL, OPT_CURVE_ERRORS},
    {"server", required_argument, NULL, OPT_SERVER},
    {"running", required_argument, NULL, OPT_RUNNING},
    {"only-running", no_argument, NULL, OPT_ONLY_RUNNING},
    {"restart", required_argument, NULL, OPT_RESTART},
    {"fact", required_argument, NULL, OPT_FACT},
    {"probe", required_argument, NULL, OPT_PROBE},
    {"cpu-topology", required_argument, NULL, OPT_CPU_TOPOLOGY},
    {"tags", no_argument, NULL, OPT_TAGS},
    {"samples", required_argument, NULL, OPT_SAMPLES},
    {"stacks", required_argument, NULL, OPT_STACKS},
    {"stack-tables", required_argument, NULL, OPT_STACK_TABLES},
    {"compiled", required_argument, NULL, OPT_COMPILED},
    {"counter", required_argument, NULL, OPT_COUNTER},
    {"reader", required_argument, NULL, OPT_READER},
    {"control-fd", required_argument, NULL, OPT_CONTROL_FD},
    {"root", required_argument, NULL, OPT_ROOT},
    {"spool-fd", required_argument, NULL, OPT_SPOOL_FD},
    {"spool-mb", required_argument, NULL, OPT_SPOOL_MB},
    {"spool-turn-ms", required_argument, NULL, OPT_SPOOL_TURN},
    {"compress", no_argument, NULL, OPT_COMPRESS},
    {"verbose", no_argument, NULL, OPT_VERBOSE},
    {"energy-sources", no_argument, NULL, OPT_ENERGY_SOURCES},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static int parse_mode(struct options *o, const char *value)
{
	if (!strcmp(value, "record"))
		o->mode = QJ_MODE_RECORD;
	else if (!strcmp(value, "live"))
		o->mode = QJ_MODE_LIVE;
	else
		return -1;
	return 0;
}

static int parse_one(struct options *o, int option, const char *value)
{
	unsigned n = 0;
	int err = 0;

	switch (option) {
	case OPT_MODE:
		return parse_mode(o, value);
	case OPT_WINDOW:
		return parse_unsigned(value, 5, 60000, &o->window_ms);
	case OPT_FLUSH:
		return parse_unsigned(value, 5, 60000, &o->flush_ms);
	case OPT_RING:
		return parse_unsigned(value, 1, 1024, &o->ring_mb);
	case OPT_ENERGY:
		o->energy = value;
		return 0;
	case OPT_HOST_ROOT:
		o->host_root = value;
		return 0;
	case OPT_CURVE:
		o->curve = value;
		return 0;
	case OPT_CURVE_LABEL:
		o->curve_label = value;
		return 0;
	case OPT_CURVE_ERRORS:
		o->curve_errors = value;
		return 0;
	case OPT_SERVER:
		return plan_server(o, value);
	case OPT_RUNNING:
		return plan_running(o, value);
	case OPT_ONLY_RUNNING:
		o->only_running = true;
		return 0;
	case OPT_RESTART:
		return plan_restart(o, value);
	case OPT_FACT:
		return plan_fact(o, value);
	case OPT_PROBE:
		return plan_probe(o, value);
	case OPT_CPU_TOPOLOGY:
		o->cpu_topology = value;
		return 0;
	case OPT_TAGS:
		o->tags = true;
		return 0;
	case OPT_SAMPLES:
		return parse_unsigned(value, 0, 1000, &o->samples);
	case OPT_STACKS:
		return parse_unsigned(value, 0, RP_SAMPLES_MAX, &o->stacks_hz);
	case OPT_STACK_TABLES:
		if (o->table_count == QJ_MAX_SERVERS || parse_unsigned(value, 3, 1 << 20, &n))
			return -1;
		o->table_fds[o->table_count++] = n;
		return 0;
	case OPT_COMPILED:
		if (!o->table_count || parse_unsigned(value, 3, 1 << 20, &n))
			return -1;
		o->compiled_fds[o->table_count - 1] = n;
		return 0;
	case OPT_COUNTER:
		return counter_option(o, value);
	case OPT_READER:
		err = parse_unsigned(value, 1, INT32_MAX, &n);
		o->reader = n;
		return err;
	case OPT_CONTROL_FD:
		err = parse_unsigned(value, 0, 1 << 20, &n);
		o->control_fd = n;
		return err;
	case OPT_ROOT:
		err = parse_unsigned(value, 0, 1 << 20, &n);
		o->root_fd = n;
		return err;
	case OPT_SPOOL_FD:
		if (o->spool_files == SPOOL_FILES || parse_unsigned(value, 3, 1 << 20, &n))
			return -1;
		o->spool_fds[o->spool_files++] = n;
		return 0;
	case OPT_SPOOL_MB:
		err = parse_unsigned(value, 1, 1 << 30, &n);
		o->spool_bytes = (uint64_t)n << 20;
		return err;
	case OPT_SPOOL_TURN:
		err = parse_unsigned(value, 100, 1 << 30, &n);
		o->spool_turn_ns = (uint64_t)n * 1000000;
		return err;
	case OPT_COMPRESS:
		o->compress = true;
		return 0;
	case OPT_VERBOSE:
		o->verbose = true;
		return 0;
	}
	return -1;
}

int options_parse(struct options *o, int argc, char **argv)
{
	int option, index;

	memset(o, 0, sizeof(*o));
	o->mode = QJ_MODE_RECORD;
	o->window_ms = 20;
	o->flush_ms = 200;
	o->ring_mb = 8;
	o->energy = "auto";
	o->cpu_topology = TOPOLOGY_DIR;
	o->control_fd = -1;
	o->root_fd = -1;
	o->spool_bytes = SPOOL_BYTES;
	o->spool_turn_ns = SPOOL_TURN_NS;
	for (int i = 0; i < QJ_COUNTERS + QJ_MORE; i++)
		o->counters[i].type = UINT32_MAX;

	opterr = 0;
	while (index = 0, (option = getopt_long(argc, argv, ":", long_options, &index)) != -1) {
		if (option == OPT_ENERGY_SOURCES) {
			energy_list(stdout);
			exit(0);
		}
		if (option == OPT_HELP) {
			fputs(usage, stdout);
			plan_print_kinds();
			exit(0);
		}
		if (option == OPT_VERSION) {
			printf("qjoule-tracer %s\ncontract %d\n", QJ_VERSION, QJ_CONTRACT_VERSION);
			exit(0);
		}
		if (option == '?' || option == ':') {
			fprintf(stderr, "qjoule-tracer: %s '%s'; see --help\n",
				option == '?' ? "no such option" : "no value given for",
				argv[optind - 1]);
			return -1;
		}
		if (parse_one(o, option, optarg))
			return fail(long_options[index].name, optarg);
	}
	if (optind < argc)
		return fail("the command line", argv[optind]);
	if (o->more_counters && o->mode == QJ_MODE_LIVE)
		return fail("--counter",
			    "more"); /* rows of sums have no room for further counters */
	if (o->spool_files && o->mode == QJ_MODE_LIVE)
		return fail("--mode", "live"); /* sums are few: they go to the reader */
	return 0;
}
