// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The replies of a PostgreSQL backend, without a hook on sends. A backend collects its replies in
 * one buffer of 8 KB (PqSendBuffer in src/backend/libpq/pqcomm.c). It sends the buffer when it is
 * full, after an error or a notice, and after ReadyForQuery. So when the backend reads again, the
 * last part of its reply is still there, from the buffer's start on.
 *
 * Of a long reply only the end is there; it begins within a message, and older data follows it. So
 * a reply is accepted only if its messages form a chain up to ReadyForQuery. A client's data can
 * fake where the chain begins, but only for its own rows. PostgreSQL documentation, "Message
 * Formats", "Error and Notice Message Fields".
 */
#include "requests.bpf.h"

#define POSTGRES_WINDOW	     SCRATCH_BYTES /* bytes read at once */
#define POSTGRES_SEND_BUFFER 8192	   /* PQ_SEND_BUFFER_SIZE */
#define POSTGRES_TAG	     64		   /* COMPLETION_TAG_BUFSIZE, tcop/cmdtag.h */
#define POSTGRES_DIGITS	     20		   /* of 2^64 */
#define POSTGRES_SEVERITY    64		   /* more than a translation of "ERROR" has */
#define POSTGRES_LOOK	     (POSTGRES_HEADER + POSTGRES_TAG)
/* How far to search for the first complete message in the end of a long reply: rows may be wide. */
#define POSTGRES_SEARCH_MAX 1024
#define POSTGRES_REPLY_MAX  (POSTGRES_SEND_BUFFER / POSTGRES_HEADER + POSTGRES_SEARCH_MAX)
/* An error's severity and the beginning of the next field, little-endian: "VERROR", NUL, "C". */
#define POSTGRES_ERROR_CODE 0x4300524f52524556ULL

struct postgres_reply {
	struct thread_state *thread;
	__u64 rows;	   /* of the completed statements */
	__u32 sent;	   /* rows since the last completed statement */
	__u32 at;	   /* offset in the buffer of the current message */
	__u32 window;	   /* offset of the bytes in thread->scratch */
	__u32 start;	   /* offset where the walk began */
	__u32 completions; /* completed statements */
	__u8 ended;	   /* ended with ReadyForQuery */
	__u8 failed;
};

/* Returns the POSTGRES_LOOK bytes at reply->at; zeros beyond the end. */
static __always_inline const __u8 *postgres_peek(struct postgres_reply *reply)
{
	struct thread_state *thread = reply->thread;
	__u32 into = reply->at - reply->window;

	if (into > POSTGRES_WINDOW - POSTGRES_LOOK) {
		__u64 left = POSTGRES_SEND_BUFFER - reply->at;

		if (left < POSTGRES_WINDOW || reply->at > POSTGRES_SEND_BUFFER)
			__builtin_memset(thread->scratch, 0, sizeof(thread->scratch));
		if (reply->at < POSTGRES_SEND_BUFFER)
			bpf_probe_read_user(
			    thread->scratch, at_most(left, POSTGRES_WINDOW),
			    (const void *)(thread->postgres.send_buffer + reply->at));
		reply->window = reply->at;
		into = 0;
	}
	return thread->scratch + at_most(into, POSTGRES_WINDOW - POSTGRES_LOOK);
}

static __always_inline bool postgres_is_reply(__u8 type, __u32 length)
{
	switch (type) {
	case '1':
	case '2':
	case '3':
	case 'I':
	case 'c':
	case 'n':
	case 's':
		return length == 4;
	case 'Z':
		return length == 5;
	case 'A':
	case 'C':
	case 'D':
	case 'E':
	case 'H':
	case 'K':
	case 'N':
	case 'R':
	case 'S':
	case 'T':
	case 'd':
	case 't':
	case 'v':
		return length > 4 && length < POSTGRES_SEND_BUFFER;
	}
	return false;
}

/*
 * Parses the number at the end of the tag of a command that counts rows: "SELECT 5", "INSERT 0 3".
 * `bytes`: the tag's length; it begins with a letter. Backwards, because the verifier then has one
 * question per byte: forwards it looked at 130,000 instructions here.
 */
static __always_inline __u64 postgres_tag_rows(const __u8 *tag, __u32 bytes)
{
	__u64 rows = 0, unit = 1;

	if (bytes >= POSTGRES_TAG)
		return 0;
	for (__u32 i = 1; i <= POSTGRES_DIGITS; i++) {
		__u8 c = tag[(bytes - i) & (POSTGRES_TAG - 1)];

		if (c < '0' || c > '9')
			return c == ' ' ? rows : 0;
		rows += (c - '0') * unit;
		unit *= 10;
	}
	return 0;
}

static long postgres_error_byte(__u32 i, struct postgres_reply *reply)
{
	const __u8 *field = postgres_peek(reply);
	__u8 *state = reply->thread->sqlstate;
	__u64 word;

	__builtin_memcpy(&word, field, sizeof(word));
	reply->at++;
	if (word != POSTGRES_ERROR_CODE)
		return 0;
	for (int n = 0; n < 5; n++)
		if (field[8 + n] < '0' || field[8 + n] > 'Z')
			return 0;
	for (int n = 0; n < 5; n++)
		state[n] = field[8 + n];
	reply->failed = 1;
	return 1;
}

/* Parses an error's fields from reply->at on and keeps its SQLSTATE. */
static __always_inline void postgres_error(struct postgres_reply *reply)
{
	bpf_loop(POSTGRES_SEND_BUFFER, postgres_error_byte, reply, 0);
}

/* A statement is completed; `rows` comes from its tag. */
static __always_inline void postgres_completed(struct postgres_reply *reply, __u64 rows)
{
	reply->completions++;
	reply->rows += rows;
	reply->sent = 0;
}

/* No message begins here. A long reply may start in the middle of one: tries the next byte. */
static __always_inline long postgres_next_start(struct postgres_reply *reply)
{
	if (reply->start >= POSTGRES_SEARCH_MAX)
		return 1;
	reply->at = ++reply->start;
	reply->rows = reply->sent = reply->completions = 0;
	return 0;
}

static long postgres_reply_message(__u32 i, struct postgres_reply *reply)
{
	const __u8 *message = postgres_peek(reply);
	__u32 length = postgres_uint(message + 1), end = reply->at + 1 + length;
	__u8 type = message[0];

	/* The client must send data: there is no reply yet, only an older one. */
	if (!reply->at && (type == 'G' || type == 'W'))
		return 1;
	if (!postgres_is_reply(type, length) || end > POSTGRES_SEND_BUFFER ||
	    (reply->start && reply->at == reply->start && type != 'D' && type != 'd' &&
	     type != 'C'))
		return postgres_next_start(reply);
	switch (type) {
	case 'Z':
		reply->ended = 1;
		reply->at = end;
		return 1;
	case 'C':
		postgres_completed(reply, postgres_tag_rows(message + POSTGRES_HEADER, length - 5));
		break;
	case 'D':
		reply->sent++;
		break;
	case 's': /* the portal has more rows */
	case 'I': /* an empty statement */
		postgres_completed(reply, reply->sent);
		break;
	case 'E':
		reply->failed = 1;
		break;
	}
	reply->at = end;
	return 0;
}

/*
 * True if as many statements were completed as executed: only then the rows are known. If a
 * pipeline's reply is long or was flushed, its first part is gone.
 */
static __always_inline bool postgres_is_counted(const struct postgres_reply *reply)
{
	__u32 executions = reply->thread->executions;

	return reply->completions && !reply->failed &&
	       (executions <= 1 || reply->completions == executions);
}

/*
 * True if the error whose code was found is the first message of its reply: then only its severity
 * lies between the overwritten bytes and the code.
 */
static __always_inline bool postgres_begins_with_error(const struct postgres_reply *reply)
{
	struct thread_state *thread = reply->thread;
	__u32 begin = POSTGRES_HEADER + 1;

	return begin +
		   string_bytes(thread, thread->postgres.send_buffer + begin, POSTGRES_SEVERITY) +
		   1 ==
	       reply->at;
}

int postgres_answered(struct thread_state *thread)
{
	struct postgres_reply reply = {.thread = thread, .window = -POSTGRES_WINDOW};
	bool alone;

	if (!thread)
		return 0;
	if (!thread->postgres.send_buffer || thread->postgres.requests != 1 ||
	    thread->command == QJ_COMMAND_OTHER)
		return 0;
	bpf_loop(POSTGRES_REPLY_MAX, postgres_reply_message, &reply, 0);
	if (!reply.ended)
		return 0;
	/* An error is sent at once, so ReadyForQuery then overwrites its first bytes. */
	alone = reply.at == POSTGRES_HEADER + 1;
	if (alone || reply.failed) {
		if (!alone)
			reply.at = 0;
		postgres_error(&reply);
	}
	if (reply.failed)
		thread->flags |= QJ_QUERY_ERROR;
	else if (!alone)
		thread->flags |= QJ_QUERY_OK;
	if (postgres_is_counted(&reply)) {
		thread->flags |= QJ_QUERY_ROWS;
		thread->rows = reply.rows;
	}
	return alone && reply.failed && postgres_begins_with_error(&reply);
}
