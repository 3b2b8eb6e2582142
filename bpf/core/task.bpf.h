/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Kernel facts of a task: its process's arguments, its file descriptors, whether it sleeps. Then
 * the rate limits of task events.
 */
#ifndef QJOULE_TASK_BPF_H
#define QJOULE_TASK_BPF_H

#include "state.bpf.h"
#include "emit.bpf.h"

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
 * Returns the hash of the arguments of a process that has just called exec(). They were written a
 * moment ago, so they are in memory. Returns 0 if they could not be read.
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
 * Returns the struct sock behind this file descriptor of the current task, for servers that keep a
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

/* True if a task that leaves its CPU sleeps, false if it was preempted or already woken up. */
static __always_inline bool is_asleep(const struct task_struct *task)
{
	return state_of(task);
}

/*
 * Limits the task events that a user may cause. Any user can fork, execute and rename as fast as a
 * CPU allows, and each event takes room in the rings that servers' records need, and time of the
 * reader. So events have a rate limit per user, and one for all users together; servers' threads
 * have their own. Events beyond the limit are counted instead of sent. CPU time never depends on
 * these events.
 */

#define BUDGET_USERS 4096
#define BUDGET_BURST_NS                                                                            \
	(NS_PER_S / 2) /* what a budget holds after a rest: its rate in this time                  \
			*/

/* Servers' thread pools rename their threads with each piece of work. */
#define SERVER_TASKS_PER_S 50000
#define USER_TASKS_PER_S   4000 /* 1,000 programs that start and end */
/* One user alone cannot exhaust this. Half a second of it is less than half of a ring of 1 MiB. */
#define USERS_TASKS_PER_S 16000
/* Tasks outside servers that are sent when tracing begins: less than two thirds of such a ring. */
#define ALIVE_MAX 12288

/* Real user id in the initial namespace, and enum qj_owner_kind. */
struct budget_key {
	__u32 uid;
	__u32 owner_kind;
};

/* When each user's budget is used up. The least recently active user is evicted. */
struct budgets_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BUDGET_USERS);
	__type(key, struct budget_key);
	__type(value, __u64);
};
extern struct budgets_map budgets SEC(".maps");

/* For all users together: when the budget is used up; number of tasks sent when tracing began. */
extern __u64 tasks_used_ns, tasks_alive;

/* Like within_rate(), but shared by CPUs: each exceeds the rate by at most one event. */
static __always_inline bool within_budget(volatile __u64 *used_ns, __u64 now, __u64 per_s)
{
	__u64 used = *used_ns, least = now - BUDGET_BURST_NS;

	if (used < least)
#ifdef QJ_EARLY
		*used_ns = least; /* an event of another CPU may go uncounted */
#else
		__sync_val_compare_and_swap(used_ns, used, least);
#endif
	if (*used_ns > now)
		return false;
	__sync_fetch_and_add(used_ns, NS_PER_S / per_s);
	return true;
}

static __always_inline bool user_may(__u32 uid, __u8 owner_kind, __u64 now, __u64 per_s)
{
	struct budget_key key = {.uid = uid, .owner_kind = owner_kind};
	__u64 *used = bpf_map_lookup_elem(&budgets, &key);

	if (!used) {
		__u64 none = 0;

		bpf_map_update_elem(&budgets, &key, &none, BPF_NOEXIST);
		used = bpf_map_lookup_elem(&budgets, &key);
	}
	return used && within_budget(used, now, per_s);
}

/* Counts a task alive at the start; returns the number before. */
static __always_inline __u64 count_alive(void)
{
#ifdef QJ_EARLY
	return tasks_alive++; /* a single process reads the iterator */
#else
	return __sync_fetch_and_add(&tasks_alive, 1);
#endif
}

static __always_inline bool may_emit_task(struct task_struct *task, __u8 event, __u8 owner_kind)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 uid;

	if (event == QJ_TASK_ALIVE) /* sent once each, when tracing begins */
		return owner_kind == QJ_OWNER_SERVER || count_alive() < ALIVE_MAX;
	uid = BPF_CORE_READ(task, real_cred, uid.val);
	if (owner_kind == QJ_OWNER_SERVER)
		return user_may(uid, owner_kind, now, SERVER_TASKS_PER_S);
	return user_may(uid, owner_kind, now, USER_TASKS_PER_S) &&
	       within_budget(&tasks_used_ns, now, USERS_TASKS_PER_S);
}

#endif
