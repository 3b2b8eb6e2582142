/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Requests of key-value protocols: commands with a name and a key, many connections per thread.
 * First the life of a request, then its shape and its text.
 *
 * A *turn* is one pass of a thread through its event loop. When a thread reads from a connection,
 * it works for that connection's request from then on. A reply ends the request that it answers.
 * Between a sleep and the next read the thread works for no request.
 *
 * All commands of one read form one request: the socket does not show their separate shares.
 */
#ifndef QJOULE_KEY_REQUEST_BPF_H
#define QJOULE_KEY_REQUEST_BPF_H

#include "query.bpf.h"
#include "shape_hash.h"
#include "statement.bpf.h"

enum key_waits {
	KEY_WAITS_NOT = 0,
	KEY_WAITS,	  /* the next reply answers its last request */
	KEY_WAITS_BEHIND, /* replies to earlier requests come first */
};

/* The last request of a connection: stored with its socket. */
struct key_request {
	__u64 session;
	__u64 query; /* 0 before the first */
	__u64 begin_ns;
	__u64 shape;
	__u64 last_shape; /* shape of the last command */
	__u32 executions;
	__u32 flags;
	__u32 statement_bytes;
	__u8 waits;  /* enum key_waits */
	__u8 runs;   /* number of runs of equal commands */
	__u8 opaque; /* encrypted: nothing can be read on this socket */
	__u8 reserved;
};

static __always_inline bool key_is_open(const struct qj_cpu_state *cpu)
{
	return cpu->owner_kind == QJ_OWNER_SERVER && !cpu->query;
}

/* Gives the open slice to this request: all of it if no request owns it yet. */
static __always_inline void key_claim(struct qj_cpu_state *cpu, struct thread_state *thread,
				      const struct key_request *request, __u64 now)
{
	check_label(cpu, now);
	if (!key_is_open(cpu) && cpu->query != request->query)
		end_slice(cpu, now);
	thread->query = request->query;
	thread->session = request->session;
	thread->shape = request->shape;
	thread->begin_ns = request->begin_ns;
	cpu->query = request->query;
	label_query(cpu, thread);
	cpu->owner_kind = QJ_OWNER_QUERY;
}

/* The thread works for no known request from now on. `closes`: the open slice ends here. */
static __always_inline void key_release(struct qj_cpu_state *cpu, struct thread_state *thread,
					bool closes, __u64 now)
{
	thread->query = 0;
	thread->shape = 0;
	thread->begin_ns = 0;
	if (!closes)
		return;
	check_label(cpu, now);
	end_slice(cpu, now);
	cpu->query = 0;
	cpu->shape = 0;
	cpu->owner_kind = QJ_OWNER_SERVER;
}

/* Sends the record of a request that has its reply, or that the next request follows. */
static __always_inline void key_answered(struct qj_cpu_state *cpu, struct thread_state *thread,
					 struct key_request *request, __u64 now)
{
	__u64 query = thread->query, begin_ns = thread->begin_ns, shape = thread->shape;
	__u64 session = thread->session;

	thread->query = request->query;
	thread->begin_ns = request->begin_ns;
	thread->session = request->session;
	thread->shape = request->shape;
	thread->executions = request->executions;
	thread->flags = request->flags;
	thread->statement_bytes = request->statement_bytes;
	thread->command = QJ_COMMAND_QUERY;
	if (request->runs > 1)
		thread->flags |= QJ_QUERY_PIPELINED;
	query_end(cpu, thread, now);
	request->waits = KEY_WAITS_NOT;
	thread->query = query;
	thread->begin_ns = begin_ns;
	thread->shape = shape;
	thread->session = session;
}

/* The client has disconnected, perhaps without a reply. */
static __always_inline void key_disconnected(struct qj_cpu_state *cpu, struct thread_state *thread,
					     struct key_request *request)
{
	if (!request->waits || !request->executions)
		return;
	request->flags |= QJ_QUERY_OPEN;
	key_answered(cpu, thread, request, bpf_ktime_get_ns());
}

/*
 * Bytes were read. They belong to the request that waits for its reply only if that request has no
 * complete command yet; otherwise that request ends. Returns true if a new request begins.
 */
static __always_inline bool key_next_request(struct qj_cpu_state *cpu, struct thread_state *thread,
					     struct key_request *request, __u64 now)
{
	bool behind = request->waits && request->executions;

	if (behind)
		key_answered(cpu, thread, request, now);
	if (request->waits)
		return false;
	request->query = new_id(cpu);
	request->begin_ns = now;
	request->shape = 0;
	request->last_shape = 0;
	request->executions = 0;
	request->flags = 0;
	request->statement_bytes = 0;
	request->runs = 0;
	request->waits = behind ? KEY_WAITS_BEHIND : KEY_WAITS;
	return true;
}

/* Reports the connection's session; the thread may still be serving another client's request. */
static __always_inline void key_emit_session(struct qj_cpu_state *cpu, struct thread_state *thread,
					     const struct key_request *request, struct sock *sk,
					     __u32 event)
{
	thread->socket = (__u64)sk;
	emit_session_of(cpu, thread, request->session, event, 0, 0);
}

static __always_inline void key_opaque(struct qj_cpu_state *cpu, struct thread_state *thread,
				       struct key_request *request, struct sock *sk)
{
	request->opaque = 1;
	count_loss(cpu, QJ_LOSS_OPAQUE_SESSION);
	key_emit_session(cpu, thread, request, sk, QJ_SESSION_OPAQUE);
}

/*
 * Returns true if the `got` bytes just read are the connection's first. TCP counts the bytes
 * received; copied_seq excludes those that the server has not yet read.
 */
static __always_inline bool key_reads_first(const struct sock *sk, __u32 got)
{
	const struct tcp_sock *tcp = (const struct tcp_sock *)sk;
	__u32 unread;

	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return false;
	unread = BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq);
	return BPF_CORE_READ(tcp, bytes_received) == (__u64)got + unread;
}

/*
 * Gives a connection that is seen for the first time a session. Returns true if a command begins
 * with the `got` bytes just read; in a connection that was already open they may begin within one.
 */
static __always_inline bool key_join(struct qj_cpu_state *cpu, struct thread_state *thread,
				     struct key_request *request, struct sock *sk, __u32 got)
{
	if (request->session)
		return false;
	request->session = new_id(cpu);
	key_emit_session(cpu, thread, request, sk, QJ_SESSION_MET);
	return thread->phase == PHASE_STARTUP || key_reads_first(sk, got);
}

/*
 * Ends a thread's turn if it slept. A thread does not sleep while it executes commands. After a
 * sleep, the request that it last read is either done or blocked until another client wakes it.
 */
static __always_inline void key_forget_if_slept(struct thread_state *thread, struct key_turn *turn,
						struct task_struct *task)
{
	if (turn->sleeps == TASK_FIELD(task, nvcsw))
		return;
	turn->sleeps = TASK_FIELD(task, nvcsw);
	turn->unanswered = 0;
	thread->query = 0;
	thread->shape = 0;
	thread->begin_ns = 0;
}

/*
 * Shape and text of a key-value request: the shape is made of the commands' names and keys
 * (shape_hash.h); its text has the different commands as RESP arrays.
 */

#define KEY_TEXT_BYTES 1024
#define KEY_RECORD_MAX 128 /* a command in the sent text: headers, name, key */
#define KEY_RUNS_MAX   8   /* different commands sent per request */
/* Most requests are shorter, and a read of a server's memory costs more than a copy. */
#define KEY_START_BYTES 128

/* The part of a command that determines its shape. */
struct key_command {
	__u8 name_bytes;
	__u8 key_bytes;
	__u8 has_key;
	__u8 reserved[5];
	/* Twice the length, so that a piece fits wherever it begins. */
	__u8 name[2 * QJ_KEY_NAME_BYTES];
	__u8 key[2 * QJ_KEY_BYTES];
};

/* The text of the current request: its different commands as RESP arrays. */
struct key_text {
	struct qj_key_pattern pattern; /* scratch */
	__u32 used;
	/* The beginning of the bytes read by the server, copied at once. */
	__u32 start_bytes;
	__u64 start_addr;
	__u8 bytes[KEY_TEXT_BYTES];
	__u8 start[KEY_START_BYTES + QJ_KEY_BYTES];
};

struct key_texts_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct key_text);
};
extern struct key_texts_map key_texts SEC(".maps");

/*
 * A separate function in statement.bpf.c, so that the verifier checks it once. Leaves the hash of
 * the command's name and its key's pattern in p->hash. Returns 0.
 */
extern int key_hash(struct key_command *c, struct qj_key_pattern *p, __u32 dialect);

static __always_inline struct key_text *key_text_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&key_texts, &zero);
}

static __always_inline void key_put_length(__u8 *to, __u32 length)
{
	to[0] = '$';
	to[1] = '0' + length / 10;
	to[2] = '0' + length % 10;
	to[3] = '\r';
	to[4] = '\n';
}

static __always_inline void key_put_end(struct key_text *text, __u32 at)
{
	text->bytes[at_most(at, KEY_TEXT_BYTES - 2)] = '\r';
	text->bytes[at_most(at, KEY_TEXT_BYTES - 2) + 1] = '\n';
}

/* Appends a command, cut to the part that determines its shape; false if there is no room. */
static __always_inline bool key_append(struct key_text *text, const struct key_command *c)
{
	__u32 used = text->used;
	__u8 *to;

	if (used > KEY_TEXT_BYTES - 2 * KEY_RECORD_MAX)
		return false;
	to = &text->bytes[at_most(used, KEY_TEXT_BYTES - 2 * KEY_RECORD_MAX)];
	to[0] = '*';
	to[1] = c->has_key ? '2' : '1';
	to[2] = '\r';
	to[3] = '\n';
	key_put_length(to + 4, c->name_bytes);
	bpf_probe_read_kernel(to + 9, QJ_KEY_NAME_BYTES, c->name);
	used += 9 + c->name_bytes;
	key_put_end(text, used);
	used += 2;
	if (c->has_key) {
		to = &text->bytes[at_most(used, KEY_TEXT_BYTES - KEY_RECORD_MAX)];
		key_put_length(to, c->key_bytes);
		bpf_probe_read_kernel(to + 5, QJ_KEY_BYTES, c->key);
		used += 5 + c->key_bytes;
		key_put_end(text, used);
		used += 2;
	}
	text->used = used;
	return true;
}

/* Adds a complete command to the request's shape. Equal commands in a row count as one run. */
static __always_inline void key_command_done(struct key_request *request, struct key_command *c,
					     struct key_text *text, __u32 executions, __u32 dialect)
{
	__u64 shape;

	request->executions += executions;
	key_hash(c, &text->pattern, dialect);
	shape = text->pattern.hash;
	if (request->runs && shape == request->last_shape)
		return;
	request->last_shape = shape;
	if (request->runs == KEY_RUNS_MAX || (request->runs && !key_append(text, c))) {
		request->flags |= QJ_QUERY_TRUNCATED;
		return;
	}
	request->runs++;
	if (request->runs == 1)
		request->shape = shape;
	else
		request->shape = qj_key_end(qj_shape_step(request->shape, QJ_KEY_NEXT,
							  (shape | 1) * qj_key_seeded(plan.seed)));
}

/*
 * Prepares for the next command, which overwrites the last one. Only here is the first command of a
 * request added to the text: most requests have no second command, and their text was already sent.
 */
static __always_inline void key_prepare_next(const struct key_request *request,
					     struct key_command *c, struct key_text *text)
{
	if (request->runs == 1 && !text->used)
		key_append(text, c);
	c->name_bytes = 0;
	c->key_bytes = 0;
	c->has_key = 0;
}

/* Sends the text of the request's shape, unless it was already sent. */
static __always_inline void key_emit_text(struct qj_cpu_state *cpu, struct thread_state *thread,
					  const struct key_request *request,
					  const struct key_command *c, struct key_text *text,
					  __u8 dialect)
{
	static const __u8 yes = 1;
	__u64 shape = request->shape;
	struct qj_ring_text *r;
	__u32 bytes;

	if (!shape || bpf_map_lookup_elem(&seen, &shape))
		return;
	if (!text->used)
		key_append(text, c);
	bytes = at_most(text->used, KEY_TEXT_BYTES);
	r = reserve(sizeof(*r));
	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return;
	}
	bpf_probe_read_kernel(r->bytes, KEY_TEXT_BYTES, text->bytes);
	fill_text(r, shape, bytes, bytes + (request->flags & QJ_QUERY_TRUNCATED ? 1 : 0),
		  thread->server, dialect);
	submit(r);
	bpf_map_update_elem(&seen, &shape, &yes, BPF_ANY);
}

#endif
