/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Looks up what the agent's numbers refer to. These maps exist only if a server uses the rung
 * `agent`.
 */
#ifndef QJOULE_AGENT_BPF_H
#define QJOULE_AGENT_BPF_H

#include "core/query.bpf.h"
#include "core/statement.bpf.h"

/* Each server has its own numbers. */
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

/* Requests that have passed a task to another thread. */
struct agent_requests_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct agent_key);
	__type(value, struct leader);
};
extern struct agent_requests_map agent_requests SEC(".maps");

#endif
