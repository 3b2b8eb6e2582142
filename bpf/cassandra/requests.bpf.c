// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements the part of sockets.bpf.h on requests, texts and ids of prepared statements. */
#include "sockets.bpf.h"

struct cql_texts_map cql_texts SEC(".maps");
struct cql_scratch_map cql_scratch SEC(".maps");

#define CQL_BLOCKS_MAX ((CQL_MESSAGE + QJ_TEXT_BYTES) / QJ_MD5_BLOCK + 2)

static __always_inline long cql_copy_shown(void *to, __u64 bytes, const struct cql_sent_text *shown)
{
	__u64 session = shown->session;
	struct cql_text *kept;

	if (shown->addr)
		return cql_read(to, bytes, shown->addr, shown->inflated);
	if (!session)
		return bpf_probe_read_kernel(to, at_most(bytes, sizeof(shown->bytes)),
					     shown->bytes);
	kept = bpf_map_lookup_elem(&cql_texts, &session);
	return kept ? bpf_probe_read_kernel(to, bytes, kept->bytes) : -1;
}

/* Sends the text of a shape, unless it was already sent. */
int cql_send_text(const struct cql_sent_text *shown)
{
	static const __u8 yes = 1;
	struct qj_ring_text *r;
	__u64 shape, bytes;

	if (!shown)
		return 0;
	shape = shown->shape;
	if (bpf_map_lookup_elem(&seen, &shape))
		return 0;
	r = reserve(sizeof(*r));
	if (!r) {
		count_loss(this_cpu(), QJ_LOSS_TEXT);
		return 0;
	}
	bytes = at_most(shown->text_bytes, QJ_TEXT_BYTES);
	if (bytes && cql_copy_shown(r->bytes, bytes, shown)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		count_loss(this_cpu(), QJ_LOSS_TEXT);
		return 0;
	}
	fill_text(r, shape, bytes, shown->statement_bytes, shown->server, shown->dialect);
	submit(r);
	bpf_map_update_elem(&seen, &shape, &yes, BPF_ANY);
	return 0;
}

static __always_inline void cql_sum(const struct cql_connection *c, __u32 server)
{
	struct qj_sums_key key = {
	    .shape = c->shape,
	    .tags = sums_by_tags() ? c->tags : 0,
	    .naming = sums_by_tags() ? naming_of(c->session) : 0,
	    .package = plan.package_of[bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1)],
	    .server = server,
	    .owner_kind = QJ_OWNER_QUERY,
	};
	struct qj_sums *row = sums_of(this_cpu(), &key, control.epoch);

	if (row)
		__sync_fetch_and_add(&row->calls, 1);
	else
		count_loss(this_cpu(), QJ_LOSS_QUERY);
}

/* Sends a request's record. The server does not count a PREPARE as an execution. */
int cql_emit_query(struct cql_connection *c, __u32 server, __u32 command)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct qj_ring_query *r;

	if (!c)
		return 0;
	if (plan.mode == QJ_MODE_LIVE) {
		if (command != QJ_COMMAND_PREPARE)
			cql_sum(c, server);
		return 0;
	}
	r = reserve_record(this_cpu(), sizeof(*r), QJ_BLOCK_QUERY, QJ_LOSS_QUERY);
	if (!r)
		return 0;
	r->query.query = new_id(this_cpu());
	r->query.begin_ns = c->read_ns;
	r->query.end_ns = c->read_ns;
	r->query.session = c->session;
	r->query.shape = c->shape;
	r->query.pid = (__u32)id;
	r->query.tgid = id >> 32;
	r->query.executions = command != QJ_COMMAND_PREPARE;
	r->query.flags = c->flags | QJ_QUERY_NO_END;
	r->query.statement_bytes = c->text_bytes;
	r->query.server = server;
	r->query.attach_mode = QJ_ATTACH_STATISTICAL;
	r->query.command = command;
	r->query.rows = 0;
	__builtin_memset(r->query.sqlstate, 0, sizeof(r->query.sqlstate));
	r->query.reserved = 0;
	r->query.stream = c->stream;
	r->query.tags = c->tags;
	submit(r);
	return 0;
}

struct cql_feeding {
	struct qj_shape_state *state;
	struct shape_chunk *chunk;
	__u64 addr;
	__u32 left;
	bool inflated;
};

static long cql_feed_chunk(__u32 i, struct cql_feeding *feeding)
{
	__u64 bytes = at_most(feeding->left, QJ_SHAPE_CHUNK);

	if (!bytes)
		return 1;
	if (cql_read(feeding->chunk->bytes, bytes, feeding->addr, feeding->inflated))
		return 1;
	feed_shape(feeding->state, feeding->chunk, bytes);
	feeding->addr += bytes;
	feeding->left -= bytes;
	return 0;
}

/* Hashes the next bytes of the statement. If they cannot be read, the statement has no shape. */
int cql_feed(struct cql_connection *c, __u64 addr, __u32 bytes)
{
	struct cql_scratch *scratch = cql_scratch_here();
	struct cql_feeding feeding = {.addr = addr, .left = bytes};

	if (!c || !scratch)
		return 0;
	feeding.state = &scratch->state;
	feeding.chunk = &scratch->chunk;
	feeding.inflated = c->inflated;
	scratch->state = c->text;
	bpf_loop(STATEMENT_CHUNKS, cql_feed_chunk, &feeding, 0);
	c->text = scratch->state;
	if (feeding.left)
		c->flags |= QJ_QUERY_NO_TEXT;
	return 0;
}

/* Stores a piece of a text that arrives in several. */
int cql_keep(struct cql_connection *c, __u64 addr, __u32 offset, __u32 bytes)
{
	struct cql_scratch *scratch = cql_scratch_here();
	__u64 session, at = offset, size = bytes;
	struct cql_text *text;

	if (!c || !scratch || at >= QJ_TEXT_BYTES)
		return 0;
	session = c->session;
	if (!at)
		bpf_map_update_elem(&cql_texts, &session, &scratch->text, BPF_ANY);
	text = bpf_map_lookup_elem(&cql_texts, &session);
	if (!text)
		return 0; /* the entry with the beginning was evicted */
	at = at_most(at, QJ_TEXT_BYTES);
	size = at_most(size, QJ_TEXT_BYTES);
	if (size)
		cql_read(text->bytes + at, size, addr, c->inflated);
	return 0;
}

struct cql_digest {
	struct cql_scratch *scratch;
	__u32 at; /* offset in the message */
	__u32 blocks;
};

static long cql_digest_block(__u32 i, struct cql_digest *d)
{
	if (i >= d->blocks)
		return 1;
	bpf_probe_read_kernel(d->scratch->md5.words, QJ_MD5_BLOCK,
			      d->scratch->message + at_most(d->at, CQL_MESSAGE + QJ_TEXT_BYTES));
	cql_md5_block(&d->scratch->md5);
	d->at += QJ_MD5_BLOCK;
	return 0;
}

/* MD5 of the keyspace and the text, which is already in `message`. */
static __always_inline void cql_digest(struct cql_scratch *scratch, const struct cql_name *keyspace,
				       __u64 prefix, __u64 bytes)
{
	static const __u8 end[2 * QJ_MD5_BLOCK] = {0x80};
	struct cql_digest d = {.scratch = scratch};
	__u64 bits, last;

	prefix = at_most(prefix, CQL_KEYSPACE);
	bytes = at_most(bytes, QJ_TEXT_BYTES);
	d.at = CQL_MESSAGE - prefix;
	d.blocks = (prefix + bytes + sizeof(bits)) / QJ_MD5_BLOCK + 1;
	if (prefix)
		bpf_probe_read_kernel(scratch->message + (CQL_MESSAGE - prefix), prefix, keyspace);
	bpf_probe_read_kernel(scratch->message + CQL_MESSAGE + bytes, sizeof(end), end);
	bits = (prefix + bytes) * 8;
	last = d.at + d.blocks * QJ_MD5_BLOCK - sizeof(bits);
	last = at_most(last, sizeof(scratch->message) - sizeof(bits));
	bpf_probe_read_kernel(scratch->message + last, sizeof(bits), &bits);
	qj_md5_begin(&scratch->md5);
	bpf_loop(CQL_BLOCKS_MAX, cql_digest_block, &d, 0);
}

/*
 * Stores the id that the server gives to this statement in this keyspace. `addr` 0: a stored text.
 */
int cql_learn_id(struct cql_connection *c, __u64 addr, const struct cql_name *keyspace,
		 __u32 prefix)
{
	struct cql_scratch *scratch = cql_scratch_here();
	struct prepared_statement value = {};
	struct prepared_key key;
	struct cql_text *kept;
	__u64 session, bytes;
	long failed;

	if (!c || !keyspace || !scratch)
		return 0;
	session = c->session;
	bytes = at_most(c->text_bytes, QJ_TEXT_BYTES);
	if (addr) {
		failed = cql_read(scratch->message + CQL_MESSAGE, bytes, addr, c->inflated);
	} else {
		kept = bpf_map_lookup_elem(&cql_texts, &session);
		failed = !kept ||
			 bpf_probe_read_kernel(scratch->message + CQL_MESSAGE, bytes, kept->bytes);
	}
	if (failed || c->text_bytes > QJ_TEXT_BYTES || c->flags & QJ_QUERY_NO_TEXT) {
		count_loss(this_cpu(), QJ_LOSS_PREPARED);
		return 0;
	}
	cql_digest(scratch, keyspace, prefix, bytes);
	__builtin_memcpy(&key, scratch->md5.state, sizeof(key));
	value.shape = c->shape;
	value.statement_bytes = c->text_bytes;
	value.flags = c->flags & QJ_QUERY_TRUNCATED;
	bpf_map_update_elem(&prepared, &key, &value, BPF_ANY);
	return 0;
}

/* A statement `USE` sets the keyspace for later PREPAREs. */
int cql_note_use(struct cql_connection *c, __u64 addr)
{
	struct cql_scratch *scratch = cql_scratch_here();
	__u64 bytes;
	int length;

	if (!c || !scratch)
		return 0;
	bytes = at_most(c->text_bytes, QJ_SHAPE_CHUNK);
	if (!bytes || cql_read(scratch->chunk.bytes, bytes, addr, c->inflated))
		return 0;
	length = cql_use(&scratch->chunk, bytes, &scratch->keyspace);
	if (length <= 0)
		return 0;
	c->keyspace = scratch->keyspace;
	c->keyspace_bytes = length;
	return 0;
}
