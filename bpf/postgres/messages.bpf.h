/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The messages of a PostgreSQL client: statements, and executions of them. PostgreSQL
 * documentation, "Message Formats", "Extended Query".
 */
#ifndef QJOULE_POSTGRES_MESSAGES_BPF_H
#define QJOULE_POSTGRES_MESSAGES_BPF_H

#include "requests.bpf.h"
#include "text.bpf.h"

#define POSTGRES_PORTAL 0x706f7274616c0000ULL /* portals' names are separate from statements' */

/* Flags of a portal, beside those of its statement. */
#define PORTAL_UNKNOWN (1u << 29) /* in the map: its tags are the hash of its statement's name */
#define PORTAL_OPEN    (1u << 30)
#define PORTAL_RAN     (1u << 31) /* a portal that ran: another Execute only fetches more rows */

#define POSTGRES_UNNAMED_EXECUTE 5 /* bytes: an empty name, and a number of rows */

/* A message of a thread's client, whose body is at `addr`. */
struct postgres_body {
	struct qj_cpu_state *cpu;
	struct thread_state *thread;
	__u64 addr;
};

/* Copies the statement of the thread's request to `to`. */
static __always_inline void postgres_get_statement(const struct thread_state *thread,
						   struct postgres_statement *to)
{
	to->shape = thread->shape;
	to->tags = thread->tags;
	to->unknown = thread->postgres.unknown;
	to->bytes = thread->statement_bytes;
	to->flags = thread->flags & QJ_STATEMENT_FLAGS;
}

static __always_inline void postgres_set_statement(struct thread_state *thread,
						   const struct postgres_statement *statement)
{
	thread->shape = statement->shape;
	thread->tags = statement->tags;
	thread->postgres.unknown = statement->unknown;
	thread->statement_bytes = statement->bytes;
	thread->flags &= ~QJ_STATEMENT_FLAGS;
	thread->flags |= statement->flags & QJ_STATEMENT_FLAGS;
}

/* A message that may bring another statement. The request's shape is that of executed ones. */
static __always_inline void postgres_next_statement(struct thread_state *thread)
{
	if (thread->executions)
		postgres_get_statement(thread, &thread->postgres.before);
	thread->postgres.unknown = thread->tags = 0;
	thread->flags &= ~QJ_STATEMENT_FLAGS;
}

static __always_inline void postgres_keep_executed(struct thread_state *thread)
{
	if (thread->executions)
		postgres_set_statement(thread, &thread->postgres.before);
}

/*
 * Counts an execution. The statements of one request share its time in unknown proportions. So the
 * request has a shape only if all executed statements have the same shape; likewise for tags.
 */
static __always_inline void postgres_count(struct thread_state *thread,
					   const struct postgres_statement *statement)
{
	struct postgres_thread *own = &thread->postgres;

	if (!thread->executions++) {
		postgres_set_statement(thread, statement);
		postgres_get_statement(thread, &own->first);
		own->same = 1;
		return;
	}
	thread->flags |= QJ_QUERY_PIPELINED;
	if (thread->tags != statement->tags)
		thread->tags = TAGS_DIFFER;
	if (thread->shape != statement->shape)
		postgres_no_text(thread, QJ_NO_TEXT_SEVERAL);
	else if (own->same == thread->executions - 1)
		own->same++;
}

/* `addr`: the statement's text, if all of it has arrived. */
static __always_inline void postgres_note_set(const struct postgres_body *body, __u64 addr)
{
	struct thread_state *thread = body->thread;

	if (!thread->postgres.sets || thread->flags & QJ_QUERY_NO_TEXT)
		return;
	thread->postgres.changes = 1;
	emit_session(body->cpu, thread, QJ_SESSION_SETS, addr, thread->statement_bytes);
}

static __always_inline void postgres_parse(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;
	__u64 addr = body->addr, name = 0;
	__u32 length = statement_name(thread, addr, here, &name);

	postgres_next_statement(thread);
	if (thread->command == QJ_COMMAND_OTHER)
		thread->command = QJ_COMMAND_PREPARE;
	/* Without a complete name there is no statement: an old text could pass for it. */
	/* The header gives the text's length, including the types of parameters after it. */
	postgres_text(body->cpu, thread, addr + length, length ? here - length : 0,
		      thread->postgres.body_bytes - length - 3, postgres_rules(thread));
	if (length)
		prepared_learn(thread, name);
	if (length == 1) /* executed at once: a named statement may be executed at any time */
		postgres_note_set(body, addr + length);
	postgres_keep_executed(thread);
}

/* Opens the portal of this name for the request's current statement. */
static __always_inline void postgres_open_portal(struct thread_state *thread, __u64 name)
{
	struct postgres_statement *portal = &thread->postgres.portal;
	struct prepared_key key = {.session = thread->session, .statement = POSTGRES_PORTAL ^ name};
	struct prepared_statement value = {};

	if (name == UNNAMED_STATEMENT) {
		postgres_get_statement(thread, portal);
		portal->flags |= PORTAL_OPEN;
		return;
	}
	value.shape = thread->shape;
	value.tags = thread->tags;
	value.statement_bytes = thread->statement_bytes;
	value.flags = (thread->flags & QJ_STATEMENT_FLAGS) | PORTAL_OPEN;
	if (thread->postgres.unknown) {
		value.tags = thread->postgres.unknown;
		value.flags |= PORTAL_UNKNOWN;
	}
	bpf_map_update_elem(&prepared, &key, &value, BPF_ANY);
}

/* Copies the statement of a named portal to `before`. Returns the portal's flags. */
static __always_inline __u32 postgres_named_portal(struct thread_state *thread, __u64 name)
{
	struct postgres_statement *to = &thread->postgres.before;
	struct prepared_key key = {.session = thread->session, .statement = POSTGRES_PORTAL ^ name};
	struct prepared_statement *known = bpf_map_lookup_elem(&prepared, &key);
	__u32 flags;

	if (!known)
		return 0;
	flags = known->flags;
	known->flags = flags | PORTAL_RAN;
	to->shape = known->shape;
	to->tags = flags & PORTAL_UNKNOWN ? 0 : known->tags;
	to->unknown = flags & PORTAL_UNKNOWN ? known->tags : 0;
	to->bytes = known->statement_bytes;
	to->flags = flags;
	return flags;
}

/* `name`: the hash of the statement's name, which is at `addr`. */
static __always_inline void postgres_recover(const struct postgres_body *body, __u64 addr,
					     __u64 name)
{
	__u32 bytes = postgres_find_prepared(body->cpu, body->thread, addr);

	if (!bytes)
		return;
	statement_tags(body->cpu, body->thread, bytes);
	prepared_learn(body->thread, name);
}

/* Reads the two names at a message's beginning; the first message's body has been read. */
static __always_inline void postgres_names(struct thread_state *thread, __u64 addr, __u32 here,
					   struct statement_names *names)
{
	const struct postgres_start *start = &thread->postgres.start;
	__u32 body = start->size - POSTGRES_HEADER;

	if (start->size > POSTGRES_HEADER && addr == start->addr + POSTGRES_HEADER)
		statement_names_in((const struct shape_chunk *)(start->bytes + POSTGRES_HEADER),
				   here < body ? here : body, names);
	else
		statement_names(thread, addr, here, names);
}

static __always_inline void postgres_bind(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;
	struct statement_names names = {};
	__u64 addr = body->addr, name;
	__u32 portal;

	postgres_names(thread, addr, here, &names);
	portal = names.bytes[0] ?: statement_name(thread, addr, here, &names.hash[0]);
	if (!names.bytes[1] && portal)
		names.bytes[1] =
		    statement_name(thread, addr + portal, here - portal, &names.hash[1]);
	name = names.hash[1];
	postgres_next_statement(thread);
	if (names.bytes[1]) {
		prepared_recall(thread, name);
		if (!thread->shape)
			postgres_recover(body, addr + portal, name);
		if (!thread->shape) {
			thread->postgres.unknown = name;
			thread->shape = unseen_shape(thread->session, name);
		}
	} else {
		count_loss(body->cpu, QJ_LOSS_TEXT);
		postgres_no_text(thread, QJ_NO_TEXT_MESSAGE);
	}
	postgres_open_portal(thread, portal ? names.hash[0] : UNNAMED_STATEMENT);
	if (thread->command != QJ_COMMAND_PREPARE)
		thread->command = QJ_COMMAND_EXECUTE;
	postgres_keep_executed(thread);
}

static __always_inline void postgres_query(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;
	struct postgres_statement *portal = &thread->postgres.portal;

	postgres_next_statement(thread);
	if (!thread->executions)
		thread->command = QJ_COMMAND_QUERY;
	postgres_text(body->cpu, thread, body->addr, here, thread->postgres.body_bytes - 1,
		      postgres_rules(thread));
	postgres_note_set(body, body->addr);
	/* The server uses the unnamed portal for it, too. */
	postgres_get_statement(thread, portal);
	portal->flags |= PORTAL_OPEN | PORTAL_RAN;
	postgres_keep_executed(thread);
	postgres_count(thread, portal);
}

/* Fetches more rows from a portal of an earlier request: no new execution. */
static __always_inline void postgres_fetch(struct thread_state *thread,
					   const struct postgres_statement *portal, bool is_open)
{
	if (thread->command != QJ_COMMAND_OTHER)
		return; /* the request began with something else */
	thread->command = QJ_COMMAND_EXECUTE;
	if (is_open)
		postgres_set_statement(thread, portal);
	else
		postgres_no_text(thread, QJ_NO_TEXT_EARLIER);
}

/* Only a portal's first run is an execution, in any request after its Bind. */
static __always_inline void postgres_execute(const struct postgres_body *body, __u32 here)
{
	struct thread_state *thread = body->thread;
	struct postgres_statement *portal = &thread->postgres.portal;
	__u64 name = 0;
	__u32 flags;

	if (thread->postgres.body_bytes > POSTGRES_UNNAMED_EXECUTE &&
	    statement_name(thread, body->addr, here, &name) > 1) {
		portal = &thread->postgres.before;
		flags = postgres_named_portal(thread, name);
	} else {
		flags = portal->flags;
		portal->flags |= PORTAL_RAN;
	}
	if (!(flags & PORTAL_OPEN) || flags & PORTAL_RAN) {
		postgres_fetch(thread, portal, flags & PORTAL_OPEN);
		return;
	}
	postgres_count(thread, portal);
	if (thread->command == QJ_COMMAND_PREPARE)
		thread->command = QJ_COMMAND_QUERY; /* text and execution in one request */
	else if (thread->command == QJ_COMMAND_OTHER)
		thread->command = QJ_COMMAND_EXECUTE;
}

#endif
