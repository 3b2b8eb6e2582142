// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements what requests.bpf.h declares for messages in pieces. */
#include "requests.bpf.h"

struct postgres_pieces_map postgres_pieces SEC(".maps");

struct pieces_walk {
	struct postgres_pieces *pieces;
	__u64 addr;
	__u32 at;
	__u32 left;
	__u32 failed;
};

static long pieces_step(__u32 i, struct pieces_walk *walk)
{
	__u64 bytes = at_most(walk->left, POSTGRES_PIECE);
	__u64 at = at_most(walk->at, POSTGRES_COLLECTED);

	if (!bytes)
		return 1;
	if (bpf_probe_read_user(walk->pieces->bytes + at, bytes, (const void *)walk->addr)) {
		walk->failed = 1;
		return 1;
	}
	walk->addr += bytes;
	walk->at += bytes;
	walk->left -= bytes;
	return 0;
}

static __always_inline struct postgres_pieces *pieces_of(void)
{
#ifdef QJ_EARLY
	return 0;
#else
	return bpf_task_storage_get(&postgres_pieces, bpf_get_current_task_btf(), 0,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
#endif
}

/* Handles the message with the bytes in `pieces`; 0: without any. */
static __always_inline void collected(struct qj_cpu_state *cpu, struct thread_state *thread,
				      struct postgres_pieces *pieces)
{
	__u64 addr = 0;

	thread->postgres.collects = 0;
	if (pieces) {
		/* Functions take numbers, and the verifier forgets that this one was a pointer. */
		pieces->addr = (__u64)pieces->bytes;
		barrier();
		addr = *(volatile __u64 *)&pieces->addr;
		thread->collected = 1;
	}
	postgres_content(cpu, thread, addr, thread->head[0],
			 pieces ? thread->postgres.collected : 0);
	thread->collected = 0;
	label_query(cpu, thread);
}

int postgres_collect(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr, __u32 here)
{
	struct pieces_walk walk = {.addr = addr};
	__u32 wanted;

	if (!cpu || !thread)
		return 0;
	wanted = postgres_wanted(thread->head[0]);
	walk.pieces = pieces_of();
	walk.at = thread->postgres.collected;
	if (!walk.pieces || walk.at > wanted) {
		collected(cpu, thread, 0);
		return 0;
	}
	walk.left = at_most(here, wanted - walk.at);
	bpf_loop(POSTGRES_COLLECTED / POSTGRES_PIECE + 1, pieces_step, &walk, 0);
	thread->postgres.collected = walk.at;
	if (walk.failed)
		collected(cpu, thread, 0);
	else if (!thread->need || walk.at >= wanted)
		collected(cpu, thread, walk.pieces);
	return 0;
}
