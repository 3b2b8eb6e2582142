// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Counts samples of the CPU's clock by the query that the running thread works for. Of qjoule it
 * needs thread_query.h alone.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#include "samples.h"
#include "thread_query.h"

/* Stands for the pinned map, whose values are larger: profiler.c puts that in its place. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct qj_thread_query);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH); /* with its room made beforehand: this is an interrupt */
	__uint(max_entries, MOST_KEYS);
	__type(key, struct sample_key);
	__type(value, __u64);
} samples SEC(".maps");

const volatile bool each = false; /* a row for each query of each thread */
__u64 uncounted = 0;		  /* samples that `samples` had no room for */
__u32 other_abi = 0;		  /* the map's, if it is not ours */

SEC("perf_event")
int on_sample(void *context)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), *count, one = 1;
	struct sample_key key = {};
	const struct qj_thread_query *thread;

	if (!pid_tgid) /* an idle CPU */
		return 0;
	thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	if (thread && thread->abi != QJ_THREADS_ABI) {
		if (thread->abi)
			other_abi = thread->abi;
		thread = 0;
	}
	if (thread) {
		key.shape = thread->query ? thread->shape : 0;
		key.query = each ? thread->query : !!thread->query;
		key.tgid = pid_tgid >> 32;
		key.tid = each ? (__u32)pid_tgid : 0;
	}
	count = bpf_map_lookup_elem(&samples, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&samples, &key, &one, BPF_NOEXIST)) {
		/* There is no room, or another CPU was first. */
		count = bpf_map_lookup_elem(&samples, &key);
		__sync_fetch_and_add(count ?: &uncounted, 1);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
