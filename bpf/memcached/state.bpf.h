/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * State of each connection to a memcached, stored with its socket; the parts of its protocol that
 * are read byte by byte; the hook for its threads.
 */
#ifndef QJOULE_MEMCACHED_STATE_BPF_H
#define QJOULE_MEMCACHED_STATE_BPF_H

#include "core/key_request.bpf.h"

#define MEMCACHED_HEADER 24 /* of a binary request: doc/protocol-binary.xml */

/* The state of the client's side of the protocol. */
enum memcached_at {
	MEMCACHED_AT_UNKNOWN = 0, /* attached mid-stream: wait for a plausible command */
	MEMCACHED_AT_COMMAND,	  /* before a command */
	MEMCACHED_AT_LINE,	  /* in the line of a text or meta command */
	MEMCACHED_AT_VALUE,	  /* in the value after a line, or in its line end */
	MEMCACHED_AT_HEADER,	  /* in the header of a binary request */
	MEMCACHED_AT_EXTRAS,	  /* in a binary request's extras, which come before the key */
	MEMCACHED_AT_KEY,	  /* in its key */
	MEMCACHED_AT_BODY,	  /* in its value */
};

struct memcached_command {
	struct key_command kept;
	__u64 left;	/* remaining bytes of the part that `at` names */
	__u64 value;	/* binary: length of the value after the key */
	__u64 third;	/* the line's third word as a number ... */
	__u64 fifth;	/* ... and its fifth */
	__u32 words;	/* words of the line so far */
	__u16 key_left; /* binary: length of the key */
	__u8 at;	/* enum memcached_at */
	__u8 in_word;
	__u8 key_word; /* number of the word that is the first key */
	__u8 family;   /* enum memcached_family */
	__u8 bad;      /* a word that must be a number is not one */
	__u8 head_bytes;
	__u8 head[2 * 32]; /* a header, which may arrive in pieces */
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

/* ---- lines.bpf.c ---- */

#define MEMCACHED_PIECE 32 /* bytes read at once; a power of two */

/* The form of a command's line, from its name. doc/protocol.txt */
enum memcached_family {
	MEMCACHED_UNKNOWN = 0, /* not a command of the protocol */
	MEMCACHED_PLAIN,       /* a line without a value: delete, incr, touch, mg, ... */
	MEMCACHED_GETS,	       /* get, gets: each following word is a key */
	MEMCACHED_GATS,	       /* gat, gats: the same, after an expiry time */
	MEMCACHED_STORES,      /* set, add, cas, ...: the fifth word is the value's length */
	MEMCACHED_META_SET,    /* ms: the third word is the value's length */
};

struct memcached_piece {
	__u8 bytes[MEMCACHED_PIECE];
};

/* memcached_line_bytes() returns the number of bytes taken, and this flag. */
#define MEMCACHED_WHOLE 0x100 /* the line has ended */

/* Separate functions: the verifier checks each once. */
extern int memcached_line_bytes(struct memcached_command *c, const struct memcached_piece *piece,
				__u32 bytes);
extern int memcached_header(struct memcached_command *c);
/* The family of a name of at most eight letters, stored in `word` and padded with zeros. */
extern int memcached_family_of(__u64 word);

/* ---- hooks, called by the core: core/hooks.bpf.h ---- */

static __always_inline void memcached_labelled(struct qj_cpu_state *cpu, struct task_struct *task,
					       struct thread_state *thread)
{
	key_forget_if_slept(thread, &thread->memcached.turn, task);
}

#endif
