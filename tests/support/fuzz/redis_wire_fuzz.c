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
 * The input is a list of steps: a byte that selects the step, then its data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis_wire_host.h"

#define STREAM_MAX   2048
#define ONE_MAX	     700 /* bytes that one step appends, at most */
#define WORDS	     (sizeof(words) / sizeof(words[0]))
#define LOSS_FRAMING 8

static const char *const words[] = {"CLIENT",  "SETNAME", "client",    "setname", "HELLO",
				    "3",       "AUTH",	  "RESET",     "MULTI",	  "EXEC",
				    "DISCARD", "GET",	  "release=1", "a b",	  ""};
static const char *const replies[] = {"+OK\r\n", "+QUEUED\r\n", "-ERR no\r\n", "*1\r\n+OK\r\n",
				      "*-1\r\n", "_\r\n",	"$-1\r\n",     "%"};

struct input {
	const __u8 *data;
	size_t left;
};

struct stream {
	__u8 bytes[STREAM_MAX + ONE_MAX];
	size_t count;
};

struct outcome {
	__u64 executions;
	struct wire_name last; /* that the connection has */
};

static __u8 take(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->data++;
}

static void put(struct stream *s, const void *bytes, size_t count)
{
	memcpy(s->bytes + s->count, bytes, count);
	s->count += count;
}

static void put_line(struct stream *s, char type, size_t number)
{
	char line[24];

	put(s, line, snprintf(line, sizeof(line), "%c%zu\r\n", type, number));
}

static void put_raw(struct stream *s, struct input *in, size_t most)
{
	size_t count = take(in) % (most + 1);

	if (count > in->left)
		count = in->left;
	put(s, in->data, count);
	in->data += count;
	in->left -= count;
}

/* A known or unknown word, or one about as long as a name may be. */
static void put_argument(struct stream *s, struct input *in)
{
	struct stream one;
	__u8 which = take(in);

	one.count = 0;
	if (which < WORDS)
		put(&one, words[which], strlen(words[which]));
	else if (which < 100)
		put_raw(&one, in, 60);
	else
		for (size_t n = which + 80; n; n--)
			put(&one, "x", 1);
	put_line(s, '$', one.count);
	put(s, one.bytes, one.count);
	put(s, "\r\n", 2);
}

static void put_plain_line(struct stream *s, struct input *in)
{
	static const char *const between[] = {" ", "\t", " '", "\" ", "\\", ""};

	for (__u8 n = take(in) % 6; n; n--) {
		const char *word = words[take(in) % WORDS], *blank = between[take(in) % 6];

		put(s, word, strlen(word));
		put(s, blank, strlen(blank));
	}
	put(s, "\r\n", 2);
}

static void put_step(struct stream *s, struct input *in)
{
	__u8 what = take(in);
	struct stream one;
	size_t arguments;

	one.count = 0;
	if (what < 16) {
		put_raw(&one, in, 40);
	} else if (what < 96) {
		put_plain_line(&one, in);
	} else {
		arguments = 1 + what % 6;
		put_line(&one, '*', arguments);
		while (arguments-- && one.count < ONE_MAX - 400)
			put_argument(&one, in);
	}
	put(s, one.bytes, one.count < ONE_MAX ? one.count : ONE_MAX);
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
	const char *reply;
	size_t bytes;

	redis_open(pattern & 1);
	for (size_t at = 0; at < s->count; at += bytes) {
		pattern = pattern * 1664525 + 1013904223;
		bytes = 1 + (pattern >> 8) % 300;
		if (bytes > s->count - at)
			bytes = s->count - at;
		redis_receive(s->bytes + at, bytes);
		reply = replies[(pattern >> 20) % (sizeof(replies) / sizeof(replies[0]))];
		if (pattern >> 30)
			redis_reply((const __u8 *)reply, strlen(reply));
	}
	finish(o);
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	static struct stream s;
	struct input in = {data, size};
	struct outcome whole, bytewise, wild;
	__u32 pattern = 0;

	for (int i = 0; i < 4; i++)
		pattern = pattern << 8 | take(&in);
	s.count = 0;
	while (in.left && s.count < STREAM_MAX)
		put_step(&s, &in);
	run(&s, STREAM_MAX + ONE_MAX, &whole);
	run(&s, 1, &bytewise);
	if (whole.executions != bytewise.executions || whole.last.count != bytewise.last.count ||
	    memcmp(whole.last.bytes, bytewise.last.bytes, whole.last.count))
		abort();
	run_wildly(&s, pattern, &wild);
	if (pattern & 1 && !wire_loss(LOSS_FRAMING) && wild.executions != whole.executions)
		abort();
	return 0;
}
