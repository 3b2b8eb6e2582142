/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The common beginning of the server-specific part of a thread's state: bpf/<server>/thread.h. */
#ifndef QJOULE_THREAD_H
#define QJOULE_THREAD_H

/* The server's own state of the current query: zeroed when the query ends. */
struct of_query {
	__u64 words[2];
};

#endif
