/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Parallel workers of PostgreSQL, which identify their leader by its process id. */
#ifndef QJOULE_POSTGRES_WORKERS_BPF_H
#define QJOULE_POSTGRES_WORKERS_BPF_H

#include "core/query.bpf.h"

struct leaders_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* process id of the leader */
	__type(value, struct leader);
};
extern struct leaders_map leaders SEC(".maps");

#endif
