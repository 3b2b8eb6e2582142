/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Whatever a client of PostgreSQL or MySQL sends, in whatever pieces: nothing beyond the bytes read
 * is accessed, every loop ends, and no more executions are counted than messages came. Build and
 * run:
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
 *	    -Itests/support/fuzz/host -Ibpf -Ibuild/bpf tests/support/fuzz/wire_fuzz.c \
 *	    tests/support/fuzz/wire_host.c -o wire_fuzz
 *	./wire_fuzz -max_total_time=600 -max_len=4096
 *
 * The input is a list of steps: a byte that selects the step, then its data.
 */
#include "host.h"
#include "wire_host.h"

#define MYSQL	    1
#define POSTGRES    2
#define MESSAGE_MAX 512
#define REPEAT_MAX  64
#define LOSSES	    15
#define TAGS_MAX    480

/* A message of a known type whose length is right or nearly right. */
static size_t postgres_message(struct host_input *in, __u8 *to)
{
	static const char types[] = "QPBESDCHFXdcfp";
	__u8 type = host_take(in, 1), off = host_take(in, 1);
	size_t bytes = host_take_bytes(in, to + 5, 250);
	__u32 length = bytes + 4 + (off > 250 ? off : 0);

	to[0] = types[type % (sizeof(types) - 1)];
	to[1] = length >> 24;
	to[2] = length >> 16;
	to[3] = length >> 8;
	to[4] = length;
	return bytes + 5;
}

static size_t postgres_startup(struct host_input *in, __u8 *to)
{
	static const __u32 codes[] = {3 << 16, 80877102, 80877103, 80877104, 2 << 16};
	__u32 code = codes[host_take(in, 1) % 5];
	size_t bytes = host_take_bytes(in, to + 8, 250) + 8;

	for (int i = 0; i < 4; i++) {
		to[i] = bytes >> (24 - 8 * i);
		to[4 + i] = code >> (24 - 8 * i);
	}
	return bytes;
}

/* A backend's messages, at any place in its buffer. */
static void postgres_reply(struct host_input *in)
{
	static const char types[] = "CDZEITSs12NHdG";
	static const __u8 error[] = "SERROR\0VERROR\0C22012\0M\0";
	__u8 bytes[4096] = {};
	size_t count = host_take(in, 1) % 64, used = 0, messages = host_take(in, 1) % 32;

	if (count > 40) /* after the rest of another message */
		used = host_take(in, 2) % (sizeof(bytes) - 300);
	for (; messages && in->left && used < sizeof(bytes) - 300; messages--) {
		__u8 *to = bytes + used, type = types[host_take(in, 1) % (sizeof(types) - 1)];
		size_t body = host_take_bytes(in, to + 5, 250);

		if (type == 'Z' && body)
			body = 1;
		if (type == 'E' && !body) {
			memcpy(to + 5, error, sizeof(error));
			body = sizeof(error);
		}
		to[0] = type;
		to[3] = (body + 4) >> 8;
		to[4] = body + 4;
		used += body + 5;
	}
	wire_reply(bytes, used);
}

static size_t mysql_packet(struct host_input *in, __u8 *to)
{
	__u8 sequence = host_take(in, 1), off = host_take(in, 1);
	size_t bytes = host_take_bytes(in, to + 4, 250), length = bytes + (off > 250 ? off : 0);

	to[0] = length;
	to[1] = length >> 8;
	to[2] = length >> 16;
	to[3] = sequence > 200 ? sequence : 0;
	return bytes + 4;
}

/* Parameters of an execution with names and values of their types, or nearly so; some are tags. */
static size_t mysql_execution(struct host_input *in, __u8 *to)
{
	static const __u8 types[] = {254, 254, 1, 2, 3, 5, 6, 8, 10, 252, 0};
	static const char tag[] = "qjoule.a";
	__u8 *at = to + 4, kinds[16];
	__u32 count = host_take(in, 1) % sizeof(kinds), odd = host_take(in, 1);

	*at++ = odd < 240 ? 0x17 : 0x18; /* COM_STMT_SEND_LONG_DATA */
	*at++ = host_take(in, 1) & 3;
	memset(at, 0, 8);
	at[3] = odd & 7 ? 8 : odd;
	at += 8;
	*at++ = count;
	for (__u32 i = 0; i < (count + 7) / 8; i++)
		*at++ = odd < 200 ? 0 : host_take(in, 1);
	*at++ = odd < 230;
	for (__u32 i = 0; i < count; i++) {
		__u8 name = host_take(in, 1);

		*at++ = kinds[i] = types[host_take(in, 1) % sizeof(types)];
		*at++ = 0;
		*at++ = name & 1 ? sizeof(tag) - 1 : name & 2;
		memcpy(at, tag, sizeof(tag) - 1);
		at += at[-1];
	}
	for (__u32 i = 0; i < count; i++)
		at += host_take_bytes(in, at, kinds[i] & 0xf0 ? 12 : 8);
	to[0] = at - to - 4;
	to[1] = (at - to - 4) >> 8;
	to[2] = to[3] = 0;
	return at - to;
}

/*
 * Reads as a server does: MySQL reads a header and then its packet into the same place. Or
 * arbitrary reads.
 */
static void receive(struct host_input *in, const __u8 *bytes, size_t count, int kind)
{
	__u8 how = host_take(in, 1);
	size_t at = 0, step = how % 7 ? how : 1;

	if (kind == MYSQL && how < 128 && count >= 4) {
		wire_receive(bytes, 4, 0);
		wire_receive(bytes + 4, count - 4, 0);
		return;
	}
	if (how >= 200)
		step = count;
	for (; at < count; at += step)
		wire_receive(bytes + at, count - at < step ? count - at : step, how & 1 ? at : 0);
}

static size_t one_step(struct host_input *in, int kind)
{
	__u8 bytes[MESSAGE_MAX];
	__u8 what = host_take(in, 1);
	size_t count, times = 1;

	switch (what & 7) {
	case 0:
		wire_wait();
		return 0;
	case 1:
		if (kind == POSTGRES && what & 8) {
			postgres_reply(in);
			return 0;
		}
		count = host_take_bytes(in, bytes, 250);
		wire_reply(bytes, count);
		return 0;
	case 2:
		count = host_take_bytes(in, bytes, 250);
		break;
	case 3:
		count = postgres_startup(in, bytes);
		break;
	case 4: /* what one read of 8 KB can hold */
		times = host_take(in, 1) % REPEAT_MAX;
		/* fallthrough */
	default:
		if (kind == MYSQL && what & 16) {
			count = mysql_execution(in, bytes);
			break;
		}
		count = kind == MYSQL ? mysql_packet(in, bytes) : postgres_message(in, bytes);
	}
	for (size_t i = 0; i < times; i++)
		receive(in, bytes, count, kind);
	/* Each message, and each five bytes that may be mistaken for one. */
	return times * (count + 1);
}

int LLVMFuzzerTestOneInput(const __u8 *data, size_t size)
{
	struct host_input in = {data, size};
	int kind = host_take(&in, 1) & 1 ? MYSQL : POSTGRES;
	size_t most = 0, n;
	__u64 executions = 0;

	wire_open(kind, host_take(&in, 1) % 3);
	while (in.left)
		most += one_step(&in, kind);
	n = wire_close();
	for (size_t i = 0; i < n; i++) {
		const struct wire_query *q = &wire_queries()[i];

		executions += q->executions;
		if (q->text && !q->shape)
			abort();
		if (q->tags_bytes > TAGS_MAX)
			abort();
	}
	if (executions > most)
		abort();
	for (int cause = 0; cause < LOSSES; cause++)
		if (wire_loss(cause) > most + n)
			abort();
	return 0;
}
