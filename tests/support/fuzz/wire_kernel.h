/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The kernel's helpers and the state that programs share, for one thread of a server. Included by
 * wire_host.c and redis_wire_host.c, which define the readable memory and the server-specific
 * parts.
 */
#ifndef QJOULE_WIRE_KERNEL_H
#define QJOULE_WIRE_KERNEL_H

const volatile struct qj_plan plan = {.seed = 1, .mode = QJ_MODE_RECORD, .rings = 1, .tags = 1};
struct qj_server_plan server_plans[QJ_MAX_SERVERS];
struct qj_control control;
struct qj_cpu_state cpus[QJ_MAX_CPUS];
struct threads_map threads;
struct rings_map rings;
struct counter_map cycles, instructions, llc_misses;
struct more_counters_map more_counters;
struct more_readings_map more_readings;
struct sums_map sums_even, sums_odd;
struct namings_map namings;
struct sampled_map sampled;
__u64 samples_used_ns;
struct seen_map seen;
struct prepared_map prepared;
struct seen_tags_map seen_tags;
struct tags_room_map tags_room;

static struct mm_struct memory;
static struct task_struct task = {
    .mm = &memory, .real_parent = &task, .pid = 1, .tgid = 1, .comm = "server"};
static struct thread_state thread;
static __u64 now_ns;

/* No sample is drawn: plan.samples is 0. */
__u32 bpf_get_prandom_u32(void)
{
	abort();
}

/* Only one task runs, so its label is always right. */
int relabel(struct qj_cpu_state *cpu, __u64 now)
{
	abort();
}

static int readable(const void *from, size_t bytes);
static void *own_map(void *map); /* defined by the includer, with one entry */

/* ---- maps: a list of entries, newest first ------------------------------------------------ */

struct entry {
	struct entry *next;
	void *map;
	__u8 key[16];
	__u8 value[64];
};
static struct entry *entries;

static size_t key_bytes(void *map)
{
	return map == &prepared ? sizeof(struct prepared_key) : sizeof(__u64);
}

static size_t value_bytes(void *map)
{
	if (map == &namings)
		return sizeof(__u64);
	return map == &prepared ? sizeof(struct prepared_statement) : sizeof(__u8);
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	if (map == &rings)
		return &rings;
	if (own_map(map))
		return own_map(map);
	for (struct entry *e = entries; e; e = e->next)
		if (e->map == map && !memcmp(e->key, key, key_bytes(map)))
			return e->value;
	return NULL;
}

long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags)
{
	void *known = bpf_map_lookup_elem(map, key);
	struct entry *e;

	if (!known) {
		e = calloc(1, sizeof(*e));
		e->map = map;
		e->next = entries;
		memcpy(e->key, key, key_bytes(map));
		entries = e;
		known = e->value;
	}
	memcpy(known, value, value_bytes(map));
	return 0;
}

static void forget_entries(void)
{
	while (entries) {
		struct entry *next = entries->next;

		free(entries);
		entries = next;
	}
}

/* ---- other helpers ------------------------------------------------------------------------ */

long bpf_probe_read_user(void *to, __u32 bytes, const void *from)
{
	if (!readable(from, bytes)) {
		memset(to, 0, bytes);
		return -14; /* EFAULT */
	}
	memcpy(to, from, bytes);
	return 0;
}

long bpf_probe_read_kernel(void *to, __u32 bytes, const void *from)
{
	memcpy(to, from, bytes);
	return 0;
}

long bpf_probe_read_user_str(void *to, __u32 bytes, const void *from)
{
	char *out = to;

	if (!bytes)
		return 0;
	for (__u32 i = 0; i < bytes; i++) {
		if (i == bytes - 1) {
			out[i] = 0;
			return bytes;
		}
		if (!readable((const char *)from + i, 1)) {
			memset(to, 0, bytes);
			return -14;
		}
		out[i] = ((const char *)from)[i];
		if (!out[i])
			return i + 1;
	}
	return 0;
}

long bpf_probe_read_kernel_str(void *to, __u32 bytes, const void *from)
{
	strncpy(to, from, bytes - 1);
	return 0;
}

long bpf_loop(__u32 times, void *step, void *context, __u64 flags)
{
	long (*take)(__u32, void *) = (long (*)(__u32, void *))step;
	__u32 i = 0;

	while (i < times && !take(i, context))
		i++;
	return i;
}

long bpf_perf_event_read_value(void *map, __u64 flags, void *value, __u32 bytes)
{
	return -2;
}

__u64 bpf_ktime_get_ns(void)
{
	return now_ns += 1000000; /* no rate limit applies here */
}

__u64 bpf_get_current_pid_tgid(void)
{
	return 1ULL << 32 | 1;
}

__u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return &task;
}

#endif
