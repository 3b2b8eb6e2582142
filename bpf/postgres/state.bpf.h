/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A PostgreSQL backend apart from its requests: its global variables, its connection to a replica,
 * and the core's hook.
 */
#ifndef QJOULE_POSTGRES_STATE_BPF_H
#define QJOULE_POSTGRES_STATE_BPF_H

#include "core/query.bpf.h"
#include "plan_nodes.bpf.h"

/*
 * Reads a global variable of the current backend, at a known distance from the start of its data.
 * Returns 0, or a negative number if the distance is not known.
 */
static __always_inline long postgres_variable(void *to, __u32 bytes, __u32 distance)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!distance)
		return -1;
	return bpf_probe_read_user(to, bytes,
				   (const void *)(BPF_CORE_READ(task, mm, start_data) + distance));
}

/*
 * Connections of replicas. From START_REPLICATION on, a backend sends its log for as long as the
 * replica listens. That is the server's work and no query. PostgreSQL documentation, "Streaming
 * Replication Protocol".
 */
#define POSTGRES_START_RE 0x65725f7472617473ULL /* "start_re", little-endian */
#define POSTGRES_LOWER	  0x2020002020202020ULL /* sets the letters to lower case */

static __always_inline bool postgres_streams(__u64 text)
{
	__u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (const void *)text);
	return (word | POSTGRES_LOWER) == POSTGRES_START_RE;
}

static __always_inline void postgres_stream_begin(struct qj_cpu_state *cpu,
						  struct thread_state *thread, __u64 now)
{
	const struct role_name role = {"walsender"};

	thread->postgres.dumps = 1;
	emit_role(cpu, thread, &role);
	query_release(cpu, thread, now);
}

static __always_inline void postgres_stream_end(struct qj_cpu_state *cpu,
						struct thread_state *thread)
{
	const struct role_name role = {"backend"};

	if (!thread->postgres.dumps)
		return;
	thread->postgres.dumps = 0;
	emit_role(cpu, thread, &role);
}

/* ---- hooks, called by the core: core/hooks.bpf.h ---- */

/* The class of a wait event, its highest byte: src/include/utils/wait_classes.h. */
#define POSTGRES_CLASS(event) ((event) >> 24)
#define POSTGRES_WAIT_LWLOCK  0x01
#define POSTGRES_WAIT_LOCK    0x03
#define POSTGRES_WAIT_BUFFER  0x04
#define POSTGRES_WAIT_CLIENT  0x06
#define POSTGRES_WAIT_TIMEOUT 0x09
#define POSTGRES_WAIT_IO      0x0a

/*
 * Backends wait for almost everything with epoll, for their latch as well as for their client. They
 * publish the reason in shared memory, for pg_stat_activity. An io worker that waits for its next
 * request works for no query from now on.
 */
static __always_inline void postgres_blocked(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	__u64 address = 0;
	__u32 event = 0;

	if (thread->postgres.io_worker && thread->borrowed) {
		helper_end(cpu, thread, thread->off_ns, bpf_get_current_pid_tgid());
		thread->off_ns = 0;
		return;
	}
	if (postgres_variable(&address, sizeof(address),
			      facts_of(thread)[QJ_POSTGRES_WAIT_EVENT]) ||
	    bpf_probe_read_user(&event, sizeof(event), (const void *)address))
		return;
	switch (POSTGRES_CLASS(event)) {
	case POSTGRES_WAIT_LWLOCK:
	case POSTGRES_WAIT_LOCK:
	case POSTGRES_WAIT_BUFFER:
		thread->waits.kind = QJ_WAIT_LOCK;
		break;
	case POSTGRES_WAIT_CLIENT:
		thread->waits.kind = QJ_WAIT_NETWORK;
		break;
	case POSTGRES_WAIT_TIMEOUT:
		thread->waits.kind = QJ_WAIT_SLEEP;
		break;
	case POSTGRES_WAIT_IO:
		thread->waits.kind = QJ_WAIT_IO;
		break;
	default: /* of another process of the server, or of an extension */
		thread->waits.kind = QJ_WAIT_OTHER;
	}
}

#endif
