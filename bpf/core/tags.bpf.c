// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Implements tags.bpf.h. Looks for a comment at the end of a statement, or else at its beginning,
 * where sqlcommenter's libraries put theirs. Such a comment ends with a quote before its end sign,
 * so three bytes exclude most other comments; the reader of the stream checks the rest.
 * https://google.github.io/sqlcommenter/spec/
 */
#include "tags.bpf.h"

/* Decides if a comment belongs to the whole text or to one of several statements in it. */

#define CHUNK_WORDS (TAGS_ROOM / 8) /* words of a statement that are searched at once */

struct statements_search {
	const struct thread_state *thread;
	struct tags_room *room;
	__u32 bytes;	/* length of the statement */
	__u32 end;	/* a semicolon before this offset is not the last one */
	__u32 comments; /* number of comments that end as tags do */
	__u16 before;	/* the last two bytes that were read */
	__u8 goes_on;	/* text follows a semicolon */
};

static long statements_step(__u32 i, struct statements_search *search)
{
	struct tags_room *room = search->room;
	__u32 at = i * 8, left;
	__u64 word;
	bool looks;

	if (at >= search->bytes)
		return 1;
	left = search->bytes - at;
	if (!(i & (CHUNK_WORDS - 1))) {
		__builtin_memset(room, 0, TAGS_ROOM);
		if (read_text(search->thread, room->bytes, at_most(left, TAGS_ROOM),
			      search->thread->text_addr + at))
			return 1;
	}
	word = room->words[i & (CHUNK_WORDS - 1)];
	looks = HAS_ZERO(word ^ EACH_BYTE('/')) || HAS_ZERO(word ^ EACH_BYTE(';'));
	for (__u32 j = 0; looks && j < 8; j++) {
		__u8 byte = word >> 8 * j;

		if (byte == '/' && search->before == ('\'' | '*' << 8))
			search->comments++;
		if (byte == ';' && at + j < search->end)
			search->goes_on = 1;
		search->before = search->before >> 8 | byte << 8;
	}
	search->before = word >> 48;
	return 0;
}

/*
 * True if several statements were sent as one query and more than one of them has a comment: the
 * query then belongs to all of them, so no tags apply. Comment signs within literals may cause this
 * too.
 */
static __always_inline bool has_several_comments(const struct thread_state *thread,
						 struct tags_room *room, __u32 bytes, __u32 end)
{
	struct statements_search search = {
	    .thread = thread, .room = room, .bytes = bytes, .end = end};

	bpf_loop(QJ_TEXT_BYTES / 8, statements_step, &search, 0);
	return search.goes_on && search.comments > 1;
}

#define COMMENT_SIGN 2 /* bytes of each comment sign */
/* Bytes searched for a comment's end: blanks and a semicolon may follow it. */
#define COMMENT_TAIL 8

static __always_inline struct tags_room *room_of(void)
{
#ifdef QJ_EARLY
	__u32 only = 0;

	return bpf_map_lookup_elem(&tags_room, &only);
#else
	return bpf_task_storage_get(&tags_room, bpf_get_current_task_btf(), 0,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
#endif
}

/* Clients choose these bytes, so the hash's initial state is secret. */
static __always_inline __u64 hash_of(const struct tags_room *room, __u64 bytes, __u32 dialect)
{
	__u64 hash =
	    qj_shape_mix(plan.seed ^ 0x9e3779b97f4a7c15ULL) ^ ((__u64)dialect << 32 | bytes);

	for (__u32 i = 0; i < TAGS_BYTES / 8; i++) {
		if (i * 8 >= bytes)
			break;
		hash = qj_shape_mix(hash ^ room->words[i]);
	}
	return hash + 2 < 3 ? 1 : hash; /* neither 0 nor TAGS_DIFFER */
}

/* Limits the cost of clients that send new tags with each query: 1 MB a second. */
static __always_inline bool may_emit_tags(void)
{
	static __u64 used_ns;

	return within_rate(&used_ns, TAGS_PER_S);
}

static __always_inline bool emit_new(const struct tags_room *room, __u64 hash, __u32 bytes,
				     __u32 server, __u32 dialect)
{
	struct qj_ring_text *r = may_emit_tags() ? reserve_text(TAGS_BYTES) : 0;

	if (!r)
		return false;
	fill_text(r, hash, bytes, bytes, server, dialect);
	__builtin_memcpy(r->bytes, room->bytes, TAGS_BYTES);
	submit(r);
	return true;
}

/* Returns the hash of the bytes in the room. Sends the bytes unless they were sent before. */
static __always_inline __u64 hash_and_emit(struct qj_cpu_state *cpu, const struct tags_room *room,
					   __u64 bytes, __u32 server, __u32 dialect)
{
	static const __u8 yes = 1;
	/* The key is copied to the stack: Linux 6.1 accepts none in an argument's memory. */
	__u64 hash = hash_of(room, bytes, dialect);

	if (bpf_map_lookup_elem(&seen_tags, &hash))
		return hash;
	/* Only tags that were sent are marked as seen: others are sent with the next query. */
	if (emit_new(room, hash, bytes, server, dialect)) {
		bpf_map_update_elem(&seen_tags, &hash, &yes, BPF_ANY);
		return hash;
	}
	count_loss(cpu, QJ_LOSS_TEXT);
	return sums_by_tags() ? TAGS_DIFFER
			      : hash; /* no row for tags whose bytes were never sent */
}

/* Sets the tags of the thread's query, and of the open slice if it already belongs to it. */
static __always_inline void set_tags(struct qj_cpu_state *cpu, struct thread_state *thread,
				     __u64 tags)
{
	thread->tags = tags;
	if (cpu->query == thread->query)
		cpu->tags = tags;
}

int tags_emit(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr, __u32 length,
	      __u32 dialect)
{
	struct tags_room *room = room_of();
	__u64 bytes = at_most(length, TAGS_BYTES);

	if (!cpu || !thread || !length || length > TAGS_BYTES)
		return 0;
	if (!room) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	__builtin_memset(room, 0, TAGS_ROOM);
	if (read_text(thread, room->bytes, bytes, addr)) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	set_tags(cpu, thread, hash_and_emit(cpu, room, bytes, thread->server, dialect));
	return 0;
}

int tags_of_pieces(struct qj_cpu_state *cpu, struct thread_state *thread,
		   const struct tags_pieces *of)
{
	struct tags_room *room = room_of();
	__u64 before, first, second;

	if (!cpu || !thread || !of)
		return 0;
	before = at_most(of->head_bytes, sizeof(of->head));
	first = at_most(of->bytes[0], TAGS_BYTES);
	second = at_most(of->bytes[1], TAGS_BYTES);
	if (first != of->bytes[0] || second != of->bytes[1] || before + first + second > TAGS_BYTES)
		return 0;
	if (!room) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	__builtin_memset(room, 0, TAGS_ROOM);
	room->words[0] = of->head;
	if (bpf_probe_read_user(room->bytes + before, first, (const void *)of->addr[0]) ||
	    bpf_probe_read_user(room->bytes + before + first, second, (const void *)of->addr[1])) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	set_tags(cpu, thread,
		 hash_and_emit(cpu, room, before + first + second, thread->server, of->dialect));
	return 0;
}

__u64 tags_of_kept(const struct tags_kept *kept, __u32 length, __u32 server, __u32 dialect)
{
	struct tags_room *room = room_of();
	__u64 bytes = at_most(length, TAGS_BYTES);

	if (!kept || !length || length > TAGS_BYTES)
		return 0;
	if (!room) {
		count_loss(this_cpu(), QJ_LOSS_TEXT);
		return 0;
	}
	__builtin_memset(room, 0, TAGS_ROOM);
	if (bpf_probe_read_kernel(room->bytes, bytes, kept->bytes))
		return 0;
	return hash_and_emit(this_cpu(), room, bytes, server, dialect);
}

struct comment_search {
	const struct tags_room *room;
	__u32 from;  /* offset of the first two bytes to compare */
	__u32 steps; /* how often to step to the next two */
	__u32 found; /* offset of the sign in the room; ~0: not found */
	__u8 backwards;
};

static long comment_step(__u32 i, struct comment_search *search)
{
	__u32 at = search->backwards ? search->from - i : search->from + i;
	const struct tags_room *room = search->room;
	__u8 first, second;

	if (i >= search->steps || at > sizeof(room->bytes) - COMMENT_SIGN)
		return 1;
	first = room->bytes[at & (sizeof(room->bytes) - 1)];
	second = room->bytes[(at + 1) & (sizeof(room->bytes) - 1)];
	if (search->backwards ? first != '/' || second != '*' : first != '*' || second != '/')
		return 0;
	search->found = at;
	return 1;
}

static __always_inline __u32 comment_sign(struct comment_search *search)
{
	search->found = ~0u;
	bpf_loop(TAGS_BYTES + COMMENT_SIGN, comment_step, search, 0);
	return search->found;
}

/* Returns the length up to the end of a comment at the statement's end; 0 if there is none. */
static __always_inline __u32 last_comment_end(const struct thread_state *thread, __u32 bytes)
{
	__u8 tail[COMMENT_TAIL] = {};
	__u32 at = 0;

	if (bytes < COMMENT_TAIL ||
	    read_text(thread, tail, sizeof(tail), thread->text_addr + bytes - COMMENT_TAIL))
		return 0;
	for (__u32 i = 2; i < COMMENT_TAIL; i++) {
		__u8 last = tail[i];

		if (last == '/')
			at = tail[i - 1] == '*' && tail[i - 2] == '\'' ? i - 1 : 0;
		else if (last != ' ' && last != '\t' && last != '\n' && last != '\r' && last != ';')
			at = 0;
	}
	return at ? bytes - COMMENT_TAIL + at : 0;
}

static __always_inline void comment_at_end(struct qj_cpu_state *cpu, struct thread_state *thread,
					   struct tags_room *room, __u32 end)
{
	__u64 bytes = at_most(end, TAGS_BYTES + COMMENT_SIGN);
	__u64 addr = thread->text_addr + end - bytes;
	struct comment_search search = {.room = room, .backwards = 1};
	__u32 sign;

	if (bytes < COMMENT_SIGN || read_text(thread, room->bytes, bytes, addr))
		return;
	search.from = bytes - COMMENT_SIGN;
	search.steps = bytes - COMMENT_SIGN + 1;
	sign = comment_sign(&search);
	if (sign != ~0u)
		tags_emit(cpu, thread, addr + sign + COMMENT_SIGN, bytes - sign - COMMENT_SIGN,
			  QJ_DIALECT_TAGS);
}

static __always_inline void comment_at_start(struct qj_cpu_state *cpu, struct thread_state *thread,
					     struct tags_room *room, __u32 bytes)
{
	__u64 here = at_most(bytes, TAGS_BYTES + 2 * COMMENT_SIGN);
	struct comment_search search = {.room = room, .from = COMMENT_SIGN};
	__u32 sign;

	if (here < 2 * COMMENT_SIGN ||
	    read_text(thread, room->bytes, COMMENT_SIGN, thread->text_addr) ||
	    room->bytes[0] != '/' || room->bytes[1] != '*' ||
	    read_text(thread, room->bytes, here, thread->text_addr))
		return;
	search.steps = here - 2 * COMMENT_SIGN + 1;
	sign = comment_sign(&search);
	if (sign == ~0u || room->bytes[(sign - 1) & (sizeof(room->bytes) - 1)] != '\'')
		return;
	tags_emit(cpu, thread, thread->text_addr + COMMENT_SIGN, sign - COMMENT_SIGN,
		  QJ_DIALECT_TAGS);
}

/* A truncated statement's end is not available: only its beginning is searched. */
int tags_of_comment(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 bytes)
{
	struct tags_room *room = room_of();
	__u32 end;

	if (!cpu || !thread || !room)
		return 0;
	end = thread->flags & QJ_QUERY_TRUNCATED ? 0 : last_comment_end(thread, bytes);
	if (end)
		comment_at_end(cpu, thread, room, end);
	else
		comment_at_start(cpu, thread, room, bytes);
	if (thread->tags && has_several_comments(thread, room, bytes, end ?: bytes - 1))
		set_tags(cpu, thread, TAGS_DIFFER);
	return 0;
}
