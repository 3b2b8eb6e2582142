/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* State of a VoltDB site thread beside the state common to all servers' threads. */
#ifndef QJOULE_VOLTDB_THREAD_H
#define QJOULE_VOLTDB_THREAD_H

#include "core/server_state.h"

struct voltdb_thread {
	struct of_query cleared;
	__u64 transaction; /* the last transaction executed here ... */
	__u32 batch;	   /* ... its last batch, from 0 ... */
	__u32 fragments;   /* ... and the number of plan fragments in that batch */
};

#endif
