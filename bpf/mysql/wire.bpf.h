/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The client side of the MySQL protocol, as MySQL and MariaDB read it: a header of four bytes
 * (length, sequence number), then the packet. A packet with sequence number 0 begins a command. The
 * exceptions are continuations of a command of 16 MB or more, and the file of a LOAD DATA LOCAL:
 * their numbers go on from 255 to 0. Other packets continue a login. MySQL 8.0 Reference, "MySQL
 * Packets"; MariaDB Knowledge Base, "0 - Packet".
 */
#ifndef QJOULE_MYSQL_WIRE_BPF_H
#define QJOULE_MYSQL_WIRE_BPF_H

#include "command.bpf.h"

/* RFC 8446, section 5.1: a record's type, version 3 and a minor one, length. */
#define MYSQL_TLS_HANDSHAKE 22
#define MYSQL_TLS_DATA	    23
#define MYSQL_TLS_HEADER    5

/* The server waits for its client: the query is over, unless the client still has to send data. */
static __always_inline void mysql_wait(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 buffer, __u64 now)
{
	struct mysql_reply reply = {};

	if (thread->phase == PHASE_UNKNOWN) { /* earlier bytes were mistaken for a packet */
		thread->need = 0;
		thread->head_bytes = 0;
		return;
	}
	if (!thread->begin_ns || thread->need || thread->head_bytes)
		return;
	if (thread->mysql.more) {
		if (thread->mysql.more == MYSQL_MORE_FILE)
			reply_sent(cpu, thread, now);
		return;
	}
	mysql_read_reply(buffer, &reply);
	if (thread->command == QJ_COMMAND_QUERY && reply.start == MYSQL_LOCAL_FILE) {
		thread->mysql.more = MYSQL_MORE_FILE;
		thread->mysql.sequence = reply.sequence + 1;
		reply_sent(cpu, thread, now);
	} else if (thread->command == QJ_COMMAND_CONNECT &&
		   (reply.start == MYSQL_AUTH_SWITCH || reply.start == MYSQL_AUTH_MORE)) {
		reply_sent(cpu, thread, now);
	} else {
		mysql_answered(cpu, thread, &reply);
		mysql_executed(cpu, thread);
		query_end(cpu, thread, now);
	}
}

/*
 * The next request was already there, so the server did not wait, and four bytes of that request
 * overwrite the header of the reply. The rest must identify the reply: no rows begin with a 0.
 */
static __always_inline void mysql_pipelined(struct qj_cpu_state *cpu, struct thread_state *thread,
					    __u64 buffer, __u64 now)
{
	struct mysql_reply reply = {};

	if (!thread->begin_ns)
		return;
	if (!thread->end_ns) {
		mysql_read_reply(buffer, &reply);
		reply.sequence = 1;
		reply.length[0] = MYSQL_PREPARED_BYTES;
		reply.length[1] = reply.length[2] = 0;
		mysql_answered(cpu, thread, &reply);
	}
	mysql_executed(cpu, thread);
	query_end(cpu, thread, thread->end_ns ?: now);
}

/*
 * A client may send the file before the server waits for it. The reply that asks for the file is
 * then complete except for its header.
 */
static __always_inline void mysql_file_begins(struct thread_state *thread, __u64 buffer,
					      __u8 sequence)
{
	struct mysql_reply reply = {};

	if (thread->command != QJ_COMMAND_QUERY || thread->end_ns)
		return;
	mysql_read_reply(buffer, &reply);
	if (reply.start != MYSQL_LOCAL_FILE)
		return;
	thread->mysql.more = MYSQL_MORE_FILE;
	thread->mysql.sequence = sequence;
}

/* True if this packet continues a command: `thread->need` is its length. */
static __always_inline bool mysql_continues(struct thread_state *thread, __u64 buffer,
					    __u8 sequence)
{
	if (thread->begin_ns && sequence && !thread->mysql.more)
		mysql_file_begins(thread, buffer, sequence);
	if (!thread->mysql.more || sequence != thread->mysql.sequence) {
		thread->mysql.more = MYSQL_NO_MORE;
		return false;
	}
	thread->mysql.sequence++;
	if (thread->mysql.more == MYSQL_MORE_LONG ? thread->need != MYSQL_PACKET_MAX
						  : !thread->need)
		thread->mysql.more = MYSQL_NO_MORE;
	return true;
}

static __always_inline void mysql_header(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u64 buffer, __u64 now)
{
	__u8 sequence = thread->head[3];

	thread->need = thread->head[0] | thread->head[1] << 8 | thread->head[2] << 16;
	thread->mysql.length = thread->need;
	thread->head_bytes = 0;
	thread->mysql.expects = MYSQL_SKIP;
	if (mysql_continues(thread, buffer, sequence)) {
		thread->end_ns = 0;
		return;
	}
	if (thread->mysql.dumps)
		mysql_dumped(cpu, thread);
	if (sequence == 0) {
		mysql_pipelined(cpu, thread, buffer, now);
		if (thread->phase == PHASE_UNKNOWN) /* the session was already logged in */
			mysql_find_names(cpu, thread);
		thread->phase = PHASE_READY;
		query_begin(cpu, thread, now);
		thread->mysql.expects = MYSQL_COMMAND;
		if (thread->need == MYSQL_PACKET_MAX) {
			thread->mysql.more = MYSQL_MORE_LONG;
			thread->mysql.sequence = 1;
		}
	} else if (thread->phase != PHASE_READY && sequence == 1) {
		query_begin(cpu, thread, now);
		thread->command = QJ_COMMAND_CONNECT;
		thread->mysql.expects = MYSQL_LOGIN;
	}
	thread->end_ns = 0;
}

/*
 * Returns enum mysql_remaining. Not inline: its stack is free again where a query ends.
 */
static __noinline int mysql_command(struct qj_cpu_state *cpu, struct thread_state *thread,
				    __u64 addr, __u32 bytes)
{
	union mysql_start whole = {};
	const __u8 *start = whole.bytes;
	__u32 text = 0;

	if (!mysql_has_arrived(thread, bytes, MYSQL_FIXED_BYTES))
		return MYSQL_NOTHING_LEFT;
	bpf_probe_read_user(&whole, mysql_start_bytes(bytes), (const void *)addr);
	if ((start[0] == MYSQL_INIT_DB || start[0] == MYSQL_CHANGE_USER) &&
	    !mysql_has_arrived(thread, bytes, QJ_STARTUP_BYTES))
		return MYSQL_NOTHING_LEFT;
	if (mysql_may_have_tags(thread, start) &&
	    !mysql_has_arrived(thread, bytes, thread->mysql.length))
		return MYSQL_NOTHING_LEFT;
	if (start[0] == MYSQL_QUERY && !mysql_finds_text(thread, start, addr, bytes, &text))
		return MYSQL_NOTHING_LEFT;
	if (start[0] == MYSQL_QUERY && mysql_has_attributes(start))
		mysql_tags(cpu, thread, addr, start[1], text);
	thread->mysql.expects = MYSQL_SKIP;
	mysql_ends_transaction(thread, start[0]);
	switch (start[0]) {
	case MYSQL_QUERY:
		mysql_query(cpu, thread, &whole, addr, bytes, text);
		break;
	case MYSQL_STMT_PREPARE:
		thread->command = QJ_COMMAND_PREPARE;
		mysql_text(cpu, thread, &whole, addr, bytes, 1);
		break;
	case MYSQL_STMT_EXECUTE:
	case MARIADB_STMT_BULK_EXECUTE:
	case MYSQL_STMT_FETCH:
	case MYSQL_STMT_RESET:
	case MYSQL_STMT_CLOSE:
	case MYSQL_STMT_SEND_LONG_DATA:
		return mysql_statement(cpu, thread, start);
	case MYSQL_INIT_DB:
		mysql_changes(cpu, thread, QJ_SESSION_DATABASE, addr, bytes);
		break;
	case MYSQL_CHANGE_USER:
		thread->command = QJ_COMMAND_CONNECT;
		mysql_changes(cpu, thread, QJ_SESSION_USER, addr, bytes);
		break;
	case MYSQL_BINLOG_DUMP:
	case MYSQL_BINLOG_DUMP_GTID:
		return MYSQL_DUMP_LEFT;
	}
	return MYSQL_NOTHING_LEFT;
}

/* A packet may arrive in pieces in one buffer: `before` bytes precede `addr`. */
static __always_inline void mysql_body(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 addr, __u32 bytes)
{
	__u32 before = thread->mysql.length - thread->need;
	int left;

	if (thread->mysql.expects == MYSQL_COMMAND) {
		left = mysql_command(cpu, thread, addr - before, before + bytes);
		if (left == MYSQL_DUMP_LEFT)
			mysql_dump(cpu, thread, bpf_ktime_get_ns());
		else if (left == MYSQL_TAGS_LEFT)
			mysql_execution_tags(cpu, thread, addr - before, thread->mysql.length, 0);
	} else if (thread->mysql.expects == MYSQL_LOGIN) {
		mysql_login(cpu, thread, addr - before, before + bytes);
	} else if (thread->mysql.expects == MYSQL_TEXT) {
		if (statement_feed(cpu, thread, addr, bytes))
			thread->mysql.expects = MYSQL_SKIP;
		label_query(cpu, thread);
	}
	thread->need -= bytes;
}

/* Collects a packet's header, which may arrive in pieces; returns the number of bytes taken. */
static __always_inline __u32 mysql_take_header(struct thread_state *thread, __u64 addr, __u32 bytes)
{
	__u32 have = thread->head_bytes & 3, take = MYSQL_HEADER - have;

	if (!have && bytes >= MYSQL_HEADER) { /* the usual case */
		__u32 header = 0;

		/* To the stack: the kernel checks other places longer (mm/usercopy.c). */
		bpf_probe_read_user(&header, sizeof(header), (const void *)addr);
		__builtin_memcpy(thread->head, &header, sizeof(header));
		thread->head_bytes = MYSQL_HEADER;
		return MYSQL_HEADER;
	}
	if (take > bytes)
		take = bytes;
	for (__u32 i = 0; i < MYSQL_HEADER; i++)
		if (i >= have && i < have + take)
			bpf_probe_read_user(&thread->head[i], 1, (const void *)(addr + i - have));
	thread->head_bytes = have + take;
	return take;
}

/*
 * Joins a connection that was already open where the server reads four bytes, which it does only
 * for the header of a plain packet. TLS is read in records, and compressed packets have another
 * header, so such connections are never read.
 */
static __always_inline bool mysql_joins(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 addr, __u32 bytes)
{
	__u8 start[2] = {};

	if (thread->need || bytes == MYSQL_HEADER)
		return true;
	bpf_probe_read_user(start, sizeof(start), (const void *)addr);
	if (bytes == MYSQL_COMPRESSED_HEADER ||
	    (bytes == MYSQL_TLS_HEADER &&
	     (start[0] == MYSQL_TLS_DATA || start[0] == MYSQL_TLS_HANDSHAKE) && start[1] == 3))
		session_opaque(cpu, thread);
	else
		count_loss(cpu, QJ_LOSS_FRAMING);
	return false;
}

/* Handles `bytes` that have arrived at `addr`: a header, or (part of) the announced packet. */
static __always_inline void mysql_read(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 addr, __u32 bytes, __u64 now)
{
	__u64 buffer = addr;

	if (thread->phase == PHASE_UNKNOWN && !mysql_joins(cpu, thread, addr, bytes))
		return;
	if (!thread->need) {
		__u32 take = mysql_take_header(thread, addr, bytes);

		if (thread->head_bytes < MYSQL_HEADER)
			return;
		mysql_header(cpu, thread, buffer, now);
		addr += take;
		bytes -= take;
	}
	if (bytes > thread->need) {
		/* Two packets in one read: these servers never do that, so framing is lost. */
		count_loss(cpu, QJ_LOSS_FRAMING);
		thread->need = 0;
		return;
	}
	if (bytes)
		mysql_body(cpu, thread, addr, bytes);
}

#endif
