// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Implements what state.bpf.h declares for lines: those with numbers, which precede all else of
 * RESP, and commands that are plain lines.
 */
#include "state.bpf.h"

/* A line "*N" or "$LENGTH": collects its number. */
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

/*
 * A plain line: its first word becomes the command's name; `index` is 1 once that word has ended.
 */
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
			if (c->kept.name_bytes)
				c->index = 1;
		} else if (!c->index && c->kept.name_bytes < QJ_KEY_NAME_BYTES) {
			c->kept.name[c->kept.name_bytes & (QJ_KEY_NAME_BYTES - 1)] = byte;
			c->kept.name_bytes++;
		}
	}
	return REDIS_PIECE;
}
