/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Where tags are looked for. */
#ifndef QJOULE_TAGS_ROOM_BPF_H
#define QJOULE_TAGS_ROOM_BPF_H

#include "state.bpf.h"
#include "tags_kept.h"

/*
 * Where a thread looks through what it has read, a place of its own: it may be preempted. What
 * becomes tags lies in the first half, with zeros behind it; it may be put together of two pieces.
 */
struct tags_room {
	union {
		__u8 bytes[2 * TAGS_ROOM];
		__u64 words[2 * TAGS_ROOM / 8];
	};
};

struct tags_room_map {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tags_room);
};
extern struct tags_room_map tags_room SEC(".maps");

#endif
