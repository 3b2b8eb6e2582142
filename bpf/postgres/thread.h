/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* State of a PostgreSQL backend beside the state common to all servers' threads. */
#ifndef QJOULE_POSTGRES_THREAD_H
#define QJOULE_POSTGRES_THREAD_H

#include "core/thread.h"

struct postgres_thread {
	union {
		struct of_query cleared;
		struct {
			__u32 requests; /* requests, each with a reply of its own */
			__u8 synced;	/* the client has ended its request */
			__u8 bound;	/* a Bind without its Execute */
			__u8
			    may_continue; /* COPY: the client may send data before the query ends */
			__u8 changes;	  /* a parameter changes if the server accepts it */
			__u64 unknown;	  /* the request's last statement, if its text is unknown */
		};
	};
	__u64 last_shape;   /* of the query that ended last */
	__u64 portal_shape; /* of the unnamed portal ... */
	__u64 portal_tags;  /* ... and its tags */
	__u64 send_buffer;  /* address of PqSendBuffer's bytes; 0: not known */
	__u64 statement;    /* rung symbol: address of its debug_query_string */
	__u64 created;	    /* rung symbol: when the portal was made that was run last */
	__u64 sleeps;	    /* of an io worker, when it took up its last request */
	__u64 last_id;	    /* hash of the shape and id that were told last */
	__u8 sets;	    /* the statement sets or resets a parameter */
	__u8 ran;	    /* rung symbol: a portal was run since the query began ... */
	__u8 reported;	    /* ... and a text was reported after that */
	__u8 asks_gss;	    /* the client asks for GSSAPI encryption */
	__u8 dumps;	    /* the backend sends the log to a replica */
	__u8 io_worker;	    /* reads on behalf of backends: io.bpf.c */
};

#endif
