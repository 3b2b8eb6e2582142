/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the part of a thread's state that is one server's begins with: bpf/<server>/thread.h. */
#ifndef QJOULE_THREAD_H
#define QJOULE_THREAD_H

/* The server's own state of the present query lies here: zeroed when that ends. */
struct of_query {
	__u64 words[2];
};

#endif
