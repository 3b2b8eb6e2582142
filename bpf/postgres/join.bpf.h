/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Begins to read a PostgreSQL connection that was already open, or whose framing was lost. It
 * begins at a read that starts with a statement and consists of complete messages. The middle of a
 * message does not look like that.
 */
#ifndef QJOULE_POSTGRES_JOIN_BPF_H
#define QJOULE_POSTGRES_JOIN_BPF_H

#include "requests.bpf.h"

struct postgres_skim {
	__u64 addr;
	__u32 left;
	__u8 first; /* type of the first message */
};

static __always_inline bool postgres_is_letter(__u8 byte)
{
	return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
}

static long postgres_skim(__u32 i, struct postgres_skim *skim)
{
	__u8 head[POSTGRES_HEADER] = {};
	__u32 size;

	if (skim->left < POSTGRES_HEADER)
		return 1;
	bpf_probe_read_user(head, sizeof(head), (const void *)skim->addr);
	size = postgres_uint(&head[1]) + 1;
	if (!postgres_is_letter(head[0]) || size < POSTGRES_HEADER || size > skim->left)
		return 1;
	if (!skim->first)
		skim->first = head[0];
	skim->addr += size;
	skim->left -= size;
	return 0;
}

/* The startup packet of a connection that was accepted while tracing began. */
static __always_inline bool postgres_is_startup(__u64 addr, __u32 bytes)
{
	__u8 head[POSTGRES_STARTUP] = {};

	bpf_probe_read_user(head, sizeof(head), (const void *)addr);
	return bytes >= POSTGRES_STARTUP && postgres_uint(head) == bytes &&
	       postgres_uint(&head[4]) >> 16 == POSTGRES_PROTOCOL_3;
}

/*
 * Complete messages that begin with another type are no loss: a client's data for a COPY, or what a
 * worker reads from another server.
 */
static __always_inline bool postgres_joins(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 addr, __u32 bytes)
{
	struct postgres_skim skim = {.addr = addr, .left = bytes};

	if (postgres_is_startup(addr, bytes)) {
		thread->phase = PHASE_STARTUP;
		return true;
	}
	bpf_loop(POSTGRES_MAX_WALK, postgres_skim, &skim, 0);
	if (skim.left) {
		if (thread->phase == PHASE_UNKNOWN)
			count_loss(cpu, QJ_LOSS_FRAMING);
		thread->phase = PHASE_LOST;
		return false;
	}
	if (skim.first != 'Q' && skim.first != 'P' && skim.first != 'B')
		return false;
	thread->phase = PHASE_READY;
	return true;
}

#endif
