/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* State of a Redis thread beside the state common to all servers' threads. */
#ifndef QJOULE_REDIS_THREAD_H
#define QJOULE_REDIS_THREAD_H

#include "core/server_state.h"

struct redis_thread {
	struct of_query cleared;
	struct key_turn turn;
};

#endif
