// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Implements the part of state.bpf.h on lines and headers. */
#include "state.bpf.h"

#define WORD(a, b, c, d, e, f, g, h)                                                               \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |   \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

int memcached_family_of(__u64 word)
{
	switch (word) {
	case WORD('g', 'e', 't', 0, 0, 0, 0, 0):
	case WORD('g', 'e', 't', 's', 0, 0, 0, 0):
		return MEMCACHED_GETS;
	case WORD('g', 'a', 't', 0, 0, 0, 0, 0):
	case WORD('g', 'a', 't', 's', 0, 0, 0, 0):
		return MEMCACHED_GATS;
	case WORD('s', 'e', 't', 0, 0, 0, 0, 0):
	case WORD('a', 'd', 'd', 0, 0, 0, 0, 0):
	case WORD('c', 'a', 's', 0, 0, 0, 0, 0):
	case WORD('r', 'e', 'p', 'l', 'a', 'c', 'e', 0):
	case WORD('a', 'p', 'p', 'e', 'n', 'd', 0, 0):
	case WORD('p', 'r', 'e', 'p', 'e', 'n', 'd', 0):
		return MEMCACHED_STORES;
	case WORD('m', 's', 0, 0, 0, 0, 0, 0):
		return MEMCACHED_META_SET;
	case WORD('d', 'e', 'l', 'e', 't', 'e', 0, 0):
	case WORD('i', 'n', 'c', 'r', 0, 0, 0, 0):
	case WORD('d', 'e', 'c', 'r', 0, 0, 0, 0):
	case WORD('t', 'o', 'u', 'c', 'h', 0, 0, 0):
	case WORD('s', 't', 'a', 't', 's', 0, 0, 0):
	case WORD('v', 'e', 'r', 's', 'i', 'o', 'n', 0):
	case WORD('f', 'l', 'u', 's', 'h', '_', 'a', 'l'):
	case WORD('v', 'e', 'r', 'b', 'o', 's', 'i', 't'):
	case WORD('q', 'u', 'i', 't', 0, 0, 0, 0):
	case WORD('m', 'g', 0, 0, 0, 0, 0, 0):
	case WORD('m', 'd', 0, 0, 0, 0, 0, 0):
	case WORD('m', 'a', 0, 0, 0, 0, 0, 0):
	case WORD('m', 'n', 0, 0, 0, 0, 0, 0):
	case WORD('m', 'e', 0, 0, 0, 0, 0, 0):
		return MEMCACHED_PLAIN;
	default:
		return MEMCACHED_UNKNOWN;
	}
}

static __always_inline void name_ends(struct memcached_command *c)
{
	__u64 word;

	if (c->kept.name_bytes < 8) /* clear the rest of a longer name */
		for (__u32 i = 0; i < 8; i++)
			if (i >= c->kept.name_bytes)
				c->kept.name[i] = 0;
	__builtin_memcpy(&word, c->kept.name, sizeof(word));
	c->family = memcached_family_of(word);
	c->key_word = c->family == MEMCACHED_GATS ? 2 : 1;
}

/* Adds a digit to the current word. */
static __always_inline void number_byte(struct memcached_command *c, __u8 byte)
{
	bool is_third = c->words == 3, is_digit = byte >= '0' && byte <= '9';
	__u64 number = is_third ? c->third : c->fifth;

	if (!is_third && c->words != 5)
		return;
	if (!is_digit || number > (1ULL << 32)) {
		c->bad |= is_third ? 1 : 2;
		return;
	}
	number = number * 10 + byte - '0';
	if (is_third)
		c->third = number;
	else
		c->fifth = number;
}

/* Reads bytes of a line: the name, the first key, the number of words, and two words as numbers. */
int memcached_line_bytes(struct memcached_command *c, const struct memcached_piece *piece,
			 __u32 bytes)
{
	if (!c || !piece)
		return MEMCACHED_WHOLE;
	for (__u32 i = 0; i < MEMCACHED_PIECE; i++) {
		__u8 byte = piece->bytes[i];

		if (i >= bytes)
			return i;
		if (byte == ' ' || byte == '\r' || byte == '\n') {
			if (c->in_word && c->words == 1)
				name_ends(c);
			c->in_word = 0;
			if (byte == '\n')
				return (i + 1) | MEMCACHED_WHOLE;
			continue;
		}
		if (!c->in_word) {
			c->in_word = 1;
			c->words++;
		}
		if (c->words == 1) {
			if (c->kept.name_bytes < QJ_KEY_NAME_BYTES)
				c->kept.name[c->kept.name_bytes++ & (QJ_KEY_NAME_BYTES - 1)] = byte;
		} else if (c->words == c->key_word + 1u) {
			c->kept.has_key = 1;
			if (c->kept.key_bytes < QJ_KEY_BYTES)
				c->kept.key[c->kept.key_bytes++ & (QJ_KEY_BYTES - 1)] = byte;
		}
		number_byte(c, byte);
	}
	return MEMCACHED_PIECE;
}

#define OPCODES 0x25

/*
 * Names of binary requests in terms of the text protocol: quiet forms, and forms that return the
 * key, are the same command. doc/protocol-binary.xml, "Command Opcodes".
 */
static const char names[OPCODES + 1][8] = {
    [0x00] = "get",	   [0x01] = "set",    [0x02] = "add",	  [0x03] = "replace",
    [0x04] = "delete",	   [0x05] = "incr",   [0x06] = "decr",	  [0x07] = "quit",
    [0x08] = "flush",	   [0x09] = "get",    [0x0a] = "noop",	  [0x0b] = "version",
    [0x0c] = "get",	   [0x0d] = "get",    [0x0e] = "append",  [0x0f] = "prepend",
    [0x10] = "stat",	   [0x11] = "set",    [0x12] = "add",	  [0x13] = "replace",
    [0x14] = "delete",	   [0x15] = "incr",   [0x16] = "decr",	  [0x17] = "quit",
    [0x18] = "flush",	   [0x19] = "append", [0x1a] = "prepend", [0x1b] = "verbose",
    [0x1c] = "touch",	   [0x1d] = "gat",    [0x1e] = "gat",	  [0x20] = "sasl",
    [0x21] = "sasl",	   [0x22] = "sasl",   [0x23] = "gat",	  [0x24] = "gat",
    [OPCODES] = "unknown",
};

/* A binary request's header is complete: takes its name and the lengths of its parts. */
int memcached_header(struct memcached_command *c)
{
	__u32 opcode, body, parts;

	if (!c)
		return 0;
	opcode = c->head[1];
	if (opcode >= OPCODES || !names[opcode & 63][0])
		opcode = OPCODES;
	__builtin_memcpy(c->kept.name, names[opcode], 8);
	c->kept.name_bytes = 0;
	for (__u32 i = 0; i < 8; i++)
		if (c->kept.name[i])
			c->kept.name_bytes = i + 1;
	c->key_left = (__u16)c->head[2] << 8 | c->head[3];
	c->left = c->head[4];
	body = (__u32)c->head[8] << 24 | (__u32)c->head[9] << 16 | (__u32)c->head[10] << 8 |
	       c->head[11];
	parts = c->key_left + c->head[4];
	/* If the parts are longer than the whole request, the server closes the connection. */
	c->value = body > parts ? body - parts : 0;
	c->at = MEMCACHED_AT_EXTRAS;
	return 0;
}
