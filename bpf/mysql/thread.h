/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* State of a MySQL or MariaDB thread beside the state common to all servers' threads. */
#ifndef QJOULE_MYSQL_THREAD_H
#define QJOULE_MYSQL_THREAD_H

#include "core/server_state.h"

/* What may continue in a further packet. */
enum mysql_more {
	MYSQL_NO_MORE = 0,
	MYSQL_MORE_LONG, /* a command of 16 MB or more */
	MYSQL_MORE_FILE, /* a file, up to its empty packet */
};

/* Which part of a packet is next. */
enum mysql_expect {
	MYSQL_SKIP = 0,
	MYSQL_COMMAND,
	MYSQL_LOGIN,
	MYSQL_TEXT,
};

struct mysql_thread {
	union {
		struct of_query cleared;
		struct {
			__u64 reply_addr; /* attach mode symbol: address of the reply to come; 0:
					     unknown */
			__u8 more;	  /* enum mysql_more */
			__u8 expects;	  /* enum mysql_expect */
			__u8 changes; /* the user or database changes if the server accepts it */
			__u8 reserved;
			__u32 unknown; /* id of a prepared statement whose text is unknown */
		};
	};
	__u64 number;	    /* attach mode symbol: the session object that the thread served last */
	__u64 client;	    /* attach mode symbol: address of the client's socket; 0: not known */
	__u64 charset_addr; /* the character set that `charset` describes */
	__u64 thd;	    /* attach mode socket: the session object of ... */
	__u64 thd_session;  /* ... this session; 0: none is known */
	__u64 changing;	    /* attach mode symbol: the session whose database may change; 0: none */
	__u64 child_stack;  /* stack pointer at the beginning of a procedure's statement */
	__u32 length;	    /* length of the current packet */
	__u32 long_data;    /* the statement that got values before its execution; 0: none */
	__u8 sequence;	    /* number of the next packet that continues */
	__u8 leaves;	    /* attach mode symbol: the client disconnects */
	__u8 went_on;	    /* attach mode symbol: a header was read since the server waited */
	__u8 dumps;	    /* the thread sends the binary log to a replica */
	__u8 charset;	    /* QJ_SHAPE_CHARSET_* */
};

#endif
