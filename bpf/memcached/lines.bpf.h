/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The parts of memcached's protocol that are read byte by byte. */
#ifndef QJOULE_MEMCACHED_LINES_BPF_H
#define QJOULE_MEMCACHED_LINES_BPF_H

#include "state.bpf.h"

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

/* Separate functions in lines.bpf.c: the verifier checks each once. */
extern int memcached_line_bytes(struct memcached_command *c, const struct memcached_piece *piece,
				__u32 bytes);
extern int memcached_header(struct memcached_command *c);
/* The family of a name of at most eight letters, stored in `word` and padded with zeros. */
extern int memcached_family_of(__u64 word);

#endif
