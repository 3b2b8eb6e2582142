/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The server's side of the MySQL protocol, without a hook on sends. A connection has one buffer for
 * both directions (NET::buff in MySQL's and MariaDB's net_serv.cc). So the start of a reply is
 * still there when the server reads again, or leaves its command.
 *
 * If a reply is longer than the buffer, its start is gone, and a client's own data may be in its
 * place. So a packet is accepted only if its length, its number and its marks all match. MySQL
 * Source Code Documentation, "Generic Response Packets", "COM_STMT_PREPARE Response".
 */
#ifndef QJOULE_MYSQL_REPLY_BPF_H
#define QJOULE_MYSQL_REPLY_BPF_H

#include "core/statement.bpf.h"

#define MYSQL_HEADER 4
/* "Compressed Packet": length, number, uncompressed length. */
#define MYSQL_COMPRESSED_HEADER 7
#define MARIADB_LAST_PREPARED	0xffffffff
#define MARIADB_PROGRESS	0xffff /* an ERR packet that reports progress */

#define MYSQL_OK_BYTES_MIN    7
#define MYSQL_ERROR_BYTES_MIN 9
#define MYSQL_SHORT_REPLY_MAX 1024 /* messages have at most 512 bytes */
/* The reply to a PREPARE, and with CLIENT_OPTIONAL_RESULTSET_METADATA. */
#define MYSQL_PREPARED_BYTES	  12
#define MYSQL_PREPARED_BYTES_MORE 13

/* Status of an OK packet (SERVER_STATUS_flags_enum), and code of an ERR packet. */
#define MYSQL_IN_TRANSACTION 0x0001
#define MYSQL_MORE_RESULTS   0x0008
#define MYSQL_DEADLOCK	     1213 /* the whole transaction was rolled back */
#define MYSQL_NUMBER_LONG    0xfb
#define MYSQL_REPLY_READ     14 /* bytes that suffice for all but some OK packets */
#define MYSQL_OK_READ	     32 /* a power of two: two numbers of up to 9 bytes, and the status */

enum mysql_reply_start {
	MYSQL_OK = 0x00,
	MYSQL_AUTH_MORE = 0x01,
	MYSQL_LOCAL_FILE = 0xfb, /* LOAD DATA LOCAL: the client must send a file */
	MYSQL_AUTH_SWITCH = 0xfe,
	MYSQL_ERROR = 0xff,
};

struct __attribute__((packed)) mysql_reply {
	__u8 length[3];
	__u8 sequence;
	__u8 start; /* first byte of the packet: enum mysql_reply_start, or a number of columns */
	union {
		struct __attribute__((packed)) {
			__u32 id;
			__u16 columns, parameters;
			__u8 filler;
		} prepared;
		struct __attribute__((packed)) {
			__u16 code;
			__u8 mark; /* '#' */
			__u8 state[5];
		} error;
		__u8 ok[MYSQL_OK_READ];
	};
	__u8 cut; /* `ok` could not be read to its end */
};

static __always_inline __u32 mysql_length(const struct mysql_reply *reply)
{
	return reply->length[0] | reply->length[1] << 8 | reply->length[2] << 16;
}

static __always_inline bool mysql_is_error(const struct mysql_reply *reply)
{
	__u32 length = mysql_length(reply);

	if (reply->start != MYSQL_ERROR || length < MYSQL_ERROR_BYTES_MIN ||
	    length > MYSQL_SHORT_REPLY_MAX || reply->error.mark != '#' ||
	    reply->error.code == MARIADB_PROGRESS)
		return false;
	for (int i = 0; i < 5; i++) /* digits and capital letters only */
		if (reply->error.state[i] < '0' || reply->error.state[i] > 'Z')
			return false;
	return true;
}

static __always_inline bool mysql_is_ok(const struct mysql_reply *reply)
{
	__u32 length = mysql_length(reply);

	return reply->start == MYSQL_OK && length >= MYSQL_OK_BYTES_MIN &&
	       length <= MYSQL_SHORT_REPLY_MAX && reply->sequence;
}

static __always_inline bool mysql_is_prepared(const struct mysql_reply *reply)
{
	__u32 length = mysql_length(reply);

	return reply->start == MYSQL_OK && reply->sequence == 1 && !reply->prepared.filler &&
	       reply->prepared.id &&
	       (length == MYSQL_PREPARED_BYTES || length == MYSQL_PREPARED_BYTES_MORE);
}

/* Reads the start of a connection's buffer; all zeros, which match no reply, if unreadable. */
static __always_inline void mysql_read_reply(__u64 buffer, struct mysql_reply *reply)
{
	bpf_probe_read_user(reply, MYSQL_REPLY_READ, (const void *)buffer);
	/* With large numbers an OK packet is longer: the status follows them. */
	if (reply->start == MYSQL_OK &&
	    (reply->ok[0] >= MYSQL_NUMBER_LONG || reply->ok[1] >= MYSQL_NUMBER_LONG) &&
	    bpf_probe_read_user((__u8 *)reply + MYSQL_REPLY_READ,
				__builtin_offsetof(struct mysql_reply, cut) - MYSQL_REPLY_READ,
				(const void *)(buffer + MYSQL_REPLY_READ)))
		reply->cut = 1;
}

/* The reply to a PREPARE contains the statement's id. */
static __always_inline void mysql_learn_prepared(struct qj_cpu_state *cpu,
						 struct thread_state *thread,
						 const struct mysql_reply *reply)
{
	if (!thread->shape || mysql_is_error(reply))
		return;
	if (!mysql_is_prepared(reply)) {
		count_loss(cpu, QJ_LOSS_PREPARED);
		return;
	}
	prepared_learn(thread, reply->prepared.id);
	prepared_learn(thread, MARIADB_LAST_PREPARED);
}

/* Length of a length-encoded number from its first byte; 0: invalid. */
static __always_inline __u32 mysql_number_bytes(__u8 first)
{
	if (first < MYSQL_NUMBER_LONG)
		return 1;
	return first == 0xfc ? 3 : first == 0xfd ? 4 : first == 0xfe ? 9 : 0;
}

/* The state of the session's transaction from an OK packet, unless other results follow. */
static __always_inline __u32 mysql_transaction(const struct mysql_reply *reply)
{
	__u32 rows = mysql_number_bytes(reply->ok[0]), at, id;
	__u16 status;

	if (!rows || reply->cut)
		return 0;
	id = mysql_number_bytes(reply->ok[rows & (MYSQL_OK_READ - 1)]);
	at = rows + id;
	if (!id || at + 3 > mysql_length(reply)) /* start, numbers, status */
		return 0;
	status = reply->ok[at & (MYSQL_OK_READ - 1)] | reply->ok[(at + 1) & (MYSQL_OK_READ - 1)]
							   << 8;
	if (status & MYSQL_MORE_RESULTS)
		return 0;
	return status & MYSQL_IN_TRANSACTION ? QJ_QUERY_IN_TRANSACTION : QJ_QUERY_NO_TRANSACTION;
}

/* False for commands without a reply, and rows from a cursor: the buffer holds another reply. */
static __always_inline bool mysql_is_answered(const struct thread_state *thread)
{
	return thread->command != QJ_COMMAND_EXECUTE || thread->executions;
}

/* Takes the outcome of the command from its reply. */
static __always_inline void mysql_answered(struct qj_cpu_state *cpu, struct thread_state *thread,
					   const struct mysql_reply *reply)
{
	if (thread->caller.query) /* the child's end was missed */
		child_end(cpu, thread, bpf_ktime_get_ns());
	if (thread->command == QJ_COMMAND_PREPARE)
		mysql_learn_prepared(cpu, thread, reply);
	if (!mysql_is_answered(thread))
		return;
	if (mysql_is_error(reply)) {
		thread->flags |= QJ_QUERY_ERROR;
		if (reply->error.code == MYSQL_DEADLOCK)
			thread->flags |= QJ_QUERY_NO_TRANSACTION;
	} else if (mysql_is_ok(reply)) {
		thread->flags |= QJ_QUERY_OK;
		if (thread->command != QJ_COMMAND_PREPARE)
			thread->flags |= mysql_transaction(reply);
	}
	if (thread->mysql.changes && thread->flags & QJ_QUERY_ERROR)
		emit_session(cpu, thread, QJ_SESSION_KEPT, 0, 0);
}

#endif
