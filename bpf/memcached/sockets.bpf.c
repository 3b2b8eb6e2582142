// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * memcached: each worker thread serves many connections, and a connection stays with its thread. A
 * worker reads requests, executes them and writes their replies, then reads again until there is
 * nothing more to read (memcached.c, drive_machine()). So a request without a reply ("noreply",
 * quiet binary commands) ends at the read that finds nothing.
 *
 * Requests over UDP are not parsed. Each datagram is counted as lost framing.
 */
#include "state.bpf.h"
#include "core/socket.bpf.h"

/*
 * The client's side of memcached's protocol. Text and meta commands are lines of words, some
 * followed by a value of a given length. Binary requests consist of a header, extras, key and
 * value. One read may contain many commands, and one command may span many reads. memcached 1.6,
 * doc/protocol.txt and doc/protocol-binary.xml.
 */

#define MEMCACHED_WALK_MAX	(1 << 16) /* steps in one read */
#define MEMCACHED_BINARY	0x80	  /* first byte of a binary request */
#define MEMCACHED_TLS_HANDSHAKE 0x16	  /* RFC 8446, ContentType */

struct memcached_walk {
	struct memcached_connection *connection;
	struct key_text *text;
	__u64 addr;
	__u32 left;
};

static __always_inline void memcached_next_command(struct memcached_command *c)
{
	c->at = MEMCACHED_AT_COMMAND;
	c->left = 0;
}

/*
 * How many executions the server's statistics count for a command: one per key of a get (cmd_get),
 * otherwise one.
 */
static __always_inline __u32 memcached_executions(const struct memcached_command *c)
{
	bool many = c->family == MEMCACHED_GETS || c->family == MEMCACHED_GATS;

	return many && c->words > c->key_word ? c->words - c->key_word : 1;
}

static __always_inline void memcached_done(struct memcached_walk *walk, __u32 executions)
{
	struct memcached_command *c = &walk->connection->command;

	key_command_done(&walk->connection->request, &c->kept, walk->text, executions,
			 QJ_DIALECT_MEMCACHED);
	memcached_next_command(c);
}

static __always_inline void memcached_begin(struct memcached_walk *walk, __u8 first)
{
	struct memcached_command *c = &walk->connection->command;

	key_prepare_next(&walk->connection->request, &c->kept, walk->text);
	c->words = 0;
	c->in_word = 0;
	c->third = 0;
	c->fifth = 0;
	c->bad = 0;
	c->head_bytes = 0;
	c->family = MEMCACHED_UNKNOWN;
	c->key_word = 1;
	c->at = first == MEMCACHED_BINARY ? MEMCACHED_AT_HEADER : MEMCACHED_AT_LINE;
}

/* A line is complete: either a value follows, or the command is complete too. */
static __always_inline void memcached_line_done(struct memcached_walk *walk)
{
	struct memcached_command *c = &walk->connection->command;

	if (!c->words) { /* an empty line: the server answers with an error */
		memcached_next_command(c);
		return;
	}
	if (c->family == MEMCACHED_STORES && c->words >= 5 && !(c->bad & 2))
		c->left = c->fifth + 2;
	else if (c->family == MEMCACHED_META_SET && c->words >= 3 && !(c->bad & 1))
		c->left = c->third + 2;
	if (c->left)
		c->at = MEMCACHED_AT_VALUE;
	else
		memcached_done(walk, memcached_executions(c));
}

static __always_inline void memcached_taken(struct memcached_walk *walk, __u32 taken)
{
	if (taken > walk->left)
		taken = walk->left;
	walk->addr += taken;
	walk->left -= taken;
}

static __always_inline void memcached_line(struct memcached_walk *walk)
{
	struct memcached_command *c = &walk->connection->command;
	struct memcached_piece piece = {};
	__u64 bytes = at_most(walk->left, MEMCACHED_PIECE);
	int result;

	bpf_probe_read_user(piece.bytes, bytes, (const void *)walk->addr);
	result = memcached_line_bytes(c, &piece, bytes);
	memcached_taken(walk, result & 0xff);
	if (result & MEMCACHED_WHOLE)
		memcached_line_done(walk);
}

/* The next bytes of a binary request's header. */
static __always_inline void memcached_head(struct memcached_walk *walk)
{
	struct memcached_command *c = &walk->connection->command;
	__u32 have = c->head_bytes & 31, want = MEMCACHED_HEADER - have;
	__u64 bytes;

	if (have >= MEMCACHED_HEADER) { /* does not happen */
		c->head_bytes = 0;
		return;
	}
	bytes = at_most(walk->left < want ? walk->left : want, MEMCACHED_HEADER);
	bpf_probe_read_user(&c->head[have], bytes, (const void *)walk->addr);
	c->head_bytes = have + bytes;
	memcached_taken(walk, bytes);
	if (c->head_bytes == MEMCACHED_HEADER)
		memcached_header(c);
}

/* Stores the first bytes of a key. */
static __always_inline void memcached_key(struct memcached_walk *walk, __u64 here)
{
	struct key_command *kept = &walk->connection->command.kept;
	__u64 keep;

	kept->has_key = 1;
	if (kept->key_bytes >= QJ_KEY_BYTES)
		return;
	keep = QJ_KEY_BYTES - kept->key_bytes;
	keep = at_most(here < keep ? here : keep, QJ_KEY_BYTES);
	bpf_probe_read_user(&kept->key[kept->key_bytes & (QJ_KEY_BYTES - 1)], keep,
			    (const void *)walk->addr);
	kept->key_bytes += keep;
}

/* Continues in a part of known length; the next part begins after it. */
static __always_inline void memcached_part(struct memcached_walk *walk)
{
	struct memcached_command *c = &walk->connection->command;
	__u64 here = walk->left < c->left ? walk->left : c->left;

	if (c->at == MEMCACHED_AT_KEY && here)
		memcached_key(walk, here);
	walk->addr += here;
	walk->left -= here;
	c->left -= here;
	if (c->left)
		return;
	if (c->at == MEMCACHED_AT_EXTRAS) {
		c->at = MEMCACHED_AT_KEY;
		c->left = c->key_left;
	} else if (c->at == MEMCACHED_AT_KEY) {
		c->at = MEMCACHED_AT_BODY;
		c->left = c->value;
	} else {
		memcached_done(walk, 1);
	}
}

/* Parts may be empty, so a step is also taken for the last part when no byte is left. */
static long memcached_step(__u32 i, struct memcached_walk *walk)
{
	struct memcached_command *c = &walk->connection->command;
	bool is_part = c->at == MEMCACHED_AT_VALUE || c->at >= MEMCACHED_AT_EXTRAS;
	__u8 first = 0;

	if (!walk->left && !(is_part && !c->left))
		return 1;
	if (c->at == MEMCACHED_AT_COMMAND) {
		bpf_probe_read_user(&first, 1, (const void *)walk->addr);
		memcached_begin(walk, first);
	}
	if (c->at == MEMCACHED_AT_LINE)
		memcached_line(walk);
	else if (c->at == MEMCACHED_AT_HEADER)
		memcached_head(walk);
	else
		memcached_part(walk);
	return 0;
}

/*
 * True if a connection that was already open is between two commands: the read begins with a
 * command of the protocol and ends with a line end, or begins with a binary header.
 */
static __always_inline bool memcached_begins(__u64 addr, __u32 bytes)
{
	__u8 head[8] = {}, last = 0;
	__u64 word = 0;

	if (bytes < 4 || bpf_probe_read_user(head, at_most(bytes, 8), (const void *)addr) ||
	    bpf_probe_read_user(&last, 1, (const void *)(addr + bytes - 1)))
		return false;
	if (head[0] == MEMCACHED_BINARY)
		return bytes >= MEMCACHED_HEADER && head[1] < 0x25 && !head[5];
	for (__u32 i = 0; i < 8; i++) {
		if (head[i] == ' ' || head[i] == '\r')
			break;
		word |= (__u64)head[i] << 8 * i;
	}
	return last == '\n' && memcached_family_of(word) != MEMCACHED_UNKNOWN;
}

struct memcached_connections_map memcached_connections SEC(".maps");

static __always_inline struct thread_state *memcached_thread_of(struct task_struct *task)
{
	struct thread_state *thread = thread_of(task);

	return thread && thread->server_kind == QJ_SERVER_MEMCACHED ? thread : 0;
}

static __always_inline struct memcached_connection *
memcached_connect(struct qj_cpu_state *cpu, struct thread_state *thread, struct sock *sk, __u32 got)
{
	struct memcached_connection *connection =
	    bpf_sk_storage_get(&memcached_connections, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!connection) {
		count_loss(cpu, QJ_LOSS_STATE);
		return 0;
	}
	if (key_join(cpu, thread, &connection->request, sk, got))
		memcached_next_command(&connection->command);
	return connection;
}

/* True if these bytes continue the earlier ones, or start with a command. */
static __always_inline bool memcached_in_step(struct qj_cpu_state *cpu, struct thread_state *thread,
					      struct memcached_connection *connection,
					      struct sock *sk, __u64 addr, __u32 bytes)
{
	__u8 first = 0;

	bpf_probe_read_user(&first, sizeof(first), (const void *)addr);
	if (!connection->request.query && first == MEMCACHED_TLS_HANDSHAKE) {
		key_opaque(cpu, thread, &connection->request, sk);
		return true;
	}
	if (connection->command.at == MEMCACHED_AT_UNKNOWN && memcached_begins(addr, bytes))
		memcached_next_command(&connection->command);
	return connection->command.at != MEMCACHED_AT_UNKNOWN;
}

/* Adds the commands in these bytes to the connection's request. */
static __always_inline void memcached_take(struct qj_cpu_state *cpu, struct thread_state *thread,
					   struct memcached_connection *connection, __u64 addr,
					   __u32 bytes)
{
	struct key_text *text = key_text_of_cpu();
	struct memcached_walk walk = {
	    .connection = connection, .text = text, .addr = addr, .left = bytes};

	if (!text)
		return;
	text->used = 0;
	bpf_loop(MEMCACHED_WALK_MAX, memcached_step, &walk, 0);
	if (walk.left) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		connection->command.at = MEMCACHED_AT_UNKNOWN;
	}
	connection->request.statement_bytes += bytes;
	if (connection->request.runs)
		key_emit_text(cpu, thread, &connection->request, &connection->command.kept, text,
			      QJ_DIALECT_MEMCACHED);
}

/* Nothing to read, or the client has disconnected: a request without a reply ends here. */
static __always_inline void memcached_idle(struct qj_cpu_state *cpu, struct thread_state *thread,
					   struct sock *sk, int got)
{
	struct memcached_connection *connection =
	    bpf_sk_storage_get(&memcached_connections, sk, 0, 0);
	struct key_request *request;

	if (!connection)
		return;
	request = &connection->request;
	if (!request->waits || !request->executions)
		return;
	if (!got)
		key_disconnected(cpu, thread, request);
	else
		key_answered(cpu, thread, request, bpf_ktime_get_ns());
	if (thread->query == request->query)
		key_release(cpu, thread, false, 0);
}

static __always_inline void memcached_reads(struct sock *sk, int got, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = memcached_thread_of(task);
	struct memcached_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 addr, now;

	if (!thread || (flags & MSG_PEEK))
		return;
	cpu = this_cpu();
	if (got <= 0) {
		memcached_idle(cpu, thread, sk, got);
		return;
	}
	if (BPF_CORE_READ(sk, sk_protocol) == IPPROTO_UDP) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return;
	}
	connection = memcached_connect(cpu, thread, sk, got);
	if (!connection || connection->request.opaque)
		return;
	addr = received_at(task);
	now = bpf_ktime_get_ns();
	if (!addr || !memcached_in_step(cpu, thread, connection, sk, addr, got)) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return;
	}
	if (connection->request.opaque)
		return;
	key_next_request(cpu, thread, &connection->request, now);
	key_claim(cpu, thread, &connection->request, now);
	thread->memcached.turn.sleeps = task->nvcsw;
	memcached_take(cpu, thread, connection, addr, got);
	thread->shape = connection->request.shape;
	label_query(cpu, thread);
}

READS(memcached, memcached_reads)

static __always_inline void memcached_writes(struct sock *sk, int sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_state *thread = memcached_thread_of(task);
	struct memcached_connection *connection;
	struct qj_cpu_state *cpu;
	__u64 now;

	if (!thread || sent <= 0)
		return;
	connection = bpf_sk_storage_get(&memcached_connections, sk, 0, 0);
	if (!connection || !connection->request.query)
		return;
	cpu = this_cpu();
	now = bpf_ktime_get_ns();
	/* A long reply or a pipeline continues after other connections had their turn. */
	if (!thread->query && key_is_open(cpu))
		key_claim(cpu, thread, &connection->request, now);
	/* A request without a complete command cannot be the one that this reply answers. */
	if (connection->request.waits && connection->request.executions)
		key_answered(cpu, thread, &connection->request, now);
	key_release(cpu, thread, false, now);
}

WRITES(memcached, memcached_writes)
