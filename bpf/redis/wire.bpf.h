/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The client side of RESP: a command is `*N`, then N arguments, each `$LENGTH`, bytes, line end; or
 * a plain line. One read may contain many commands, and one command may span many reads. Redis
 * documentation, "Redis serialization protocol specification"; networking.c of Redis 7.
 */
#ifndef QJOULE_REDIS_WIRE_BPF_H
#define QJOULE_REDIS_WIRE_BPF_H

#include "named.bpf.h"
#include "core/statement.bpf.h"

#define REDIS_WALK_MAX	    (1 << 16) /* steps in one read, one per line or part of an argument */
#define REDIS_TLS_HANDSHAKE 0x16      /* RFC 8446, ContentType */

struct redis_walk {
	struct qj_cpu_state *cpu;
	struct thread_state *thread;
	struct redis_connection *connection;
	struct redis_naming *naming; /* 0: names of connections were not requested */
	struct key_text *text;
	__u64 addr;
	__u32 left;
	__u8 lost; /* these bytes are not commands */
};

static __always_inline void redis_read_start(struct key_text *text, __u64 addr, __u32 left)
{
	__u64 bytes = at_most(left, KEY_START_BYTES);

	text->start_addr = addr;
	text->start_bytes = bytes;
	if (bpf_probe_read_user(text->start, bytes, (const void *)addr))
		text->start_bytes = 0;
}

/* Returns the next `bytes` if they are among the first ones of the read; otherwise 0. */
static __always_inline const __u8 *redis_among_first(const struct redis_walk *walk, __u32 bytes)
{
	const struct key_text *text = walk->text;
	__u64 into = walk->addr - text->start_addr;

	if (into >= text->start_bytes || bytes > text->start_bytes - into)
		return 0;
	return text->start + at_most(into, KEY_START_BYTES);
}

/* Copies the next `bytes` to `to`. */
static __always_inline void redis_read(const struct redis_walk *walk, __u8 *to, __u64 bytes)
{
	const __u8 *from = redis_among_first(walk, bytes);

	if (from)
		bpf_probe_read_kernel(to, bytes, from);
	else
		bpf_probe_read_user(to, bytes, (const void *)walk->addr);
}

static __always_inline void redis_next_command(struct redis_command *c)
{
	c->at = REDIS_AT_COMMAND;
	c->type = 0;
	c->number = 0;
	c->digits = 0;
	c->negative = 0;
}

/* A command is complete: adds it to the request. */
static __always_inline void redis_command_done(struct redis_walk *walk)
{
	struct redis_connection *connection = walk->connection;

	if (plan.tags && walk->naming)
		redis_name_command_done(walk->naming);
	key_command_done(&connection->request, &connection->command.kept, walk->text, 1,
			 QJ_DIALECT_REDIS);
}

/* Passes an argument to the naming state, unless its command cannot set a name, as most cannot. */
static __always_inline void redis_argument_named(struct redis_walk *walk)
{
	const struct redis_command *c = &walk->connection->command;
	struct redis_naming *n = walk->naming;

	if (!plan.tags || !n || n->expects == REDIS_EXPECTS_NOTHING)
		return;
	if (!c->index)
		redis_name_word(n, c);
	redis_name_argument(walk->cpu, walk->thread, n);
}

static __always_inline void redis_argument_done(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;

	redis_argument_named(walk);
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

/* The next command overwrites the last one. */
static __always_inline void redis_overwrite(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;

	key_prepare_next(&walk->connection->request, &c->kept, walk->text);
	if (plan.tags && walk->naming)
		redis_name_begin(walk->naming);
	c->index = 0;
}

/* A line "*N" or "$LENGTH" is complete. */
static __always_inline void redis_line_done(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;
	__u64 number = c->number;
	bool counts = c->at == REDIS_AT_COMMAND, negative = c->negative;

	redis_next_command(c);
	if (counts) {
		if (negative || !number) /* the server ignores it */
			return;
		redis_overwrite(walk);
		c->arguments = number;
		c->at = REDIS_AT_LENGTH;
		return;
	}
	if (negative) {
		walk->lost = 1;
		return;
	}
	if (c->index == 1)
		c->kept.has_key = 1;
	c->bulk_left = number + 2;
	c->at = REDIS_AT_BULK;
}

static __always_inline __u32 redis_piece(struct redis_walk *walk, struct redis_piece *piece)
{
	__u64 bytes = at_most(walk->left, REDIS_PIECE);
	const __u8 *from = redis_among_first(walk, bytes);

	if (from)
		__builtin_memcpy(piece->bytes, from, REDIS_PIECE);
	else
		bpf_probe_read_user(piece->bytes, bytes, (const void *)walk->addr);
	return bytes;
}

static __always_inline void redis_taken(struct redis_walk *walk, __u32 taken)
{
	taken &= 0xff;
	if (taken > walk->left)
		taken = walk->left;
	walk->addr += taken;
	walk->left -= taken;
}

/* Takes the next bytes of a line "*N" or "$LENGTH". */
static __always_inline void redis_line(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;
	struct redis_piece piece = {};
	__u32 bytes = redis_piece(walk, &piece);
	int result = redis_line_bytes(c, &piece, bytes);

	if (result & REDIS_IS_LINE) {
		redis_overwrite(walk);
		redis_next_command(c);
		c->at = REDIS_AT_INLINE;
		return;
	}
	redis_taken(walk, result);
	if (result & REDIS_LOST)
		walk->lost = 1;
	else if (result & REDIS_WHOLE)
		redis_line_done(walk);
}

/* Takes the next bytes of an argument, storing those of the command's name and first argument. */
static __always_inline void redis_bulk(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;
	__u64 here = walk->left < c->bulk_left ? walk->left : c->bulk_left;
	__u64 text = c->bulk_left > 2 ? c->bulk_left - 2 : 0;

	if (text > here)
		text = here;
	if (c->index == 0 && c->kept.name_bytes < QJ_KEY_NAME_BYTES) {
		__u64 room = QJ_KEY_NAME_BYTES - c->kept.name_bytes,
		      keep = text < room ? text : room;

		keep = at_most(keep, QJ_KEY_NAME_BYTES);
		if (keep)
			redis_read(walk,
				   &c->kept.name[c->kept.name_bytes & (QJ_KEY_NAME_BYTES - 1)],
				   keep);
		c->kept.name_bytes += keep;
	} else if (c->index == 1 && c->kept.key_bytes < QJ_KEY_BYTES) {
		__u64 room = QJ_KEY_BYTES - c->kept.key_bytes, keep = text < room ? text : room;

		keep = at_most(keep, QJ_KEY_BYTES);
		if (keep)
			redis_read(walk, &c->kept.key[c->kept.key_bytes & (QJ_KEY_BYTES - 1)],
				   keep);
		c->kept.key_bytes += keep;
	}
	if (plan.tags && walk->naming && c->index && walk->naming->expects != REDIS_EXPECTS_NOTHING)
		redis_name_part(walk->naming, walk->addr, text);
	walk->addr += here;
	walk->left -= here;
	c->bulk_left -= here;
	if (!c->bulk_left)
		redis_argument_done(walk);
}

/* Takes a command that is a plain line, storing its first word. An empty line is no command. */
static __always_inline void redis_inline(struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;
	struct redis_piece piece = {};
	__u32 bytes = redis_piece(walk, &piece);
	int result = redis_inline_bytes(c, &piece, bytes);

	if (plan.tags && walk->naming)
		redis_name_line(walk->cpu, walk->thread, walk->naming, &piece, result & 0xff);
	redis_taken(walk, result);
	if (!(result & REDIS_WHOLE))
		return;
	if (c->kept.name_bytes)
		redis_command_done(walk);
	redis_next_command(c);
}

static long redis_step(__u32 i, struct redis_walk *walk)
{
	struct redis_command *c = &walk->connection->command;

	if (!walk->left || walk->lost)
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
 * True if a connection that was already open is between two commands: the read begins with a number
 * of arguments, and ends with a line end as every command does.
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
