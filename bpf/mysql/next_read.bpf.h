/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The end of a command in attach mode `symbol` without a return probe, which costs half a
 * microsecond: the thread's next read of its client's socket. TLS hides the bytes, but not the
 * time, of a read. Thread pools keep the return probe.
 */
#ifndef QJOULE_MYSQL_NEXT_READ_BPF_H
#define QJOULE_MYSQL_NEXT_READ_BPF_H

#include "command.bpf.h"

#define MYSQL_HEADER_MAX 5 /* of a TLS record */

static __always_inline bool mysql_ends_at_read(const struct thread_state *thread)
{
	return facts_of(thread)[QJ_MYSQL_NEXT_READ];
}

static __always_inline void mysql_over(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 now)
{
	mysql_executed(cpu, thread);
	query_end(cpu, thread, thread->end_ns ?: now);
}

/*
 * Ends a command whose reply cannot be read. A statement that it prepared gets its text once it is
 * executed, if the server's memory can be read, or by the name for the last one.
 */
static __always_inline void mysql_end_unread(struct qj_cpu_state *cpu, struct thread_state *thread,
					     __u64 now)
{
	if (thread->command == QJ_COMMAND_PREPARE && thread->shape) {
		prepared_learn(thread, MARIADB_LAST_PREPARED);
		if (!facts_of(thread)[QJ_MYSQL_LAST_FOUND])
			count_loss(cpu, QJ_LOSS_PREPARED);
	}
	mysql_over(cpu, thread, now);
}

static __always_inline bool mysql_is_complete(const struct mysql_reply *reply)
{
	if (mysql_length(reply) == 1 && reply->sequence == 1) /* a number of columns */
		return true;
	return mysql_is_prepared(reply) || mysql_is_error(reply) || mysql_is_ok(reply);
}

/*
 * Reads the reply, which is still in the connection's buffer if nothing was read, or if the bytes
 * went into the buffer of TLS. A read of four bytes is the header of a plain packet. Returns false
 * if the reply's place is not known, or the header of a compressed packet has overwritten it.
 */
static __always_inline bool mysql_reply_at_read(struct thread_state *thread, int got,
						struct mysql_reply *reply)
{
	__u64 buffer = thread->mysql.reply_addr;
	struct mysql_reply behind = {};

	if (!buffer || got == MYSQL_COMPRESSED_HEADER)
		return false;
	mysql_read_reply(buffer, reply);
	if (got > 0 && got <= MYSQL_HEADER) {
		reply->sequence = 1;
		reply->length[0] = MYSQL_PREPARED_BYTES;
		reply->length[1] = reply->length[2] = 0;
	} else if (!mysql_is_complete(reply)) {
		/* With compression, an additional header preceded the command. */
		mysql_read_reply(buffer - MYSQL_HEADER, &behind);
		if (mysql_is_complete(&behind))
			*reply = behind;
	}
	return true;
}

/* True if the client may still have to send for its command: a file, or its password. */
static __always_inline bool mysql_expects_more(struct thread_state *thread, bool readable,
					       const struct mysql_reply *reply)
{
	if (thread->command == QJ_COMMAND_CONNECT)
		return !readable || reply->start == MYSQL_AUTH_SWITCH ||
		       reply->start == MYSQL_AUTH_MORE;
	if (thread->command != QJ_COMMAND_QUERY)
		return false;
	if (!thread->mysql.reply_addr || reply->start == MYSQL_LOCAL_FILE)
		thread->mysql.more = MYSQL_MORE_FILE;
	return thread->mysql.more;
}

/*
 * The next command shows that this was the last read of this one, and its reply the last one. The
 * body of the next packet may overwrite the reply, its header does not.
 */
static __always_inline void mysql_may_end(struct qj_cpu_state *cpu, struct thread_state *thread,
					  const struct mysql_reply *reply, int got)
{
	/* The first header after a wait may be the next command's: the wait has ended this one. */
	if (got <= 0 || (got <= MYSQL_HEADER_MAX && thread->mysql.went_on))
		reply_sent(cpu, thread, bpf_ktime_get_ns());
	if (got <= MYSQL_HEADER_MAX)
		thread->mysql.went_on = got > 0;
	if (thread->command != QJ_COMMAND_QUERY ||
	    (got > 0 && !mysql_is_ok(reply) && !mysql_is_error(reply)))
		return;
	thread->flags &=
	    ~(QJ_QUERY_OK | QJ_QUERY_ERROR | QJ_QUERY_IN_TRANSACTION | QJ_QUERY_NO_TRANSACTION);
	mysql_answered(cpu, thread, reply);
}

/* `got`: number of bytes read; negative: nothing yet; 0: the client has disconnected. */
static __always_inline void mysql_next_read(struct qj_cpu_state *cpu, struct thread_state *thread,
					    __u64 sk, int got)
{
	struct mysql_reply reply = {};
	bool readable;

	if (!mysql_ends_at_read(thread))
		return;
	if (!thread->begin_ns) { /* between commands only the client is read */
		thread->mysql.client = sk;
		return;
	}
	if (thread->mysql.client && thread->mysql.client != sk)
		return; /* of a federated table, say */
	readable = mysql_reply_at_read(thread, got, &reply);
	if (mysql_expects_more(thread, readable, &reply)) {
		mysql_may_end(cpu, thread, &reply, got);
		return;
	}
	if (!readable) {
		mysql_end_unread(cpu, thread, bpf_ktime_get_ns());
		return;
	}
	mysql_answered(cpu, thread, &reply);
	mysql_over(cpu, thread, bpf_ktime_get_ns());
}

#endif
