/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * State of each connection to a Redis server; the parts of RESP that are read byte by byte; the
 * hooks for Redis' processes and threads.
 *
 * One thread serves all connections, so the state of the protocol and the request that waits for a
 * reply are stored with the socket.
 */
#ifndef QJOULE_REDIS_STATE_BPF_H
#define QJOULE_REDIS_STATE_BPF_H

#include "core/key_request.bpf.h"

/* The state of the client's side of RESP. */
enum redis_at {
	REDIS_AT_UNKNOWN = 0, /* attached mid-stream: wait for a plausible command */
	REDIS_AT_COMMAND,     /* before a command, or in the line with its number of arguments */
	REDIS_AT_LENGTH,      /* in the line with an argument's length */
	REDIS_AT_BULK,	      /* in an argument, or the two bytes after it */
	REDIS_AT_INLINE,      /* in a command that is a plain line */
};

struct redis_command {
	__u64 number;	 /* number in the line so far */
	__u64 bulk_left; /* remaining bytes of the argument and of the line end after it */
	__u32 arguments; /* remaining arguments, including the current one */
	__u32 index;	 /* index of the current one, from 0 */
	__u8 at;	 /* enum redis_at */
	__u8 type;	 /* type of the line: '*', '$'; 0: not read yet */
	__u8 digits;
	__u8 negative;
	__u8 reserved[4];
	struct key_command kept;
};

struct redis_connection {
	struct key_request request;
	__u8 naming; /* a client's name waits for its outcome */
	__u8 reserved[7];
	struct redis_command command;
};

struct redis_connections_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct redis_connection);
};
extern struct redis_connections_map redis_connections SEC(".maps");

/* ---- named.bpf.c ---- */

#define REDIS_DIGITS_MAX 10
#define REDIS_PIECE	 16 /* "*1234567890\r\n" fits */

/* A few of the bytes read. */
struct redis_piece {
	__u8 bytes[REDIS_PIECE];
};

/* redis_line_bytes() and redis_inline_bytes() return the number of bytes taken, and these flags. */
#define REDIS_WHOLE   0x100 /* the line has ended */
#define REDIS_LOST    0x200 /* this is not a command */
#define REDIS_IS_LINE 0x400 /* this is a plain line; no bytes of it were taken */

/* Separate functions: the verifier checks each once. */
extern int redis_line_bytes(struct redis_command *c, const struct redis_piece *piece, __u32 bytes);
extern int redis_inline_bytes(struct redis_command *c, const struct redis_piece *piece,
			      __u32 bytes);

/* ---- hooks, called by the core: core/hooks.bpf.h ---- */

/*
 * True if the process that has just called exec() has the arguments of a tool. In arguments.bpf.c:
 * the verifier checks it once.
 */
extern int is_redis_tool(__u64 start, __u64 bytes);

static __always_inline void redis_labelled(struct qj_cpu_state *cpu, struct task_struct *task,
					   struct thread_state *thread)
{
	key_forget_if_slept(thread, &thread->redis.turn, task);
}

/* A Redis forks to write a snapshot or a new log. The child has its name, so it gets a role. */
static __always_inline const char *redis_forked(struct task_struct *child)
{
	static const char redis_fork[] = "redis-fork";

	return child->pid == child->tgid ? redis_fork : 0;
}

/* Sentinel and the checkers use the same file. */
static __always_inline bool redis_executed(struct task_struct *task)
{
	__u64 start = BPF_CORE_READ(task, mm, arg_start);

	return !is_redis_tool(start, BPF_CORE_READ(task, mm, arg_end) - start);
}

#endif
