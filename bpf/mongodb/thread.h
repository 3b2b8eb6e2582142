/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What is kept of a MongoDB thread beside what is kept of every server's. */
#ifndef QJOULE_MONGODB_THREAD_H
#define QJOULE_MONGODB_THREAD_H

#include "core/thread.h"

struct mongodb_thread {
	union {
		struct of_query cleared;
		struct {
			__u8 is_whole; /* all of the request has been read */
		};
	};
	__u32 client_fd; /* where the thread reads its requests */
	__u32 nested;	 /* requests that its request makes of the server itself */
	__u32 request;	 /* symbol rung: the request's id, ... */
	__u32 asked;	 /* ... its command, as a hash, ... */
	__u64 cursor;	 /* ... and of a getMore its cursor; else 0 */
};

#endif
