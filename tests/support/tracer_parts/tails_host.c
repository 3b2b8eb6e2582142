// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The BPF programs' tails and the tracer's half of them on the host: tails_library.py calls what a
 * context switch and the end of a window call. Both see the same memory.
 */
#undef __TARGET_ARCH_x86
#undef __TARGET_ARCH_arm64
#define __TARGET_ARCH_x86 /* host/vmlinux.h defines its registers; real atomics are used anyway */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../bpf/core/tails.bpf.c"

/* Of tracer/idle_times.c, which is compiled by itself. */
struct stream;
struct qjoule_bpf;
struct idle_times *idle_times_new(struct qjoule_bpf *skeleton, struct stream *stream,
				  const struct qj_cpu *cpus, unsigned cpu_count);
void idle_times_free(struct idle_times *times);
void idle_times_next_window(struct idle_times *times, __u64 t_ns);
void idle_times_drain(struct idle_times *times, __u32 epoch, __u64 t0_ns, __u64 t1_ns);

static struct {
	struct qj_plan plan;
} shared;
extern const volatile struct qj_plan plan __attribute__((alias("shared")));
struct qj_control control;
struct qj_cpu_state cpus[QJ_MAX_CPUS];
struct sums_map sums_even, sums_odd;
struct sums_rows_map sums_rows;
struct namings_map namings;
struct idles_map idles;

static struct qj_idle *memory;
static struct idle_times *times;
static __thread __u32 this_one;

struct sums_row {
	struct sums_row *next;
	void *map;
	struct qj_sums_key key;
	__u32 index;
};
static struct sums_row *rows;
static struct qj_sums sums[2 * QJ_SUMS_ROWS];
static struct qj_aggregate *written;
static struct qj_package_time *awake;
static size_t written_count, awake_count;

/* ---- the kernel and libbpf ------------------------------------------------------------------ */

__u32 bpf_get_smp_processor_id(void)
{
	return this_one;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	if (map == &idles) {
		__u32 i = *(const __u32 *)key;

		return i < 2 * QJ_MAX_CPUS ? &memory[i] : NULL;
	}
	if (map == &sums_rows)
		return &sums[*(const __u32 *)key];
	for (struct sums_row *row = rows; row; row = row->next)
		if (row->map == map && !memcmp(&row->key, key, sizeof(row->key)))
			return &row->index;
	return NULL;
}

long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags)
{
	struct sums_row *row = calloc(1, sizeof(*row));

	row->map = map;
	memcpy(&row->key, key, sizeof(row->key));
	memcpy(&row->index, value, sizeof(row->index));
	/* Two rows of one key are as good as one. */
	row->next = __atomic_load_n(&rows, __ATOMIC_ACQUIRE);
	while (!__atomic_compare_exchange_n(&rows, &row->next, row, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE))
		;
	return 0;
}

int bpf_map__fd(const void *map)
{
	return (int)(long)map;
}

unsigned bpf_map__max_entries(const void *map)
{
	return 2 * QJ_MAX_CPUS;
}

static void *grown(void *records, size_t count, size_t bytes)
{
	return count & (count - 1) ? records : realloc(records, (count ? 2 * count : 1) * bytes);
}

void stream_add(struct stream *stream, int kind, const void *record, size_t bytes)
{
	if (kind == QJ_BLOCK_AGGREGATE) {
		written = grown(written, written_count, sizeof(*written));
		memcpy(&written[written_count++], record, bytes);
	} else {
		awake = grown(awake, awake_count, sizeof(*awake));
		memcpy(&awake[awake_count++], record, bytes);
	}
}

/* ---- for tails_library.py ------------------------------------------------------------------- */

/* The struct of host/qjoule.skel.h. */
static struct {
	void *idles;
	void *rodata;
} skeleton;

void tails_start(const struct qj_cpu *machine, unsigned count, unsigned core_threads)
{
	size_t bytes = 2 * QJ_MAX_CPUS * sizeof(struct qj_idle);
	int fd = memfd_create("idles", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, bytes))
		abort();
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memset(&shared, 0, sizeof(shared));
	memset(&control, 0, sizeof(control));
	memset(cpus, 0, sizeof(cpus));
	shared.plan.mode = QJ_MODE_LIVE;
	shared.plan.effects = 1;
	shared.plan.core_threads = core_threads;
	shared.plan.packages_at = QJ_MAX_CPUS;
	for (unsigned i = 0; i < count; i++) {
		unsigned cpu = machine[i].cpu, first = cpu;

		for (unsigned j = 0; j < count; j++)
			if (machine[j].package == machine[i].package && machine[j].cpu < first)
				first = machine[j].cpu;
		shared.plan.package_of[cpu] = machine[i].package;
		shared.plan.first_of_core[cpu] = machine[i].sibling;
		shared.plan.first_of_package[cpu] = first;
	}
	skeleton.idles = (void *)(long)fd;
	skeleton.rodata = &shared;
	times = idle_times_new((struct qjoule_bpf *)&skeleton, NULL, machine, count);
	if (!times || memory == MAP_FAILED)
		abort();
	close(fd);
}

void tails_stop(void)
{
	munmap(memory, 2 * QJ_MAX_CPUS * sizeof(struct qj_idle));
	idle_times_free(times);
	while (rows) {
		struct sums_row *next = rows->next;

		free(rows);
		rows = next;
	}
	written_count = awake_count = 0;
}

/* As label_slice(): from now on the CPU runs process `tgid`, 0: nothing. Returns what woke. */
unsigned tails_switch(unsigned number, unsigned tgid, __u64 now)
{
	struct qj_cpu_state *cpu = &cpus[number];
	unsigned woke;

	this_one = number;
	if (!tgid != !(cpu->busy_clock & QJ_CLOCK_RUNS)) {
		cpu->busy_clock = qj_busy_set(cpu->busy_clock, !!tgid, now);
		if (tgid)
			end_idle(cpu, now);
		else
			begin_idle(cpu, now);
	}
	cpu->owner_kind = tgid ? QJ_OWNER_PROCESS : QJ_OWNER_IDLE;
	cpu->tgid = tgid;
	woke = cpu->woke;
	cpu->woke = 0;
	return woke;
}

void tails_edge(__u64 t_ns)
{
	control.epoch++;
	control.epoch_ns = t_ns;
	idle_times_next_window(times, t_ns);
}

/* Drains the window that ended at t1_ns, as sums_drain() does. */
void tails_drain(__u64 t0_ns, __u64 t1_ns)
{
	void *map = control.epoch & 1 ? (void *)&sums_even : &sums_odd;
	struct sums_row **at = &rows;

	idle_times_drain(times, control.epoch - 1, t0_ns, t1_ns);
	while (*at) {
		struct sums_row *row = *at;
		struct qj_aggregate a = {
		    .t0_ns = t0_ns, .tgid = row->key.tgid, .package = row->key.package};

		if (row->map != map) {
			at = &row->next;
			continue;
		}
		memcpy(a.package_tail_ns, sums[row->index].package_tail_ns,
		       sizeof(a.package_tail_ns));
		memcpy(a.core_tail_ns, sums[row->index].core_tail_ns, sizeof(a.core_tail_ns));
		memset(&sums[row->index], 0, sizeof(sums[0]));
		stream_add(NULL, QJ_BLOCK_AGGREGATE, &a, sizeof(a));
		*at = row->next;
		free(row);
	}
	control.rows[(control.epoch - 1) & 1] = 0;
}

size_t tails_found(const struct qj_aggregate **aggregates, const struct qj_package_time **packages,
		   size_t *package_count)
{
	*aggregates = written;
	*packages = awake;
	*package_count = awake_count;
	return written_count;
}
