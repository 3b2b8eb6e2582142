/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The client side of RESP: a command is `*N`, then N arguments, each `$LENGTH`, bytes, line end;
 * or a plain line. Many commands may come in one read, and one in many reads.
 * Redis documentation, "Redis serialization protocol specification"; networking.c of Redis 7.
 */
#ifndef QJOULE_REDIS_WIRE_BPF_H
#define QJOULE_REDIS_WIRE_BPF_H

#include "redis_state.bpf.h"
#include "statement.bpf.h"

#define REDIS_WALK_MAX	    (1 << 16)	 /* steps in one read, one for a line or an argument's part */
#define REDIS_ARGUMENTS_MAX (1u << 30)	 /* networking.c: INT_MAX; proto-max-bulk-len is 512 MB */
#define REDIS_BULK_MAX	    (1ULL << 32)
#define REDIS_DIGITS_MAX    10
#define REDIS_TLS_HANDSHAKE 0x16 /* RFC 8446, ContentType */
#define REDIS_LINE	    16 /* "*1234567890\r\n" fits */
#define REDIS_INLINE_PIECE  QJ_REDIS_NAME

struct redis_walk {
	struct qj_cpu_state *cpu;
	struct redis_connection *connection;
	struct redis_text *text;
	__u64 addr;
	__u32 left;
	__u32 most; /* commands to take */
	__u32 commands;
	__u8 lost; /* these bytes are no commands */
};

/* The hash of a name and an argument's pattern; in redis.bpf.c. Returns 0. */
extern int redis_hash(struct redis_command *command, __u64 *shape);

static __always_inline void redis_next_command(struct redis_command *c)
{
	c->at = REDIS_AT_COMMAND;
	c->type = 0;
	c->number = 0;
	c->digits = 0;
	c->negative = 0;
}

static __always_inline void redis_put_length(__u8 *to, __u32 length)
{
	to[0] = '$';
	to[1] = '0' + length / 10;
	to[2] = '0' + length % 10;
	to[3] = '\r';
	to[4] = '\n';
}

static __always_inline void redis_put_end(struct redis_text *text, __u32 at)
{
	text->bytes[at_most(at, REDIS_TEXT_BYTES - 2)] = '\r';
	text->bytes[at_most(at, REDIS_TEXT_BYTES - 2) + 1] = '\n';
}

/* Appends a command, cut to what its shape is made of; false if there is no room. */
static __always_inline bool redis_tell(struct redis_text *text, const struct redis_command *c)
{
	__u32 used = text->used;
	__u8 *to;

	if (used > REDIS_TEXT_BYTES - 2 * REDIS_RECORD_MAX)
		return false;
	to = &text->bytes[at_most(used, REDIS_TEXT_BYTES - 2 * REDIS_RECORD_MAX)];
	to[0] = '*';
	to[1] = c->has_key ? '2' : '1';
	to[2] = '\r';
	to[3] = '\n';
	redis_put_length(to + 4, c->name_bytes);
	bpf_probe_read_kernel(to + 9, QJ_REDIS_NAME, c->name);
	used += 9 + c->name_bytes;
	redis_put_end(text, used);
	used += 2;
	if (c->has_key) {
		to = &text->bytes[at_most(used, REDIS_TEXT_BYTES - REDIS_RECORD_MAX)];
		redis_put_length(to, c->key_bytes);
		bpf_probe_read_kernel(to + 5, QJ_REDIS_KEY, c->key);
		used += 5 + c->key_bytes;
		redis_put_end(text, used);
		used += 2;
	}
	text->used = used;
	return true;
}

/* A command is whole: adds it to the request. Equal ones in a row are one run of the shape. */
static __always_inline void redis_command_done(struct redis_walk *walk)
{
	struct redis_connection *request = walk->connection;
	struct redis_command *c = &request->command;
	__u64 shape = 0;

	walk->commands++;
	request->executions++;
	redis_hash(c, &shape);
	if (request->runs && shape == request->last_shape)
		return;
	request->last_shape = shape;
	if (request->runs == REDIS_RUNS_MAX || !redis_tell(walk->text, c)) {
		request->flags |= QJ_QUERY_TRUNCATED;
		return;
	}
	request->runs++;
	if (request->runs == 1)
		request->shape = shape;
	else
		request->shape = qj_redis_end(qj_shape_step(
		    request->shape, QJ_REDIS_NEXT, (shape | 1) * qj_redis_key(plan.seed)));
}

static __always_inline void redis_argument_done(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;

	c->index++;
	c->arguments--;
	if (c->arguments) {
		redis_next_command(c);
		c->at = REDIS_AT_LENGTH;
		return;
	}
	redis_command_done(walk);
	redis_next_command(c);
}

/* A line "*N" or "$LENGTH" is whole. */
static __always_inline void redis_line_done(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;
	__u64 number = c->number;
	bool counts = c->at == REDIS_AT_COMMAND, negative = c->negative;

	redis_next_command(c);
	if (counts) {
		if (negative || !number) /* the server takes it for nothing */
			return;
		c->arguments = number;
		c->index = 0;
		c->name_bytes = 0;
		c->key_bytes = 0;
		c->has_key = 0;
		c->at = REDIS_AT_LENGTH;
		return;
	}
	if (negative) {
		walk->lost = 1;
		return;
	}
	if (c->index == 1)
		c->has_key = 1;
	c->bulk_left = number + 2;
	c->at = REDIS_AT_BULK;
}

/* The next bytes of such a line. */
static __always_inline void redis_line(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;
	__u8 line[REDIS_LINE] = {};
	__u32 bytes = walk->left < REDIS_LINE ? walk->left : REDIS_LINE, taken = 0;
	__u8 type = c->type, digits = c->digits, wanted = c->at == REDIS_AT_LENGTH ? '$' : '*';
	__u64 number = c->number;
	bool whole = false;

	bpf_probe_read_user(line, at_most(bytes, REDIS_LINE), (const void *)walk->addr);
	for (__u32 i = 0; i < REDIS_LINE; i++) {
		__u8 byte = line[i];

		if (i >= bytes)
			break;
		taken++;
		if (byte == '\n') {
			whole = true;
			break;
		}
		if (!type) {
			type = byte;
		} else if (byte >= '0' && byte <= '9') {
			number = number * 10 + byte - '0';
			digits++;
		} else if (byte == '-') {
			c->negative = 1;
		} else if (byte != '\r') {
			walk->lost = 1;
		}
	}
	if (type && type != wanted) {
		walk->lost = 1;
		if (wanted == '*' && type != '$') { /* a plain line, perhaps an empty one */
			walk->lost = 0;
			redis_next_command(c);
			c->at = REDIS_AT_INLINE;
			c->name_bytes = 0;
			c->key_bytes = 0;
			c->has_key = 0;
			c->index = 0;
			return;
		}
	}
	c->type = type;
	c->digits = digits;
	c->number = number;
	walk->addr += taken;
	walk->left -= taken;
	if (digits > REDIS_DIGITS_MAX)
		walk->lost = 1;
	if (whole && !walk->lost)
		redis_line_done(walk);
}

/* The next bytes of an argument: the name and the first one after it are kept, up to a length. */
static __always_inline void redis_bulk(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;
	__u64 here = walk->left < c->bulk_left ? walk->left : c->bulk_left;
	__u64 text = c->bulk_left > 2 ? c->bulk_left - 2 : 0;

	if (text > here)
		text = here;
	if (c->index == 0 && c->name_bytes < QJ_REDIS_NAME) {
		__u64 room = QJ_REDIS_NAME - c->name_bytes, keep = text < room ? text : room;

		keep = at_most(keep, QJ_REDIS_NAME);
		if (keep)
			bpf_probe_read_user(&c->name[c->name_bytes & (QJ_REDIS_NAME - 1)], keep,
					    (const void *)walk->addr);
		c->name_bytes += keep;
	} else if (c->index == 1 && c->key_bytes < QJ_REDIS_KEY) {
		__u64 room = QJ_REDIS_KEY - c->key_bytes, keep = text < room ? text : room;

		keep = at_most(keep, QJ_REDIS_KEY);
		if (keep)
			bpf_probe_read_user(&c->key[c->key_bytes & (QJ_REDIS_KEY - 1)], keep,
					    (const void *)walk->addr);
		c->key_bytes += keep;
	}
	walk->addr += here;
	walk->left -= here;
	c->bulk_left -= here;
	if (!c->bulk_left)
		redis_argument_done(walk);
}

/* A command that is a plain line: only its first word is kept. An empty line is none. */
static __always_inline void redis_inline(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;
	__u8 piece[REDIS_INLINE_PIECE] = {};
	__u32 bytes = walk->left < REDIS_INLINE_PIECE ? walk->left : REDIS_INLINE_PIECE, taken = 0;
	__u32 kept = c->name_bytes;
	bool whole = false, word = !c->index;

	bpf_probe_read_user(piece, at_most(bytes, REDIS_INLINE_PIECE), (const void *)walk->addr);
	for (__u32 i = 0; i < REDIS_INLINE_PIECE; i++) {
		__u8 byte = piece[i];

		if (i >= bytes)
			break;
		taken++;
		if (byte == '\n') {
			whole = true;
			break;
		}
		if (byte == ' ' || byte == '\t' || byte == '\r') {
			if (kept)
				word = false;
		} else if (word && kept < QJ_REDIS_NAME) {
			c->name[kept & (QJ_REDIS_NAME - 1)] = byte;
			kept++;
		}
	}
	c->name_bytes = kept;
	c->index = !word;
	walk->addr += taken;
	walk->left -= taken;
	if (!whole)
		return;
	if (kept)
		redis_command_done(walk);
	redis_next_command(c);
}

static long redis_step(__u32 i, struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;

	if (!walk->left || walk->lost || walk->commands == walk->most)
		return 1;
	if (c->at == REDIS_AT_BULK)
		redis_bulk(walk);
	else if (c->at == REDIS_AT_INLINE)
		redis_inline(walk);
	else
		redis_line(walk);
	return 0;
}

/*
 * Whether a connection that was open before tracing is between two commands: a read that begins
 * with a count of arguments, and ends with a line end as every command does.
 */
static __always_inline bool redis_begins(__u64 addr, __u32 bytes)
{
	__u8 first[2] = {}, last = 0;

	if (bytes < 4 || bpf_probe_read_user(first, sizeof(first), (const void *)addr) ||
	    bpf_probe_read_user(&last, 1, (const void *)(addr + bytes - 1)))
		return false;
	return first[0] == '*' && first[1] >= '1' && first[1] <= '9' && last == '\n';
}

#endif
