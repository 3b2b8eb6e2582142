/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What is kept of a PostgreSQL backend beside what is kept of every server's thread. */
#ifndef QJOULE_POSTGRES_THREAD_H
#define QJOULE_POSTGRES_THREAD_H

#include "core/thread.h"

struct postgres_thread {
	union {
		struct of_query cleared;
		struct {
			__u32 requests;	   /* of which each has a reply of its own */
			__u8 synced;	   /* the client has ended its request */
			__u8 bound;	   /* a Bind without its Execute */
			__u8 may_continue; /* COPY: the client may send data before the end */
			__u8 changes;	   /* a parameter, if the server agrees */
		};
	};
	__u64 last_shape;   /* of the query that ended last */
	__u64 portal_shape; /* of the portal without a name ... */
	__u64 portal_tags;  /* ... likewise */
	__u64 send_buffer;  /* address of PqSendBuffer's bytes; 0 not known */
	__u8 sets;	    /* the statement sets or resets a parameter */
	__u8 ran;	    /* symbol rung: a portal was run since the query began, ... */
	__u8 reported;	    /* ... and a text was reported since then */
	__u8 asks_gss;	    /* the client asks for encryption by GSSAPI */
	__u8 dumps;	    /* the backend sends the log to a replica */
};

#endif
