/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The kernel's helpers, the state that programs share, for one thread of a server, and what they
 * would send to the tracer. Included by wire_host.c and redis_wire_host.c, which define the
 * readable memory and the server-specific parts.
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

/* ---- records for the tracer --------------------------------------------------------------- */

#define MAX_TEXTS 4096

struct text {
	__u64 shape;
	__u32 bytes;
	__u32 dialect;
	char *text;
};

static struct text texts[MAX_TEXTS];
static size_t n_texts;
static struct wire_query *queries;
static __u64 query_tags[WIRE_RECORDS];
static size_t n_queries, n_sessions, session_bytes, n_roles;
static struct wire_name *names;
static size_t n_names;

static void keep_text(const struct qj_ring_text *r)
{
	struct text *t;

	if (n_texts == MAX_TEXTS)
		return;
	t = &texts[n_texts++];
	t->shape = r->text.shape;
	t->bytes = r->text.text_bytes;
	t->dialect = r->text.dialect;
	if (t->dialect >= QJ_DIALECT_TAGS && t->bytes > TAGS_BYTES)
		abort();
	t->text = malloc(t->bytes + 1);
	memcpy(t->text, r->bytes, t->bytes);
	t->text[t->bytes] = 0;
}

static void keep_query(const struct qj_query *q)
{
	struct wire_query *kept;

	if (!queries)
		queries = calloc(WIRE_RECORDS, sizeof(*queries));
	if (n_queries == WIRE_RECORDS)
		return;
	query_tags[n_queries] = q->tags;
	kept = &queries[n_queries++];
	*kept = (struct wire_query){.shape = q->shape,
				    .executions = q->executions,
				    .flags = q->flags,
				    .command = q->command,
				    .rows = q->rows};
	memcpy(kept->sqlstate, q->sqlstate, sizeof(q->sqlstate));
	if (q->begin_ns > q->end_ns || !q->query)
		abort();
	if (q->flags & QJ_QUERY_OK && q->flags & QJ_QUERY_ERROR)
		abort();
}

static void keep_session(const struct qj_ring_session *r)
{
	struct wire_name *kept;

	n_sessions++;
	session_bytes += r->session.text_bytes;
	if (r->session.event != QJ_SESSION_APPLICATION || n_names == WIRE_RECORDS)
		return;
	if (r->session.text_bytes > sizeof(kept->bytes))
		abort();
	if (!names)
		names = calloc(WIRE_RECORDS, sizeof(*names));
	kept = &names[n_names++];
	kept->count = r->session.text_bytes;
	memcpy(kept->bytes, r->bytes, kept->count);
}

struct wire_record {
	__u64 bytes;
	__u8 record[];
};

/* Its caller does not see the size: a record may be shorter than the struct that it begins. */
__attribute__((noinline)) void *bpf_ringbuf_reserve(void *ring, __u64 bytes, __u64 flags)
{
	struct wire_record *r = malloc(sizeof(*r) + bytes);

	r->bytes = bytes;
	memset(r->record, 0xa5, bytes);
	return r->record;
}

void bpf_ringbuf_discard(void *record, __u64 flags)
{
	free((__u8 *)record - offsetof(struct wire_record, record));
}

void bpf_ringbuf_submit(void *record, __u64 flags)
{
	const struct qj_ring_head *head = record;

	if (head->block == QJ_BLOCK_TEXT) {
		keep_text(record);
	} else if (head->block == QJ_BLOCK_QUERY) {
		keep_query(&((const struct qj_ring_query *)record)->query);
	} else if (head->block == QJ_BLOCK_SESSION) {
		keep_session(record);
	} else if (head->block == QJ_BLOCK_TASK) {
		n_roles++;
	}
	bpf_ringbuf_discard(record, 0);
}

const struct wire_name *wire_names(size_t *count)
{
	*count = n_names;
	return names;
}

const struct wire_query *wire_queries(void)
{
	return queries;
}

size_t wire_sessions(void)
{
	return n_sessions;
}

size_t wire_session_bytes(void)
{
	return session_bytes;
}

size_t wire_roles(void)
{
	return n_roles;
}

/* ---- a connection ------------------------------------------------------------------------- */

static void begin_connection(int server_kind, int phase)
{
	forget_entries();
	while (n_texts)
		free(texts[--n_texts].text);
	memset(&thread, 0, sizeof(thread));
	memset(&cpus[0], 0, sizeof(cpus[0]));
	n_queries = n_sessions = session_bytes = n_roles = n_names = 0;
	task.bpf_storage = &thread;
	cpus[0].pid = cpus[0].tgid = 1;
	thread.server = 1;
	thread.server_kind = server_kind;
	thread.rung = QJ_RUNG_SOCKET;
	thread.phase = phase;
}

__u32 wire_loss(int cause)
{
	return cpus[0].loss[cause & (QJ_LOSS_SLOTS - 1)];
}

#endif
