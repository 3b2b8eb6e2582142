/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The queries that PostgreSQL's io workers read for: io.bpf.c. */
#ifndef QJOULE_POSTGRES_IO_BPF_H
#define QJOULE_POSTGRES_IO_BPF_H

#include "core/query.bpf.h"

/* A PgAioHandle is in shared memory, at the same address in all processes of a server. */
struct io_handle {
	__u64 address;
	__u64 server;
};

struct io_leaders_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct io_handle);
	__type(value, struct leader);
};
extern struct io_leaders_map io_leaders SEC(".maps");

#endif
