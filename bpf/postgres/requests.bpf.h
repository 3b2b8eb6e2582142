/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a client's messages do to the request that its backend works for. In requests.bpf.c: the
 * verifier checks each of these once, and not once for every state in which a message may come.
 */
#ifndef QJOULE_POSTGRES_REQUESTS_BPF_H
#define QJOULE_POSTGRES_REQUESTS_BPF_H

#include "frame.bpf.h"
#include "reply.bpf.h"

/* Ends the thread's request. Returns 0. */
extern int postgres_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns);
/*
 * A message of this type comes. Ends the request before it if that is complete and no message of
 * this read has belonged to it, and begins one where none is under way. Returns whether the message
 * belongs to the request now.
 */
extern int postgres_begin(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now,
			  __u8 type, bool fresh);
/* Takes a message of which `here` bytes of the body have arrived at `addr`. Returns 0. */
extern int postgres_content(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr,
			    __u8 type, __u32 here);
/*
 * Takes the header of one of a connection's first packets. `arrived`: bytes of the packet up to
 * the end of the read if the header came in one piece, which ends at `addr`; otherwise 0. Returns
 * whether what follows it can be read.
 */
extern int postgres_startup(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr,
			    __u32 arrived, __u64 now);
/*
 * Framing lost: sends the request as far as it is known, then waits for a clear boundary. Returns
 * 0.
 */
extern int postgres_lost(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now);

#endif
