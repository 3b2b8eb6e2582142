/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What is kept of a MySQL or MariaDB thread beside what is kept of every server's. */
#ifndef QJOULE_MYSQL_THREAD_H
#define QJOULE_MYSQL_THREAD_H

#include "core/thread.h"

/* What goes on although its packet has ended. */
enum mysql_more {
	MYSQL_NO_MORE = 0,
	MYSQL_MORE_LONG, /* a command of 16 MB or more */
	MYSQL_MORE_FILE, /* a file, to its empty packet */
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
			__u64 reply_addr; /* symbol rung: where the reply will be; 0 unknown */
			__u8 more;	  /* enum mysql_more */
			__u8 expects;	  /* enum mysql_expect */
			__u8 changes;	  /* user or database, if the server agrees */
		};
	};
	__u64 changing;	   /* symbol rung: the session whose database may change; 0 none */
	__u64 child_stack; /* stack pointer where a procedure's statement began */
	__u32 length;	   /* of the present packet */
	__u32 long_data;   /* the statement that got values before its execution; 0 none */
	__u8 sequence;	   /* number of the packet that goes on */
	__u8 leaves;	   /* symbol rung: the client says goodbye */
	__u8 dumps;	   /* the thread sends the binary log to a replica */
};

#endif
