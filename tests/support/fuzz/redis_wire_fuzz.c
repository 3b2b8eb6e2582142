/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Whatever a Redis client sends, in whatever pieces: nothing beyond the bytes read is accessed, and
 * every loop ends. Where the bytes are cut affects neither the number of commands nor the
 * connection's name. Build and run:
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
 *	    -Itests/support/fuzz/host -Ibpf -Ibuild/bpf tests/support/fuzz/redis_wire_fuzz.c \
 *	    tests/support/fuzz/redis_wire_host.c -o redis_wire_fuzz
 *	./redis_wire_fuzz -max_total_time=600 -max_len=400 -len_control=0
 *
 * The input is a list of parts of a stream: a byte that selects the part, then its data.
 */
#include <stdio.h>

#include "host.h"
#include "wire_host.h"

#define STREAM_MAX   2048
#define PART_MAX     2048 /* bytes: six long arguments */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define LOSS_FRAMING 8

static const char *const words[] = {"CLIENT",  "SETNAME", "client",    "setname", "HELLO",
				    "3",       "AUTH",	  "RESET",     "MULTI",	  "EXEC",
				    "DISCARD", "GET",	  "release=1", "a b",	  ""};
static const char *const between[] = {" ", "\t", " '", "\" ", "\\", "\r\n"};
static const char *const replies[] = {"+OK\r\n", "+QUEUED\r\n", "-ERR no\r\n", "*1\r\n+OK\r\n",
				      "*-1\r\n", "_\r\n",	"$-1\r\n",     "%"};

struct stream {
	__u8 bytes[STREAM_MAX + PART_MAX];
	size_t count;
};

struct outcome {
	__u64 executions;
	struct wire_name last; /* that the connection has */
};

static void put(struct stream *s, const char *text)
{
	s->count += sprintf((char *)s->bytes + s->count, "%s", text);
}

static void put_number(struct stream *s, char type, size_t number)
{
	s->count += sprintf((char *)s->bytes + s->count, "%c%zu\r\n", type, number);
}

/* A word, a name about as long as one may be, or any bytes, which may belie their length. */
static void put_argument(struct stream *s, struct host_input *in)
{
	__u8 what = host_take(in, 1);
	const char *word = words[what % COUNT(words)];

	if (what < 150) {
		put_number(s, '$', strlen(word));
		put(s, word);
	} else if (what < 220) {
		put_number(s, '$', what + 50);
		for (int n = what + 50; n; n--)
			put(s, "x");
	} else {
		put_number(s, '$', what - 220);
		s->count += host_take_bytes(in, s->bytes + s->count, 40);
	}
	put(s, "\r\n");
}

/* A command, a plain line, or any bytes. */
static void put_part(struct stream *s, struct host_input *in)
{
	__u8 what = host_take(in, 1), n = 1 + what % 6;

	if (what < 16) {
		s->count += host_take_bytes(in, s->bytes + s->count, 40);
	} else if (what < 96) {
		while (--n) {
			put(s, words[host_take(in, 1) % COUNT(words)]);
			put(s, between[host_take(in, 1) % COUNT(between)]);
		}
		put(s, "\r\n");
	} else {
		put_number(s, '*', n);
		while (n--)
			put_argument(s, in);
	}
}

static void finish(struct outcome *o)
{
	size_t n = redis_close(), names;
	const struct wire_name *told = wire_names(&names);

	memset(o, 0, sizeof(*o));
	for (size_t i = 0; i < n; i++)
		o->executions += wire_queries()[i].executions;
	for (size_t i = 0; i < names; i++)
		if (told[i].count > 256)
			abort();
	if (names)
		memcpy(&o->last, &told[names - 1], sizeof(o->last));
}

/* All replies at once, at the end. */
static void run(const struct stream *s, size_t step, struct outcome *o)
{
	redis_open(1);
	for (size_t at = 0; at < s->count; at += step)
		redis_receive(s->bytes + at, s->count - at < step ? s->count - at : step);
	redis_reply((const __u8 *)"+OK\r\n", 5);
	finish(o);
}

/* Any pieces and any replies. */
static void run_wildly(const struct stream *s, __u32 pattern, struct outcome *o)
{
	redis_open(pattern & 1);
	for (size_t at = 0, bytes; at < s->count; at += bytes) {
		const char *reply;

		bytes = host_piece(&pattern, 300, s->count - at);
		redis_receive(s->bytes + at, bytes);
		reply = replies[(pattern >> 20) % COUNT(replies)];
		if (pattern >> 30)
			redis_reply((const __u8 *)reply, strlen(reply));
	}
	finish(o);
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	static struct stream s;
	struct host_input in = {data, size};
	struct outcome whole, bytewise, wild;
	__u32 pattern = host_take(&in, 4);

	s.count = 0;
	while (in.left && s.count < STREAM_MAX)
		put_part(&s, &in);
	run(&s, sizeof(s.bytes), &whole);
	run(&s, 1, &bytewise);
	if (whole.executions != bytewise.executions || whole.last.count != bytewise.last.count ||
	    memcmp(whole.last.bytes, bytewise.last.bytes, whole.last.count))
		abort();
	run_wildly(&s, pattern, &wild);
	if (pattern & 1 && !wire_loss(LOSS_FRAMING) && wild.executions != whole.executions)
		abort();
	return 0;
}
