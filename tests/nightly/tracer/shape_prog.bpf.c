/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Hashes a statement with shape_hash.h in the kernel, so that tests can compare with the host. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "core/shape_hash.h"

#define TEXT_BYTES 4096
#define CHUNKS	   (TEXT_BYTES / QJ_SHAPE_CHUNK)

struct shape_job {
	__u64 seed;
	__u64 shape;
	__u32 bytes;
	__u32 dialect;
	struct qj_shape_state state;
	__u8 text[TEXT_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shape_job);
} jobs SEC(".maps");

static long feed(__u32 index, struct shape_job **context)
{
	struct shape_job *job = *context;
	__u32 at = index * QJ_SHAPE_CHUNK;

	if (at > TEXT_BYTES - QJ_SHAPE_CHUNK || at >= job->bytes)
		return 1;
	qj_shape_feed(&job->state, job->text + at, job->bytes - at);
	return 0;
}

SEC("raw_tp")
int hash_job(void *unused)
{
	__u32 zero = 0;
	struct shape_job *job = bpf_map_lookup_elem(&jobs, &zero);

	(void)unused;
	if (!job)
		return 0;
	qj_shape_begin(&job->state, job->seed, job->dialect & 0xff, job->dialect >> 8);
	bpf_loop(CHUNKS, feed, &job, 0);
	job->shape = qj_shape_end(&job->state);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
