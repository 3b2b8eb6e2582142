/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Writes records to the ring buffers and counts lost ones. */
#ifndef QJOULE_EMIT_BPF_H
#define QJOULE_EMIT_BPF_H

#include "state.bpf.h"

/* One ring serves a few CPUs: producers of the same ring contend for a spin lock. */
struct ring_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
};
struct rings_map {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, QJ_MAX_RINGS);
	__type(key, __u32);
	__array(values, struct ring_map);
};
extern struct rings_map rings SEC(".maps");

static __always_inline void *ring_of_cpu(void)
{
	__u32 index = bpf_get_smp_processor_id() & (plan.rings - 1);

	return bpf_map_lookup_elem(&rings, &index);
}

static __always_inline void *reserve(__u32 bytes)
{
	void *ring = ring_of_cpu();

	return ring ? bpf_ringbuf_reserve(ring, bytes, 0) : 0;
}

/* Reserves a record and sets only its head. Returns 0 if the ring is full, and counts the loss. */
static __always_inline void *reserve_record(struct qj_cpu_state *cpu, __u32 bytes,
					    enum qj_block_kind block, __u32 loss)
{
	struct qj_ring_head *head = reserve(bytes);

	if (!head) {
		count_loss(cpu, loss);
		return 0;
	}
	head->block = block;
	head->text_bytes = 0;
	return head;
}

/* Copies a record of variable length, at most `most`. Returns false if the ring is full. */
static __always_inline bool output(void *record, __u64 bytes, __u64 most)
{
	void *ring = ring_of_cpu();

	return ring && !bpf_ringbuf_output(ring, record, at_most(bytes, most), BPF_RB_NO_WAKEUP);
}

/* The tracer wakes up once per window: a wake-up per record would cost the traced server. */
static __always_inline void submit(void *record)
{
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* Reserves room for a text of this many bytes; frequent texts are short. */
static __always_inline struct qj_ring_text *reserve_text(__u32 room)
{
	return reserve(sizeof(struct qj_ring_text) - QJ_TEXT_BYTES + room);
}

/* Copies `bytes` of the statement's `statement_bytes` into the record and stores both lengths. */
static __always_inline void fill_text(struct qj_ring_text *r, __u64 shape, __u32 bytes,
				      __u32 statement_bytes, __u16 server, __u8 dialect)
{
	r->head.block = QJ_BLOCK_TEXT;
	r->head.text_bytes = bytes;
	__builtin_memset(&r->text, 0, sizeof(r->text));
	r->text.shape = shape;
	r->text.statement_bytes = statement_bytes;
	r->text.text_bytes = bytes;
	r->text.server = server;
	r->text.dialect = dialect;
}

/* Reserves a session event of this thread, without addresses and text; 0 if the ring is full. */
static __always_inline struct qj_ring_session *
reserve_session(struct qj_cpu_state *cpu, const struct thread_state *thread, __u32 event)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct qj_ring_session *r =
	    reserve_record(cpu, sizeof(*r), QJ_BLOCK_SESSION, QJ_LOSS_SESSION);

	if (!r)
		return 0;
	__builtin_memset(&r->session, 0, sizeof(r->session));
	r->session.session = thread->session;
	r->session.t_ns = bpf_ktime_get_ns();
	r->session.pid = (__u32)id;
	r->session.tgid = id >> 32;
	r->session.server = thread->server;
	r->session.event = event;
	r->session.server_kind = thread->server_kind;
	return r;
}

#define NS_PER_S 1000000000ULL

/* Returns true if another record is within `per_s` a second. The budget is used up to `used_ns`. */
static __always_inline bool within_rate(__u64 *used_ns, __u64 per_s)
{
	__u64 now = bpf_ktime_get_ns(), used = *used_ns;

	if (used + NS_PER_S < now)
		used = now - NS_PER_S;
	if (used > now)
		return false;
	*used_ns = used + NS_PER_S / per_s;
	return true;
}

#endif
