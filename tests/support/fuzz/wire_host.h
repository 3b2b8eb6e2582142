/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The socket rung's parsers on the host: one thread of a server that reads from one client into a
 * buffer. Records for the tracer are collected.
 */
#ifndef QJOULE_WIRE_HOST_H
#define QJOULE_WIRE_HOST_H

#include <linux/types.h>
#include <stddef.h>

#define WIRE_BUFFER  (64 * 1024)
#define WIRE_RECORDS (1 << 16)

/*
 * A query that ended. `text` is its shape's text, of `text_bytes` bytes; NULL if none was reported.
 */
struct wire_query {
	__u64 shape;
	__u32 executions;
	__u32 flags;
	__u32 command;
	__u32 text_bytes;
	const char *text;
	__u64 rows;
	char sqlstate[8];
	const char *tags; /* its tags, of `tags_bytes` bytes; NULL: none */
	__u32 tags_bytes;
	__u32 tags_dialect;
};

/* The name that an application gives itself. */
struct wire_name {
	__u32 count;
	char bytes[512];
};

/* A new connection; `phase`: enum phase of bpf/core/state.bpf.h. */
void wire_open(int server_kind, int phase);
/* The server reads these bytes to this place in its buffer; nothing beyond them is readable. */
void wire_receive(const __u8 *bytes, size_t count, size_t place);
/* The server finds nothing to read. */
void wire_wait(void);
/*
 * The server writes a reply to the start of its buffer. PostgreSQL has a separate buffer for
 * replies.
 */
void wire_reply(const __u8 *bytes, size_t count);
/* The connection ends; returns how many queries there were. */
size_t wire_close(void);

/* A Redis that reads from one client and replies; a connection is new, or was open before. */
void redis_open(int is_new);
/* Nothing beyond these bytes is readable. */
void redis_receive(const __u8 *bytes, size_t count);
void redis_reply(const __u8 *bytes, size_t count);
/* The client disconnects; returns how many requests there were. */
size_t redis_close(void);

const struct wire_query *wire_queries(void);
/* The names of the connection since it was opened, in order. */
const struct wire_name *wire_names(size_t *count);
__u32 wire_loss(int cause);
/* The session events and the role names that were reported. */
size_t wire_sessions(void);
size_t wire_session_bytes(void);
size_t wire_roles(void);

#endif
