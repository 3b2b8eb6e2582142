/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Limits the task events that a user may cause. Any user can fork, execute and rename as fast as a
 * CPU allows, and each event takes room in the rings that servers' records need, and time of the
 * reader. So events have a rate limit per user, and one for all users together; servers' threads
 * have their own. Events beyond the limit are counted instead of sent. CPU time never depends on
 * these events.
 */
#ifndef QJOULE_TASK_BUDGET_BPF_H
#define QJOULE_TASK_BUDGET_BPF_H

#include "emit.bpf.h"

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

/* Real user id, as the initial namespace has it, and enum qj_owner_kind. */
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

/* For all users together: when the budget is used up; tasks alive at the start. */
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

/* How many came before. */
static __always_inline __u64 count_alive(void)
{
#ifdef QJ_EARLY
	return tasks_alive++; /* one process reads the iterator */
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
