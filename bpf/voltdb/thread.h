/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What is kept of a VoltDB site thread beside what is kept of every server's thread. */
#ifndef QJOULE_VOLTDB_THREAD_H
#define QJOULE_VOLTDB_THREAD_H

#include "core/thread.h"

struct voltdb_thread {
	struct of_query cleared;
	__u64 transaction; /* the last one executed here, ... */
	__u32 batch;	   /* ... its last batch, from 0, ... */
	__u32 fragments;   /* ... and how many plan fragments that had */
};

#endif
