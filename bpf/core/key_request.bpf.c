// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements key_request.bpf.h. */
#include "key_request.bpf.h"

struct key_texts_map key_texts SEC(".maps");

struct key_hashing {
	const struct key_command *command;
	struct qj_key_pattern *pattern;
};

/* Called by the kernel's loop helper: the verifier checks the rules once, not per byte. */
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
