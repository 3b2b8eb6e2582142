/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The commands and the login in a MySQL client's packets. */
#ifndef QJOULE_MYSQL_COMMAND_BPF_H
#define QJOULE_MYSQL_COMMAND_BPF_H

#include "execution.bpf.h"
#include "sessions.bpf.h"
#include "reply.bpf.h"

/* All fields that are read of a command, except its text, lie in these first bytes. */
#define MYSQL_FIXED_BYTES 8

/* The beginning of a command's packet. Most texts start at the second byte, and most are short. */
union mysql_start {
	__u8 bytes[MYSQL_FIXED_BYTES];
	__u64 words[QJ_SHAPE_CHUNK / sizeof(__u64)]; /* zeros behind the packet's end */
	struct {
		__u8 command;
		struct shape_chunk text;
	};
};

/* Returns how many of these bytes to read at once. */
static __always_inline __u64 mysql_start_bytes(__u32 bytes)
{
	return at_most(bytes, QJ_SHAPE_CHUNK);
}

#define MYSQL_CLIENT_COMPRESS	 (1u << 5)
#define MYSQL_CLIENT_PROTOCOL_41 (1u << 9)
#define MYSQL_CLIENT_SSL	 (1u << 11)
#define MYSQL_CLIENT_ZSTD	 (1u << 26)

/*
 * A prepared statement is executed, fetched from, closed or used in another way. All is its work,
 * but only COM_STMT_EXECUTE counts as an execution.
 */
static __always_inline void mysql_execute(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u8 command, __u32 id)
{
	thread->command = QJ_COMMAND_EXECUTE;
	thread->executions = command == MYSQL_STMT_EXECUTE || command == MARIADB_STMT_BULK_EXECUTE;
	prepared_recall(thread, id);
	thread->mysql.unknown = thread->shape ? 0 : id;
	label_query(cpu, thread);
}

/*
 * True if tags may follow the parameters, which are read once the complete packet has arrived. The
 * capability may have been announced before tracing began, but clients with query attributes set a
 * flag in each execution.
 */
static __always_inline bool mysql_may_have_tags(const struct thread_state *thread,
						const __u8 *start)
{
	return plan.tags && start[0] == MYSQL_STMT_EXECUTE &&
	       start[MYSQL_EXECUTE_FLAGS] & MYSQL_COUNT_AVAILABLE &&
	       thread->mysql.length < MYSQL_PACKET_MAX;
}

/*
 * Values sent ahead of an execution (COM_STMT_SEND_LONG_DATA) are missing in its packet, so other
 * values would be misread as theirs. With several such statements, their tags are not read.
 */
static __always_inline void mysql_long_data(struct thread_state *thread, __u8 command, __u32 id)
{
	if (command == MYSQL_STMT_SEND_LONG_DATA)
		thread->mysql.long_data =
		    thread->mysql.long_data && thread->mysql.long_data != id ? ~0u : id;
	else if (command != MYSQL_STMT_FETCH && thread->mysql.long_data == id)
		thread->mysql.long_data = 0;
}

/* A client that disconnects or logs in again has no open transaction. */
static __always_inline void mysql_ends_transaction(struct thread_state *thread, __u32 command)
{
	if (command == MYSQL_QUIT || command == MYSQL_CHANGE_USER ||
	    command == MYSQL_RESET_CONNECTION)
		thread->flags |= QJ_QUERY_NO_TRANSACTION;
}

/* A replica has asked for the binary log: until it disconnects, its thread works for no query. */
static __always_inline void mysql_dump(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 now)
{
	const struct role_name role = {"binlog-dump"};

	thread->mysql.dumps = 1;
	emit_role(cpu, thread, &role);
	query_release(cpu, thread, now);
}

static __always_inline void mysql_dumped(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	thread->mysql.dumps = 0;
	emit_role(cpu, thread, 0);
}

/* True once `wanted` bytes of a packet, or all of a shorter packet, have arrived. */
static __always_inline bool mysql_has_arrived(const struct thread_state *thread, __u32 bytes,
					      __u32 wanted)
{
	return bytes >= wanted || bytes >= thread->mysql.length;
}

/* The handshake's response has 23 unused bytes; MariaDB uses the last four. */
#define MYSQL_LOGIN_UNUSED_AT	 9
#define MYSQL_LOGIN_UNUSED_WORDS 2 /* of 8 bytes */

static __always_inline void mysql_login(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 addr, __u32 bytes)
{
	__u64 unused[MYSQL_LOGIN_UNUSED_WORDS] = {};
	__u32 capabilities = 0, hidden = MYSQL_CLIENT_SSL | MYSQL_CLIENT_COMPRESS;
	bool is_41;

	if (!mysql_has_arrived(thread, bytes, QJ_STARTUP_BYTES))
		return;
	thread->mysql.expects = MYSQL_SKIP;
	bpf_probe_read_user(&capabilities, sizeof(capabilities), (const void *)addr);
	bpf_probe_read_user(unused, sizeof(unused), (const void *)(addr + MYSQL_LOGIN_UNUSED_AT));
	is_41 = capabilities & MYSQL_CLIENT_PROTOCOL_41;
	/* If we attached mid-stream, this may be any packet. */
	if (thread->phase == PHASE_UNKNOWN &&
	    (!is_41 || bytes < MYSQL_LOGIN_UNUSED_AT + sizeof(unused) || unused[0] || unused[1])) {
		query_release(cpu, thread, bpf_ktime_get_ns());
		return;
	}
	thread->phase = PHASE_STARTUP;
	if (is_41) /* older clients have capabilities of 16 bits */
		hidden |= MYSQL_CLIENT_ZSTD;
	if (capabilities & hidden)
		session_opaque(cpu, thread);
	else
		emit_session(cpu, thread, QJ_SESSION_OPEN, addr, bytes);
}

/*
 * True if the session's rules decide what some byte of a command's start means: double quotes,
 * backslashes, and bytes that are letters only in some character sets. Most statements have no such
 * byte, and reading the rules costs more than this check.
 */
static __always_inline bool mysql_follows_rules(const union mysql_start *start)
{
	__u64 found = 0;

	for (__u32 i = 0; i < QJ_SHAPE_CHUNK / sizeof(__u64); i++) {
		__u64 word = start->words[i];

		found |= (word & EACH_BYTE(0x80)) | HAS_ZERO(word ^ EACH_BYTE('"')) |
			 HAS_ZERO(word ^ EACH_BYTE('\\')) | HAS_ZERO(word ^ EACH_BYTE(0x7f));
	}
	return found;
}

static __always_inline void mysql_find_rules_late(struct thread_state *thread)
{
	thread->text.rules = mysql_find_rules(thread, 0);
}

/* Takes the text `text` bytes after `addr`, where `bytes` of the packet have arrived. */
static __always_inline void mysql_text(struct qj_cpu_state *cpu, struct thread_state *thread,
				       union mysql_start *start, __u64 addr, __u32 bytes,
				       __u32 text)
{
	__u32 read = text == 1 ? mysql_start_bytes(bytes) - 1 : 0;
	bool late = read == thread->mysql.length - 1 && !mysql_follows_rules(start);

	addr += text;
	statement_begin(thread, QJ_DIALECT_MYSQL,
			late ? QJ_SHAPE_DEFAULT : mysql_find_rules(thread, 0), addr,
			thread->mysql.length - text);
	if (!statement_feed_from(cpu, thread, &start->text, read, addr, bytes - text,
				 mysql_find_rules_late))
		thread->mysql.expects = MYSQL_TEXT;
	label_query(cpu, thread);
}

/* Finds where a COM_QUERY's text begins; false if more bytes are needed. */
static __always_inline bool mysql_finds_text(const struct thread_state *thread, const __u8 *start,
					     __u64 addr, __u32 bytes, __u32 *text)
{
	*text = 1;
	if (!mysql_has_attributes(start))
		return true;
	*text = mysql_skip_attributes(addr, bytes, start[1]);
	return *text != MYSQL_ATTRIBUTES_WRONG || bytes >= thread->mysql.length;
}

static __always_inline void mysql_query(struct qj_cpu_state *cpu, struct thread_state *thread,
					union mysql_start *start, __u64 addr, __u32 bytes,
					__u32 text)
{
	thread->command = QJ_COMMAND_QUERY;
	thread->executions = 1;
	if (text == MYSQL_ATTRIBUTES_WRONG) {
		count_loss(cpu, QJ_LOSS_TEXT);
		thread->flags |= QJ_QUERY_NO_TEXT;
	} else if (text <= bytes && text <= thread->mysql.length) {
		mysql_text(cpu, thread, start, addr, bytes, text);
	}
}

/* A database name or a user's login, which takes effect if the server accepts it. */
static __always_inline void mysql_changes(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u32 event, __u64 addr, __u32 bytes)
{
	thread->mysql.changes = 1;
	emit_session(cpu, thread, event, addr + 1, bytes - 1);
}

/* The rest of a command's work, which the caller does, as it has more room on the stack. */
enum mysql_remaining {
	MYSQL_NOTHING_LEFT,
	MYSQL_DUMP_LEFT, /* a replica asks for the binary log */
	MYSQL_TAGS_LEFT, /* of an execution */
};

/* Handles a command that names a prepared statement; the needed part of its packet has arrived. */
static __always_inline enum mysql_remaining
mysql_statement(struct qj_cpu_state *cpu, struct thread_state *thread, const __u8 *start)
{
	bool tags;
	__u32 id = start[1] | start[2] << 8 | start[3] << 16 | (__u32)start[4] << 24;

	mysql_execute(cpu, thread, start[0], id);
	tags = mysql_may_have_tags(thread, start) && thread->mysql.long_data != id &&
	       thread->mysql.long_data != ~0u;
	mysql_long_data(thread, start[0], id);
	return tags ? MYSQL_TAGS_LEFT : MYSQL_NOTHING_LEFT;
}

#endif
