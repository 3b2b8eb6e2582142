// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The socket mode's parsers on the host: one thread of a server that reads from one client, the
 * kernel's helpers, and what the programs would send to the tracer. For PostgreSQL and MySQL the
 * server reads into a buffer; for Redis, the hooks of bpf/redis/sockets.bpf.c are called.
 */
#include "host.h"

#undef __TARGET_ARCH_x86
#undef __TARGET_ARCH_arm64
#define __TARGET_ARCH_x86 /* host/vmlinux.h defines its registers */

#include "core/query.bpf.c"
#include "core/statement.bpf.c"
#include "core/tags.bpf.c"
#include "mysql/wire.bpf.h"
#include "postgres/wire.bpf.h"
#include "postgres/requests.bpf.c"
#include "postgres/reply.bpf.c"
#include "postgres/skipped.bpf.c"
#include "redis/sockets.bpf.c"
#include "redis/named.bpf.c"

#define WIRE_BUFFER  (64 * 1024)
#define WIRE_RECORDS (1 << 16)

/*
 * A query that ended. `text` is its shape's text, of `text_bytes` bytes; NULL if none was reported.
 */
struct wire_query {
	__u64 shape;
	__u32 executions;
	__u32 flags;
	__u32 command;
	__u32 text_bytes;
	const char *text;
	__u64 rows;
	char sqlstate[8];
	const char *tags; /* its tags, of `tags_bytes` bytes; NULL: none */
	__u32 tags_bytes;
	__u32 tags_dialect;
};

/* The name that an application gives itself. */
struct wire_name {
	__u32 count;
	char bytes[512];
};

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
struct sums_rows_map sums_rows;
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

/* ---- the server's memory ------------------------------------------------------------------ */

static struct tags_room room;
static struct postgres_pieces pieces;
static __u8 buffer[2 * WIRE_BUFFER]; /* a server's buffer stays in place while a packet comes in */
static size_t buffer_bytes;
static __u8 replies[POSTGRES_SEND_BUFFER];
static const __u8 *call_buffer; /* of Redis's current system call */
static size_t call_bytes;
static struct sock client;
static struct pt_regs registers;
static struct redis_connection connection;
static struct redis_naming naming;
static int has_connection, has_naming;
static struct key_text request_text;

static int within(const void *from, size_t bytes, const __u8 *begin, size_t size)
{
	__u64 at = (__u64)from - (__u64)begin;

	return at <= size && bytes <= size - at;
}

static int readable(const void *from, size_t bytes)
{
	__u64 at = (__u64)from - (__u64)replies;

	if (at < sizeof(replies)) { /* nothing beyond the buffer is read */
		if (bytes > sizeof(replies) - at)
			abort();
		return 1;
	}
	return within(from, bytes, buffer, buffer_bytes) ||
	       within(from, bytes, call_buffer, call_bytes);
}

static void *own_map(void *map)
{
	return map == &key_texts ? &request_text : NULL;
}

void *bpf_task_storage_get(void *map, struct task_struct *of, void *value, __u64 flags)
{
	if (map == &postgres_pieces)
		return &pieces;
	return map == &tags_room ? (void *)&room : &thread;
}

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
	void *stored = bpf_map_lookup_elem(map, key);
	struct entry *e;

	if (!stored) {
		e = calloc(1, sizeof(*e));
		e->map = map;
		e->next = entries;
		memcpy(e->key, key, key_bytes(map));
		entries = e;
		stored = e->value;
	}
	memcpy(stored, value, value_bytes(map));
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
	const char *end = bytes ? memccpy(to, from, 0, bytes - 1) : to;

	if (bytes && !end) {
		((char *)to)[bytes - 1] = 0;
		return bytes;
	}
	return end - (char *)to;
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
	struct wire_query *recorded;

	if (!queries)
		queries = calloc(WIRE_RECORDS, sizeof(*queries));
	if (n_queries == WIRE_RECORDS)
		return;
	query_tags[n_queries] = q->tags;
	recorded = &queries[n_queries++];
	*recorded = (struct wire_query){.shape = q->shape,
					.executions = q->executions,
					.flags = q->flags,
					.command = q->command,
					.rows = q->rows};
	memcpy(recorded->sqlstate, q->sqlstate, sizeof(q->sqlstate));
	if (q->begin_ns > q->end_ns || !q->query)
		abort();
	if (q->flags & QJ_QUERY_OK && q->flags & QJ_QUERY_ERROR)
		abort();
}

static void keep_session(const struct qj_ring_session *r)
{
	struct wire_name *name;

	n_sessions++;
	session_bytes += r->session.text_bytes;
	if (r->session.event != QJ_SESSION_APPLICATION || n_names == WIRE_RECORDS)
		return;
	if (r->session.text_bytes > sizeof(name->bytes))
		abort();
	if (!names)
		names = calloc(WIRE_RECORDS, sizeof(*names));
	name = &names[n_names++];
	name->count = r->session.text_bytes;
	memcpy(name->bytes, r->bytes, name->count);
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

long bpf_ringbuf_output(void *ring, void *record, __u64 bytes, __u64 flags)
{
	void *copy = bpf_ringbuf_reserve(ring, bytes, flags);

	memcpy(copy, record, bytes);
	bpf_ringbuf_submit(copy, flags);
	return 0;
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
	thread.attach_mode = QJ_ATTACH_SOCKET;
	thread.phase = phase;
}

__u32 wire_loss(int cause)
{
	return cpus[0].loss[cause & (QJ_LOSS_SLOTS - 1)];
}

/* There is no server, so nothing is found in its memory. */
int mysql_find_text(struct qj_cpu_state *cpu, struct thread_state *of)
{
	return 0;
}

static int session_rules = QJ_SHAPE_DEFAULT;

int mysql_find_rules(struct thread_state *of, __u64 thd)
{
	return session_rules;
}

/* From here on all sessions have these. */
void wire_rules(int rules)
{
	session_rules = rules;
}

int mysql_find_names(struct qj_cpu_state *cpu, struct thread_state *of)
{
	return 0;
}

int postgres_find_prepared(struct qj_cpu_state *cpu, struct thread_state *of, __u64 addr)
{
	return 0;
}

/* A new connection; `phase`: enum phase of bpf/core/state.bpf.h. */
void wire_open(int server_kind, int phase)
{
	begin_connection(server_kind, phase);
	buffer_bytes = 0;
	memset(replies, 0, sizeof(replies));
	if (server_kind == QJ_SERVER_POSTGRES)
		thread.postgres.send_buffer = (__u64)replies;
	session_begin(&cpus[0], &thread);
}

/* Puts these bytes at `place`. Bytes before it stay, bytes after it are gone. */
static void fill(const __u8 *bytes, size_t count, size_t place)
{
	if (place > WIRE_BUFFER)
		place = WIRE_BUFFER;
	if (count > WIRE_BUFFER)
		count = WIRE_BUFFER;
	if (place > buffer_bytes)
		memset(buffer + buffer_bytes, 0, place - buffer_bytes);
	if (count)
		memcpy(buffer + place, bytes, count);
	buffer_bytes = place + count;
}

/* The server reads these bytes to this place in its buffer; nothing beyond them is readable. */
void wire_receive(const __u8 *bytes, size_t count, size_t place)
{
	__u64 addr;

	if (!count || thread.phase == PHASE_OPAQUE)
		return;
	fill(bytes, count, place);
	addr = (__u64)buffer + buffer_bytes - count;
	if (thread.server_kind == QJ_SERVER_MYSQL)
		mysql_read(&cpus[0], &thread, addr, count, bpf_ktime_get_ns());
	else
		postgres_read(&cpus[0], &thread, addr, count, bpf_ktime_get_ns());
}

/* The backend has failed at the message after which `left` bytes of its last read remain. */
void wire_failed(size_t left)
{
	postgres_skip(&cpus[0], &thread, left);
}

void wire_wait(void)
{
	if (thread.phase == PHASE_OPAQUE)
		return;
	if (thread.server_kind == QJ_SERVER_MYSQL)
		mysql_wait(&cpus[0], &thread, (__u64)buffer, bpf_ktime_get_ns());
	else
		postgres_wait(&cpus[0], &thread, bpf_ktime_get_ns());
}

/* PostgreSQL has a separate buffer for replies. */
void wire_reply(const __u8 *bytes, size_t count)
{
	if (thread.server_kind != QJ_SERVER_POSTGRES)
		fill(bytes, count, 0);
	else if (count)
		memcpy(replies, bytes, count < sizeof(replies) ? count : sizeof(replies));
}

size_t wire_close(void)
{
	query_abandon(&cpus[0], &thread, bpf_ktime_get_ns());
	send_ended(&cpus[0], &thread);
	for (size_t i = 0; i < n_queries; i++) {
		for (size_t t = 0; t < n_texts; t++) {
			if (texts[t].dialect < QJ_DIALECT_TAGS &&
			    texts[t].shape == queries[i].shape) {
				queries[i].text = texts[t].text;
				queries[i].text_bytes = texts[t].bytes;
			}
			if (texts[t].dialect >= QJ_DIALECT_TAGS &&
			    texts[t].shape == query_tags[i]) {
				queries[i].tags = texts[t].text;
				queries[i].tags_bytes = texts[t].bytes;
				queries[i].tags_dialect = texts[t].dialect;
			}
		}
	}
	return n_queries;
}

/* ---- Redis -------------------------------------------------------------------------------- */

void *bpf_sk_storage_get(void *map, struct sock *sk, void *value, __u64 flags)
{
	int *has = map == &redis_namings ? &has_naming : &has_connection;

	if (!*has && !(flags & BPF_LOCAL_STORAGE_GET_F_CREATE))
		return NULL;
	*has = 1;
	return map == &redis_namings ? (void *)&naming : &connection;
}

long bpf_task_pt_regs(struct task_struct *of)
{
	return (long)&registers;
}

static void call(unsigned long number, const __u8 *bytes, size_t count)
{
	call_buffer = bytes;
	call_bytes = count;
	registers.orig_ax = number;
	registers.si = (unsigned long)bytes;
	if (number == SYS_READ)
		redis_recv(&client, count, 0);
	else
		redis_send(&client, count, 0);
	call_bytes = 0;
	if (connection.command.kept.name_bytes > QJ_KEY_NAME_BYTES ||
	    connection.command.kept.key_bytes > QJ_KEY_BYTES ||
	    naming.name_bytes > REDIS_CLIENT_LONG)
		abort();
}

void redis_open(int is_new)
{
	begin_connection(QJ_SERVER_REDIS, is_new ? PHASE_STARTUP : PHASE_UNKNOWN);
	memset(&connection, 0, sizeof(connection));
	memset(&naming, 0, sizeof(naming));
	has_connection = has_naming = 0;
}

static void call_copy(unsigned long number, const __u8 *bytes, size_t count)
{
	__u8 *copy;

	if (!count)
		return;
	copy = host_copy(bytes, count);
	call(number, copy, count);
	free(copy);
}

void redis_receive(const __u8 *bytes, size_t count)
{
	call_copy(SYS_READ, bytes, count);
}

void redis_reply(const __u8 *bytes, size_t count)
{
	call_copy(SYS_WRITE, bytes, count);
}

size_t redis_close(void)
{
	call(SYS_READ, 0, 0);
	send_ended(&cpus[0], &thread);
	return n_queries;
}
