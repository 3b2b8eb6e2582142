// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Statements that a backend prepared before tracing began, on the attach mode `socket`: looks into
 * the backend's own table of prepared statements, as FetchPreparedStatement() does
 * (src/backend/commands/prepare.c). The table is one of dynahash.c: segments of buckets, each a
 * chain of elements. An element is a link, the hash of the key, and the entry, a PreparedStatement
 * that begins with its name. Wrong offsets find nothing: the hash, the name and a mark of the plan
 * must all match.
 */
#include "requests.bpf.h"
#include "next_read.bpf.h"
#include "text.bpf.h"

#define NAME_BYTES 64	     /* NAMEDATALEN */
#define PLAN_MARK  195726186 /* CACHEDPLANSOURCE_MAGIC, src/include/utils/plancache.h */
#define CHAIN_MAX  64	     /* elements of a bucket that are looked at */

/* HTAB, src/backend/utils/hash/dynahash.c: its beginning, and what follows the size of its keys. */
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
	__u64 addr; /* of an element */
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

/* Puts a name into the scratch buffer. Returns its length. */
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

/* Address of the first element of the bucket that this hash belongs to; 0: none. */
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
	thread->collected = 0; /* from here on all is in the server's memory */
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
