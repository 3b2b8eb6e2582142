/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Where a thread that serves many connections is in its turn: see key_request.bpf.h. */
#ifndef QJOULE_KEY_TURN_H
#define QJOULE_KEY_TURN_H

struct key_turn {
	__u64 sleeps;	  /* how often the thread had slept when it last read a request */
	__u32 unanswered; /* requests that were read in this turn and have no reply yet */
	__u32 reserved;
};

#endif
