/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * State of each connection to a MongoDB server, and of a message while it arrives; the hooks for
 * MongoDB's threads.
 */
#ifndef QJOULE_MONGODB_STATE_BPF_H
#define QJOULE_MONGODB_STATE_BPF_H

#include "core/query.bpf.h"
#include "core/statement.bpf.h"
#include "core/socket.bpf.h"
#include "core/task.bpf.h"
#include "shape.h"
#include "symbols.h"

enum mongodb_phase {
	MONGODB_UNKNOWN = 0, /* wait for a read that begins with a plausible header */
	MONGODB_READY,
	MONGODB_IGNORED, /* TLS; or not a client: the server itself connected to another server */
};

struct mongodb_connection {
	__u64 session;	 /* 0: not a known connection */
	__u64 text_addr; /* address of the body if the process keeps it in one piece; otherwise 0 */
	__u64 next_addr; /* address of its next byte; 0 before the first */
	/* Attach mode statistical: begin of the request that waits for its reply, on any thread. */
	__u64 begin_ns;
	__u64 shape;
	__u64 text_sent; /* the last shape whose text was certainly sent */
	__u32 message_bytes;
	__u8 waits;
	__u8 phase;	   /* enum mongodb_phase */
	__u8 header_bytes; /* header bytes read so far */
	__u8 shaped;	   /* all bytes of the message that the shape needs were seen */
	__u8 greeted;	   /* the client has introduced itself */
	__u8 replied;	   /* the reply was seen, or cannot be seen */
	__u8 reserved[2];
	__u32 outcome;	 /* attach mode statistical: flags of that request ... */
	__u64 rows;	 /* ... and its documents */
	__u32 header[8]; /* room for a piece at any offset */
	struct qj_mongodb message;
	struct qj_mongodb_reply reply;
};

struct mongodb_chunk {
	__u8 bytes[QJ_MONGODB_CHUNK];
};

/* Buffer for a part of a message while it is parsed. */
static __always_inline struct mongodb_chunk *mongodb_chunk(struct thread_state *thread)
{
	_Static_assert(sizeof(struct mongodb_chunk) <= sizeof(thread->scratch), "no room");
	return (struct mongodb_chunk *)thread->scratch;
}

struct mongodb_connections_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mongodb_connection);
};
extern struct mongodb_connections_map mongodb_connections SEC(".maps");

/* The command that opened a cursor: the shape of later getMores combines both. */
struct mongodb_cursor_key {
	__u64 cursor;
	__u32 tgid; /* servers number their cursors independently */
	__u32 reserved;
};

struct mongodb_cursors_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct mongodb_cursor_key);
	__type(value, __u64); /* shape */
};
extern struct mongodb_cursors_map mongodb_cursors SEC(".maps");

/* In messages.bpf.c: combines a getMore and its shape with the command that opened the cursor. */
extern int mongodb_cursor_join(struct qj_mongodb *message, __u64 *shape);
/* In text.bpf.c, so that the verifier checks it once. Returns how many bytes it took. */
extern int feed_mongodb(struct qj_mongodb *message, struct mongodb_chunk *chunk, __u32 bytes);
/*
 * Sends the body at `addr` as the text of the thread's shape, unless already sent. A compressed
 * message that can be sent gets its own shape. Returns true if it was sent.
 */
extern int mongodb_emit_text(struct qj_cpu_state *cpu, struct thread_state *thread,
			     struct qj_mongodb *message, __u64 addr);

/*
 * If the client compressed this message by Snappy, inflates it: the first bytes of its body, which
 * arrived at `addr`, are then in the CPU's buffer until the program ends. Returns 0.
 */
extern int unpack_mongodb(struct qj_mongodb *message, struct mongodb_chunk *chunk, __u64 addr);
/* Sends the tags in a command's comment; they belong to the query that this thread serves. */
extern int mongodb_emit_comment(struct qj_cpu_state *cpu, struct thread_state *thread,
				const struct qj_mongodb *message, __u64 addr);

/* ---- hooks, called by the core: core/hooks.bpf.h ---- */

/*
 * mongod's sockets block (SyncAsioSession::ensureSync()), so no read returns without data, and no
 * program runs before the next request arrives. If a thread falls asleep while it reads from its
 * client, and the last request was read completely, it has answered that request. A thread that is
 * still runnable has not: it was only preempted on its way back from that read.
 */
static __always_inline struct thread_state *mongodb_switched(struct qj_cpu_state *cpu,
							     struct task_struct *prev,
							     struct thread_state *thread, __u64 now)
{
	if (!PLANNED_ON(MONGODB, SOCKET) || cpu->owner_kind != QJ_OWNER_QUERY || !is_asleep(prev) ||
	    server_plans[(cpu->server - 1) & (QJ_MAX_SERVERS - 1)].kind != QJ_SERVER_MONGODB)
		return thread;
	if (!thread)
		thread = thread_of(prev);
	if (thread && thread->server_kind == QJ_SERVER_MONGODB &&
	    thread->attach_mode == QJ_ATTACH_SOCKET && thread->begin_ns &&
	    thread->mongodb.is_whole && is_reading(prev, thread->mongodb.client_fd))
		query_end(cpu, thread, now);
	return thread;
}

/*
 * The client of this thread has disconnected. The thread woke up for no query, so its work since
 * then belongs to the server.
 */
static __always_inline void mongodb_exited(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	if (!thread->begin_ns && cpu->query == thread->query && cpu->owner_kind == QJ_OWNER_QUERY &&
	    cpu->pid == (__u32)bpf_get_current_pid_tgid()) {
		cpu->query = 0;
		cpu->shape = 0;
		cpu->owner_kind = QJ_OWNER_SERVER;
	}
	thread->query = 0;
}

#endif
