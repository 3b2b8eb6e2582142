/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What is kept of a memcached worker beside what is kept of every server's thread. */
#ifndef QJOULE_MEMCACHED_THREAD_H
#define QJOULE_MEMCACHED_THREAD_H

#include "core/key_turn.h"
#include "core/thread.h"

struct memcached_thread {
	struct of_query cleared;
	struct key_turn turn;
};

#endif
