/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Whether a comment belongs to the whole text or to one of several statements in it. */
#ifndef QJOULE_TAGS_SEVERAL_BPF_H
#define QJOULE_TAGS_SEVERAL_BPF_H

#include "tags.bpf.h"

#define CHUNK_WORDS (TAGS_ROOM / 8) /* words of a statement that are searched at once */
#define EACH(byte)  ((byte)*0x0101010101010101ULL)

struct statements_search {
	const struct thread_state *thread;
	struct tags_room *room;
	__u32 bytes;	/* length of the statement */
	__u32 end;	/* a semicolon before this offset is not the last one */
	__u32 comments; /* number of comments that end as tags do */
	__u16 before;	/* the last two bytes that were read */
	__u8 goes_on;	/* text follows a semicolon */
};

static __always_inline __u64 has_zero(__u64 word)
{
	return (word - EACH(1)) & ~word & EACH(0x80);
}

static long statements_step(__u32 i, struct statements_search *search)
{
	struct tags_room *room = search->room;
	__u32 at = i * 8, left;
	__u64 word;
	bool looks;

	if (at >= search->bytes)
		return 1;
	left = search->bytes - at;
	if (!(i & (CHUNK_WORDS - 1))) {
		__builtin_memset(room, 0, TAGS_ROOM);
		if (read_text(search->thread, room->bytes, at_most(left, TAGS_ROOM),
			      search->thread->text_addr + at))
			return 1;
	}
	word = room->words[i & (CHUNK_WORDS - 1)];
	looks = has_zero(word ^ EACH('/')) || has_zero(word ^ EACH(';'));
	for (__u32 j = 0; looks && j < 8; j++) {
		__u8 byte = word >> 8 * j;

		if (byte == '/' && search->before == ('\'' | '*' << 8))
			search->comments++;
		if (byte == ';' && at + j < search->end)
			search->goes_on = 1;
		search->before = search->before >> 8 | byte << 8;
	}
	search->before = word >> 48;
	return 0;
}

/*
 * True if several statements were sent as one query and more than one of them has a comment: the
 * query then belongs to all of them, so no tags apply. Comment signs within literals may cause this
 * too.
 */
static __always_inline bool are_of_several(const struct thread_state *thread,
					   struct tags_room *room, __u32 bytes, __u32 end)
{
	struct statements_search search = {
	    .thread = thread, .room = room, .bytes = bytes, .end = end};

	bpf_loop(QJ_TEXT_BYTES / 8, statements_step, &search, 0);
	return search.goes_on && search.comments > 1;
}

#endif
