/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Keeps what the parsers would send to the tracer; the ring buffer helpers. Included by wire_host.c
 * and redis_wire_host.c.
 */
#ifndef QJOULE_WIRE_RECORDS_H
#define QJOULE_WIRE_RECORDS_H

#define MAX_TEXTS 4096

struct text {
	__u64 shape;
	__u32 bytes;
	__u32 dialect;
	char *text;
};

static struct text texts[MAX_TEXTS];
static size_t n_texts;
static struct wire_query *queries;
static __u64 query_tags[WIRE_RECORDS];
static size_t n_queries, n_sessions, session_bytes, n_roles;
static struct wire_name *names;
static size_t n_names;

static void keep_text(const struct qj_ring_text *r)
{
	struct text *t;

	if (n_texts == MAX_TEXTS)
		return;
	t = &texts[n_texts++];
	t->shape = r->text.shape;
	t->bytes = r->text.text_bytes;
	t->dialect = r->text.dialect;
	if (t->dialect >= QJ_DIALECT_TAGS && t->bytes > TAGS_BYTES)
		abort();
	t->text = malloc(t->bytes + 1);
	memcpy(t->text, r->bytes, t->bytes);
	t->text[t->bytes] = 0;
}

static void keep_query(const struct qj_query *q)
{
	struct wire_query *kept;

	if (!queries)
		queries = calloc(WIRE_RECORDS, sizeof(*queries));
	if (n_queries == WIRE_RECORDS)
		return;
	kept = &queries[n_queries++];
	memset(kept, 0, sizeof(*kept));
	kept->shape = q->shape;
	query_tags[n_queries - 1] = q->tags;
	kept->executions = q->executions;
	kept->flags = q->flags;
	kept->command = q->command;
	kept->rows = q->rows;
	memcpy(kept->sqlstate, q->sqlstate, sizeof(q->sqlstate));
	if (q->begin_ns > q->end_ns || !q->query)
		abort();
	if (q->flags & QJ_QUERY_OK && q->flags & QJ_QUERY_ERROR)
		abort();
}

static void keep_session(const struct qj_ring_session *r)
{
	struct wire_name *kept;

	n_sessions++;
	session_bytes += r->session.text_bytes;
	if (r->session.event != QJ_SESSION_APPLICATION || n_names == WIRE_RECORDS)
		return;
	if (r->session.text_bytes > sizeof(kept->bytes))
		abort();
	if (!names)
		names = calloc(WIRE_RECORDS, sizeof(*names));
	kept = &names[n_names++];
	kept->count = r->session.text_bytes;
	memcpy(kept->bytes, r->bytes, kept->count);
}

struct wire_record {
	__u64 bytes;
	__u8 record[];
};

/* Its caller does not see the size: a record may be shorter than the struct that it begins. */
__attribute__((noinline)) void *bpf_ringbuf_reserve(void *ring, __u64 bytes, __u64 flags)
{
	struct wire_record *r = malloc(sizeof(*r) + bytes);

	r->bytes = bytes;
	memset(r->record, 0xa5, bytes);
	return r->record;
}

void bpf_ringbuf_discard(void *record, __u64 flags)
{
	free((__u8 *)record - offsetof(struct wire_record, record));
}

void bpf_ringbuf_submit(void *record, __u64 flags)
{
	const struct qj_ring_head *head = record;

	if (head->block == QJ_BLOCK_TEXT) {
		keep_text(record);
	} else if (head->block == QJ_BLOCK_QUERY) {
		keep_query(&((const struct qj_ring_query *)record)->query);
	} else if (head->block == QJ_BLOCK_SESSION) {
		keep_session(record);
	} else if (head->block == QJ_BLOCK_TASK) {
		n_roles++;
	}
	bpf_ringbuf_discard(record, 0);
}

const struct wire_name *wire_names(size_t *count)
{
	*count = n_names;
	return names;
}

const struct wire_query *wire_queries(void)
{
	return queries;
}

size_t wire_sessions(void)
{
	return n_sessions;
}

size_t wire_session_bytes(void)
{
	return session_bytes;
}

size_t wire_roles(void)
{
	return n_roles;
}

#endif
