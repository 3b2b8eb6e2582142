// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Statements in a backend's memory. First those prepared before tracing began, in attach mode
 * `socket`, found in the backend's own table of prepared statements as by FetchPreparedStatement()
 * (src/backend/commands/prepare.c). The table is one of dynahash.c: segments of buckets, each a
 * chain of elements. An element is a link, the hash of the key, and the entry, a PreparedStatement
 * that begins with its name. Wrong offsets find nothing: the hash, the name and a mark of the plan
 * must all match.
 */
#include "requests.bpf.h"
#include "next_read.bpf.h"
#include "text.bpf.h"
#include "core/statement.bpf.h"

#define NAME_BYTES 64	     /* NAMEDATALEN */
#define PLAN_MARK  195726186 /* CACHEDPLANSOURCE_MAGIC, src/include/utils/plancache.h */
#define CHAIN_MAX  64	     /* elements of a bucket that are searched */

/* HTAB, src/backend/utils/hash/dynahash.c: its beginning, and the fields after its key size. */
struct table {
	__u64 header;
	__u64 segments;
};

#define TABLE_SIZES 80
struct table_sizes {
	__u64 segment_size;
	__u32 segment_shift;
	__u32 reserved;
};

struct buckets {
	__u32 last;
	__u32 high_mask;
	__u32 low_mask;
};

/* HASHELEMENT */
struct element {
	__u64 next;
	__u32 hash;
	__u32 reserved;
};

/* In thread->scratch: a name as words, filled with zeros. */
#define WANTED_AT 0
#define FOUND_AT  128
#define NAME_ROOM 72 /* hashing reads two words more */

struct search {
	struct thread_state *thread;
	__u64 addr; /* address of the current element */
	__u32 hash;
	__u8 found;
};

static __always_inline __u32 rotated(__u32 x, int by)
{
	return x << by | x >> (32 - by);
}

/* hash_bytes() of src/common/hashfn.c, after Bob Jenkins' lookup3. */
static __always_inline __u32 hash_of(const __u32 *word, __u32 bytes)
{
	__u32 a = 0x9e3779b9 + bytes + 3923095, b = a, c = a;

	for (int i = 0; i < NAME_BYTES / 12; i++) {
		if (bytes < 12)
			break;
		a += word[0];
		b += word[1];
		c += word[2];
		word += 3;
		bytes -= 12;
		a = (a - c) ^ rotated(c, 4);
		c += b;
		b = (b - a) ^ rotated(a, 6);
		a += c;
		c = (c - b) ^ rotated(b, 8);
		b += a;
		a = (a - c) ^ rotated(c, 16);
		c += b;
		b = (b - a) ^ rotated(a, 19);
		a += c;
		c = (c - b) ^ rotated(b, 4);
		b += a;
	}
	a += word[0];
	b += word[1];
	c += word[2] << 8; /* the lowest byte is for the length */
	c = (c ^ b) - rotated(b, 14);
	a = (a ^ c) - rotated(c, 11);
	b = (b ^ a) - rotated(a, 25);
	c = (c ^ b) - rotated(b, 16);
	a = (a ^ c) - rotated(c, 4);
	b = (b ^ a) - rotated(a, 14);
	return (c ^ b) - rotated(b, 24);
}

static __always_inline __u64 pointer_at(__u64 addr)
{
	__u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (const void *)addr);
	return value;
}

/* Copies a name into the scratch buffer. Returns its length. */
static __always_inline __u32 take_name(struct thread_state *thread, __u32 at, __u64 addr)
{
	long bytes;

	__builtin_memset(thread->scratch + at, 0, NAME_ROOM);
	bytes = read_text_str(thread, thread->scratch + at, NAME_BYTES, addr);
	return bytes > 0 ? bytes - 1 : 0;
}

static __always_inline bool names_are_equal(const struct thread_state *thread)
{
	const __u64 *wanted = (const __u64 *)(thread->scratch + WANTED_AT);
	const __u64 *found = (const __u64 *)(thread->scratch + FOUND_AT);

	for (__u32 i = 0; i < NAME_BYTES / sizeof(__u64); i++)
		if (wanted[i] != found[i])
			return false;
	return true;
}

static long search_step(__u32 i, struct search *search)
{
	struct element element = {};

	if (!search->addr ||
	    bpf_probe_read_user(&element, sizeof(element), (const void *)search->addr))
		return 1;
	if (element.hash == search->hash) {
		take_name(search->thread, FOUND_AT, search->addr + sizeof(element));
		if (names_are_equal(search->thread)) {
			search->found = 1;
			return 1;
		}
	}
	search->addr = element.next;
	return 0;
}

/* Returns the address of the first element of this hash's bucket; 0: none. */
static __always_inline __u64 bucket_of(const struct thread_state *thread, __u32 hash)
{
	const volatile __u64 *facts = facts_of(thread);
	__u64 addr = postgres_pointer(facts[QJ_POSTGRES_STATEMENTS]), segment;
	struct table_sizes sizes = {};
	struct buckets buckets = {};
	struct table table = {};
	__u32 bucket;

	if (!addr || !facts[QJ_POSTGRES_LAST_BUCKET])
		return 0;
	if (bpf_probe_read_user(&table, sizeof(table), (const void *)addr) ||
	    bpf_probe_read_user(&sizes, sizeof(sizes), (const void *)(addr + TABLE_SIZES)) ||
	    bpf_probe_read_user(&buckets, sizeof(buckets),
				(const void *)(table.header + facts[QJ_POSTGRES_LAST_BUCKET])))
		return 0;
	bucket = hash & buckets.high_mask;
	if (bucket > buckets.last)
		bucket &= buckets.low_mask;
	segment = pointer_at(table.segments + (bucket >> (sizes.segment_shift & 31)) * 8ULL);
	return segment ? pointer_at(segment + (bucket & (sizes.segment_size - 1)) * 8) : 0;
}

int postgres_find_prepared(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr)
{
	struct search search = {.thread = thread};
	const volatile __u64 *facts;
	__u64 plan, text;
	__u32 mark = 0;

	if (!cpu || !thread)
		return 0;
	facts = facts_of(thread);
	search.hash = hash_of((const __u32 *)(thread->scratch + WANTED_AT),
			      take_name(thread, WANTED_AT, addr));
	thread->collected = 0; /* all later reads are from the server's memory */
	search.addr = bucket_of(thread, search.hash);
	bpf_loop(CHAIN_MAX, search_step, &search, 0);
	if (!search.found)
		return 0;
	plan = pointer_at(search.addr + sizeof(struct element) + facts[QJ_POSTGRES_PLAN]);
	bpf_probe_read_user(&mark, sizeof(mark), (const void *)plan);
	text = pointer_at(plan + facts[QJ_POSTGRES_PLAN_TEXT]);
	if (mark != PLAN_MARK || !text)
		return 0;
	/* The session may have had other settings when it prepared this. */
	if (!postgres_shape(cpu, thread, text, QJ_TEXT_BYTES, 0,
			    QJ_SHAPE_BACKSLASH_UNKNOWN + QJ_SHAPE_BACKSLASH_SAFE))
		return 0;
	return at_most(thread->statement_bytes, QJ_TEXT_BYTES) ?: 1;
}

/*
 * The queryid of a statement, only if the user requests it. The server has it in the plan that
 * PortalRun(portal) executes, if it computes ids at all (compute_query_id; from 14 on). A second
 * program on the function where the attach mode `symbol` counts executions: other functions that
 * pass a queryid begin with instructions that a probe has to single-step, or some executions do not
 * call them. PostgreSQL 14-18: src/include/utils/portal.h, nodes/pg_list.h, nodes/plannodes.h.
 */

static __always_inline void report_id(struct qj_cpu_state *cpu, struct thread_state *thread,
				      __u64 id)
{
	static const __u8 yes = 1;
	struct qj_told_id told = {.shape = thread->shape, .id = id};
	__u64 key = session_of(session_of(id) ^ thread->shape) ?: 1;
	struct qj_ring_text *r;

	if (thread->postgres.last_id == key)
		return;
	thread->postgres.last_id = key;
	if (bpf_map_lookup_elem(&seen, &key))
		return;
	r = reserve_text(sizeof(told));
	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		thread->postgres.last_id = 0;
		return;
	}
	fill_text(r, key, sizeof(told), sizeof(told), thread->server, QJ_DIALECT_POSTGRES_QUERY_ID);
	__builtin_memcpy(r->bytes, &told, sizeof(told));
	submit(r);
	bpf_map_update_elem(&seen, &key, &yes, BPF_ANY);
}

#define PORTAL_START_TO_CREATED 16 /* from atStart to creation_time: struct portal_state */

/* List, src/include/nodes/pg_list.h */
struct list {
	__u32 type;
	__u32 length;
	__u64 reserved;
	__u64 elements;
};

/* Returns a portal's queryid; 0 for several statements (rules), where no id is the client's. */
static __always_inline __u64 id_of(const volatile __u64 *facts, __u64 portal)
{
	__u64 at = 0, statement = 0, id = 0;
	struct list list = {};

	bpf_probe_read_user(&at, sizeof(at),
			    (const void *)(portal + facts[QJ_POSTGRES_PORTAL_PLANS]));
	bpf_probe_read_user(&list, sizeof(list), (const void *)at);
	if (list.length != 1)
		return 0;
	bpf_probe_read_user(&statement, sizeof(statement), (const void *)list.elements);
	bpf_probe_read_user(&id, sizeof(id),
			    (const void *)(statement + facts[QJ_POSTGRES_QUERY_ID]));
	return id;
}

/*
 * True if the query has begun. With reads of sockets, sockets.bpf.c begins the query at the same
 * function and stores the time of the portal's message. If that program has not run yet, the shape
 * is another statement's.
 */
static __always_inline bool has_begun(const struct thread_state *thread,
				      const volatile __u64 *facts, __u64 portal)
{
	__u64 created = 0;

	if (thread->attach_mode != QJ_ATTACH_SYMBOL || !facts[QJ_POSTGRES_NEXT_READ])
		return true;
	portal += facts[QJ_POSTGRES_PORTAL_START] + PORTAL_START_TO_CREATED;
	bpf_probe_read_user(&created, sizeof(created), (const void *)portal);
	return thread->postgres.ran && thread->postgres.created == created;
}

/* PortalRun(Portal portal, long count, bool isTopLevel, ...) */
SEC("?uprobe")
int BPF_KPROBE(postgres_query_id, __u64 portal, __u64 count, __u8 top_level)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	const volatile __u64 *facts;
	__u64 id;

	if (!thread || !thread->begin_ns || thread->borrowed || !thread->shape ||
	    thread->flags & QJ_QUERY_NO_TEXT || !top_level)
		return 0;
	facts = facts_of(thread);
	if (!facts[QJ_POSTGRES_PORTAL_PLANS] || !facts[QJ_POSTGRES_QUERY_ID] ||
	    !has_begun(thread, facts, portal))
		return 0;
	id = id_of(facts, portal);
	if (id)
		report_id(this_cpu(), thread, id);
	return 0;
}
