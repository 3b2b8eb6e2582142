/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Turns sampled stacks (struct qj_ring_stack) into places in code. The bytes of a stack are looked
 * at where the kernel left them, in the ring, and go nowhere else.
 */
#ifndef QJ_STACKS_H
#define QJ_STACKS_H

#include "stream.h"

#define STACKS_MAGIC   0x31544a51 /* "QJT1" */
#define STACKS_MODULES 512

/*
 * What a server's process has mapped, as qjoule.servers.stack_tables writes it into memory: this
 * header, the modules, and the sections at their offsets. A stranger's bytes.
 */
struct stacks_module {
	uint64_t start, end, bias; /* of its code: see struct unwind_module */
	uint64_t index_at, index_bytes, index_vaddr;
	uint64_t frames_at, frames_bytes, frames_vaddr;
	uint32_t number; /* in meta.json, from 1 */
	uint32_t reserved;
	uint64_t inode, file_bytes; /* of a library: see struct library */
};

struct stacks_head {
	uint32_t magic;
	uint32_t count; /* modules, by their address */
	/* After these, libraries that are not mapped, and may be later. */
	uint32_t library_count;
	uint32_t reserved;
	/* Where the process' code and its stack began: what samples of it and its forks say. */
	uint64_t code_from, code_to;
	uint64_t stack_from, stack_to;
};

struct stacks;

/*
 * `fds`: of such memory; one that is damaged is left out. `compiled`: of what a JVM has compiled
 * (struct compiled_lists); 0: it is none. `asked`: QJ_ASKED places, where addresses are asked for.
 * Returns NULL if there is no memory.
 */
struct qj_asked;
struct stacks *stacks_new(const int *fds, const int *compiled, unsigned count,
			  struct stream *stream, struct qj_asked *asked);
void stacks_free(struct stacks *stacks);

/* Takes a record from a ring, and adds what it says to the stream. */
struct qj_ring_stack;
void stacks_received(struct stacks *stacks, const struct qj_ring_stack *sampled);

#endif /* QJ_STACKS_H */
