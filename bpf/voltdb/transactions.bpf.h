/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What is known about VoltDB's transactions independently of the executing site thread. */
#ifndef QJOULE_VOLTDB_TRANSACTIONS_BPF_H
#define QJOULE_VOLTDB_TRANSACTIONS_BPF_H

#include "core/state.bpf.h"

#define VOLTDB_NAME_BYTES     256 /* bytes of a procedure's name; longer names are cut */
#define VOLTDB_BATCH_MAX      200 /* statements in a batch: ProcedureRunner.java, MAX_BATCH_SIZE */
#define VOLTDB_PARTITION      0x3fffULL /* TxnEgo.java, UniqueIdGenerator.java: lowest 14 bits */
#define VOLTDB_ALL_PARTITIONS 0x3fffULL /* MpInitiator.MP_INIT_PID */

struct voltdb_transaction {
	__u64 unique;
	__u32 tgid;
	__u32 reserved;
};

/* Transactions of several partitions that were already counted. */
struct voltdb_begun_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct voltdb_transaction);
	__type(value, __u8);
};
extern struct voltdb_begun_map voltdb_begun SEC(".maps");

#endif
