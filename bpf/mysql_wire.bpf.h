/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The client side of the MySQL protocol, as MySQL and MariaDB read it: a header of four bytes
 * (length, sequence number), then the packet. A packet with sequence number 0 is a command;
 * others continue a login, a LOAD DATA or a command of more than 16 MB.
 * MySQL 8.0 Reference, "MySQL Packets"; MariaDB Knowledge Base, "0 - Packet".
 */
#ifndef QJOULE_MYSQL_WIRE_BPF_H
#define QJOULE_MYSQL_WIRE_BPF_H

#include "statement.bpf.h"

#define MYSQL_HEADER	      4
#define MYSQL_QUERY	      0x03
#define MYSQL_STMT_PREPARE    0x16
#define MYSQL_STMT_EXECUTE    0x17
#define MYSQL_STMT_FETCH      0x1c
#define MARIADB_BULK_EXECUTE  0xfa
#define MARIADB_LAST_PREPARED 0xffffffff

#define MYSQL_CLIENT_COMPRESS	      (1u << 5)
#define MYSQL_CLIENT_SSL	      (1u << 11)
#define MYSQL_CLIENT_ZSTD	      (1u << 26)
#define MYSQL_CLIENT_QUERY_ATTRIBUTES (1u << 27)

/* thread->synced tells which part of a packet is next. */
enum mysql_expect {
	MYSQL_SKIP = 0,
	MYSQL_COMMAND,
	MYSQL_LOGIN,
	MYSQL_TEXT,
};

/*
 * The reply to a PREPARE bears the statement's id, and is still in the connection's buffer when
 * the server reads the next header into its start (NET::buff serves both ways in MySQL's and
 * MariaDB's net_serv.cc): OK packets of PREPARE are 12 bytes, 0, id, columns, parameters, 0, ….
 * `buffer` has the reply's own header, or four bytes of the next request over it.
 */
static __always_inline void mysql_learn_prepared(struct qj_cpu_state *cpu,
						 struct thread_state *thread, __u64 buffer)
{
	struct __attribute__((packed)) {
		__u8 header[MYSQL_HEADER];
		__u8 status;
		__u32 id;
		__u16 columns, parameters;
		__u8 filler;
	} reply;

	if (!thread->shape)
		return;
	if (bpf_probe_read_user(&reply, sizeof(reply), (const void *)buffer)) {
		count_loss(cpu, QJ_LOSS_PREPARED);
		return;
	}
	if (reply.status == 0xff) /* the server refused the statement */
		return;
	if (reply.status || reply.filler || !reply.id) {
		count_loss(cpu, QJ_LOSS_PREPARED);
		return;
	}
	prepared_learn(thread, reply.id);
	prepared_learn(thread, MARIADB_LAST_PREPARED);
}

/* What an execution's packet says after its command byte: the statement's id. */
static __always_inline void mysql_execute(struct thread_state *thread, __u8 command, __u32 id)
{
	thread->command = QJ_COMMAND_EXECUTE;
	thread->executions = command != MYSQL_STMT_FETCH;
	prepared_recall(thread, id);
}

/* The server waits for its client: the query is over, unless the client owes it data. */
static __always_inline void mysql_wait(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 buffer, __u64 now)
{
	if (!thread->begin_ns || thread->need || thread->head_bytes)
		return;
	if (thread->command == QJ_COMMAND_PREPARE)
		mysql_learn_prepared(cpu, thread, buffer);
	if (thread->may_continue)
		thread->end_ns = now;
	else
		query_end(cpu, thread, now);
}

static __always_inline void mysql_header(struct qj_cpu_state *cpu, struct thread_state *thread,
					 __u64 buffer, __u64 now)
{
	__u8 sequence = thread->head[3];

	thread->need = thread->head[0] | thread->head[1] << 8 | thread->head[2] << 16;
	thread->head_bytes = 0;
	thread->synced = MYSQL_SKIP;
	if (sequence == 0) {
		if (thread->begin_ns) {
			if (thread->command == QJ_COMMAND_PREPARE)
				mysql_learn_prepared(cpu, thread, buffer);
			query_end(cpu, thread, thread->end_ns ?: now);
		}
		thread->phase = PHASE_READY;
		query_begin(cpu, thread, now);
		thread->synced = MYSQL_COMMAND;
	} else if (thread->phase == PHASE_STARTUP && sequence == 1) {
		query_begin(cpu, thread, now);
		thread->command = QJ_COMMAND_CONNECT;
		thread->synced = MYSQL_LOGIN;
	}
	thread->end_ns = 0;
}

static __always_inline void mysql_login(struct qj_cpu_state *cpu, struct thread_state *thread,
					__u64 addr, __u32 bytes)
{
	__u32 capabilities = 0;

	thread->synced = MYSQL_SKIP;
	if (bpf_probe_read_user(&capabilities, sizeof(capabilities), (const void *)addr))
		return;
	if (capabilities & (MYSQL_CLIENT_SSL | MYSQL_CLIENT_COMPRESS | MYSQL_CLIENT_ZSTD)) {
		session_opaque(cpu, thread);
		return;
	}
	emit_session(cpu, thread, QJ_SESSION_OPEN, addr, bytes);
}

/* With query attributes (MySQL 8.0.23) a count of them, and of their sets, precedes the text. */
static __always_inline __u32 mysql_skip_attributes(const __u8 *start)
{
	return start[1] == 0 && start[2] == 1 ? 2 : 0;
}

static __always_inline void mysql_command(struct qj_cpu_state *cpu, struct thread_state *thread,
					  __u64 addr, __u32 bytes)
{
	__u8 start[8] = {};
	__u32 length = thread->need, text = 1;

	thread->synced = MYSQL_SKIP;
	/* The buffer is larger than any command's fixed part: bytes behind the packet are stale. */
	bpf_probe_read_user(start, sizeof(start), (const void *)addr);
	switch (start[0]) {
	case MYSQL_QUERY:
		thread->command = QJ_COMMAND_QUERY;
		thread->executions = 1;
		text += mysql_skip_attributes(start);
		break;
	case MYSQL_STMT_PREPARE:
		thread->command = QJ_COMMAND_PREPARE;
		break;
	case MYSQL_STMT_EXECUTE:
	case MARIADB_BULK_EXECUTE:
	case MYSQL_STMT_FETCH:
		mysql_execute(thread, start[0],
			      start[1] | start[2] << 8 | start[3] << 16 | (__u32)start[4] << 24);
		cpu->shape = thread->shape;
		return;
	default:
		return;
	}
	if (length < text || bytes < text)
		return;
	statement_begin(thread, QJ_DIALECT_MYSQL, addr + text, length - text);
	if (!statement_feed(cpu, thread, addr + text, bytes - text))
		thread->synced = MYSQL_TEXT;
	cpu->shape = thread->shape;
}

static __always_inline void mysql_body(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 addr, __u32 bytes)
{
	if (thread->synced == MYSQL_COMMAND) {
		mysql_command(cpu, thread, addr, bytes);
	} else if (thread->synced == MYSQL_LOGIN) {
		mysql_login(cpu, thread, addr, bytes);
	} else if (thread->synced == MYSQL_TEXT) {
		if (statement_feed(cpu, thread, addr, bytes))
			thread->synced = MYSQL_SKIP;
		cpu->shape = thread->shape;
	}
	thread->need -= bytes;
}

/* Gathers a packet's header, which may come in pieces; returns how many bytes were taken. */
static __always_inline __u32 mysql_take_header(struct thread_state *thread, __u64 addr, __u32 bytes)
{
	__u32 have = thread->head_bytes & 3, take = MYSQL_HEADER - have;

	if (!have && bytes >= MYSQL_HEADER) { /* as a rule */
		bpf_probe_read_user(thread->head, MYSQL_HEADER, (const void *)addr);
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

/* `bytes` have come in at `addr`: a header, or (a part of) the packet it announced. */
static __always_inline void mysql_received(struct qj_cpu_state *cpu, struct thread_state *thread,
					   __u64 addr, __u32 bytes, __u64 now)
{
	__u64 buffer = addr;

	if (!thread->need) {
		__u32 take = mysql_take_header(thread, addr, bytes);

		if (thread->head_bytes < MYSQL_HEADER)
			return;
		mysql_header(cpu, thread, buffer, now);
		addr += take;
		bytes -= take;
	}
	if (bytes > thread->need) {
		/* Two packets in one read: these servers never do that, so we are out of step. */
		count_loss(cpu, QJ_LOSS_FRAMING);
		thread->need = 0;
		return;
	}
	if (bytes)
		mysql_body(cpu, thread, addr, bytes);
}

#endif
