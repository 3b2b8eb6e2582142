// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Redis: one thread reads requests of many connections, executes them, and writes a turn's replies
 * at the end of that turn of its event loop. When the thread reads from a connection, it works for
 * that connection's request from then on. Writing a reply other than the turn's first is work for
 * the request that it answers. Between a sleep and the next read the thread works for the server.
 *
 * All commands of one read form one request: the socket does not show their shares.
 *
 * If io-threads read too (attach mode `statistical`), the main thread executes what several threads
 * have read, with no system call in between. Requests are then counted and timed, and none owns CPU
 * time.
 */
#include "request.bpf.h"
#include "core/socket.bpf.h"

struct redis_connections_map redis_connections SEC(".maps");
struct redis_namings_map redis_namings SEC(".maps");

static __always_inline struct thread_state *redis_thread(struct task_struct *task)
{
	struct thread_state *thread = thread_of(task);

	return thread && thread->server_kind == QJ_SERVER_REDIS ? thread : 0;
}

/* Whether this thread executes commands; io-threads read, write or free memory for it. */
static __always_inline bool executes(const struct task_struct *task)
{
	return task->pid == task->tgid;
}

/*
 * An io-thread has read although the plan expects none to: they can be started while the server
 * runs, and after a restart with other options. From here on its requests are counted, and none
 * owns CPU time. The main thread may work for its last request until it sleeps.
 */
static __always_inline void redis_several_read(struct task_struct *task,
					       struct thread_state *thread)
{
	struct thread_state *main = thread_of(task->group_leader);

	thread->attach_mode = QJ_ATTACH_STATISTICAL;
	if (main)
		main->attach_mode = QJ_ATTACH_STATISTICAL;
}

static __always_inline void redis_reads(struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = redis_thread(task);
	struct redis_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 addr, now;
	bool owns;

	if (!thread || got < 0 || (flags & MSG_PEEK))
		return;
	cpu = this_cpu();
	if (!got) {
		connection = bpf_sk_storage_get(&redis_connections, sk, 0, 0);
		if (connection)
			key_left(cpu, thread, &connection->request);
		return;
	}
	if (owns_time(thread) && !executes(task))
		redis_several_read(task, thread);
	owns = owns_time(thread);
	connection = redis_connect(cpu, thread, sk, got);
	if (!connection || connection->request.opaque)
		return;
	addr = received_at(task);
	now = bpf_ktime_get_ns();
	if (!addr || !redis_in_step(cpu, thread, connection, sk, addr, got)) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return;
	}
	if (connection->request.opaque)
		return;
	if (key_next_request(cpu, thread, &connection->request, now))
		thread->redis.turn.unanswered++;
	if (owns) {
		key_claim(cpu, thread, &connection->request, now);
		thread->redis.turn.sleeps = task->nvcsw;
	}
	redis_take(cpu, thread, connection, sk, addr, got);
	if (owns) {
		thread->shape = connection->request.shape;
		label_query(cpu, thread);
	}
}

READS(redis, redis_reads)

/*
 * A reply: its connection's request was served. The first reply of a turn is written after the last
 * command was executed, so the slice stays with that command. The slices of the following replies
 * belong to the requests that they answer.
 */
static __always_inline void redis_writes(struct sock *sk, int sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = redis_thread(task);
	struct redis_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 now;

	if (!thread || sent <= 0)
		return;
	connection = bpf_sk_storage_get(&redis_connections, sk, 0, 0);
	if (!connection || !connection->request.query)
		return;
	cpu = this_cpu();
	redis_named(cpu, thread, connection, sk, task, sent);
	now = bpf_ktime_get_ns();
	if (!executes(task) || !owns_time(thread)) {
		/* The main thread waits for it, and leaves this connection alone until then. */
		if (connection->request.waits)
			key_answered(cpu, thread, &connection->request, now);
		return;
	}
	if (!thread->query && key_is_open(cpu))
		key_claim(cpu, thread, &connection->request, now);
	if (connection->request.waits) {
		if (thread->redis.turn.unanswered)
			thread->redis.turn.unanswered--;
		key_answered(cpu, thread, &connection->request, now);
	}
	key_release(cpu, thread, thread->redis.turn.unanswered != 0, now);
}

WRITES(redis, redis_writes)
