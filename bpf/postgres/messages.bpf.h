/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The messages of a PostgreSQL client: statements, and executions of them. PostgreSQL
 * documentation, "Message Formats", "Extended Query".
 */
#ifndef QJOULE_POSTGRES_MESSAGES_BPF_H
#define QJOULE_POSTGRES_MESSAGES_BPF_H

#include "prepared.bpf.h"
#include "text.bpf.h"

#define POSTGRES_PORTAL 0x706f7274616c0000ULL /* portals have a name space of their own */

/* A message of a thread's client, whose body is at `addr`. */
struct postgres_body {
	struct qj_cpu_state *cpu;
	struct thread_state *thread;
	__u64 addr;
};

/* A request's shape, tags and flags before its latest statement. */
struct postgres_before {
	__u64 shape;
	__u64 tags;
	__u32 flags;
};

static __always_inline struct postgres_before postgres_so_far(const struct thread_state *thread)
{
	return (struct postgres_before){
	    .shape = thread->shape, .tags = thread->tags, .flags = thread->flags};
}

/*
 * The statements of one request share its time in unknown proportions. So the request has a shape
 * only if all executed statements have the same one, and the same holds for tags. `before`: the
 * state before the latest statement.
 */
static __always_inline void postgres_settle(struct thread_state *thread,
					    const struct postgres_before *before)
{
	if (!thread->executions)
		return;
	if (thread->tags != before->tags)
		thread->tags = TAGS_DIFFER;
	if (thread->shape && thread->shape == before->shape &&
	    !(before->flags & QJ_QUERY_NO_TEXT)) {
		thread->flags = before->flags;
		return;
	}
	thread->shape = 0;
	thread->flags |= QJ_QUERY_PIPELINED | QJ_QUERY_NO_TEXT;
}

/* `addr`: the statement's text, if all of it has arrived. */
static __always_inline void postgres_sets(const struct postgres_body *body, __u64 addr)
{
	struct thread_state *thread = body->thread;

	if (!thread->postgres.sets || !thread->shape)
		return;
	thread->postgres.changes = 1;
	emit_session(body->cpu, thread, QJ_SESSION_SETS, addr, thread->statement_bytes);
}

static __always_inline void postgres_parse(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;
	const struct postgres_before before = postgres_so_far(thread);
	__u64 addr = body->addr, name = 0;
	__u32 length = statement_name(thread, addr, here, &name);

	thread->postgres.unknown = 0;
	if (thread->command == QJ_COMMAND_OTHER)
		thread->command = QJ_COMMAND_PREPARE;
	/* With a cut-off name there is no statement: an older text could pass for this one. */
	postgres_text(body->cpu, thread, addr + length, length ? here - length : 0,
		      postgres_rules(thread));
	prepared_learn(thread, name);
	if (length == 1) /* executed at once: a named statement may be executed at any time */
		postgres_sets(body, addr + length);
	if (thread->executions) { /* statements executed before keep the request's shape */
		thread->shape = before.shape;
		thread->tags = before.tags;
		thread->flags = before.flags;
	}
}

/* Later requests may fetch more rows from a portal: stores its shape and tags under its name. */
static __always_inline void postgres_open_portal(struct thread_state *thread, __u32 name_bytes,
						 __u64 name)
{
	if (name_bytes == 1) {
		thread->postgres.portal_shape = thread->shape;
		thread->postgres.portal_tags = thread->tags;
	} else {
		prepared_learn(thread, POSTGRES_PORTAL ^ name);
	}
}

/* `name`: the hash of the statement's name, which is at `addr`. */
static __always_inline void postgres_learn(const struct postgres_body *body, __u64 addr, __u64 name)
{
	__u32 bytes = postgres_find_prepared(body->cpu, body->thread, addr);

	if (!bytes)
		return;
	statement_tags(body->cpu, body->thread, bytes);
	prepared_learn(body->thread, name);
}

static __always_inline void postgres_bind(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;
	const struct postgres_before before = postgres_so_far(thread);
	__u64 addr = body->addr, name = 0, portal_name = 0;
	__u32 portal = statement_name(thread, addr, here, &portal_name);

	if (portal && statement_name(thread, addr + portal, here - portal, &name)) {
		prepared_recall(thread, name);
		if (!thread->shape)
			postgres_learn(body, addr + portal, name);
		thread->postgres.unknown = thread->shape ? 0 : name;
		postgres_open_portal(thread, portal, portal_name);
	} else {
		thread->postgres.unknown = 0;
		count_loss(body->cpu, QJ_LOSS_TEXT);
		thread->shape = thread->tags = 0;
		thread->flags |= QJ_QUERY_NO_TEXT;
	}
	thread->postgres.bound = 1;
	if (thread->command != QJ_COMMAND_PREPARE)
		thread->command = QJ_COMMAND_EXECUTE;
	postgres_settle(thread, &before);
}

static __always_inline void postgres_query(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;
	const struct postgres_before before = postgres_so_far(thread);

	thread->postgres.portal_shape = thread->postgres.portal_tags = 0;
	thread->postgres.unknown = 0;
	if (!thread->executions)
		thread->command = QJ_COMMAND_QUERY;
	postgres_text(body->cpu, thread, body->addr, here, postgres_rules(thread));
	postgres_sets(body, body->addr);
	postgres_settle(thread, &before);
	thread->executions++;
	if (thread->executions > 1)
		thread->flags |= QJ_QUERY_PIPELINED;
}

/* Fetches more rows from a portal of an earlier request: its work, but no new execution. */
static __always_inline void postgres_fetch(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;
	__u64 name = 0;
	__u32 bytes;

	if (thread->command != QJ_COMMAND_OTHER)
		return; /* the request began with something else */
	thread->command = QJ_COMMAND_EXECUTE;
	bytes = statement_name(thread, body->addr, here, &name);
	if (bytes > 1) {
		prepared_recall(thread, POSTGRES_PORTAL ^ name);
		return;
	}
	thread->shape = bytes ? thread->postgres.portal_shape : 0;
	thread->tags = bytes ? thread->postgres.portal_tags : 0;
	if (!thread->shape)
		thread->flags |= QJ_QUERY_NO_TEXT;
}

static __always_inline void postgres_execute(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;

	if (!thread->postgres.bound) {
		postgres_fetch(body, here);
		return;
	}
	thread->postgres.bound = 0;
	thread->executions++;
	if (thread->executions > 1)
		thread->flags |= QJ_QUERY_PIPELINED;
	if (thread->command == QJ_COMMAND_PREPARE)
		thread->command = QJ_COMMAND_QUERY; /* text and execution in one request */
}

#endif
