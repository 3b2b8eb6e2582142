/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tags that clients send within a query, for applications without a shim beside the recorder: a
 * comment in sqlcommenter's format, query attributes, or a custom payload. The query carries a hash
 * of its tags, whose bytes are sent once. Tags are read only if requested (plan.tags), and then of
 * every statement.
 */
#ifndef QJOULE_TAGS_BPF_H
#define QJOULE_TAGS_BPF_H

#include "query.bpf.h"
#include "server_state.h"

#define TAGS_DIFFER QJ_SAID_UNKNOWN /* a request with different tags: counted for none of them */
#define TAGS_PER_S  2000ULL	    /* new tags sent per second */
#define TAGS_SEEN   16384

struct seen_tags_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TAGS_SEEN);
	__type(key, __u64); /* hash */
	__type(value, __u8);
};
extern struct seen_tags_map seen_tags SEC(".maps");

/*
 * Each thread has its own search buffer, because it may be preempted. Tags lie in the first half,
 * padded with zeros; they may be assembled from two pieces.
 */
struct tags_room {
	union {
		__u8 bytes[2 * TAGS_ROOM];
		__u64 words[2 * TAGS_ROOM / 8];
	};
};

struct tags_room_map {
#ifdef QJ_EARLY /* no program that uses the buffer is preempted there */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
#else
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
#endif
	__type(value, struct tags_room);
};
extern struct tags_room_map tags_room SEC(".maps");

/* Tags assembled from a few bytes and two pieces in the server's memory. */
struct tags_pieces {
	__u64 head; /* the lowest byte is the first */
	__u64 addr[2];
	__u32 bytes[2];
	__u32 head_bytes; /* at most 8 */
	__u32 dialect;
};

/* In tags.bpf.c; these return 0. `bytes`: length of the statement at text_addr ... */
extern int tags_of_comment(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 bytes);
/* ... and length of the tags of the query that this thread serves. */
extern int tags_emit(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr, __u32 bytes,
		     __u32 dialect);
extern int tags_of_pieces(struct qj_cpu_state *cpu, struct thread_state *thread,
			  const struct tags_pieces *of);
/* Returns the `tags` of the query to which these tags belong. */
extern __u64 tags_of_kept(const struct tags_kept *kept, __u32 bytes, __u32 server, __u32 dialect);

#endif
