// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements requests.bpf.h: messages in pieces, and the effects of messages on a request. */
#include "requests.bpf.h"
#include "messages.bpf.h"
#include "state.bpf.h"

struct postgres_pieces_map postgres_pieces SEC(".maps");

struct pieces_walk {
	struct postgres_pieces *pieces;
	__u64 addr; /* 0: could not be read */
	__u32 at;
	__u32 left;
};

static long pieces_step(__u32 i, struct pieces_walk *walk)
{
	__u64 bytes = at_most(walk->left, POSTGRES_PIECE);
	__u64 at = at_most(walk->at, POSTGRES_COLLECTED);

	if (!bytes)
		return 1;
	if (bpf_probe_read_user(walk->pieces->bytes + at, bytes, (const void *)walk->addr)) {
		walk->addr = 0;
		return 1;
	}
	walk->addr += bytes;
	walk->at += bytes;
	walk->left -= bytes;
	return 0;
}

static __always_inline struct postgres_pieces *pieces_of(void)
{
#ifdef QJ_EARLY
	return 0;
#else
	return bpf_task_storage_get(&postgres_pieces, bpf_get_current_task_btf(), 0,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
#endif
}

/* Handles the message with the bytes in `pieces`; 0: without any. */
static __always_inline void handle_collected(struct qj_cpu_state *cpu, struct thread_state *thread,
					     struct postgres_pieces *pieces)
{
	__u64 addr = 0;

	thread->postgres.collects = 0;
	if (pieces) {
		/* Functions take numbers, and the verifier forgets that this one was a pointer. */
		pieces->addr = (__u64)pieces->bytes;
		barrier();
		addr = *(volatile __u64 *)&pieces->addr;
		thread->collected = 1;
	}
	postgres_content(cpu, thread, addr, thread->head[0],
			 pieces ? thread->postgres.collected : 0);
	thread->collected = 0;
	label_query(cpu, thread);
}

int postgres_collect(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr, __u32 here)
{
	struct pieces_walk walk = {.addr = addr};
	__u32 wanted;

	if (!cpu || !thread)
		return 0;
	wanted = postgres_wanted(thread->head[0]);
	walk.pieces = pieces_of();
	walk.at = thread->postgres.collected;
	if (!walk.pieces || walk.at > wanted) {
		handle_collected(cpu, thread, 0);
		return 0;
	}
	walk.left = at_most(here, wanted - walk.at);
	bpf_loop(POSTGRES_COLLECTED / POSTGRES_PIECE + 1, pieces_step, &walk, 0);
	thread->postgres.collected = walk.at;
	if (!walk.addr)
		handle_collected(cpu, thread, 0);
	else if (!thread->need || walk.at >= wanted)
		handle_collected(cpu, thread, walk.pieces);
	return 0;
}

static __always_inline bool postgres_is_data(__u8 type)
{
	return type == 'd' || type == 'c' || type == 'f';
}

/* SQLSTATE 26000 or 34000: there is no such prepared statement, or no such portal. */
static __always_inline bool postgres_is_unknown_name(const struct thread_state *thread)
{
	const __u8 *state = thread->sqlstate;

	return (state[0] == '2' || state[0] == '3') && state[1] == (state[0] == '2' ? '6' : '4') &&
	       state[2] == '0' && state[3] == '0' && state[4] == '0';
}

/* A name that the server no longer knows, as after DEALLOCATE, has no text. */
static __always_inline void postgres_outcome(struct thread_state *thread)
{
	bool is_first = postgres_answered(thread);

	if (is_first && thread->command == QJ_COMMAND_EXECUTE && thread->executions <= 1 &&
	    postgres_is_unknown_name(thread)) {
		thread->tags = 0;
		postgres_no_text(thread, QJ_NO_TEXT_NONE);
	}
}

/* Reports why there is no text, or which statement has no text. */
static __always_inline void postgres_report_unseen(struct qj_cpu_state *cpu,
						   struct thread_state *thread)
{
	__u32 why = (thread->flags & QJ_LOST_CAUSES) >> QJ_NO_TEXT_SHIFT;

	if (why)
		statement_unseen(cpu, thread, 0, why);
	else if (thread->postgres.unknown)
		statement_unseen(cpu, thread, thread->session, thread->postgres.unknown);
}

/* Inline, as each call takes 32 bytes of the stack on Linux 6.1, and all have 512 together. */
static __always_inline int end_request(struct qj_cpu_state *cpu, struct thread_state *thread,
				       __u64 end_ns)
{
	postgres_outcome(thread);
	if (thread->flags & QJ_QUERY_NO_TEXT)
		postgres_report_unseen(cpu, thread);
	thread->postgres.last_shape = thread->shape;
	if (thread->postgres.changes && thread->flags & QJ_QUERY_ERROR)
		emit_session(cpu, thread, QJ_SESSION_KEPT, 0, 0);
	return query_end(cpu, thread, end_ns);
}

int postgres_end(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 end_ns)
{
	return cpu && thread ? end_request(cpu, thread, end_ns) : 0;
}

/*
 * Continues the last request with data for a COPY that was not recognised (a comment before it,
 * several statements in one) and seemed to be over when its server began to wait: no new execution.
 */
static __always_inline void postgres_resume_copy(struct qj_cpu_state *cpu,
						 struct thread_state *thread, __u64 now)
{
	query_begin(cpu, thread, now);
	thread->command = QJ_COMMAND_QUERY;
	thread->shape = thread->postgres.last_shape;
	if (!thread->shape)
		postgres_no_text(thread, QJ_NO_TEXT_EARLIER);
	thread->postgres.synced = 1;
	thread->postgres.requests = 1;
	thread->postgres.may_continue = 1;
}

int postgres_begin(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now, __u8 type,
		   bool fresh)
{
	if (!cpu || !thread)
		return 0;
	if (type == 'p' || postgres_is_data(type)) { /* a login, or a COPY, continues */
		if (!thread->begin_ns && !thread->postgres.dumps && type != 'p')
			postgres_resume_copy(cpu, thread, now);
		thread->end_ns = 0;
		return 0;
	}
	if (thread->begin_ns && thread->postgres.synced && fresh)
		end_request(cpu, thread, thread->end_ns ?: now);
	thread->end_ns = 0;
	postgres_stream_end(cpu, thread);
	if (!thread->begin_ns)
		query_begin(cpu, thread, now);
	return 1;
}

int postgres_content(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr, __u8 type,
		     __u32 here)
{
	const struct postgres_body body = {.cpu = cpu, .thread = thread, .addr = addr};

	if (!cpu || !thread)
		return 0;
	switch (type) {
	case 'Q':
		postgres_query(&body, here);
		thread->postgres.synced = 1;
		thread->postgres.requests++;
		break;
	case 'P':
		postgres_parse(&body, here);
		break;
	case 'B':
		postgres_bind(&body, here);
		break;
	case 'E':
		postgres_execute(&body, here);
		break;
	case 'S':
	case 'F':
		thread->postgres.synced = 1;
		thread->postgres.requests++;
		break;
	case 'H':
		if (thread->executions) /* their reply is sent before the rest */
			thread->postgres.requests++;
		break;
	}
	return 0;
}

static __always_inline bool postgres_is_code(__u32 code)
{
	return code >> 16 == POSTGRES_PROTOCOL_3 || code == POSTGRES_CANCEL ||
	       code == POSTGRES_SSL || code == POSTGRES_GSS;
}

int postgres_startup(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 addr,
		     __u32 arrived, __u64 now)
{
	__u32 length, code;

	if (!cpu || !thread)
		return 0;
	length = postgres_uint(thread->head);
	code = postgres_uint(&thread->head[4]);
	if (thread->head[0] == TLS_HANDSHAKE) {
		session_opaque(cpu, thread);
		return 0;
	}
	if (thread->postgres.asks_gss &&
	    !postgres_is_code(code)) { /* GSSAPI tokens, each after a length */
		session_opaque(cpu, thread);
		return 0;
	}
	if (length < POSTGRES_STARTUP || length > POSTGRES_STARTUP_MAX) {
		/* Not a client: a worker that reads from another server (replication). */
		thread->phase = PHASE_OPAQUE;
		return 0;
	}
	thread->postgres.asks_gss = code == POSTGRES_GSS;
	thread->need = length - POSTGRES_STARTUP;
	/*
	 * The server answers requests for TLS or GSS with one byte; then TLS or the next packet
	 * follows. A request to cancel another session's query ends its own connection.
	 */
	if (code >> 16 != POSTGRES_PROTOCOL_3)
		return 1;
	query_begin(cpu, thread, now);
	thread->command = QJ_COMMAND_CONNECT;
	thread->postgres.synced = 1;
	thread->postgres.requests = 1;
	thread->postgres.may_continue = 1; /* with password messages */
	thread->phase = PHASE_READY;
	emit_session(cpu, thread, QJ_SESSION_OPEN, addr - POSTGRES_STARTUP,
		     arrived < length ? arrived : length);
	return 1;
}

int postgres_lost(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 now)
{
	if (!cpu || !thread)
		return 0;
	count_loss(cpu, QJ_LOSS_FRAMING);
	query_abandon(cpu, thread, now);
	query_release(cpu, thread, now);
	thread->phase = PHASE_LOST;
	thread->postgres.collects = 0;
	thread->postgres.skips = 0;
	thread->need = 0;
	thread->head_bytes = 0;
	return 0;
}
