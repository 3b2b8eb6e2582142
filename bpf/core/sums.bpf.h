/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Live view: CPU time summed in the kernel per owner and window, instead of a record per segment.
 * Two maps alternate. The tracer starts a new epoch, waits until a timer tick has closed every
 * running slice, and drains the previous epoch's map.
 */
#ifndef QJOULE_SUMS_BPF_H
#define QJOULE_SUMS_BPF_H

#include "emit.bpf.h"

struct sums_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, QJ_SUMS_ROWS);
	__type(key, struct qj_sums_key);
	__type(value, __u32); /* index of its row in `sums_rows` */
};
extern struct sums_map sums_even SEC(".maps");
extern struct sums_map sums_odd SEC(".maps");

/* The rows of even windows, then those of odd windows. */
struct sums_rows_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * QJ_SUMS_ROWS);
	__type(key, __u32);
	__type(value, struct qj_sums);
};
extern struct sums_rows_map sums_rows SEC(".maps");

/* Recently seen sessions, each with its last sent event. */
struct namings_map {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64); /* session */
	__type(value, __u64);
};
extern struct namings_map namings SEC(".maps");

/* True if queries of one shape are summed separately by their tags and by their session. */
static __always_inline bool sums_by_tags(void)
{
	return plan.mode == QJ_MODE_LIVE && plan.tags;
}

static __always_inline __u64 naming_of(__u64 session)
{
	__u64 *naming = session ? bpf_map_lookup_elem(&namings, &session) : 0;

	return naming ? *naming : 0;
}

/* Returns the naming of this thread's session; most threads keep their session. */
static __always_inline __u64 thread_naming(struct thread_state *thread)
{
	if (thread->named != thread->session) {
		thread->naming = naming_of(thread->session);
		thread->named = thread->session;
	}
	return thread->naming;
}

/* The key of a slice. `key` is zeroed. */
static __always_inline void fill_key(const struct qj_slice_label *label, struct qj_sums_key *key)
{
	key->package = plan.package_of[bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1)];
	key->owner_kind = label->owner_kind;
	if (label->owner_kind == QJ_OWNER_QUERY) {
		key->shape = label->shape;
		key->tags = label->tags;
		key->naming = label->naming;
		key->server = label->server;
	} else if (label->owner_kind == QJ_OWNER_SERVER) {
		key->server = label->server;
		key->tgid = label->tgid;
		key->pid = label->pid;
	} else if (label->owner_kind == QJ_OWNER_PROCESS) {
		key->tgid = label->tgid;
	}
}

static __always_inline bool same_key(const struct qj_sums_key *a, const struct qj_sums_key *b)
{
	const __u64 *one = (const __u64 *)a, *other = (const __u64 *)b;
	__u64 differ = 0;

	for (__u32 i = 0; i < sizeof(*a) / sizeof(__u64); i++)
		differ |= one[i] ^ other[i];
	return !differ;
}

static __always_inline __u32 *index_of(const struct qj_sums_key *key, __u32 epoch)
{
	if (epoch & 1)
		return bpf_map_lookup_elem(&sums_odd, key);
	return bpf_map_lookup_elem(&sums_even, key);
}

static __always_inline struct qj_sums *row_at(const __u32 *index)
{
	return index ? bpf_map_lookup_elem(&sums_rows, index) : 0;
}

/* Gives the key a row, unless another CPU has just done so; 0 without room. */
static __always_inline __u32 *new_index(const struct qj_sums_key *key, __u32 epoch)
{
#ifndef QJ_EARLY /* with QJ_EARLY the tracer has the rows */
	__u32 taken = __sync_fetch_and_add(&control.rows[epoch & 1], 1);
	__u32 index = (epoch & 1) * QJ_SUMS_ROWS + taken;

	if (taken >= QJ_SUMS_ROWS)
		return 0;
	if (epoch & 1)
		bpf_map_update_elem(&sums_odd, key, &index, BPF_NOEXIST);
	else
		bpf_map_update_elem(&sums_even, key, &index, BPF_NOEXIST);
#endif
	return index_of(key, epoch);
}

/*
 * Called before a row is created. All rows with tags or sessions share half of the map, so clients
 * whose tags always change cannot fill it. Beyond that limit a shape's queries share one row, so
 * every statement keeps a row.
 */
static __always_inline void limit_tagged(struct qj_cpu_state *cpu, struct qj_sums_key *key)
{
#ifndef QJ_EARLY /* with QJ_EARLY the tracer has the rows */
	if (!(key->tags | key->naming) || __sync_fetch_and_add(&control.tagged, 1) < QJ_SUMS_TAGGED)
		return;
#endif
	count_loss(cpu, QJ_LOSS_AGGREGATE);
	key->tags = key->naming = QJ_SAID_UNKNOWN;
}

/* Makes the key's row. A full map must not lose time: the row is then `other` of its kind. */
static __always_inline __u32 *new_index_or_other(struct qj_cpu_state *cpu, struct qj_sums_key *key,
						 __u32 epoch)
{
	__u32 *index;

	if (sums_by_tags())
		limit_tagged(cpu, key);
	index = new_index(key, epoch);
	if (index)
		return index;
	count_loss(cpu, QJ_LOSS_AGGREGATE);
	key->tags = 0;
	key->naming = 0;
	key->shape = key->owner_kind == QJ_OWNER_QUERY ? ~0ULL : 0;
	key->server = 0;
	key->tgid = 0;
	key->pid = 0;
	return index_of(key, epoch); /* created by the tracer beforehand */
}

/* Where this CPU caches the index of the key's row. */
static __always_inline struct qj_recent_row *recent_row(struct qj_cpu_state *cpu,
							const struct qj_sums_key *key)
{
	__u32 mixed = key->shape ^ key->tags ^ key->naming ^ key->tgid ^ key->pid;

	return &cpu->recent[mixed & (QJ_RECENT_ROWS - 1)];
}

/*
 * Returns the key's row in this window or the one before. Looking a key up costs 38 ns, and most
 * slices belong to an owner whose row the CPU has used before in the same window. Rows of the
 * window before are not taken from `recent`, as they may have been drained. A program that
 * interrupts another here does not use `recent` either.
 */
static __always_inline struct qj_sums *sums_of(struct qj_cpu_state *cpu, struct qj_sums_key *key,
					       __u32 epoch)
{
	volatile __u8 *looks_up = &cpu->looks_up;
	struct qj_recent_row *recent = recent_row(cpu, key);
	bool remembers = epoch == control.epoch && !*looks_up;
	__u32 *index, known;

	if (remembers) {
		*looks_up = 1;
		known = recent->epoch == epoch && same_key(&recent->key, key) ? recent->row : 0;
		*looks_up = 0;
		if (known) {
			known--;
			return row_at(&known);
		}
	}
	index = index_of(key, epoch);
	if (!index)
		return row_at(new_index_or_other(cpu, key, epoch));
	if (remembers) {
		*looks_up = 1;
		recent->key = *key;
		recent->epoch = epoch;
		recent->row = *index + 1;
		*looks_up = 0;
	}
	return row_at(index);
}

/*
 * Early kernels: sends an increment of a row. Returns false, with the loss counted, without room.
 */
static __always_inline bool send_sum(struct qj_cpu_state *cpu, const struct qj_ring_sum *sum,
				     enum qj_loss cause)
{
	struct qj_ring_sum *r = reserve(sizeof(*r));

	if (!r) {
		count_loss(cpu, cause);
		return false;
	}
	*r = *sum;
	r->head.block = QJ_RING_SUM;
	submit(r);
	return true;
}

/* Half octaves from 1 us: bucket = 2 * log2(latency / 1 us), from the two top bits. */
static __always_inline __u32 latency_bucket(__u64 latency_ns)
{
	__u64 us = latency_ns / 1000;
	__u32 octave = 0, bucket;
	__u64 rest = us;

	if (!us)
		return 0;
	if (rest >> 32) {
		octave += 32;
		rest >>= 32;
	}
	if (rest >> 16) {
		octave += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		octave += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		octave += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		octave += 2;
		rest >>= 2;
	}
	octave += rest >> 1;
	/* An octave's upper half begins at its geometric middle, sqrt(2) * 2^octave: 181/128. */
	bucket = 2 * octave + ((us * 128) >= (181ULL << octave));
	return bucket < QJ_LATENCY_BUCKETS ? bucket : QJ_LATENCY_BUCKETS - 1;
}

/*
 * Idle tails and wake-ups of cores and packages, which recordings show in their segments.
 *
 * A core's state changes hands when its last thread sleeps, and when its first thread wakes;
 * likewise a package's with its cores. The count of busy ones decides which thread that is. The
 * last one writes the state while it still counts as busy, so the first one to wake finds it
 * complete: nobody else writes or reads it. Only the tracer reads it at any time: whoever exchanges
 * `from_ns` accounts for the idle time that follows it.
 *
 * Sums stay beside the core or package until another owner sleeps there, or until the tracer drains
 * their window. So most sleeps and wake-ups need no row of sums.
 */

/* Entry N: the core whose lowest CPU is N. Packages follow. */
struct idles_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * QJ_MAX_CPUS);
	__type(key, __u32);
	__type(value, struct qj_idle);
};
extern struct idles_map idles SEC(".maps");

/* Constant for the verifier, which removes the calls where nobody uses tails. */
static __always_inline bool sums_effects(void)
{
	return plan.mode == QJ_MODE_LIVE && plan.effects;
}

/* In tails.bpf.c; both return 0. This CPU becomes idle: its state still names the owner. */
extern int begin_idle(struct qj_cpu_state *cpu, __u64 now);
/* This CPU becomes busy. */
extern int end_idle(struct qj_cpu_state *cpu, __u64 now);

/*
 * Live view: adds slices to the sums of their owners. A query may begin before its statement is
 * known. Its use until then is in a row without a shape, and stored with its thread too, so that
 * name_use() can move it to the shape's row.
 */

/* What was measured over a slice. */
struct measured {
	__u64 counters[QJ_COUNTERS]; /* increments */
	__u64 overlap_ns;
	__u16 counted; /* as in struct qj_segment */
	__u8 valid;
};

static __always_inline void add_counters(struct qj_used *used, const struct measured *m, __u64 ns,
					 __u64 whole)
{
	if (m->valid && m->counted != QJ_WHOLE)
		__sync_fetch_and_add(&used->scaled_ns,
				     qj_scaled(ns, QJ_WHOLE - m->counted, QJ_WHOLE));
	for (int i = 0; i < QJ_COUNTERS; i++) {
		__u64 count;

		if (!(m->valid & (1u << i)))
			continue;
		count = qj_scaled(m->counters[i], ns, whole);
		__sync_fetch_and_add(&used->counters[i], count);
		__sync_fetch_and_add(&used->counted_ns[i], ns);
		if (m->overlap_ns)
			__sync_fetch_and_add(&used->overlap_counters[i],
					     qj_scaled(count, m->overlap_ns, whole));
	}
}

/* Adds `ns` of a slice that is `whole` ns long. `woke`: the idle times that it ended. */
static __always_inline void add_used(struct qj_used *used, __u64 ns, const struct measured *m,
				     __u64 whole, __u8 woke)
{
	__sync_fetch_and_add(&used->cpu_ns, ns);
	if (m->overlap_ns)
		__sync_fetch_and_add(&used->overlap_ns, qj_scaled(m->overlap_ns, ns, whole));
	if (plan.counters)
		add_counters(used, m, ns, whole);
	if (woke & QJ_WOKE_CORE)
		__sync_fetch_and_add(&used->core_wakes, 1);
	if (woke & QJ_WOKE_PACKAGE)
		__sync_fetch_and_add(&used->package_wakes, 1);
}

/*
 * Returns where to add up the use of the running thread's query that has no shape yet; 0: nowhere.
 * Only the use in one row and one window is stored; earlier use stays without a shape.
 */
static __always_inline struct qj_used *unnamed_use_of(__u64 query, const struct qj_sums_key *key,
						      __u32 epoch)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	struct unnamed_use *kept;

	if (!thread || thread->query != query)
		return 0;
	kept = &thread->unnamed;
	if (kept->query != query || kept->epoch != epoch || kept->tags != key->tags ||
	    kept->naming != key->naming || kept->package != key->package) {
		__builtin_memset(&kept->used, 0, sizeof(kept->used));
		kept->query = query;
		kept->tags = key->tags;
		kept->naming = key->naming;
		kept->package = key->package;
		kept->epoch = epoch;
	}
	return &kept->used;
}

/* Adds `ns` of a slice that is `whole` ns long. */
static __always_inline void add_to_sums(struct qj_cpu_state *cpu,
					const struct qj_slice_label *label, __u32 epoch, __u64 ns,
					const struct measured *m, __u64 whole)
{
	struct qj_sums_key key = {};
	struct qj_used *kept;
	struct qj_sums *row;
	__u8 woke;

	if (IS_EARLY) {
		struct qj_ring_sum sum = {.epoch = epoch, .cpu_ns = ns};

		fill_key(label, &sum.key);
		if (m->overlap_ns)
			sum.overlap_ns = qj_scaled(m->overlap_ns, ns, whole);
		if (!send_sum(cpu, &sum, QJ_LOSS_SEGMENT))
			__sync_fetch_and_add(&cpu->lost_ns, ns);
		return;
	}
	fill_key(label, &key);
	row = sums_of(cpu, &key, epoch);
	if (!row) {
		count_loss(cpu, QJ_LOSS_SEGMENT);
		__sync_fetch_and_add(&cpu->lost_ns, ns);
		return;
	}
	woke = sums_effects() ? cpu->woke : 0;
	cpu->woke &= ~woke;
	add_used(&row->used, ns, m, whole, woke);
	if (key.owner_kind != QJ_OWNER_QUERY || key.shape)
		return;
	kept = unnamed_use_of(label->query, &key, epoch);
	if (kept)
		add_used(kept, ns, m, whole, woke);
}

/* Adds a slice to the use of its query, which may have ended before. */
static __always_inline void add_to_query(__u64 query, __u64 ns)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());

	if (!thread)
		return;
	if (thread->query == query)
		thread->cpu_ns += ns;
	else if (thread->ended.query == query)
		thread->ended_cpu_ns += ns;
}

/* Divides a slice that began in the previous window between both windows. */
static __always_inline void sum_slice(struct qj_cpu_state *cpu, const struct qj_slice_label *label,
				      __u64 t0, __u64 now, const struct measured *m)
{
	__u32 epoch = control.epoch;
	__u64 edge = control.epoch_ns;
	__u64 whole = now - t0;

	if (plan.samples && label->owner_kind == QJ_OWNER_QUERY)
		add_to_query(label->query, whole);
	if (t0 < edge) {
		__u64 before = (now < edge ? now : edge) - t0;

		add_to_sums(cpu, label, epoch - 1, before, m, whole);
		t0 += before;
	}
	if (t0 < now)
		add_to_sums(cpu, label, epoch, now - t0, m, whole);
}

#endif
