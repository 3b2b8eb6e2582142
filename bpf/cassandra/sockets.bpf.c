// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Cassandra: threads of an event loop read requests of many connections, several requests per read,
 * and pass them to other threads (stages). The reads show only which requests exist: a request owns
 * no CPU time here, and its reply is not observed. The energy of a shape is found by regression on
 * the counts (model/statistical.py).
 *
 * The id of a prepared statement is the MD5 of the connection's keyspace, if it needs one, and the
 * text (org.apache.cassandra.cql3.QueryProcessor.computeId), so it is known before the reply.
 */
#include "sockets.bpf.h"
#include "cql_frame.h"
#include "core/socket.bpf.h"

struct cql_connections_map cql_connections SEC(".maps");
struct cql_tagged_map cql_tagged SEC(".maps");

#define CQL_STEPS_MAX (1 << 16) /* steps in one read */

static __always_inline bool cql_get(struct cql_walk *walk, void *to, __u32 bytes, __u64 addr)
{
	return !cql_read(to, bytes, addr, walk->connection->inflated);
}

/* Hashes the next bytes of a statement, and stores them up to a maximum length. */
static __always_inline void cql_text(struct cql_walk *walk, __u32 here)
{
	struct cql_connection *c = walk->connection;
	__u32 fed = c->text_bytes - c->text_left, room;

	if (here > c->text_left)
		here = c->text_left;
	room = fed < QJ_TEXT_BYTES ? QJ_TEXT_BYTES - fed : 0;
	if (room > here)
		room = here;
	if (room)
		cql_feed(c, walk->connection->place.addr, room);
	if (here < c->text_bytes) {
		cql_keep(c, walk->connection->place.addr, fed, room);
		walk->connection->place.text_addr = 0;
	}
	c->text_left -= here;
	cql_took(walk, here, true);
	if (!c->text_left)
		cql_text_done(walk);
}

static __always_inline void cql_learn(struct cql_walk *walk, const __u8 *keyspace, __u32 prefix)
{
	struct cql_name name;

	bpf_probe_read_kernel(&name, sizeof(name), keyspace);
	cql_learn_id(walk->connection, walk->connection->place.text_addr, &name, prefix);
}

/* Sends the request, with its tags. */
static __always_inline void cql_emit_walked(struct cql_walk *walk, __u32 command)
{
	struct cql_connection *c = walk->connection;

	c->tags = 0;
	if (walk->tags)
		c->tags = tags_of_kept(walk->tags, c->tags_bytes, walk->server, QJ_DIALECT_PAYLOAD);
	cql_emit_query(c, walk->server, command);
}

static __always_inline void cql_request_read(struct cql_walk *walk, __u8 command)
{
	struct cql_connection *c = walk->connection;

	if (c->opcode == CQL_BATCH) {
		struct cql_sent_text shown = {
		    .shape = c->shape,
		    .text_bytes = c->run_count * sizeof(c->runs[0]),
		    .statement_bytes = c->run_count * sizeof(c->runs[0]),
		    .server = walk->server,
		    .dialect = QJ_DIALECT_CQL_BATCH,
		};

		if (c->flags & QJ_QUERY_TRUNCATED)
			shown.statement_bytes++;
		bpf_probe_read_kernel(shown.bytes, sizeof(shown.bytes), c->runs);
		cql_send_text(&shown);
	}
	cql_emit_walked(walk, command);
}

static __always_inline void cql_recall(struct cql_walk *walk, const __u8 *id)
{
	struct cql_connection *c = walk->connection;
	struct prepared_statement *known;
	struct cql_sent_text shown = {
	    .text_bytes = QJ_MD5_DIGEST,
	    .statement_bytes = QJ_MD5_DIGEST,
	    .server = walk->server,
	    .dialect = QJ_DIALECT_CQL_ID,
	};
	struct prepared_key key;

	__builtin_memcpy(&key, id, sizeof(key));
	known = bpf_map_lookup_elem(&prepared, &key);
	if (known) {
		c->shape = known->shape;
		c->text_bytes = known->statement_bytes;
		c->flags |= known->flags;
		return;
	}
	/* The statement was prepared before tracing began: identified by its id. */
	c->shape = qj_shape_mix(qj_shape_mix(key.session ^ walk->seed) ^ key.statement);
	if (c->shape + 1 < 2)
		c->shape = 1;
	c->text_bytes = 0;
	shown.shape = c->shape;
	bpf_probe_read_kernel(shown.bytes, QJ_MD5_DIGEST, id);
	cql_send_text(&shown);
}

static __always_inline void cql_text_done(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	struct cql_sent_text shown = {
	    .addr = walk->connection->place.text_addr,
	    .inflated = c->inflated,
	    .session = c->session,
	    .text_bytes = c->text_bytes,
	    .statement_bytes = c->text_bytes,
	    .server = walk->server,
	    .dialect = QJ_DIALECT_CQL,
	};

	c->shape = c->flags & QJ_QUERY_NO_TEXT ? 0 : qj_shape_end(&c->text);
	if (c->text.truncated)
		c->flags |= QJ_QUERY_TRUNCATED;
	shown.shape = c->shape;
	if (c->shape)
		cql_send_text(&shown);
	if (c->opcode == CQL_BATCH) {
		cql_add_run(c);
		cql_next(c, CQL_AT_BATCH_VALUES, 2);
		return;
	}
	if (c->opcode == CQL_PREPARE) {
		cql_learn_id(c, walk->connection->place.text_addr, &c->keyspace, 0);
		if (c->keyspace_bytes)
			cql_learn_id(c, walk->connection->place.text_addr, &c->keyspace,
				     c->keyspace_bytes);
		cql_emit_walked(walk, QJ_COMMAND_PREPARE);
		if (c->version >= 5)
			cql_next(c, CQL_AT_PREPARE_FLAGS, 4);
		else
			cql_rest(c);
		return;
	}
	if (walk->connection->place.text_addr)
		cql_note_use(c, walk->connection->place.text_addr);
	cql_emit_walked(walk, QJ_COMMAND_QUERY);
	cql_rest(c);
}

/* Threads serve many connections in turn, so any thread that reads this one sends its session. */
static __always_inline void cql_emit_session(const struct cql_connection *c, __u64 sk, __u32 event)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	if (!thread)
		return;
	thread->session = c->session;
	thread->socket = sk;
	emit_session(this_cpu(), thread, event, 0, 0);
}

static __always_inline void cql_emit_opaque(struct cql_connection *c, __u64 sk)
{
	c->opaque_emitted = 1;
	count_loss(this_cpu(), QJ_LOSS_OPAQUE_SESSION);
	cql_emit_session(c, sk, QJ_SESSION_OPAQUE);
}

/* A request that could not be inflated; in protocol 5, a segment of one or more requests. */
static __always_inline void cql_compressed_request(struct cql_walk *walk)
{
	struct cql_connection *c = walk->connection;
	struct cql_sent_text shown = {
	    .shape = qj_shape_mix(walk->seed ^ QJ_DIALECT_CQL_ID) | 1,
	    .server = walk->server,
	    .dialect = QJ_DIALECT_CQL_ID,
	};

	if (!c->opaque_emitted)
		cql_emit_opaque(c, walk->socket);
	c->shape = shown.shape;
	c->flags = 0;
	c->text_bytes = 0;
	c->tags_bytes = 0;
	cql_send_text(&shown);
	cql_emit_walked(walk, QJ_COMMAND_QUERY);
}

static __always_inline void cql_keep_packed(struct cql_walk *walk, __u32 bytes)
{
	cql_keep_piece(walk->connection, walk->connection->place.addr, bytes);
}

static __always_inline __u32 cql_inflated(struct cql_walk *walk, __u64 addr)
{
	return cql_inflate(walk->connection, addr);
}

static __always_inline void cql_count_lost(struct cql_walk *walk)
{
	count_loss(this_cpu(), QJ_LOSS_FRAMING);
}

#include "cql_wire.h"

static __always_inline bool is_cql(struct thread_state *thread, const struct sock *sk)
{
	__u16 port = facts_of(thread)[QJ_CASSANDRA_PORT];

	return !port || sk->__sk_common.skc_num == port;
}

/* Returns false if nothing can be read on this connection. */
static __always_inline bool cql_connect(struct cql_connection *c, __u64 sk, __u64 addr)
{
	__u8 first = 0;

	if (c->session)
		return !c->opaque;
	c->session = new_id(this_cpu());
	bpf_probe_read_user(&first, sizeof(first), (const void *)addr);
	if (first != CQL_TLS_HANDSHAKE) {
		cql_emit_session(c, sk, QJ_SESSION_MET);
		return true;
	}
	c->opaque = 1;
	cql_emit_opaque(c, sk);
	return false;
}

static __always_inline void cassandra_reads(struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = thread_of(task);
	struct cql_walk walk = {.seed = plan.seed};
	struct cql_connection *c;
	__u64 addr;

	if (got <= 0 || (flags & MSG_PEEK) || !thread ||
	    thread->server_kind != QJ_SERVER_CASSANDRA ||
	    thread->attach_mode != QJ_ATTACH_STATISTICAL || !is_cql(thread, sk))
		return;
	c = bpf_sk_storage_get(&cql_connections, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	addr = received_at(task);
	if (!c || !addr) {
		count_loss(this_cpu(), c ? QJ_LOSS_FRAMING : QJ_LOSS_STATE);
		return;
	}
	if (!cql_connect(c, (__u64)sk, addr))
		return;
	if (plan.tags) {
		walk.tags = bpf_sk_storage_get(&cql_tagged, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!walk.tags)
			count_loss(this_cpu(), QJ_LOSS_TEXT);
	}
	c->read_ns = bpf_ktime_get_ns();
	c->place = (struct cql_place){.addr = addr, .left = got};
	walk.connection = c;
	walk.socket = (__u64)sk;
	walk.server = thread->server;
	bpf_loop(CQL_STEPS_MAX, cql_step, &walk, 0);
	if (c->place.lost || c->place.left || c->inflated) {
		count_loss(this_cpu(), QJ_LOSS_FRAMING);
		cql_lose(c);
	}
}

READS(cassandra, cassandra_reads)
