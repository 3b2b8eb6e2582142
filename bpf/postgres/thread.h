/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* State of a PostgreSQL backend beside the state common to all servers' threads. */
#ifndef QJOULE_POSTGRES_THREAD_H
#define QJOULE_POSTGRES_THREAD_H

#include "core/server_state.h"

/* A statement of a request or of a portal, with fields as in struct thread_state. */
struct postgres_statement {
	__u64 shape;
	__u64 tags;
	__u64 unknown; /* hash of its name if its text is unknown, else 0 */
	__u32 bytes;
	__u32 flags; /* of the statement: QJ_STATEMENT_FLAGS; of a portal: messages.bpf.h */
};

/* The messages that the server skips after an error, up to a Sync: skipped.bpf.c. */
enum postgres_skips {
	POSTGRES_SKIPS = 1,
	POSTGRES_SKIPS_LATER = 2, /* from the next Execute on, which is of the refused statement */
};

/* The bytes of the backend's last read: skipped.bpf.c. */
struct postgres_piece {
	__u64 from; /* address of its first header; 0: not known */
	__u64 to;
	__u8 type; /* of the message that began in an earlier read; 0: none */
};

/* The beginning of a read, copied at once: most requests are not longer. */
#define POSTGRES_START_BYTES 69 /* a header, and QJ_SHAPE_CHUNK bytes */

struct postgres_start {
	__u64 addr;
	__u8 bytes[2 * POSTGRES_START_BYTES]; /* `size` are read, at most half of them */
	__u8 size;			      /* 0: no bytes are stored */
};

struct postgres_thread {
	union {
		struct of_query cleared;
		struct {
			__u32 requests; /* requests, each with a reply of its own */
			__u8 synced;	/* the client has ended its request */
			__u8
			    may_continue; /* COPY: the client may send data before the query ends */
			__u8 changes;	  /* a parameter changes if the server accepts it */
			__u8 reserved;
			__u64 unknown; /* the request's last statement, if its text is unknown */
		};
	};
	__u64 last_shape;		  /* of the query that ended last */
	struct postgres_statement portal; /* of the unnamed portal */
	struct postgres_statement first;  /* the request's first executed statement ... */
	struct postgres_statement before; /* see postgres_count() */
	__u32 same;			  /* ... and how often it was executed before another one */
	__u32 body_bytes;		  /* body length of the current message */
	__u32 collected; /* bytes of it in requests.bpf.c, if it is collected there */
	struct postgres_piece read;
	struct postgres_start start; /* valid while the read is handled */
	__u64 send_buffer;	     /* address of PqSendBuffer's bytes; 0: not known */
	__u64 statement;	     /* attach mode symbol: the backend's debug_query_string */
	__u64 created;		     /* attach mode symbol: creation time of the last portal run */
	__u64 last_id;		     /* hash of the shape and id reported last */
	__u8 sets;		     /* the statement sets or resets a parameter */
	__u8 ran;	/* attach mode symbol: a portal was run since the query began ... */
	__u8 reported;	/* ... and a text was reported after that */
	__u8 asks_gss;	/* the client asks for GSSAPI encryption */
	__u8 dumps;	/* the backend sends the log to a replica */
	__u8 io_worker; /* reads on behalf of backends: io.bpf.c */
	__u8 collects;	/* the current message is collected in requests.bpf.c */
	__u8 skips;	/* enum postgres_skips */
};

#endif
