/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Effects of a client's messages on its backend's request. The functions here that are not inline
 * are in separate files, so that the verifier checks each once, and not once for every state in
 * which a message may come.
 */
#ifndef QJOULE_POSTGRES_REQUESTS_BPF_H
#define QJOULE_POSTGRES_REQUESTS_BPF_H

#include "core/query.bpf.h"

/* ---- the frame of a client's messages: type byte, length including itself, body ---- */

#define POSTGRES_HEADER	     5
#define POSTGRES_STARTUP     8	   /* a startup packet's length and code */
#define POSTGRES_STARTUP_MAX 10000 /* MAX_STARTUP_PACKET_LENGTH, libpq/pqcomm.h */
#define POSTGRES_PROTOCOL_3  3	   /* major version, upper half of the startup code */
#define POSTGRES_CANCEL	     80877102
#define POSTGRES_SSL	     80877103
#define POSTGRES_GSS	     80877104
#define POSTGRES_MAX_MESSAGE (1u << 30)
/*
 * Steps through one read: PQ_RECV_BUFFER_SIZE is 8192, a message has at least 5 bytes, and the
 * first header may arrive byte by byte.
 */
#define POSTGRES_MAX_WALK (8192 / POSTGRES_HEADER + POSTGRES_STARTUP + 1)
#define TLS_HANDSHAKE	  0x16

static __always_inline bool postgres_plausible(__u8 type, __u32 length)
{
	if (length < 4 || length > POSTGRES_MAX_MESSAGE)
		return false;
	switch (type) {
	case 'Q':
	case 'P':
	case 'B':
	case 'E':
	case 'S':
	case 'D':
	case 'C':
	case 'H':
	case 'F':
	case 'X':
	case 'd':
	case 'c':
	case 'f':
	case 'p':
		return true;
	}
	return false;
}

static __always_inline __u32 postgres_uint(const __u8 *bytes)
{
	return (__u32)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

/* ---- requests.bpf.c ---- */

/* Ends the thread's request. Returns 0. */
extern int postgres_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns);
/*
 * Handles the start of a message of this type. Ends the request before it if that is complete and
 * no message of this read has belonged to it, and begins one where none is under way. Returns true
 * if the message belongs to the request now.
 */
extern int postgres_begin(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now,
			  __u8 type, bool fresh);
/* Takes a message of which `here` bytes of the body have arrived at `addr`. Returns 0. */
extern int postgres_content(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr,
			    __u8 type, __u32 here);
/*
 * Takes the header of one of a connection's first packets. `arrived`: bytes of the packet up to the
 * end of the read if the header came in one piece, which ends at `addr`; otherwise 0. Returns true
 * if the following bytes can be read.
 */
extern int postgres_startup(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr,
			    __u32 arrived, __u64 now);
/*
 * Framing lost: sends the known part of the request, then waits for a clear boundary. Returns 0.
 */
extern int postgres_lost(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now);

/* ---- messages that the backend reads in several pieces ---- */

/*
 * Each read overwrites the one before, so the beginning of such a message, with its names and its
 * text, is collected here, without values and the part of a text that is not read.
 */

#define POSTGRES_NAMES 160 /* two names as long as the server keeps, and more */
/* A name, a text up to the length that is read, and bytes that show if it continues. */
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

/* Returns how many bytes of such a message are needed, at most. */
static __always_inline __u32 postgres_wanted(__u8 type)
{
	if (type == 'Q' || type == 'P')
		return POSTGRES_COLLECTED;
	return type == 'B' || type == 'E' ? POSTGRES_NAMES : 0;
}

/*
 * Takes the next `here` bytes of a collected message, at `addr`, and handles the message once there
 * are enough. Returns 0.
 */
extern int postgres_collect(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr,
			    __u32 here);

/* ---- prepared.bpf.c: statements that a backend prepared before tracing began ---- */

/*
 * Finds the prepared statement whose name is at `addr`, and gives its text to the thread's request.
 * Returns the text's length; 0, without a change, if the backend has no such statement. The caller
 * reads the tags: from here they would be one call too deep for the stack.
 */
extern int postgres_find_prepared(struct qj_cpu_state *cpu, struct thread_state *thread,
				  __u64 addr);

/* ---- reply.bpf.c: a backend's replies ---- */

/*
 * Takes the outcome of the request that the backend has finished. If several requests came in one
 * read, only the last reply is there, so nothing is taken. Returns true if the reply begins with an
 * error. Not inline: that took the verifier seconds.
 */
extern int postgres_answered(struct thread_state *thread);

/* ---- skipped.bpf.c: messages that a backend skips after an error ---- */

/*
 * After an error in a message of the extended protocol, the server skips all messages up to the
 * next Sync. The backend has failed now, at a message after which `left` bytes of its last read
 * remain. Corrects the counts of the skipped messages, made when they were read. Returns 0.
 */
extern int postgres_skip(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 left);

#endif
