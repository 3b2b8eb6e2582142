/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * State of each connection to a Redis server. One thread serves them all, so the state of the
 * protocol and the request that waits for a reply are stored with the socket.
 */
#ifndef QJOULE_REDIS_STATE_BPF_H
#define QJOULE_REDIS_STATE_BPF_H

#include "core/key_text.bpf.h"

/* The state of the client's side of RESP. */
enum redis_at {
	REDIS_AT_UNKNOWN = 0, /* attached mid-stream: wait for what looks like a command */
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

#endif
