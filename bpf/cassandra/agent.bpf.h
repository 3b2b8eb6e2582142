/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the agent's numbers stand for. There are maps only where a server is on the agent rung. */
#ifndef QJOULE_AGENT_BPF_H
#define QJOULE_AGENT_BPF_H

#include "core/leader.bpf.h"
#include "core/statement.bpf.h"

/* Each server counts for itself. */
struct agent_key {
	__u64 number;
	__u64 tgid;
};

struct agent_statements_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct agent_key);
	__type(value, struct prepared_statement);
};
extern struct agent_statements_map agent_statements SEC(".maps");

/* Requests that have handed a task to another thread. */
struct agent_requests_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct agent_key);
	__type(value, struct leader);
};
extern struct agent_requests_map agent_requests SEC(".maps");

#endif
