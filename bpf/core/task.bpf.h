/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the kernel knows of a task: its process's arguments, its file descriptors, whether it
 * sleeps.
 */
#ifndef QJOULE_TASK_BPF_H
#define QJOULE_TASK_BPF_H

#include "state.bpf.h"

/*
 * A hash that identifies the arguments of a process: FNV-1a over their length and their bytes, as
 * 64-bit words with the last one padded with zeros. qjoule/servers/restart.py computes the same
 * hash.
 */
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

#define S_IFMT	 0170000 /* include/uapi/linux/stat.h */
#define S_IFSOCK 0140000

/*
 * The struct sock behind this file descriptor of the current task, for servers that keep a
 * descriptor in their memory; 0 if it is not a socket.
 */
static __always_inline __u64 socket_of(__s32 fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *fdt = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(fdt, fd), *file = 0;
	struct socket *socket;

	if (fd < 0 || (__u32)fd >= BPF_CORE_READ(fdt, max_fds))
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	return (__u64)BPF_CORE_READ(socket, sk);
}

/* Before Linux 5.14 (commit 2f064a59a11f): a relocation ignores what follows three underscores. */
struct task_struct___before_5_14 {
	volatile long state;
} __attribute__((preserve_access_index));

static __always_inline unsigned int state_of(const struct task_struct *task)
{
	const struct task_struct___before_5_14 *before = (const void *)task;

	if (IS_EARLY && !bpf_core_field_exists(task->__state))
		return before->state;
	return task->__state;
}

/* Whether a task that leaves its CPU sleeps. False: it was only preempted, or has been woken up. */
static __always_inline bool is_asleep(const struct task_struct *task)
{
	return state_of(task);
}

#endif
