// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Implements the part of state.bpf.h on lines: lines with numbers, which precede everything else in
 * RESP, and commands that are plain lines. Then named.bpf.h.
 */
#include "named.bpf.h"

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

/* Implements named.bpf.h. */

/* Limits the cost of clients that set a new name with each command: 6 MB a second. */
#define REDIS_NAMES_PER_S 10000ULL

static __always_inline bool may_emit_names(void)
{
	static __u64 used_ns;

	return within_rate(&used_ns, REDIS_NAMES_PER_S);
}

/* A name that cannot be sent now is sent at the reply to the next request. */
int redis_name_emit(struct qj_cpu_state *cpu, struct thread_state *thread, struct redis_naming *n)
{
	struct qj_ring_session *r;
	__u64 own, naming, bytes;

	if (!cpu || !thread || !n)
		return 0;
	if (!may_emit_names()) {
		count_loss(cpu, QJ_LOSS_SESSION);
		return 0;
	}
	own = thread->session;
	thread->session = n->session;
	r = reserve_session(cpu, thread, QJ_SESSION_APPLICATION);
	thread->session = own;
	if (!r)
		return 0;
	naming = cpu->naming;
	if (sums_by_tags())
		name_sums(cpu, thread, &r->session);
	if (own != n->session)
		cpu->naming = naming;
	bytes = n->name_bytes <= REDIS_CLIENT_BYTES ? n->name_bytes : 0;
	__builtin_memcpy(r->bytes, n->name, REDIS_CLIENT_BYTES);
	r->head.text_bytes = r->session.text_bytes = bytes;
	submit(r);
	n->state = REDIS_NAME_SETTLED;
	return 0;
}

/* Compares without regard to case. */
static __always_inline bool is_word(const struct redis_naming *n, const char *word, __u32 bytes)
{
	if (n->word_bytes != bytes)
		return false;
	for (__u32 i = 0; i < bytes; i++) {
		__u8 byte = n->word[i];

		if ((byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte) != word[i])
			return false;
	}
	return true;
}

#define IS_WORD(n, literal) is_word(n, literal, sizeof(literal) - 1)

static __always_inline void name_command(struct redis_naming *n)
{
	n->expects = REDIS_EXPECTS_END;
	if (IS_WORD(n, "client")) {
		n->command = REDIS_CLIENT_SETNAME;
		n->expects = REDIS_EXPECTS_SUBCOMMAND;
	} else if (IS_WORD(n, "hello")) {
		n->command = REDIS_HELLO;
		n->expects = REDIS_EXPECTS_VERSION;
	} else if (IS_WORD(n, "reset")) {
		n->command = REDIS_RESET;
	} else if (IS_WORD(n, "multi")) {
		n->command = REDIS_MULTI;
	} else if (IS_WORD(n, "exec")) {
		n->command = REDIS_EXEC;
	} else if (IS_WORD(n, "discard")) {
		n->command = REDIS_DISCARD;
	} else {
		n->expects = REDIS_EXPECTS_NOTHING;
	}
}

static __always_inline __u8 behind_option(const struct redis_naming *n)
{
	if (IS_WORD(n, "auth"))
		return REDIS_EXPECTS_USER;
	return IS_WORD(n, "setname") ? REDIS_EXPECTS_NAME : REDIS_EXPECTS_NOTHING;
}

static __always_inline __u8 behind_argument(struct redis_naming *n)
{
	switch (n->expects) {
	case REDIS_EXPECTS_SUBCOMMAND:
		return IS_WORD(n, "setname") ? REDIS_EXPECTS_NAME : REDIS_EXPECTS_NOTHING;
	case REDIS_EXPECTS_VERSION:
		return IS_WORD(n, "2") || IS_WORD(n, "3") ? REDIS_EXPECTS_OPTION
							  : REDIS_EXPECTS_NOTHING;
	case REDIS_EXPECTS_OPTION:
		return behind_option(n);
	case REDIS_EXPECTS_USER:
		return REDIS_EXPECTS_PASSWORD;
	case REDIS_EXPECTS_PASSWORD:
		return REDIS_EXPECTS_OPTION;
	case REDIS_EXPECTS_NAME:
		n->named = 1;
		return n->command == REDIS_HELLO ? REDIS_EXPECTS_OPTION : REDIS_EXPECTS_END;
	default:
		return REDIS_EXPECTS_NOTHING;
	}
}

int redis_name_argument(struct qj_cpu_state *cpu, struct thread_state *thread,
			struct redis_naming *n)
{
	if (!cpu || !thread || !n)
		return 0;
	if (n->expects == REDIS_EXPECTS_COMMAND)
		name_command(n);
	else
		n->expects = behind_argument(n);
	n->word_bytes = 0;
	if (n->expects != REDIS_EXPECTS_NAME)
		return 0;
	if (n->state == REDIS_NAME_ASKED)
		redis_name_emit(cpu, thread, n);
	/* If this one is refused, the transaction is aborted: flagTransaction(), multi.c. */
	if (n->state == REDIS_NAME_QUEUED)
		n->state = REDIS_NAME_SETTLED;
	n->name_bytes = 0;
	return 0;
}

int redis_name_command_done(struct redis_naming *n)
{
	if (!n || (n->expects != REDIS_EXPECTS_END && n->expects != REDIS_EXPECTS_OPTION))
		return 0;
	switch (n->command) {
	case REDIS_CLIENT_SETNAME:
	case REDIS_HELLO:
		if (n->named)
			n->state = n->in_transaction ? REDIS_NAME_QUEUED : REDIS_NAME_ASKED;
		break;
	case REDIS_RESET:
		n->in_transaction = 0;
		n->name_bytes = 0;
		n->state = REDIS_NAME_ASKED;
		break;
	case REDIS_MULTI:
		n->in_transaction = 1;
		break;
	case REDIS_EXEC:
		n->in_transaction = 0;
		if (n->state == REDIS_NAME_QUEUED)
			n->state = REDIS_NAME_ASKED;
		break;
	case REDIS_DISCARD:
		n->in_transaction = 0;
		if (n->state == REDIS_NAME_QUEUED)
			n->state = REDIS_NAME_SETTLED;
		break;
	}
	return 0;
}

static __always_inline void name_add(struct redis_naming *n, __u8 byte)
{
	n->in_word = 1;
	if (n->expects == REDIS_EXPECTS_NAME) {
		n->name[n->name_bytes & (REDIS_CLIENT_BYTES - 1)] = byte;
		if (n->name_bytes < REDIS_CLIENT_LONG)
			n->name_bytes++;
	} else {
		n->word[n->word_bytes & (REDIS_WORD - 1)] = byte;
		if (n->word_bytes <= REDIS_WORD)
			n->word_bytes++;
	}
}

/* Escapes are not decoded: a name with a backslash is unknown. */
static __always_inline void name_escape(struct redis_naming *n)
{
	n->escaped = 1;
	n->word_bytes = REDIS_WORD + 1;
	if (n->expects == REDIS_EXPECTS_NAME)
		n->name_bytes = REDIS_CLIENT_LONG;
}

/* A byte of a plain line: splits words and quotes like sdssplitargs(), sds.c of Redis 7. */
__noinline int redis_name_byte(struct qj_cpu_state *cpu, struct thread_state *thread,
			       struct redis_naming *n, __u8 byte)
{
	if (!cpu || !thread || !n)
		return 0;
	if (byte == '\n' || (!n->quote && (byte == ' ' || byte == '\t' || byte == '\r'))) {
		if (n->in_word)
			redis_name_argument(cpu, thread, n);
		n->in_word = 0;
	} else if (n->escaped) {
		n->escaped = 0;
	} else if (n->quote && byte == '\\') {
		name_escape(n);
	} else if (n->quote && byte == n->quote) {
		n->quote = 0;
	} else if (!n->quote && (byte == '"' || byte == '\'')) {
		n->quote = byte;
		n->in_word = 1;
	} else {
		name_add(n, byte);
	}
	return 0;
}

int redis_name_line(struct qj_cpu_state *cpu, struct thread_state *thread, struct redis_naming *n,
		    const struct redis_piece *piece, __u32 bytes)
{
	if (!cpu || !thread || !n || !piece)
		return 0;
	for (__u32 i = 0; i < REDIS_PIECE && i < bytes; i++)
		redis_name_byte(cpu, thread, n, piece->bytes[i]);
	return 0;
}
