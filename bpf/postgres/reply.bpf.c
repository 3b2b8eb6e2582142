// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What a PostgreSQL backend answered, without a hook on what it sends: it gathers its replies in
 * one buffer of 8 KB (PqSendBuffer in src/backend/libpq/pqcomm.c), which is sent when it is full,
 * behind an error or a notice, and behind ReadyForQuery. So when the backend comes back to read,
 * the last of its reply is still there, from the buffer's start on.
 *
 * Of a long reply that is the end only, which begins within a message; behind it lies what was sent
 * before. So a reply is believed if its messages lead, one to the next, to ReadyForQuery. Where the
 * first of them begins a client may deceive us, about its own rows. PostgreSQL documentation,
 * "Message Formats", "Error and Notice Message Fields".
 */
#include "frame.bpf.h"
#include "reply.bpf.h"

#define POSTGRES_WINDOW	     SCRATCH_BYTES /* that are read at once */
#define POSTGRES_SEND_BUFFER 8192	   /* PQ_SEND_BUFFER_SIZE */
#define POSTGRES_TAG	     64		   /* COMPLETION_TAG_BUFSIZE, tcop/cmdtag.h */
#define POSTGRES_LOOK	     (POSTGRES_HEADER + POSTGRES_TAG)
/* Of a long reply's end the first whole message is looked for so far: rows may be wide. */
#define POSTGRES_SEARCH_MAX 1024
#define POSTGRES_REPLY_MAX  (POSTGRES_SEND_BUFFER / POSTGRES_HEADER + POSTGRES_SEARCH_MAX)
/* An error's severity and the field behind it, little-endian: "VERROR", NUL, "C". */
#define POSTGRES_ERROR_CODE 0x4300524f52524556ULL

struct postgres_reply {
	struct thread_state *thread;
	__u64 rows;	   /* of the statements that were completed */
	__u32 sent;	   /* rows since the last of them */
	__u32 at;	   /* of the message that is looked at, in the buffer */
	__u32 window;	   /* of the bytes in thread->scratch */
	__u32 start;	   /* where the walk began */
	__u32 completions; /* statements */
	__u8 ended;	   /* by ReadyForQuery */
	__u8 failed;
};

/* The bytes at reply->at, POSTGRES_LOOK of them; zeros where there are none. */
static __always_inline const __u8 *postgres_look(struct postgres_reply *reply)
{
	struct thread_state *thread = reply->thread;
	__u32 into = reply->at - reply->window;

	if (into > POSTGRES_WINDOW - POSTGRES_LOOK) {
		__u64 left = POSTGRES_SEND_BUFFER - reply->at;

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

/* The number that ends the tag of a command which counts rows: "SELECT 5", "INSERT 0 3". */
static __always_inline __u64 postgres_tag_rows(const __u8 *tag)
{
	__u64 rows = 0;
	bool number = false;

	for (int i = 0; i < POSTGRES_TAG; i++) {
		__u8 c = tag[i];

		if (!c)
			break;
		if (c == ' ') {
			rows = 0;
			number = true;
		} else if (c >= '0' && c <= '9') {
			rows = rows * 10 + (c - '0');
		} else {
			number = false;
		}
	}
	return number ? rows : 0;
}

static long postgres_error_byte(__u32 i, struct postgres_reply *reply)
{
	const __u8 *field = postgres_look(reply);
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

/* An error's fields from reply->at on; its SQLSTATE is kept. */
static __always_inline void postgres_error(struct postgres_reply *reply)
{
	bpf_loop(POSTGRES_SEND_BUFFER, postgres_error_byte, reply, 0);
}

/* A statement is completed; `rows` by its tag. */
static __always_inline void postgres_completed(struct postgres_reply *reply, __u64 rows)
{
	reply->completions++;
	reply->rows += rows;
	reply->sent = 0;
}

/* Where no message is: of a long reply this may be the middle of one, so the next byte is tried. */
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
	const __u8 *message = postgres_look(reply);
	__u32 length = postgres_uint(message + 1), end = reply->at + 1 + length;
	__u8 type = message[0];

	/* The client is to send data: there is no answer yet, and what lies behind is an older one.
	 */
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
		postgres_completed(reply, postgres_tag_rows(message + POSTGRES_HEADER));
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
 * Statements' rows are known if as many were completed as were executed: of a pipeline whose reply
 * is long, or that was flushed, the first are gone.
 */
static __always_inline bool postgres_is_counted(const struct postgres_reply *reply)
{
	__u32 executions = reply->thread->executions;

	return reply->completions && !reply->failed &&
	       (executions <= 1 || reply->completions == executions);
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
	/* An error is sent at once, so ReadyForQuery then lies over its first bytes. */
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
	return 0;
}
