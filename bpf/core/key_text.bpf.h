/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Shape and text of a key-value request: the shape is made of the commands' names and keys
 * (key_shape.h), and sent with its text, the different commands as RESP arrays.
 */
#ifndef QJOULE_KEY_TEXT_BPF_H
#define QJOULE_KEY_TEXT_BPF_H

#include "key_request.bpf.h"
#include "key_shape.h"
#include "statement.bpf.h"

#define KEY_TEXT_BYTES 1024
#define KEY_RECORD_MAX 128 /* a command in the sent text: headers, name, key */
#define KEY_RUNS_MAX   8   /* different commands sent per request */

/* The part of a command that its shape is made of. */
struct key_command {
	__u8 name_bytes;
	__u8 key_bytes;
	__u8 has_key;
	__u8 reserved[5];
	/* Twice the kept length, so that a piece fits wherever it begins. */
	__u8 name[2 * QJ_KEY_NAME_BYTES];
	__u8 key[2 * QJ_KEY_BYTES];
};

/* The text of the request that is being read: its different commands as RESP arrays. */
struct key_text {
	struct qj_key_pattern pattern; /* scratch */
	__u32 used;
	__u32 reserved;
	__u8 bytes[KEY_TEXT_BYTES];
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

/* Appends a command, cut to the part that its shape is made of; false if there is no room. */
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
 * The next command overwrites the last one. Only here is the first command of a request added to
 * the text: most requests have no second command, and the text of their shape was already sent.
 */
static __always_inline void key_overwrite(const struct key_request *request, struct key_command *c,
					  struct key_text *text)
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
