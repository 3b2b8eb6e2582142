/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The parts of memcached's protocol that are read byte by byte. */
#ifndef QJOULE_MEMCACHED_LINES_BPF_H
#define QJOULE_MEMCACHED_LINES_BPF_H

#include "state.bpf.h"

#define MEMCACHED_PIECE 32 /* bytes that are read at once; a power of two */

/* What a command's name says of its line. doc/protocol.txt */
enum memcached_family {
	MEMCACHED_UNKNOWN = 0, /* no command of the protocol */
	MEMCACHED_PLAIN,       /* a line, no value: delete, incr, touch, mg, ... */
	MEMCACHED_GETS,	       /* get, gets: as many keys as words follow */
	MEMCACHED_GATS,	       /* gat, gats: likewise, behind an expiry time */
	MEMCACHED_STORES,      /* set, add, cas, ...: the fifth word is the value's length */
	MEMCACHED_META_SET,    /* ms: the third word is */
};

struct memcached_piece {
	__u8 bytes[MEMCACHED_PIECE];
};

/* What memcached_line_bytes() returns: bytes taken, and this. */
#define MEMCACHED_WHOLE 0x100 /* the line has ended */

/* In lines.bpf.c, functions of their own: the verifier looks at each once. */
extern int memcached_line_bytes(struct memcached_command *c, const struct memcached_piece *piece,
				__u32 bytes);
extern int memcached_header(struct memcached_command *c);
/* The family of a name of at most eight letters, which `word` holds, zeros behind it. */
extern int memcached_family_of(__u64 word);

#endif
