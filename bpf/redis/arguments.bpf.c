// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Detects tools among processes that run Redis' executable: Sentinel and the two checkers use the
 * same file. They are recognised by the name that they were called by, Sentinel also by an option
 * (Redis server.c, main() and checkForSentinelMode()).
 */
#include "core/task.bpf.h"
#include "state.bpf.h"

#define WORD_START 0xcbf29ce484222325ULL

struct redis_words {
	__u64 at;
	__u64 left;
	__u64 word;  /* hash of the current word so far; of the first word, only after its last / */
	__u32 later; /* the first word has ended */
	__u32 tool;
};

static __always_inline __u64 longer(__u64 word, __u8 byte)
{
	return (word ^ byte) * 0x100000001b3ULL;
}

/* The hash of a literal, computed by the compiler. */
#define WORD_OF(literal)                                                                           \
	({                                                                                         \
		__u64 _word = WORD_START;                                                          \
                                                                                                   \
		_Pragma("unroll") for (int _i = 0; (literal)[_i]; _i++) _word =                    \
		    longer(_word, (literal)[_i]);                                                  \
		_word;                                                                             \
	})

static __always_inline void feed_word(struct redis_words *words, __u8 byte)
{
	if (!byte) {
		words->tool |= words->later && words->word == WORD_OF("--sentinel");
		words->later = 1;
		words->word = WORD_START;
	} else if (byte == '/' && !words->later) {
		words->word = WORD_START;
	} else {
		words->word = longer(words->word, byte);
		words->tool |= !words->later && (words->word == WORD_OF("redis-sentinel") ||
						 words->word == WORD_OF("redis-check-rdb") ||
						 words->word == WORD_OF("redis-check-aof"));
	}
}

static long feed_words(__u32 i, struct redis_words *words)
{
	__u8 chunk[ARGUMENT_CHUNK] = {};
	__u64 bytes = at_most(words->left, ARGUMENT_CHUNK);

	if (!bytes || bpf_probe_read_user(chunk, bytes, (const void *)words->at))
		return 1;
	for (unsigned b = 0; b < ARGUMENT_CHUNK && b < bytes; b++)
		feed_word(words, chunk[b]);
	words->at += bytes;
	words->left -= bytes;
	return words->tool ? 1 : 0;
}

int is_redis_tool(__u64 start, __u64 bytes)
{
	struct redis_words words = {.at = start, .left = bytes, .word = WORD_START};

	bpf_loop(ARGUMENT_CHUNKS, feed_words, &words, 0);
	return words.tool ? 1 : 0;
}
