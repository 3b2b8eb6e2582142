// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements the part of state.bpf.h on shapes and texts. */
#include "core/inflate.bpf.h"
#include "state.bpf.h"

/* Precedes the bytes of a body: servers/mongodb/message.py. */
struct mongodb_text_head {
	__u32 opcode;
	__u32 body;
	__u64 origin; /* for a getMore: the shape of the command that opened its cursor */
};

_Static_assert(sizeof(struct mongodb_text_head) + QJ_MONGODB_BODY <= QJ_TEXT_BYTES, "no room");

#define MONGODB_TAGS_LEAST 5 /* a='' and a NUL */
#define MONGODB_SHORT_TEXT 496
#define MONGODB_SHORT_BODY (MONGODB_SHORT_TEXT - sizeof(struct mongodb_text_head))

/*
 * Compressed messages have no shape here, so each request is sent individually. The reader inflates
 * and parses it, which takes some 0.1 ms. This is the most per second on the whole machine,
 * whatever its clients send.
 */
#define MONGODB_SINGLE_PER_S 2000

static __u64 singles_ns; /* when the requests so far are paid for */

struct mongodb_feed {
	struct qj_mongodb *message;
	struct mongodb_chunk *chunk;
	__u32 at;
	__u32 bytes;
};

static long feed_step(__u32 i, struct mongodb_feed *feed)
{
	if (feed->at >= feed->bytes)
		return 1;
	feed->at += qj_mongodb_step(feed->message, feed->chunk->bytes, feed->at, feed->bytes);
	return 0;
}

int feed_mongodb(struct qj_mongodb *message, struct mongodb_chunk *chunk, __u32 bytes)
{
	struct mongodb_feed feed = {.message = message, .chunk = chunk};

	if (!message || !chunk)
		return 0;
	feed.bytes = qj_mongodb_within(message, bytes);
	bpf_loop(QJ_MONGODB_CHUNK, feed_step, &feed, 0);
	return feed.at;
}

/* The shape that all requests of one compressor share: no text belongs to it. */
static __always_inline bool has_shared_shape(const struct qj_mongodb *message)
{
	return message->opcode == QJ_MONGODB_COMPRESSED && message->body > QJ_MONGODB_COMPRESSION;
}

/* Without a lock: two CPUs may together send one too many. */
static __always_inline bool may_emit_single(void)
{
	return within_rate(&singles_ns, MONGODB_SINGLE_PER_S);
}

/* How many bytes of a body can be read. */
static __always_inline __u32 readable_bytes(const struct qj_mongodb *message)
{
	const struct inflate_buffers *b = message->inflated ? inflate_buffers_here() : 0;

	return b ? b->done : message->body;
}

/* Bytes of a body from `at` on, from the server's memory at `addr` or from the inflated bytes. */
static __always_inline long read_body(void *to, __u64 bytes, const struct qj_mongodb *message,
				      __u64 addr, __u64 at)
{
	const struct inflate_buffers *b;

	if (!message->inflated)
		return bpf_probe_read_user(to, bytes, (const void *)(addr + at));
	b = inflate_buffers_here();
	if (!b || at + bytes > b->done)
		return -1;
	return bpf_probe_read_kernel(to, bytes, b->inflated + at_most(at, QJ_INFLATED_MAX));
}

/* Sends the body's bytes at `addr`, at most `room` of them, as the text of the thread's shape. */
static __always_inline bool emit_body(struct qj_cpu_state *cpu, struct thread_state *thread,
				      const struct qj_mongodb *message, __u64 addr, __u64 room,
				      bool single)
{
	struct mongodb_text_head *head;
	struct qj_ring_text *r;
	__u64 bytes;

	r = addr ? reserve_text(sizeof(*head) + room) : 0;
	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return false;
	}
	head = (struct mongodb_text_head *)r->bytes;
	head->opcode = message->opcode;
	head->body = message->body;
	head->origin = message->origin;
	bytes =
	    has_shared_shape(message) && !single ? QJ_MONGODB_COMPRESSION : readable_bytes(message);
	bytes = at_most(bytes, room);
	if (read_body(r->bytes + sizeof(*head), bytes, message, addr, 0)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		count_loss(cpu, QJ_LOSS_TEXT);
		return false;
	}
	bytes += sizeof(*head);
	fill_text(r, thread->shape, bytes, bytes + (message->at == QJ_MONGODB_AT_CUT ? 1 : 0),
		  thread->server, QJ_DIALECT_MONGODB);
	r->text.single = single;
	submit(r);
	return true;
}

/*
 * Tags in a command's comment: any text that ends like one, key='value'. The reader checks the
 * rest. They are sent per query, because many differ from call to call.
 */
int mongodb_emit_comment(struct qj_cpu_state *cpu, struct thread_state *thread,
			 const struct qj_mongodb *message, __u64 addr)
{
	struct qj_ring_text *r;
	__u64 bytes;
	__u8 last = 0;

	if (!cpu || !thread || !message || !addr)
		return 0;
	if (plan.mode != QJ_MODE_RECORD && (!plan.tags || message->inflated))
		return 0;
	if (message->comment_bytes < MONGODB_TAGS_LEAST ||
	    message->comment_bytes > MONGODB_SHORT_TEXT ||
	    message->comment > QJ_MONGODB_BODY - MONGODB_SHORT_TEXT)
		return 0;
	bytes = at_most(message->comment_bytes - 1, MONGODB_SHORT_TEXT);
	read_body(&last, 1, message, addr, message->comment + bytes - 1);
	if (last != '\'')
		return 0;
	if (plan.mode !=
	    QJ_MODE_RECORD) /* sums cover many queries: one text for all with these tags */
		return tags_emit(cpu, thread, addr + message->comment, bytes, QJ_DIALECT_TAGS);
	r = may_emit_single() ? reserve_text(MONGODB_SHORT_TEXT) : 0;
	if (!r) {
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	if (read_body(r->bytes, bytes, message, addr, message->comment)) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		count_loss(cpu, QJ_LOSS_TEXT);
		return 0;
	}
	fill_text(r, thread->query, bytes, bytes, thread->server, QJ_DIALECT_TAGS);
	r->text.single = 1;
	submit(r);
	return 0;
}

/* Sends a compressed request under a shape of its own; if that fails, it keeps the shared shape. */
static __always_inline bool emit_single(struct qj_cpu_state *cpu, struct thread_state *thread,
					const struct qj_mongodb *message, __u64 addr)
{
	__u64 common = thread->shape;
	bool emitted;

	thread->shape = qj_mongodb_named(qj_shape_step(common, new_id(cpu), message->key));
	if (message->body <= MONGODB_SHORT_BODY)
		emitted = emit_body(cpu, thread, message, addr, MONGODB_SHORT_BODY, true);
	else
		emitted = emit_body(cpu, thread, message, addr, QJ_MONGODB_BODY, true);
	if (!emitted)
		thread->shape = common;
	return emitted;
}

int mongodb_emit_text(struct qj_cpu_state *cpu, struct thread_state *thread,
		      struct qj_mongodb *message, __u64 addr)
{
	static const __u8 yes = 1;
	__u64 shape;

	if (!cpu || !thread || !message)
		return 0;
	/* The live view sums by shape in the kernel: it cannot have one per request. */
	if (message->opcode == QJ_MONGODB_COMPRESSED && plan.mode == QJ_MODE_RECORD &&
	    may_emit_single() && emit_single(cpu, thread, message, addr))
		return 0;
	shape = thread->shape;
	if (bpf_map_lookup_elem(&seen, &shape))
		return 1;
	if (!emit_body(cpu, thread, message, addr, QJ_MONGODB_BODY, false))
		return 0;
	/* Set only after sending: a lost text is sent again with the next execution. */
	bpf_map_update_elem(&seen, &shape, &yes, BPF_ANY);
	return 1;
}
