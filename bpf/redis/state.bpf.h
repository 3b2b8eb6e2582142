/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What is kept of each connection to a Redis server: one thread serves them all, so where a
 * connection is in its protocol and which request it waits for belong to its socket.
 */
#ifndef QJOULE_REDIS_STATE_BPF_H
#define QJOULE_REDIS_STATE_BPF_H

#include "core/query.bpf.h"
#include "core/key_shape.h"

#define REDIS_TEXT_BYTES 1024
#define REDIS_RECORD_MAX 128 /* a command in a text: headers, name, argument */
#define REDIS_RUNS_MAX	 8   /* different commands of one request that are told */

/* Where a connection is in the client's side of RESP. */
enum redis_at {
	REDIS_AT_UNKNOWN = 0, /* attached in the middle: wait for what looks like a command */
	REDIS_AT_COMMAND,     /* before a command, or in the line that counts its arguments */
	REDIS_AT_LENGTH,      /* in the line that gives an argument's length */
	REDIS_AT_BULK,	      /* in an argument, or the two bytes behind it */
	REDIS_AT_INLINE,      /* in a command that is a plain line */
};

struct redis_command {
	__u64 number;	 /* of the line so far */
	__u64 bulk_left; /* bytes of the argument, and of the line end behind it */
	__u32 arguments; /* still to come, the present one included */
	__u32 index;	 /* of the present one, from 0 */
	__u8 at;	 /* enum redis_at */
	__u8 type;	 /* of the line: '*', '$', 0 not read yet */
	__u8 digits;
	__u8 negative;
	__u8 name_bytes;
	__u8 key_bytes;
	__u8 has_key;
	__u8 reserved;
	/* Twice as long as what is kept, so that a piece fits wherever it begins. */
	__u8 name[2 * QJ_KEY_NAME_BYTES];
	__u8 key[2 * QJ_KEY_BYTES];
};

enum redis_waits {
	REDIS_WAITS_NOT = 0,
	REDIS_WAITS,	    /* for the reply to its last request, which comes next ... */
	REDIS_WAITS_BEHIND, /* ... or after replies to earlier ones */
};

struct redis_connection {
	__u64 session;
	__u64 query; /* the last request's; 0 before the first */
	__u64 begin_ns;
	__u64 shape;
	__u64 last_shape; /* of the last command of the request */
	__u32 executions;
	__u32 flags;
	__u32 statement_bytes;
	__u8 waits;  /* enum redis_waits */
	__u8 runs;   /* stretches of equal commands in the request */
	__u8 opaque; /* TLS */
	__u8 naming; /* a client's name waits for what becomes of it */
	struct redis_command command;
};

struct redis_connections_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct redis_connection);
};
extern struct redis_connections_map redis_connections SEC(".maps");

/* The text of the request that is being read: its different commands, as RESP. */
struct redis_text {
	struct qj_key_pattern pattern; /* scratch */
	__u32 used;
	__u32 reserved;
	__u8 bytes[REDIS_TEXT_BYTES];
};

struct redis_texts_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct redis_text);
};
extern struct redis_texts_map redis_texts SEC(".maps");

#endif
