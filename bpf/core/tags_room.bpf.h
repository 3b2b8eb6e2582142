/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The buffer in which tags are searched. */
#ifndef QJOULE_TAGS_ROOM_BPF_H
#define QJOULE_TAGS_ROOM_BPF_H

#include "state.bpf.h"
#include "tags_kept.h"

/*
 * Each thread has its own buffer for searching what it has read, because it may be preempted. Tags
 * lie in the first half, padded with zeros; they may be assembled from two pieces.
 */
struct tags_room {
	union {
		__u8 bytes[2 * TAGS_ROOM];
		__u64 words[2 * TAGS_ROOM / 8];
	};
};

struct tags_room_map {
#ifdef QJ_EARLY /* no program that uses it is preempted there */
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
#else
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
#endif
	__type(value, struct tags_room);
};
extern struct tags_room_map tags_room SEC(".maps");

#endif
