/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds the caller of code that a JVM has compiled at run time, which no file describes.
 *
 * HotSpot reports the frame sizes of its code. With -XX:+PreserveFramePointer each frame of a
 * method also has a frame pointer: a caller is accepted only if both agree.
 */
#ifndef QJ_COMPILED_H
#define QJ_COMPILED_H

#include "unwind.h"

/* qjoule.servers.jvm.code_cache.CodeKind */
enum compiled_kind {
	COMPILED_OTHER = 0, /* its callers are not known */
	COMPILED_METHOD,
	COMPILED_INTERPRETER,
	COMPILED_LEAF,	/* stubs that call nothing, among them the one that calls Java */
	COMPILED_FRAME, /* stubs whose frames have a known size */
};

#define COMPILED_MAGIC 0x31434a51 /* "QJC1" */
#define COMPILED_MOST  65536

/* Code at [start, start + bytes) that existed at `since_ns`. */
struct compiled_code {
	uint64_t start;
	uint64_t since_ns;
	uint32_t bytes;
	uint32_t frame_words; /* from the stack pointer to above the return address */
	uint32_t complete;    /* bytes of code after which the frame is complete */
	uint32_t kind;
	uint32_t number; /* unique in this JVM */
	uint32_t reserved;
};

struct compiled_list {
	uint32_t count;
	uint32_t frame_pointers;		  /* 1: methods have frame pointers */
	uint64_t call_stub;			  /* return address of calls of Java */
	struct compiled_code code[COMPILED_MOST]; /* by address */
};

/*
 * Memory that qjoule.session.compiled_code writes while the tracer reads it: `lists[turn % 2]` is
 * valid, and the other one is written next, a second later at the earliest. Untrusted bytes.
 */
struct compiled_lists {
	uint32_t magic;
	uint32_t module; /* number of the module for frames in this code */
	uint64_t turn;
	struct compiled_list lists[2];
};

/* The list that is valid for a stack sampled at `t_ns`. NULL: there is none. */
struct compiled {
	const struct compiled_list *list;
	uint64_t t_ns;
	uint64_t turn;
};

/* Maps such memory. Returns NULL if it is damaged. */
const struct compiled_lists *compiled_open(int fd);
void compiled_close(const struct compiled_lists *lists);

struct compiled compiled_begin(const struct compiled_lists *lists, uint64_t t_ns);
/* Returns true if the list has not been overwritten since compiled_begin(). */
bool compiled_holds(const struct compiled_lists *lists, const struct compiled *compiled);

/* Finds the code at this address. Returns false if none is known for the sample's time. */
bool compiled_at(const struct compiled *compiled, uint64_t pc, struct compiled_code *out);

/* Steps from `pc` in `code` to the caller, as unwinder_step(). `interrupted`: not at a call. */
enum unwind_result compiled_step(const struct compiled *compiled, const struct compiled_code *code,
				 const struct unwind_memory *stack, uint64_t pc,
				 uint64_t registers[UNWIND_REGISTERS], bool interrupted);

#endif /* QJ_COMPILED_H */
