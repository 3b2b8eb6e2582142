/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * For other eBPF programs: the query and statement that a server's thread works for. This file is
 * the whole ABI and needs nothing else of qjoule: copy it. bpf/README.md, "Tags for other
 * profilers", says how to open the map and what each kind of server has in it.
 *
 * `qjoule record --pin-map` pins a map of task storage at QJ_THREADS_PIN. Each value begins with
 * struct qj_thread_query. The rest of the value is private and differs between versions of qjoule,
 * so take the value's size from the map (bpf_obj_get_info_by_fd()).
 */
#ifndef QJOULE_THREAD_QUERY_H
#define QJOULE_THREAD_QUERY_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define QJ_THREADS_PIN "/sys/fs/bpf/qjoule/threads"

/* Raised whenever a field of struct qj_thread_query moves or changes its meaning. */
#define QJ_THREADS_ABI 1

/* Read-only. The thread itself writes the fields one by one. */
struct qj_thread_query {
	__u64 query;	/* number of the thread's query in the recording; 0: none */
	__u64 begin_ns; /* CLOCK_MONOTONIC; 0: `query` is the next query, which has not begun yet */
	__u64 shape;	/* a hash of the statement without its literals; 0: not known (yet) */
	__u16 abi;	/* QJ_THREADS_ABI; 0: the entry is not initialised */
	__u16 server;	/* index into `servers` of the recording's meta.json */
	__u8 server_kind; /* 1 MySQL and MariaDB, 2 PostgreSQL, 3 Redis and Valkey, 4 MongoDB,
			     5 Cassandra, 6 VoltDB, 7 memcached, 15 any other: no queries */
	__u8 attach_mode; /* how queries are found: 1 socket, 2 symbol, 4 agent; others: none are */
	__u8 helper;	  /* 1: works for the query of another thread (a parallel worker) */
	__u8 reserved;	  /* 0 */
};

#endif
