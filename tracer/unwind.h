/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds the caller of a function by the tables that compilers leave in a file for exceptions
 * (.eh_frame: Linux Standard Base, core, "Exception Frames"; DWARF 4, section 6.4). x86-64 only.
 *
 * Tables and stack are untrusted: only the given bytes are read, and each step is bounded.
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
	UNWIND_ENTRY,  /* the thread's entry, which has no caller */
	UNWIND_LOST,   /* not known */
};

/* The caller's registers (bits) that a function has saved, and where on the stack. */
struct unwind_saved {
	uint32_t registers;
	uint64_t at[UNWIND_REGISTERS];
};

/* Reads the word at an address of the stack. Returns false outside of the known part. */
bool unwind_word(const struct unwind_memory *stack, uint64_t address, uint64_t *out);

struct unwinder;

/* Makes a cache of the unwinding rules by place. Returns NULL without memory. */
struct unwinder *unwinder_new(void);
void unwinder_free(struct unwinder *unwinder);

/* Begins another stack, and so another budget for reading tables. */
void unwinder_begin(struct unwinder *unwinder);

/*
 * Steps up from the code at `pc` of the module: the address in `registers`, or one less in a
 * function that has called another. Sets `interrupted` if the caller did not call, but was
 * interrupted by a signal.
 */
enum unwind_result unwinder_step(struct unwinder *unwinder, const struct unwind_module *module,
				 const struct unwind_memory *stack, uint64_t pc,
				 uint64_t registers[UNWIND_REGISTERS], bool *interrupted);

/* Returns the saved registers of the function that the last step has left. */
const struct unwind_saved *unwinder_saved(const struct unwinder *unwinder);

/* Returns the start of the function that contains an address of the file; 0: not known. */
uint64_t unwind_function(const struct unwind_module *module, uint64_t vaddr);

#endif /* QJ_UNWIND_H */
