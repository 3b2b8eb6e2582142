/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds the caller of a function by the tables that compilers leave in a file for exceptions
 * (.eh_frame: Linux Standard Base, core, "Exception Frames"; DWARF 4, section 6.4). x86-64 only.
 *
 * Tables and stack may be a stranger's: nothing outside of the bytes given here is read, and each
 * step is bounded.
 */
#ifndef QJ_UNWIND_H
#define QJ_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNWIND_REGISTERS 17 /* by their numbers in DWARF; the last is the address of the code */
#define UNWIND_SP	 7
#define UNWIND_IP	 16

/* A section, and the address that the file gives it. */
struct unwind_table {
	const uint8_t *bytes;
	uint64_t size;
	uint64_t vaddr;
};

/* Code of one file that is mapped at [start, end), `bias` above its addresses in the file. */
struct unwind_module {
	uint64_t start, end, bias;
	struct unwind_table index;  /* .eh_frame_hdr: a sorted list of functions */
	struct unwind_table frames; /* .eh_frame */
	uint32_t number;
};

/* The known part of a thread's stack: [from, to). */
struct unwind_memory {
	const uint8_t *bytes;
	uint64_t from, to;
};

enum unwind_result {
	UNWIND_CALLER, /* the registers are those of the caller */
	UNWIND_ENTRY,  /* it has none: the thread begins here */
	UNWIND_LOST,   /* not known */
};

/* Registers of the caller (bits) that a function had saved, and where on the stack. */
struct unwind_saved {
	uint32_t registers;
	uint64_t at[UNWIND_REGISTERS];
};

/* The word at an address of the stack. Returns false if that is outside of what is known. */
bool unwind_word(const struct unwind_memory *stack, uint64_t address, uint64_t *out);

struct unwinder;

/* Remembers how to leave the places that it has seen. Returns NULL if there is no memory. */
struct unwinder *unwinder_new(void);
void unwinder_free(struct unwinder *unwinder);

/* Another stack begins: how much is read of tables for one stack is bounded. */
void unwinder_begin(struct unwinder *unwinder);

/*
 * One step up from the code at `pc` of the module: the address in `registers`, or one less in a
 * function that has called another. Stores in `interrupted` whether the caller called nothing, but
 * was interrupted by a signal.
 */
enum unwind_result unwinder_step(struct unwinder *unwinder, const struct unwind_module *module,
				 const struct unwind_memory *stack, uint64_t pc,
				 uint64_t registers[UNWIND_REGISTERS], bool *interrupted);

/* Of the function that the last step has left. */
const struct unwind_saved *unwinder_saved(const struct unwinder *unwinder);

/* Where the function begins that holds an address of the file; 0: not known. */
uint64_t unwind_function(const struct unwind_module *module, uint64_t vaddr);

#endif /* QJ_UNWIND_H */
