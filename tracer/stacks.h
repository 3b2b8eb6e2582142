/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Turns sampled stacks (struct qj_ring_stack) into places in code. The bytes of a stack are read in
 * the ring, and not copied elsewhere.
 */
#ifndef QJ_STACKS_H
#define QJ_STACKS_H

#include "stream.h"

#define STACKS_MAGIC   0x31544a51 /* "QJT1" */
#define STACKS_MODULES 512

/*
 * A server's mappings, as qjoule.servers.stack_tables writes them into memory: this header, the
 * modules, and the sections at their offsets. Untrusted bytes.
 */
struct stacks_module {
	uint64_t start, end, bias; /* of the module's code: see struct unwind_module */
	uint64_t index_at, index_bytes, index_vaddr;
	uint64_t frames_at, frames_bytes, frames_vaddr;
	uint32_t number; /* in meta.json, from 1 */
	uint32_t reserved;
	uint64_t inode, file_bytes; /* of a library: see struct library */
};

struct stacks_head {
	uint32_t magic;
	uint32_t count; /* number of modules, which are sorted by address */
	/* After these, libraries that are not mapped yet. */
	uint32_t library_count;
	uint32_t reserved;
	/* Where the process's code and its stack began: the same in samples of it and its forks. */
	uint64_t code_from, code_to;
	uint64_t stack_from, stack_to;
};

struct stacks;

/*
 * `fds`: of such memory; damaged ones are left out. `compiled`: a JVM's compiled code (struct
 * compiled_lists); 0: none. `asked`: QJ_ASKED slots for requests of mappings. NULL: no memory.
 */
struct qj_asked;
struct stacks *stacks_new(const int *fds, const int *compiled, unsigned count,
			  struct stream *stream, struct qj_asked *asked);
void stacks_free(struct stacks *stacks);

/* Takes a record from a ring, and adds its stack to the stream. */
struct qj_ring_stack;
void stacks_received(struct stacks *stacks, const struct qj_ring_stack *sampled);

#endif /* QJ_STACKS_H */
