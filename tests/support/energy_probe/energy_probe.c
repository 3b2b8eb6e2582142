// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Opens an energy source and reads it on command, for the tests in
 * tests/fast/machine/test_energy_*.py.
 *
 *   energy_probe SPEC CPUS [key=value ...]
 *
 * CPUS is "cpu:package,cpu:package", or "cpu:package:die,...". Keys: powercap_root, perf_sysfs,
 * hwmon_root, host_root, curve, curve_label, curve_errors, why_bytes, busy (no: no clock),
 * of_packages (yes), cores (yes: open counters of single cores), amd (yes). Commands on standard
 * input, one a line:
 *   read       one reading of every domain
 *   cores      one reading of every single core
 *   look       zones that appeared
 *   busy NS    what the clock of busy time says from now on
 *   busy -     ... that it cannot tell
 *   wait NS    puts the clock forward
 *   drop       becomes nobody
 *   confine    from now on only the system calls that energy.h allows, and write
 * Standard output: tab-separated lines, each answer closed by a line "end".
 */
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "energy/energy.h"

#define NOBODY	 65534
#define MAX_CPUS 64

#define SECOND_NS 1000000000ull

static uint64_t busy_now_ns, waited_ns;
static int confined;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

/* The linker puts it in place of the sources' clock_gettime(). */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	int error = __real_clock_gettime(clock, now);
	uint64_t ns = (uint64_t)now->tv_nsec + waited_ns;

	now->tv_sec += (time_t)(ns / SECOND_NS);
	now->tv_nsec = (long)(ns % SECOND_NS);
	return error;
}

static uint64_t busy_ns(void *ctx, unsigned package)
{
	(void)ctx;
	(void)package;
	return busy_now_ns;
}

/* Unbuffered: only write(2) is allowed once confined. */
static void say(const char *text)
{
	if (write(STDOUT_FILENO, text, strlen(text)) < 0)
		_exit(3);
}

/* Returns how many CPUs; fills `dies` if the text has any. */
static unsigned parse_cpus(const char *text, struct qj_cpu *cpus, uint16_t *dies, int *has_dies)
{
	unsigned count = 0;
	int used, more;

	while (count < MAX_CPUS &&
	       sscanf(text, "%u:%u%n", &cpus[count].cpu, &cpus[count].package, &used) == 2) {
		cpus[count].sibling = cpus[count].cpu;
		count++;
		text += used;
		if (sscanf(text, ":%hu%n", &dies[count - 1], &more) == 1) {
			text += more;
			*has_dies = 1;
		}
		text += *text == ',';
	}
	return count;
}

static void allow_only_reads(void)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 7, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 6, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getdents64, 5, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 4, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(4);
	confined = 1;
}

static void become_nobody(void)
{
	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		_exit(5);
}

static void show_domain(const char *what, const struct qj_domain *domain)
{
	char line[256];

	snprintf(line, sizeof(line), "%s\t%u\t%u\t%s\t%.17g\t%llu\t%llu\t%u\t%u\t%.17g\t%u\n", what,
		 domain->domain, domain->package, domain->name, domain->unit_j,
		 (unsigned long long)domain->range, (unsigned long long)domain->period_ns,
		 domain->kind, domain->error, domain->idle_w, domain->die);
	say(line);
}

static void show_source(const struct energy_source *source)
{
	const struct qj_domain *core;
	char line[256];

	snprintf(line, sizeof(line), "source\t%s\t%d\n", source->name, (int)source->grade);
	say(line);
	for (unsigned i = 0; i < source->domain_count; i++)
		show_domain("domain", &source->domains[i]);
	for (unsigned i = 0; (core = energy_core(source, i)); i++)
		show_domain("core", core);
	say("end\n");
}

static void show_reading(const struct qj_energy *reading)
{
	char line[256];

	snprintf(line, sizeof(line), "reading\t%llu\t%u\t%llu\t%u\t%u\t%u\n",
		 (unsigned long long)reading->t_ns, reading->half_width_ns,
		 (unsigned long long)reading->raw, reading->status, reading->package,
		 reading->domain);
	say(line);
}

static void show_readings(struct energy_source *source)
{
	struct qj_energy readings[ENERGY_MAX_DOMAINS];
	unsigned failed = energy_read(source, readings);
	char line[256];

	for (unsigned i = 0; i < source->domain_count; i++)
		show_reading(&readings[i]);
	snprintf(line, sizeof(line), "failed\t%u\nend\n", failed);
	say(line);
}

static void obey(struct energy_source *source, const char *command)
{
	struct qj_domain appeared[ENERGY_MAX_DOMAINS];
	struct qj_energy reading;

	if (!strcmp(command, "read")) {
		show_readings(source);
		return;
	}
	for (unsigned i = 0; !strcmp(command, "cores") && energy_core(source, i); i++) {
		energy_read_core(source, i, &reading);
		show_reading(&reading);
	}
	if (!strcmp(command, "look"))
		for (unsigned i = 0, count = energy_appeared(source, appeared); i < count; i++) {
			say(appeared[i].name);
			say("\n");
		}
	else if (!strcmp(command, "busy -"))
		busy_now_ns = ENERGY_BUSY_FAILED;
	else if (!strncmp(command, "busy ", 5))
		busy_now_ns = strtoull(command + 5, NULL, 10);
	else if (!strncmp(command, "wait ", 5))
		waited_ns += strtoull(command + 5, NULL, 10);
	else if (!strcmp(command, "drop"))
		become_nobody();
	else if (!strcmp(command, "confine"))
		allow_only_reads();
	else if (strcmp(command, "cores"))
		_exit(6);
	say("end\n");
}

/* Reads a line without its newline. False at the end of input. */
static int next_command(char *line, size_t room)
{
	size_t used = 0;

	while (used + 1 < room && read(STDIN_FILENO, line + used, 1) == 1) {
		if (line[used] == '\n') {
			line[used] = '\0';
			return 1;
		}
		used++;
	}
	return 0;
}

static const char *option(int argc, char **argv, const char *key)
{
	size_t length = strlen(key);

	for (int i = 3; i < argc; i++)
		if (!strncmp(argv[i], key, length) && argv[i][length] == '=')
			return argv[i] + length + 1;
	return NULL;
}

int main(int argc, char **argv)
{
	struct qj_cpu cpus[MAX_CPUS] = {0};
	uint16_t dies[MAX_CPUS] = {0};
	int has_dies = 0;
	struct energy_env env = {.cpus = cpus, .busy_ns = busy_ns};
	struct energy_source *source;
	const char *why_bytes;
	char *why, answer[64], command[128];
	size_t why_len;
	int error;

	if (argc < 3)
		return 2;
	env.cpu_count = parse_cpus(argv[2], cpus, dies, &has_dies);
	env.dies = has_dies ? dies : NULL;
	env.of_packages = option(argc, argv, "of_packages") != NULL;
	env.single_cores = option(argc, argv, "cores") != NULL;
	env.amd = option(argc, argv, "amd") != NULL;
	env.powercap_root = option(argc, argv, "powercap_root");
	env.perf_sysfs = option(argc, argv, "perf_sysfs");
	env.hwmon_root = option(argc, argv, "hwmon_root");
	if (!env.hwmon_root)
		env.hwmon_root = "/nonexistent";
	env.host_root = option(argc, argv, "host_root");
	env.curve = option(argc, argv, "curve");
	env.curve_label = option(argc, argv, "curve_label");
	env.curve_errors = option(argc, argv, "curve_errors");
	if (option(argc, argv, "busy"))
		env.busy_ns = NULL;
	why_bytes = option(argc, argv, "why_bytes");
	why_len = why_bytes ? strtoul(why_bytes, NULL, 10) : ENERGY_WHY_BYTES;
	why = malloc(why_len ? why_len : 1); /* on the heap, so that ASan sees an overrun */
	why[0] = '\0';

	error = energy_open(argv[1], &env, &source, why, why_len);
	snprintf(answer, sizeof(answer), "open\t%d\t", error);
	say(answer);
	say(why);
	say("\n");
	if (error) {
		say("end\n");
	} else {
		show_source(source);
		while (next_command(command, sizeof(command)))
			obey(source, command);
		if (confined)
			_exit(0); /* even close() would be a forbidden system call */
	}
	energy_close(source);
	free(why);
	return 0;
}
