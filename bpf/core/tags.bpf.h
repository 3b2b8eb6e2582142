/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What clients say of a query within it, for those who have no shim beside the recorder: a comment
 * in sqlcommenter's format, query attributes, or a custom payload. A query has a hash of it, whose
 * bytes are sent once. Read only if that was asked for (plan.tags), and then of each statement.
 */
#ifndef QJOULE_TAGS_BPF_H
#define QJOULE_TAGS_BPF_H

#include "query.bpf.h"
#include "tags_room.bpf.h"

#define TAGS_DIFFER QJ_SAID_UNKNOWN /* of a request that has several: nobody's */
#define TAGS_PER_S  2000ULL	    /* new ones that are sent */
#define TAGS_SEEN   16384

struct seen_tags_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TAGS_SEEN);
	__type(key, __u64); /* hash */
	__type(value, __u8);
};
extern struct seen_tags_map seen_tags SEC(".maps");

/* What becomes tags, of a few bytes and of two pieces that lie in the server's memory. */
struct tags_pieces {
	__u64 head; /* the lowest byte is the first */
	__u64 addr[2];
	__u32 bytes[2];
	__u32 head_bytes; /* at most 8 */
	__u32 dialect;
};

/* In tags.bpf.c; these return 0. `bytes`: of the statement at text_addr ... */
extern int tags_of_comment(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 bytes);
/* ... and of what becomes the tags of the query that this thread serves. */
extern int tags_emit(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr, __u32 bytes,
		     __u32 dialect);
extern int tags_of_pieces(struct qj_cpu_state *cpu, struct thread_state *thread,
			  const struct tags_pieces *of);
/* Returns what becomes `tags` of the query that they are of. */
extern __u64 tags_of_kept(const struct tags_kept *kept, __u32 bytes, __u32 server, __u32 dialect);

#endif
