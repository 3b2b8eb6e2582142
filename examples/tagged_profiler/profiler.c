// SPDX-License-Identifier: Apache-2.0
/*
 * tagged_profiler [-a] [-f HZ] SECONDS: a sampling profiler that knows which query each sample is
 * of, from the map that `qjoule record --pin-map` pins.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <libgen.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "profiler.skel.h"
#include "samples.h"
#include "thread_query.h"

/* Exit codes. */
#define FAILED	   1
#define CANNOT_TAG 2 /* wrong arguments, or no map that we understand */

static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
	(void)number;
	stopping = 1;
}

/* Opens what is pinned. Its number tells it from the map of a recorder that comes later. */
static int open_pin(struct bpf_map_info *info)
{
	int fd = bpf_obj_get(QJ_THREADS_PIN), err;
	uint32_t size = sizeof(*info);

	memset(info, 0, sizeof(*info));
	if (fd < 0)
		return -errno;
	err = bpf_obj_get_info_by_fd(fd, info, &size) ? -errno : 0;
	if (!err && (info->type != BPF_MAP_TYPE_TASK_STORAGE ||
		     info->value_size < sizeof(struct qj_thread_query)))
		err = -EINVAL;
	if (!err)
		return fd;
	close(fd);
	return err;
}

static void fail_without_pin(int err)
{
	if (err == -ENOENT)
		error(CANNOT_TAG, 0,
		      "no recorder has pinned " QJ_THREADS_PIN
		      ": start `qjoule record --pin-map` first");
	if (err == -EACCES || err == -EPERM)
		error(CANNOT_TAG, 0, QJ_THREADS_PIN " is for root: run this with sudo");
	if (err == -EINVAL)
		error(CANNOT_TAG, 0, QJ_THREADS_PIN " is another kind of map");
	error(CANNOT_TAG, -err, "cannot open " QJ_THREADS_PIN);
}

/* While a recorder writes into its map, it has the pin's directory locked. */
static bool is_left_over(void)
{
	char pin[] = QJ_THREADS_PIN;
	int directory = open(dirname(pin), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool free = directory >= 0 && !flock(directory, LOCK_SH | LOCK_NB);

	close(directory); /* also if it is none */
	return free;
}

#define MOST_CPUS 4096

static struct bpf_link *links[MOST_CPUS];

/* Each CPU's clock, `hz` times a second. A CPU that is offline has none. */
static void sample_all(const struct bpf_program *program, unsigned hz)
{
	struct perf_event_attr attr = {.size = sizeof(attr),
				       .type = PERF_TYPE_SOFTWARE,
				       .config = PERF_COUNT_SW_CPU_CLOCK,
				       .freq = 1,
				       .sample_freq = hz};
	int cpus = libbpf_num_possible_cpus(), fd;

	for (int cpu = 0; cpu < cpus && cpu < MOST_CPUS; cpu++) {
		fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		if (fd < 0 && errno == ENODEV)
			continue;
		links[cpu] = fd < 0 ? NULL : bpf_program__attach_perf_event(program, fd);
		if (!links[cpu])
			error(FAILED, errno, "cannot sample CPU %d", cpu);
	}
}

static void stop_sampling(void)
{
	for (int cpu = 0; cpu < MOST_CPUS; cpu++)
		bpf_link__destroy(links[cpu]);
}

/* Samples until it is time, or until the recorder ends: what it leaves in the map is then old. */
static void wait_for(struct profiler *skeleton, uint32_t map, double seconds)
{
	const double step = 0.5;
	struct bpf_map_info info;
	int fd;

	while (!stopping && seconds > 0 && !skeleton->bss->other_abi) {
		usleep((seconds < step ? seconds : step) * 1e6);
		seconds -= step;
		fd = open_pin(&info);
		if (fd < 0 || info.id != map || is_left_over()) {
			fprintf(stderr, "tagged_profiler: the recorder has ended\n");
			stopping = 1;
		}
		if (fd >= 0)
			close(fd);
	}
}

struct row {
	struct sample_key key;
	uint64_t samples;
};

static int by_shape(const void *a, const void *b)
{
	const struct row *one = a, *other = b;

	if (one->key.shape != other->key.shape)
		return one->key.shape < other->key.shape ? -1 : 1;
	if (!one->key.query != !other->key.query)
		return !one->key.query - !other->key.query;
	return !one->key.tgid - !other->key.tgid;
}

static int by_samples(const void *a, const void *b)
{
	const struct row *one = a, *other = b;

	return one->samples == other->samples ? 0 : one->samples < other->samples ? 1 : -1;
}

/* All that was counted; returns how many rows. */
static unsigned read_rows(int map, struct row *rows)
{
	struct sample_key key, *before = NULL;
	unsigned count = 0;

	while (count < MOST_KEYS && !bpf_map_get_next_key(map, before, &key)) {
		rows[count].key = key;
		if (!bpf_map_lookup_elem(map, &key, &rows[count].samples))
			count++;
		before = &key;
	}
	return count;
}

/* One row for each shape; what has none is of a query, of a server, or of others. */
static unsigned add_up(struct row *rows, unsigned count)
{
	unsigned kept = 0;

	qsort(rows, count, sizeof(*rows), by_shape);
	for (unsigned i = 0; i < count; i++) {
		if (kept && !by_shape(&rows[kept - 1], &rows[i]))
			rows[kept - 1].samples += rows[i].samples;
		else
			rows[kept++] = rows[i];
	}
	return kept;
}

static const char *what(const struct sample_key *key)
{
	static char shape[32];

	snprintf(shape, sizeof(shape), "%" PRIu64, (uint64_t)key->shape);
	if (key->shape)
		return shape;
	if (key->query)
		return "(query, statement not known yet)";
	return key->tgid ? "(server, no query)" : "(other processes)";
}

static void print_table(struct row *rows, unsigned count)
{
	uint64_t total = 0;

	count = add_up(rows, count);
	qsort(rows, count, sizeof(*rows), by_samples);
	for (unsigned i = 0; i < count; i++)
		total += rows[i].samples;
	printf("%9s %7s  %s\n", "samples", "share", "shape");
	for (unsigned i = 0; i < count; i++)
		printf("%9" PRIu64 " %5.1f %%  %s\n", rows[i].samples,
		       100.0 * rows[i].samples / total, what(&rows[i].key));
}

static void print_all(const struct row *rows, unsigned count)
{
	puts("samples,shape,query,tgid,tid");
	for (unsigned i = 0; i < count; i++)
		printf("%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%u,%u\n", rows[i].samples,
		       (uint64_t)rows[i].key.shape, (uint64_t)rows[i].key.query, rows[i].key.tgid,
		       rows[i].key.tid);
}

/* Shows what was counted. */
static void show(const struct profiler *skeleton, bool all)
{
	struct row *rows = calloc(MOST_KEYS, sizeof(*rows));
	unsigned count;

	if (!rows)
		error(FAILED, errno, "cannot show what was counted");
	count = read_rows(bpf_map__fd(skeleton->maps.samples), rows);
	if (all)
		print_all(rows, count);
	else
		print_table(rows, count);
	if (skeleton->bss->uncounted)
		fprintf(stderr, "tagged_profiler: %" PRIu64 " samples had no room\n",
			(uint64_t)skeleton->bss->uncounted);
	free(rows);
}

struct wanted {
	bool all;
	unsigned hz;
	double seconds;
};

static struct wanted parse(int argc, char **argv)
{
	struct wanted wanted = {.hz = 99};
	int option;

	while ((option = getopt(argc, argv, "af:")) != -1) {
		wanted.all |= option == 'a';
		if (option != 'a')
			wanted.hz = option == 'f' ? strtoul(optarg, NULL, 10) : 0;
	}
	if (optind + 1 == argc)
		wanted.seconds = strtod(argv[optind], NULL);
	if (!wanted.hz || !(wanted.seconds > 0))
		error(CANNOT_TAG, 0,
		      "usage: tagged_profiler [-a] [-f HZ] SECONDS\n"
		      "  -a  each query of each thread, as CSV");
	return wanted;
}

int main(int argc, char **argv)
{
	struct wanted wanted = parse(argc, argv);
	struct bpf_map_info info;
	struct profiler *skeleton;
	int map = open_pin(&info);

	if (map < 0)
		fail_without_pin(map);
	if (is_left_over())
		error(CANNOT_TAG, 0, "the recorder that has pinned " QJ_THREADS_PIN " was killed");
	skeleton = profiler__open();
	if (skeleton)
		skeleton->rodata->each = wanted.all;
	/* This also takes the size of the values from the pinned map. */
	if (!skeleton || bpf_map__reuse_fd(skeleton->maps.threads, map) || profiler__load(skeleton))
		error(FAILED, errno, "cannot load the BPF program");
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	sample_all(skeleton->progs.on_sample, wanted.hz);
	fprintf(stderr, "tagged_profiler: sampling\n");
	wait_for(skeleton, info.id, wanted.seconds);
	stop_sampling();
	if (skeleton->bss->other_abi)
		error(CANNOT_TAG, 0, "the recorder's map has ABI %u, and this program knows %u",
		      skeleton->bss->other_abi, QJ_THREADS_ABI);
	show(skeleton, wanted.all);
	profiler__destroy(skeleton);
	return 0;
}
