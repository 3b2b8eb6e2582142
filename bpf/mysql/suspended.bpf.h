/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Commands that a thread pool has suspended: another thread may resume them. */
#ifndef QJOULE_MYSQL_SUSPENDED_BPF_H
#define QJOULE_MYSQL_SUSPENDED_BPF_H

#include "core/state.bpf.h"

struct suspended_query {
	__u64 query;
	__u64 begin_ns;
	__u64 shape;
	__u64 reply_addr;
	__u64 tags;
	__u64 cpu_ns;
	__u32 executions;
	__u32 flags;
	__u32 statement_bytes;
	__u8 command;
	__u8 reserved[3];
};

struct suspended_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64); /* session */
	__type(value, struct suspended_query);
};
extern struct suspended_map suspended SEC(".maps");

#endif
