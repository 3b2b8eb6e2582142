/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What is kept of each connection to a memcached, with its socket. */
#ifndef QJOULE_MEMCACHED_STATE_BPF_H
#define QJOULE_MEMCACHED_STATE_BPF_H

#include "core/key_request.bpf.h"

#define MEMCACHED_HEADER 24 /* of a binary request: doc/protocol-binary.xml */

/* Where a connection is in the client's side of the protocol. */
enum memcached_at {
	MEMCACHED_AT_UNKNOWN =
	    0,		      /* tracing began in the middle: wait for what looks like a command */
	MEMCACHED_AT_COMMAND, /* before a command */
	MEMCACHED_AT_LINE,    /* in the line of a text or meta command */
	MEMCACHED_AT_VALUE,   /* in the value behind a line, or its line end */
	MEMCACHED_AT_HEADER,  /* in the header of a binary request */
	MEMCACHED_AT_EXTRAS,  /* in a binary request's extras, which come before the key */
	MEMCACHED_AT_KEY,     /* in its key */
	MEMCACHED_AT_BODY,    /* in its value */
};

struct memcached_command {
	struct key_command kept;
	__u64 left;	/* bytes of the part that `at` names, still to come */
	__u64 value;	/* binary: bytes of the value behind the key */
	__u64 third;	/* the number that is the line's third word, ... */
	__u64 fifth;	/* ... and its fifth */
	__u32 words;	/* of the line so far */
	__u16 key_left; /* binary: bytes of the key */
	__u8 at;	/* enum memcached_at */
	__u8 in_word;
	__u8 key_word; /* which word of the line is the first key */
	__u8 family;   /* enum memcached_family */
	__u8 bad;      /* a word that must be a number is none */
	__u8 head_bytes;
	__u8 head[2 * 32]; /* of a header, which may come in pieces */
};

struct memcached_connection {
	struct key_request request;
	struct memcached_command command;
};

struct memcached_connections_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct memcached_connection);
};
extern struct memcached_connections_map memcached_connections SEC(".maps");

#endif
