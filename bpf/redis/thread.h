/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What is kept of a Redis thread beside what is kept of every server's. */
#ifndef QJOULE_REDIS_THREAD_H
#define QJOULE_REDIS_THREAD_H

#include "core/key_turn.h"
#include "core/thread.h"

struct redis_thread {
	struct of_query cleared;
	struct key_turn turn;
};

#endif
