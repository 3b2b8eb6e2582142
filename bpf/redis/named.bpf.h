/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The name of a Redis client's connection. CLIENT SETNAME and HELLO ... SETNAME set it, RESET
 * removes it, and in a transaction EXEC runs the queued commands. Read only if requested
 * (plan.tags). Scripts may not name a connection. networking.c and multi.c of Redis 7.
 *
 * A name is sent as soon as the reply was sent, and before another name replaces it. The reader of
 * the stream checks from its bytes whether a server accepts it. Other refusals are detected only
 * when the command was sent alone: the reply then begins with the error.
 */
#ifndef QJOULE_REDIS_NAMED_BPF_H
#define QJOULE_REDIS_NAMED_BPF_H

#include "state.bpf.h"

#define REDIS_CLIENT_BYTES 256 /* longer names are not read; qjoule_drivers stays below */
#define REDIS_CLIENT_LONG  (REDIS_CLIENT_BYTES + 1)
#define REDIS_WORD	   8 /* bytes of other arguments that are read */

/* The meaning of a command's next argument. */
enum redis_expects {
	REDIS_EXPECTS_COMMAND = 0,
	REDIS_EXPECTS_SUBCOMMAND, /* of CLIENT */
	REDIS_EXPECTS_VERSION,	  /* of HELLO, like the next three */
	REDIS_EXPECTS_OPTION,
	REDIS_EXPECTS_USER,
	REDIS_EXPECTS_PASSWORD,
	REDIS_EXPECTS_NAME,
	REDIS_EXPECTS_END,
	REDIS_EXPECTS_NOTHING, /* nothing: this command cannot set a name */
};

enum redis_naming_command {
	REDIS_NAMES_NOT = 0,
	REDIS_CLIENT_SETNAME,
	REDIS_HELLO,
	REDIS_RESET,
	REDIS_MULTI,
	REDIS_EXEC,
	REDIS_DISCARD,
};

enum redis_name_state {
	REDIS_NAME_SETTLED = 0,
	REDIS_NAME_QUEUED, /* queued until EXEC */
	REDIS_NAME_ASKED,  /* set by the current request: not sent yet */
};

/* Naming state of a connection. */
struct redis_naming {
	__u64 session;
	__u32 name_bytes; /* REDIS_CLIENT_LONG: the name is unknown */
	__u32 word_bytes; /* bytes of the current argument so far */
	__u8 expects;	  /* enum redis_expects */
	__u8 command;	  /* enum redis_naming_command */
	__u8 named;	  /* the command sets a name */
	__u8 state;	  /* enum redis_name_state */
	__u8 in_transaction;
	__u8 quote; /* in a plain line: the quote that ends the string, 0: none; ... */
	__u8 escaped;
	__u8 in_word;
	/* Twice the length, so that a piece fits wherever it begins. */
	__u8 word[2 * REDIS_WORD];
	__u8 name[2 * REDIS_CLIENT_BYTES];
};

struct redis_namings_map {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct redis_naming);
};
extern struct redis_namings_map redis_namings SEC(".maps");

/*
 * Separate functions in named.bpf.c: the verifier checks each once. All return 0.
 * redis_name_argument(): the current argument has ended.
 */
extern int redis_name_argument(struct qj_cpu_state *cpu, struct thread_state *thread,
			       struct redis_naming *n);
extern int redis_name_line(struct qj_cpu_state *cpu, struct thread_state *thread,
			   struct redis_naming *n, const struct redis_piece *piece, __u32 bytes);
extern int redis_name_command_done(struct redis_naming *n);
extern int redis_name_emit(struct qj_cpu_state *cpu, struct thread_state *thread,
			   struct redis_naming *n);

static __always_inline void redis_name_begin(struct redis_naming *n)
{
	n->expects = REDIS_EXPECTS_COMMAND;
	n->command = REDIS_NAMES_NOT;
	n->named = 0;
	n->word_bytes = 0;
	n->quote = 0;
	n->escaped = 0;
	n->in_word = 0;
}

/* Takes the next bytes of an argument. */
static __always_inline void redis_name_part(struct redis_naming *n, __u64 addr, __u64 bytes)
{
	bool is_name = n->expects == REDIS_EXPECTS_NAME;
	__u32 most = is_name ? REDIS_CLIENT_BYTES : REDIS_WORD;
	__u32 have = is_name ? n->name_bytes : n->word_bytes;
	__u64 keep = have < most ? most - have : 0;
	long err = 0;

	if (keep > bytes)
		keep = bytes;
	if (keep && is_name)
		err = bpf_probe_read_user(&n->name[have & (REDIS_CLIENT_BYTES - 1)],
					  at_most(keep, REDIS_CLIENT_BYTES), (const void *)addr);
	else if (keep)
		err = bpf_probe_read_user(&n->word[have & (REDIS_WORD - 1)],
					  at_most(keep, REDIS_WORD), (const void *)addr);
	have = err || keep < bytes ? most + 1 : have + keep;
	if (is_name)
		n->name_bytes = have;
	else
		n->word_bytes = have;
}

/* The command's own name, which was already read. */
static __always_inline void redis_name_word(struct redis_naming *n, const struct redis_command *c)
{
	__builtin_memcpy(n->word, c->kept.name, REDIS_WORD);
	n->word_bytes = c->kept.name_bytes;
}

/*
 * A reply is being sent. `addr`: its address if it answers a single command, otherwise 0. A reply
 * that begins with "-" is an error; one with "_" or "*-" is an EXEC that did nothing. While a name
 * is queued, EXEC decides; but "+OK" then shows that there was no transaction.
 */
static __always_inline void redis_name_answered(struct qj_cpu_state *cpu,
						struct thread_state *thread, struct redis_naming *n,
						__u64 addr)
{
	__u8 first[2] = {};

	if (addr)
		bpf_probe_read_user(first, sizeof(first), (const void *)addr);
	if (n->state == REDIS_NAME_QUEUED) {
		if (first[0] != '+' || first[1] != 'O')
			return;
		n->in_transaction = 0;
	}
	if (first[0] == '-' || first[0] == '_' || (first[0] == '*' && first[1] == '-'))
		n->state = REDIS_NAME_SETTLED;
	else
		redis_name_emit(cpu, thread, n);
}

#endif
