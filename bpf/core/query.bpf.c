// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements query.bpf.h: the records of queries. */
#include "query.bpf.h"
#include "sample.bpf.h"

/* Copies the label first: once the slice is taken, a tick may label the CPU with another thread. */
int end_slice(struct qj_cpu_state *cpu, __u64 now)
{
	struct qj_slice_label label;

	if (!cpu)
		return 0;
	label = cpu->label;
	barrier();
	account_slice(cpu, &label, restart_slice(cpu, now), now);
	return 0;
}

int query_reset(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	if (!cpu || !thread)
		return 0;
	thread->query = new_id(cpu);
	thread->begin_ns = 0;
	thread->end_ns = 0;
	thread->shape = 0;
	thread->statement_bytes = 0;
	thread->executions = 0;
	thread->flags = 0;
	thread->rows = 0;
	thread->tags = 0;
	thread->cpu_ns = 0;
	__builtin_memset(thread->sqlstate, 0, sizeof(thread->sqlstate));
	thread->stream = 0;
	thread->command = QJ_COMMAND_OTHER;
	thread->text_left = 0;
	waits_clear(&thread->waits);
	__builtin_memset(&thread->cleared, 0, sizeof(thread->cleared));
	return 0;
}

/* Fills the key of the thread's query in a package's sums. `key` is zeroed. */
static __always_inline void query_key(struct thread_state *thread, __u16 package,
				      struct qj_sums_key *key)
{
	key->shape = thread->shape;
	if (sums_by_tags()) {
		key->tags = thread->tags;
		key->naming = thread_naming(thread);
	}
	key->package = package;
	key->server = thread->server;
	key->owner_kind = QJ_OWNER_QUERY;
}

/*
 * Moves the query's use from the row without a shape to its shape's row, in the same window: a past
 * window may have been read.
 */
static __always_inline void move_use(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	struct unnamed_use *kept = &thread->unnamed;
	struct qj_sums_key key = {.tags = kept->tags,
				  .naming = kept->naming,
				  .package = kept->package,
				  .server = thread->server,
				  .owner_kind = QJ_OWNER_QUERY};
	struct qj_sums *from, *to;

	from = row_at(index_of(&key, kept->epoch));
	if (!from) /* the use is in the `other` row of a full map */
		return;
	query_key(thread, kept->package, &key);
	to = sums_of(cpu, &key, kept->epoch);
	if (!to)
		return;
	for (__u32 i = 0; i < sizeof(struct qj_used) / sizeof(__u64); i++) {
		__u64 amount = ((__u64 *)&kept->used)[i];

		if (!amount)
			continue;
		__sync_fetch_and_add((__u64 *)&from->used + i, -amount);
		__sync_fetch_and_add((__u64 *)&to->used + i, amount);
	}
}

int name_use(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	if (IS_EARLY || !cpu || !thread || !thread->shape)
		return 0;
	if (thread->unnamed.query == thread->query && thread->unnamed.epoch == control.epoch)
		move_use(cpu, thread);
	thread->unnamed.query = 0;
	return 0;
}

/*
 * Returns the query's waits until its end: a reply that proved to be the last one, otherwise now.
 */
static __always_inline const __u64 *waits_until(struct thread_state *thread, __u64 end_ns)
{
	if (end_ns != thread->end_ns)
		waits_mark(thread);
	return thread->waits.replied_ns;
}

/* `whole_ns`, `parts_ns`: fields of a row: the threads' time, and its parts spent waiting. */
static __always_inline void sum_waits(__u64 *whole_ns, __u64 *parts_ns, __u64 ns,
				      const __u64 *wait_ns)
{
	__sync_fetch_and_add(whole_ns, ns);
	for (int i = 0; i < QJ_WAITS; i++)
		if (wait_ns[i])
			__sync_fetch_and_add(&parts_ns[i], wait_ns[i]);
}

/* Live view: sums a helper's waits while it worked for its leader's query. */
static __always_inline void sum_helper_waits(struct qj_cpu_state *cpu, struct thread_state *thread,
					     __u64 end_ns)
{
	const __u64 *wait_ns = thread->waits.replied_ns;
	struct qj_sums_key key = {};
	struct qj_sums *row;

	query_key(thread, plan.package_of[bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1)], &key);
	if (IS_EARLY) {
		struct qj_ring_sum sum = {
		    .key = key, .epoch = control.epoch, .helper_ns = end_ns - thread->begin_ns};

		__builtin_memcpy(sum.wait_ns, wait_ns, sizeof(sum.wait_ns));
		send_sum(cpu, &sum, QJ_LOSS_QUERY);
		return;
	}
	row = sums_of(cpu, &key, control.epoch);
	if (!row) {
		count_loss(cpu, QJ_LOSS_QUERY);
		return;
	}
	sum_waits(&row->helpers_ns, row->helpers_wait_ns, end_ns - thread->begin_ns, wait_ns);
}

static __always_inline void sum_query(struct qj_cpu_state *cpu, struct thread_state *thread,
				      __u64 end_ns)
{
	struct qj_sums_key key = {};
	struct qj_sums *row;
	__u64 latency_ns = end_ns - thread->begin_ns;
	const __u64 *wait_ns;

	if (!thread->executions)
		return;
	wait_ns = waits_until(thread, end_ns);
	query_key(thread, plan.package_of[bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1)], &key);
	if (IS_EARLY) {
		struct qj_ring_sum sum = {.key = key,
					  .epoch = control.epoch,
					  .latency_ns = latency_ns,
					  .rows = thread->rows,
					  .calls = thread->executions,
					  .flags = thread->flags,
					  .bucket = latency_bucket(latency_ns)};

		__builtin_memcpy(sum.wait_ns, wait_ns, sizeof(sum.wait_ns));
		send_sum(cpu, &sum, QJ_LOSS_QUERY);
		return;
	}
	row = sums_of(cpu, &key, control.epoch);
	if (!row) {
		count_loss(cpu, QJ_LOSS_QUERY);
		return;
	}
	__sync_fetch_and_add(&row->calls, thread->executions);
	__sync_fetch_and_add(&row->latency_ns, latency_ns);
	__sync_fetch_and_add(&row->latency[latency_bucket(latency_ns)], 1);
	if (thread->flags & QJ_QUERY_WAITS)
		sum_waits(&row->waited_ns, row->wait_ns, latency_ns, wait_ns);
	if (thread->flags & QJ_QUERY_ERROR)
		__sync_fetch_and_add(&row->errors, 1);
	else if (!(thread->flags & QJ_QUERY_OK))
		__sync_fetch_and_add(&row->unanswered, thread->executions);
	if (!(thread->flags & QJ_QUERY_ROWS))
		__sync_fetch_and_add(&row->rowless, thread->executions);
	else if (thread->rows)
		__sync_fetch_and_add(&row->rows, thread->rows);
}

static __always_inline void fill_query(struct qj_query *q, struct thread_state *thread,
				       __u64 end_ns, __u64 pid_tgid)
{
	q->query = thread->query;
	q->begin_ns = thread->begin_ns;
	q->end_ns = end_ns;
	q->session = thread->session;
	q->shape = thread->shape;
	q->pid = (__u32)pid_tgid;
	q->tgid = pid_tgid >> 32;
	q->executions = thread->executions;
	q->flags = thread->flags;
	q->statement_bytes = thread->statement_bytes;
	q->server = thread->server;
	q->attach_mode = thread->attach_mode;
	q->command = thread->command;
	q->rows = thread->rows;
	__builtin_memcpy(q->sqlstate, thread->sqlstate, sizeof(q->sqlstate));
	q->reserved = 0;
	q->stream = thread->stream;
	q->tags = thread->tags;
	__builtin_memcpy(q->wait_ns, waits_until(thread, end_ns), sizeof(q->wait_ns));
}

/*
 * Live view: draws whether the query that ends is sampled. A drawn query is sent with its last
 * slice, when its thread sleeps, or when the thread's next query ends.
 */
static __always_inline void draw_sample(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 end_ns)
{
	if (!thread->executions)
		return;
	send_ended(cpu, thread);
	if (!is_drawn(thread, end_ns))
		return;
	fill_query(&thread->ended, thread, end_ns, bpf_get_current_pid_tgid());
	thread->ended_cpu_ns = thread->cpu_ns;
	cpu->has_ended = 1;
}

static __always_inline void send_sample(struct qj_cpu_state *cpu, const struct thread_state *thread)
{
	struct qj_ring_sample *r = reserve_record(cpu, sizeof(*r), QJ_BLOCK_SAMPLE, QJ_LOSS_SAMPLE);

	if (!r)
		return;
	r->sample.query = thread->ended;
	r->sample.cpu_ns = thread->ended_cpu_ns;
	r->sample.probability = thread->ended_probability;
	r->sample.reserved = 0;
	submit(r);
}

static __always_inline void send_query(struct qj_cpu_state *cpu, const struct thread_state *thread)
{
	struct qj_ring_query *r = reserve_record(cpu, sizeof(*r), QJ_BLOCK_QUERY, QJ_LOSS_QUERY);

	if (!r)
		return;
	r->query = thread->ended;
	submit(r);
}

/* Sends the thread's last ended query if it still waits for its segment. */
int send_ended(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	if (!cpu || !thread || !thread->ended.query)
		return 0;
	if (plan.mode == QJ_MODE_LIVE)
		send_sample(cpu, thread);
	else
		send_query(cpu, thread);
	thread->ended.query = 0;
	return 0;
}

int send_wait_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 pid)
{
	struct qj_ring_wait_end *r;

	if (!draws_waits() || !cpu || !thread || !thread->waits.drawn_ns ||
	    thread->waits.drawn_kind >= QJ_WAITS)
		return 0;
	r = reserve_record(cpu, sizeof(*r), QJ_BLOCK_WAIT_END, QJ_LOSS_STACK);
	if (r) {
		r->wait.begin_ns = thread->waits.drawn_ns;
		r->wait.ns = thread->waits.drawn_whole_ns;
		r->wait.run_queue_ns = thread->waits.drawn_runnable_ns;
		r->wait.pid = pid;
		r->wait.kind = thread->waits.drawn_kind;
		submit(r);
	}
	thread->waits.drawn_ns = 0;
	return 0;
}

/* Suspends the thread's query: from now on the thread works for a statement within it. */
int child_begin(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now)
{
	if (!cpu || !thread)
		return 0;
	thread->caller.query = thread->query;
	thread->caller.begin_ns = thread->begin_ns;
	thread->caller.shape = thread->shape;
	thread->caller.flags = thread->flags;
	thread->caller.statement_bytes = thread->statement_bytes;
	thread->query = new_id(cpu);
	thread->begin_ns = now;
	thread->shape = 0;
	thread->flags = QJ_QUERY_NO_TEXT;
	thread->statement_bytes = 0;
	claim_slice(cpu, thread, now);
	return 0;
}

static __always_inline void fill_child(struct qj_child *child, const struct thread_state *thread,
				       __u64 end_ns)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();

	child->child = thread->query;
	child->query = thread->caller.query;
	child->begin_ns = thread->begin_ns;
	child->end_ns = end_ns;
	child->session = thread->session;
	child->shape = thread->shape;
	child->query_shape = thread->caller.shape;
	child->pid = (__u32)pid_tgid;
	child->tgid = pid_tgid >> 32;
	child->flags = thread->flags;
	child->statement_bytes = thread->statement_bytes;
	child->server = thread->server;
	child->attach_mode = thread->attach_mode;
	child->command = QJ_COMMAND_CHILD;
	child->reserved = 0;
	child->tags = thread->tags;
}

/* Sends the record of the inner statement and resumes the outer query. */
int child_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns)
{
	struct qj_ring_child *r;

	if (!cpu || !thread)
		return 0;
	r = reserve_record(cpu, sizeof(*r), QJ_BLOCK_CHILD, QJ_LOSS_QUERY);
	if (r) {
		fill_child(&r->child, thread, end_ns);
		submit(r);
	}
	thread->query = thread->caller.query;
	thread->begin_ns = thread->caller.begin_ns;
	thread->shape = thread->caller.shape;
	thread->flags = thread->caller.flags;
	thread->statement_bytes = thread->caller.statement_bytes;
	thread->caller.query = 0;
	return 0;
}

static __always_inline void send_helper(struct qj_cpu_state *cpu, const struct thread_state *thread,
					__u64 end_ns, __u64 pid_tgid)
{
	struct qj_ring_helper *r = reserve_record(cpu, sizeof(*r), QJ_BLOCK_HELPER, QJ_LOSS_QUERY);

	if (!r)
		return;
	r->helper.query = thread->query;
	r->helper.begin_ns = thread->begin_ns;
	r->helper.end_ns = end_ns;
	r->helper.pid = (__u32)pid_tgid;
	r->helper.tgid = pid_tgid >> 32;
	__builtin_memcpy(r->helper.wait_ns, thread->waits.replied_ns, sizeof(r->helper.wait_ns));
	submit(r);
}

/* Ends a helper's work for its leader's query. The open slice keeps its label. */
int helper_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns, __u64 pid_tgid)
{
	if (!cpu || !thread)
		return 0;
	if (thread->waits.any) {
		waits_mark(thread);
		if (plan.mode == QJ_MODE_LIVE)
			sum_helper_waits(cpu, thread, end_ns);
		else
			send_helper(cpu, thread, end_ns, pid_tgid);
	}
	thread->borrowed = 0;
	thread->query = 0;
	thread->begin_ns = 0;
	thread->shape = 0;
	return 0;
}

/*
 * Sends an unfinished query when tracing is about to stop. No record of its end follows.
 */
int query_open(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 pid_tgid)
{
	__u64 now;

	if (!cpu || !thread)
		return 0;
	send_ended(cpu, thread);
	if (plan.mode == QJ_MODE_LIVE || !thread->begin_ns)
		return 0;
	now = bpf_ktime_get_ns();
	if (thread->off_ns) /* the time on the run queue is not known */
		add_wait(&thread->waits, now, now - thread->off_ns, 0);
	if (draws_waits())
		send_wait_end(cpu, thread, pid_tgid);
	if (thread->borrowed)
		return helper_end(cpu, thread, now, pid_tgid);
	if (thread->caller.query) {
		thread->flags |= QJ_QUERY_OPEN;
		child_end(cpu, thread, now);
	}
	if (!thread->end_ns)
		thread->flags |= QJ_QUERY_OPEN;
	fill_query(&thread->ended, thread, thread->end_ns ?: now, pid_tgid);
	thread->begin_ns = 0;
	return send_ended(cpu, thread);
}

/* Not inline, so that its stack and relabel()'s are not needed at the same time. */
__noinline int query_record(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns)
{
	if (!cpu || !thread)
		return 0;
	if (plan.mode == QJ_MODE_LIVE) {
		sum_query(cpu, thread, end_ns);
		if (plan.samples)
			draw_sample(cpu, thread, end_ns);
	} else {
		send_ended(cpu, thread);
		fill_query(&thread->ended, thread, end_ns, bpf_get_current_pid_tgid());
		if (in_batches())
			cpu->has_ended = 1;
		else
			send_ended(cpu, thread);
	}
	return query_reset(cpu, thread);
}

/*
 * Ends the thread's query and gives the thread the id of its next one. The open slice keeps its
 * label until the thread sleeps, because the return to waiting still belongs to this query. The
 * record is then sent with that slice's segment.
 */
int query_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns)
{
	if (!cpu || !thread)
		return 0;
	if (thread->caller.query)
		child_end(cpu, thread, end_ns);
	/* Skipped where the thread only reports a request that owns no time. */
	if (thread->flags & QJ_QUERY_WAITS && end_ns != thread->end_ns) {
		check_label(cpu, end_ns);
		end_ns = cpu->event_ns = slice_began(cpu, end_ns);
	}
	return query_record(cpu, thread, end_ns);
}
