// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Implements statement.bpf.h and the texts of key_request.bpf.h, then the records of threads and of
 * their sessions.
 */
#include "statement.bpf.h"
#include "key_request.bpf.h"
#include "query.bpf.h"

int feed_shape(struct qj_shape_state *state, struct shape_chunk *chunk, __u32 bytes)
{
	if (state && chunk)
		qj_shape_feed(state, chunk->bytes, bytes);
	return 0;
}

#ifdef QJ_EARLY
int current_piece(__u64 addr, __u32 left, __u32 string)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	return thread ? statement_piece(thread, addr, left, string) : -1;
}
#endif

/* The cache entry of a statement. The cache is cleared when the thread gets another session. */
static __always_inline struct recent_statement *recent_of(struct thread_state *thread,
							  __u64 statement)
{
	if (thread->recent_session != thread->session) {
		thread->recent_session = thread->session;
		__builtin_memset(thread->recent, 0, sizeof(thread->recent));
	}
	if (statement == UNNAMED_STATEMENT)
		return &thread->recent[RECENT_STATEMENTS];
	return &thread->recent[statement & (RECENT_STATEMENTS - 1)];
}

/* Stores the shape just prepared under this name or number. */
int prepared_learn(struct thread_state *thread, __u64 statement)
{
	struct prepared_key key = {.statement = statement};
	struct prepared_statement value = {};
	struct recent_statement *recent;

	if (!thread)
		return 0;
	recent = recent_of(thread, statement);
	key.session = thread->session;
	value.shape = thread->shape;
	value.tags = thread->tags;
	value.statement_bytes = thread->statement_bytes;
	value.flags = thread->flags & QJ_STATEMENT_FLAGS;
	recent->statement = statement;
	recent->prepared = value;
	/* The unnamed statement lives until the next one, and only in its cache entry. */
	if (statement != UNNAMED_STATEMENT)
		bpf_map_update_elem(&prepared, &key, &value, BPF_ANY);
	return 0;
}

/* Gives an execution the shape of the statement prepared under this name, if known. */
int prepared_recall(struct thread_state *thread, __u64 statement)
{
	struct recent_statement *recent;

	if (!thread)
		return 0;
	recent = recent_of(thread, statement);
	if (recent->statement != statement) {
		struct prepared_key key = {.session = thread->session, .statement = statement};
		struct prepared_statement *known = bpf_map_lookup_elem(&prepared, &key);

		if (!known) {
			thread->shape = thread->tags = 0;
			thread->flags |= QJ_QUERY_NO_TEXT;
			return 0;
		}
		recent->statement = statement;
		recent->prepared = *known;
	}
	thread->shape = recent->prepared.shape;
	thread->tags = recent->prepared.tags;
	thread->statement_bytes = recent->prepared.statement_bytes;
	thread->flags |= recent->prepared.flags;
	return 0;
}

int statement_unseen(struct qj_cpu_state *cpu, struct thread_state *thread, __u64 session,
		     __u64 statement)
{
	struct qj_unseen unseen = {.session = session, .statement = statement};
	struct qj_ring_text *r;

	if (!cpu || !thread)
		return 0;
	thread->shape = unseen_shape(session, statement);
	if (was_seen(thread->shape))
		return 0;
	r = reserve_text(sizeof(unseen));
	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	fill_text(r, thread->shape, sizeof(unseen), sizeof(unseen), thread->server,
		  QJ_DIALECT_UNSEEN);
	__builtin_memcpy(r->bytes, &unseen, sizeof(unseen));
	submit(r);
	set_seen(thread->shape);
	return 0;
}

#define NAME_HASH  0xcbf29ce484222325ULL /* FNV-1a */
#define NAME_PRIME 0x100000001b3ULL

/*
 * Returns the length of a name with its NUL, and its hash; 0 if the bytes do not hold the whole
 * name. Names longer than a server keeps are cut.
 */
int statement_name(struct thread_state *thread, __u64 addr, __u32 limit, __u64 *hash)
{
	__u64 room = at_most(limit, QJ_SHAPE_CHUNK);
	__u64 h = NAME_HASH;
	long got;

	if (!thread || !hash)
		return 0;
	*hash = 0;
	got = read_text_str(thread, thread->chunk.bytes, room, addr);
	if (got <= 0 || got >= limit) /* a name never ends a message */
		return 0;
	if (got == 1) {
		*hash = UNNAMED_STATEMENT;
		return 1;
	}
	for (int i = 0; i < QJ_SHAPE_CHUNK; i++) {
		if (i >= got - 1)
			break;
		h = (h ^ thread->chunk.bytes[i]) * NAME_PRIME;
	}
	*hash = h;
	return got;
}

int statement_names_in(const struct shape_chunk *start, __u32 room, struct statement_names *names)
{
	__u64 h = NAME_HASH;
	__u32 bytes = 0, second = 0;

	if (!start || !names)
		return 0;
	for (__u32 i = 0; i < QJ_SHAPE_CHUNK; i++) {
		__u8 byte = start->bytes[i];

		if (i + 1 >= room) /* a name never ends a message */
			break;
		bytes++;
		if (byte) {
			h = (h ^ byte) * NAME_PRIME;
			continue;
		}
		names->hash[second & 1] = bytes == 1 ? UNNAMED_STATEMENT : h;
		names->bytes[second & 1] = bytes;
		if (second++)
			break;
		bytes = 0;
		h = NAME_HASH;
	}
	return 0;
}

/*
 * statement_name() for two consecutive names, as far as one read has them: reading a string costs
 * twice as much as reading bytes.
 */
int statement_names(struct thread_state *thread, __u64 addr, __u32 limit,
		    struct statement_names *names)
{
	__u64 room = at_most(limit, QJ_SHAPE_CHUNK);

	if (!thread || !names || read_text(thread, thread->chunk.bytes, room, addr))
		return 0;
	return statement_names_in(&thread->chunk, room, names);
}

/* ---- commands of key-value protocols ---- */

struct key_texts_map key_texts SEC(".maps");

struct key_hashing {
	const struct key_command *command;
	struct qj_key_pattern *pattern;
};

/* Called by the kernel's loop helper, so that the verifier checks the loop's body once. */
static long key_byte(__u32 i, struct key_hashing *hashing)
{
	const struct key_command *c = hashing->command;

	if (i >= c->key_bytes)
		return 1;
	qj_key_byte(hashing->pattern, c->key[i & (QJ_KEY_BYTES - 1)]);
	return 0;
}

int key_hash(struct key_command *c, struct qj_key_pattern *p, __u32 dialect)
{
	struct key_hashing hashing = {.command = c, .pattern = p};
	__u64 key, hash;

	if (!c || !p)
		return 0;
	key = qj_key_seeded(plan.seed);
	hash = qj_shape_mix(plan.seed ^ key ^ dialect);
	for (__u32 i = 0; i < QJ_KEY_NAME_BYTES; i++) {
		if (i >= c->name_bytes)
			break;
		hash = qj_key_name_byte(hash, c->name[i], key);
	}
	if (c->has_key) {
		qj_key_pattern_begin(p, qj_shape_step(hash, QJ_KEY_ARG, key), key);
		bpf_loop(QJ_KEY_BYTES, key_byte, &hashing, 0);
		hash = qj_key_pattern_end(p, c->key_bytes);
	}
	p->hash = qj_key_end(hash);
	return 0;
}

/* Records of threads and of their sessions. */

/* Identifies the connection as its client can, too: by both addresses, or by the client's inode. */
static __always_inline void name_connection(const struct thread_state *thread,
					    struct qj_session *session)
{
	const struct sock *sk = (const struct sock *)thread->socket;
	__u16 family = sk ? BPF_CORE_READ(sk, __sk_common.skc_family) : 0;
	__u8 *client = session->address, *server = session->server_address;

	if (family == AF_UNIX) {
		const struct unix_sock *ours = (const struct unix_sock *)sk;

		session->client_inode = BPF_CORE_READ(ours, peer, sk_socket, file, f_inode, i_ino);
		return;
	}
	if (family == AF_INET) {
		client[10] = client[11] = server[10] = server[11] = 0xff;
		BPF_CORE_READ_INTO((__u32 *)(client + 12), sk, __sk_common.skc_daddr);
		BPF_CORE_READ_INTO((__u32 *)(server + 12), sk, __sk_common.skc_rcv_saddr);
	} else if (family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)client, sk, __sk_common.skc_v6_daddr);
		BPF_CORE_READ_INTO((struct in6_addr *)server, sk, __sk_common.skc_v6_rcv_saddr);
	} else {
		return;
	}
	session->port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	session->server_port = BPF_CORE_READ(sk, __sk_common.skc_num);
}

int emit_role(struct qj_cpu_state *cpu, struct thread_state *thread, const struct role_name *role)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct qj_ring_task *r;

	if (!cpu || !thread)
		return 0;
	r = reserve(sizeof(*r));
	if (!r) {
		count_loss(cpu, QJ_LOSS_TASK);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->head.block = QJ_BLOCK_TASK;
	r->task.t_ns = bpf_ktime_get_ns();
	r->task.pid = TASK_FIELD(task, pid);
	r->task.tgid = TASK_FIELD(task, tgid);
	r->task.parent_tgid = BPF_CORE_READ(task, real_parent, tgid);
	r->task.server = thread->server;
	r->task.event = QJ_TASK_ROLE;
	r->task.owner_kind = QJ_OWNER_SERVER;
	if (role)
		__builtin_memcpy(r->task.comm, role->bytes, sizeof(r->task.comm));
	else
		bpf_probe_read_kernel_str(r->task.comm, sizeof(r->task.comm), task->comm);
	submit(r);
	return 0;
}

int emit_session(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 event, __u64 addr,
		 __u32 length)
{
	__u64 bytes = at_most(length, QJ_STARTUP_BYTES);
	struct qj_ring_session *r;

	if (!cpu || !thread)
		return 0;
	r = reserve_session(cpu, thread, event);
	if (!r)
		return 0;
	if (bytes && !read_text(thread, r->bytes, bytes, addr))
		r->head.text_bytes = r->session.text_bytes = bytes;
	name_connection(thread, &r->session);
	if (sums_by_tags())
		name_sums(cpu, thread, &r->session);
	submit(r);
	return 0;
}
