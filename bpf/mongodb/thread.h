/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* State of a MongoDB thread beside the state common to all servers' threads. */
#ifndef QJOULE_MONGODB_THREAD_H
#define QJOULE_MONGODB_THREAD_H

#include "core/server_state.h"

struct mongodb_thread {
	union {
		struct of_query cleared;
		struct {
			__u8 is_whole; /* the request was read completely */
		};
	};
	__u32 client_fd; /* descriptor from which the thread reads its requests */
	__u32 nested;	 /* nested requests that the server makes to itself within this one */
	__u32 request;	 /* attach mode symbol: the request's id ... */
	__u32 asked;	 /* ... its command's hash ... */
	__u64 cursor;	 /* ... and for a getMore its cursor; else 0 */
};

#endif
