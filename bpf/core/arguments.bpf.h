/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A hash that identifies the arguments of a process: FNV-1a over their length and their bytes, as
 * 64-bit words with the last one padded with zeros. qjoule/servers/examine.py computes the same
 * hash.
 */
#ifndef QJOULE_ARGUMENTS_BPF_H
#define QJOULE_ARGUMENTS_BPF_H

#include "state.bpf.h"

#define ARGUMENT_CHUNK	64
#define ARGUMENT_CHUNKS 1024 /* hashes 64 KiB; beyond that only the length counts */

struct argument_walk {
	__u64 at;
	__u64 left;
	__u64 hash;
};

static long hash_chunk(__u32 i, struct argument_walk *walk)
{
	__u64 words[ARGUMENT_CHUNK / 8] = {};
	__u64 bytes = at_most(walk->left, ARGUMENT_CHUNK);

	if (!bytes)
		return 1;
	if (bpf_probe_read_user(words, bytes, (const void *)walk->at)) {
		walk->hash = 0;
		return 1;
	}
	for (unsigned w = 0; w < ARGUMENT_CHUNK / 8 && w * 8 < bytes; w++)
		walk->hash = (walk->hash ^ words[w]) * 0x100000001b3ULL;
	walk->at += bytes;
	walk->left -= bytes;
	return 0;
}

/*
 * Arguments of a process that has just called exec(). They were written a moment ago, so they are
 * in memory. Returns 0 if they could not be read.
 */
static __always_inline __u64 arguments_of(struct task_struct *task)
{
	__u64 end = BPF_CORE_READ(task, mm, arg_end);
	struct argument_walk walk = {.at = BPF_CORE_READ(task, mm, arg_start)};

	walk.left = end - walk.at;
	walk.hash = (0xcbf29ce484222325ULL ^ walk.left) * 0x100000001b3ULL;
	bpf_loop(ARGUMENT_CHUNKS, hash_chunk, &walk, 0);
	return walk.hash;
}

#endif
