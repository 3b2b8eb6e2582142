// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What redis_lines.bpf.h declares. */
#include "lines.bpf.h"

struct redis_hashing {
	const struct redis_command *command;
	struct qj_key_pattern *pattern;
};

/* A loop of the kernel's: the verifier goes through the pattern's rules once, not for each byte. */
static long redis_key_byte(__u32 i, struct redis_hashing *hashing)
{
	const struct redis_command *c = hashing->command;

	if (i >= c->key_bytes)
		return 1;
	qj_key_byte(hashing->pattern, c->key[i & (QJ_KEY_BYTES - 1)]);
	return 0;
}

int redis_hash(struct redis_command *c, struct qj_key_pattern *p)
{
	struct redis_hashing hashing = {.command = c, .pattern = p};
	__u64 key, hash;

	if (!c || !p)
		return 0;
	key = qj_key_seeded(plan.seed);
	hash = qj_shape_mix(plan.seed ^ key ^ QJ_DIALECT_REDIS);
	for (__u32 i = 0; i < QJ_KEY_NAME_BYTES; i++) {
		if (i >= c->name_bytes)
			break;
		hash = qj_key_name_byte(hash, c->name[i], key);
	}
	if (c->has_key) {
		qj_key_pattern_begin(p, qj_shape_step(hash, QJ_KEY_ARG, key), key);
		bpf_loop(QJ_KEY_BYTES, redis_key_byte, &hashing, 0);
		hash = qj_key_pattern_end(p, c->key_bytes);
	}
	p->hash = qj_key_end(hash);
	return 0;
}

/* A line "*N" or "$LENGTH": gathers its number. */
int redis_line_bytes(struct redis_command *c, const struct redis_piece *piece, __u32 bytes)
{
	__u8 wanted;

	if (!c || !piece)
		return REDIS_LOST;
	wanted = c->at == REDIS_AT_LENGTH ? '$' : '*';
	for (__u32 i = 0; i < REDIS_PIECE; i++) {
		__u8 byte = piece->bytes[i];

		if (i >= bytes)
			return i;
		if (byte == '\n')
			return (i + 1) | REDIS_WHOLE;
		if (!c->type && byte != wanted)
			return wanted == '*' && byte != '$' ? REDIS_IS_LINE : REDIS_LOST;
		if (!c->type) {
			c->type = byte;
		} else if (byte >= '0' && byte <= '9' && c->digits < REDIS_DIGITS_MAX) {
			c->number = c->number * 10 + byte - '0';
			c->digits++;
		} else if (byte == '-') {
			c->negative = 1;
		} else if (byte != '\r') {
			return REDIS_LOST;
		}
	}
	return REDIS_PIECE;
}

/* A plain line: its first word goes to the command's name; `index` counts that it has ended. */
int redis_inline_bytes(struct redis_command *c, const struct redis_piece *piece, __u32 bytes)
{
	if (!c || !piece)
		return REDIS_LOST;
	for (__u32 i = 0; i < REDIS_PIECE; i++) {
		__u8 byte = piece->bytes[i];

		if (i >= bytes)
			return i;
		if (byte == '\n')
			return (i + 1) | REDIS_WHOLE;
		if (byte == ' ' || byte == '\t' || byte == '\r') {
			if (c->name_bytes)
				c->index = 1;
		} else if (!c->index && c->name_bytes < QJ_KEY_NAME_BYTES) {
			c->name[c->name_bytes & (QJ_KEY_NAME_BYTES - 1)] = byte;
			c->name_bytes++;
		}
	}
	return REDIS_PIECE;
}
