/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Messages of a PostgreSQL client that its backend reads in several pieces. Each read overwrites
 * the one before, so the beginning of such a message, with its names and its text, is collected
 * here. The rest (values, and what follows the part of a text that is read) is not.
 */
#ifndef QJOULE_POSTGRES_PIECES_BPF_H
#define QJOULE_POSTGRES_PIECES_BPF_H

#include "core/state.bpf.h"

#define POSTGRES_NAMES 160 /* two names as long as the server keeps, and more */
/* A name, a text up to the length that is read, and what shows whether it goes on. */
#define POSTGRES_COLLECTED (QJ_SHAPE_CHUNK + QJ_TEXT_BYTES + QJ_SHAPE_CHUNK)
#define POSTGRES_PIECE	   256 /* bytes that are copied at once */

struct postgres_pieces {
	__u64 addr; /* of the bytes, as a number */
	__u8 bytes[POSTGRES_COLLECTED + POSTGRES_PIECE];
};

/* Only threads that have read such a message have one. */
struct postgres_pieces_map {
#ifdef QJ_EARLY /* no socket is read there */
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
#else
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
#endif
	__type(value, struct postgres_pieces);
};
extern struct postgres_pieces_map postgres_pieces SEC(".maps");

/* How many bytes of such a message are looked at, at most. */
static __always_inline __u32 postgres_wanted(__u8 type)
{
	if (type == 'Q' || type == 'P')
		return POSTGRES_COLLECTED;
	return type == 'B' || type == 'E' ? POSTGRES_NAMES : 0;
}

/*
 * Takes the next `here` bytes of the message that is being collected, at `addr`, and handles the
 * message once there are enough. In pieces.bpf.c, so that the verifier checks it once. Returns 0.
 */
extern int postgres_collect(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr,
			    __u32 here);

#endif
