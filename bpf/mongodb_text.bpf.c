// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What mongodb_state.bpf.h declares. */
#include "mongodb_state.bpf.h"

/* Before the bytes of a body: shapes/mongodb_message.py. */
struct mongodb_text_head {
	__u32 opcode;
	__u32 body;
	__u64 origin; /* of a getMore: the shape of the command that opened its cursor */
};

_Static_assert(sizeof(struct mongodb_text_head) + QJ_MONGODB_BODY <= QJ_TEXT_BYTES, "no room");

int feed_mongodb(struct qj_mongodb *message, struct shape_chunk *chunk, __u32 bytes)
{
	if (!message || !chunk)
		return 0;
	return qj_mongodb_feed(message, chunk->bytes, bytes);
}

int tell_mongodb(struct qj_cpu_state *cpu, struct thread_state *thread, struct qj_mongodb *message,
		 __u64 addr)
{
	static const __u8 yes = 1;
	struct mongodb_text_head *head;
	struct qj_ring_text *r;
	__u64 bytes, shape;

	if (!cpu || !thread || !message)
		return 0;
	shape = thread->shape;
	if (bpf_map_lookup_elem(&seen, &shape))
		return 0;
	r = addr ? reserve(sizeof(*r)) : 0;
	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	head = (struct mongodb_text_head *)r->bytes;
	head->opcode = message->opcode;
	head->body = message->body;
	head->origin = message->origin;
	bytes = at_most(message->body, QJ_MONGODB_BODY);
	if (bpf_probe_read_user(r->bytes + sizeof(*head), bytes, (const void *)addr)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	r->head.block = QJ_BLOCK_TEXT;
	r->head.text_bytes = sizeof(*head) + bytes;
	__builtin_memset(&r->text, 0, sizeof(r->text));
	r->text.shape = shape;
	r->text.text_bytes = sizeof(*head) + bytes;
	r->text.statement_bytes = r->text.text_bytes + (message->at == QJ_MONGODB_AT_CUT ? 1 : 0);
	r->text.server = thread->server;
	r->text.dialect = QJ_DIALECT_MONGODB;
	submit(r);
	/* Only now: a text that was lost is sent again with the next execution. */
	bpf_map_update_elem(&seen, &shape, &yes, BPF_ANY);
	return 0;
}
