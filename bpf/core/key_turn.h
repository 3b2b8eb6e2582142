/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The turn of a thread that serves many connections, as defined in key_request.bpf.h. */
#ifndef QJOULE_KEY_TURN_H
#define QJOULE_KEY_TURN_H

struct key_turn {
	__u64 sleeps;	  /* the thread's count of sleeps when it last read a request */
	__u32 unanswered; /* requests read in this turn and not yet answered */
	__u32 reserved;
};

#endif
