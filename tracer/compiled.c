// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Frames of HotSpot on x86-64: src/hotspot/cpu/x86/frame_x86.hpp, stubGenerator_x86_64.cpp. */
#include "compiled.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define FP 6 /* rbp */

const struct compiled_lists *compiled_open(int fd)
{
	const struct compiled_lists *lists;
	struct stat status;

	if (fstat(fd, &status) || status.st_size != sizeof(*lists))
		return NULL;
	lists = mmap(NULL, sizeof(*lists), PROT_READ, MAP_SHARED, fd, 0);
	if (lists == MAP_FAILED)
		return NULL;
	if (lists->magic == COMPILED_MAGIC)
		return lists;
	compiled_close(lists);
	return NULL;
}

void compiled_close(const struct compiled_lists *lists)
{
	if (lists)
		munmap((void *)lists, sizeof(*lists));
}

struct compiled compiled_begin(const struct compiled_lists *lists, uint64_t t_ns)
{
	uint64_t turn = lists ? __atomic_load_n(&lists->turn, __ATOMIC_ACQUIRE) : 0;

	return (struct compiled){
	    .list = lists ? &lists->lists[turn % 2] : NULL, .t_ns = t_ns, .turn = turn};
}

bool compiled_holds(const struct compiled_lists *lists, const struct compiled *compiled)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return !lists || __atomic_load_n(&lists->turn, __ATOMIC_RELAXED) == compiled->turn;
}

bool compiled_at(const struct compiled *compiled, uint64_t pc, struct compiled_code *out)
{
	const struct compiled_list *list = compiled->list;
	unsigned first = 0, last = list ? list->count : 0;

	if (last > COMPILED_MOST)
		return false;
	while (first < last) {
		unsigned middle = first + (last - first) / 2;

		*out = list->code[middle];
		if (pc < out->start)
			last = middle;
		else if (pc - out->start >= out->bytes)
			first = middle + 1;
		else
			return compiled->t_ns >= out->since_ns;
	}
	return false;
}

/* Steps to the caller of a frame with a frame pointer: the caller's is stored at `fp`. */
static enum unwind_result step_to_caller(const struct unwind_memory *stack, uint64_t fp,
					 uint64_t sp, uint64_t registers[])
{
	uint64_t caller, callers_fp;

	if (sp <= registers[UNWIND_SP] || !unwind_word(stack, fp, &callers_fp) ||
	    !unwind_word(stack, fp + 8, &caller))
		return UNWIND_LOST;
	registers[FP] = callers_fp;
	registers[UNWIND_SP] = sp;
	registers[UNWIND_IP] = caller;
	return caller ? UNWIND_CALLER : UNWIND_LOST;
}

/* The interpreter's frame stores where the caller's frame ended: the caller may be compiled, and
 * its arguments copied. */
static enum unwind_result leave_interpreter(const struct unwind_memory *stack, uint64_t registers[])
{
	uint64_t fp = registers[FP], sp;

	if (fp < registers[UNWIND_SP] || !unwind_word(stack, fp - 8, &sp) || sp < fp + 16)
		return UNWIND_LOST;
	return step_to_caller(stack, fp, sp, registers);
}

/* Leaves the stub that calls Java, which saves the caller's registers. */
static enum unwind_result leave_java(const struct unwind_memory *stack, uint64_t registers[])
{
	static const uint8_t kept[] = {3, 12, 13, 14, 15}; /* rbx, r12 to r15 */
	uint64_t fp = registers[FP], values[sizeof(kept)];

	for (unsigned i = 0; i < sizeof(kept); i++)
		if (!unwind_word(stack, fp - 8 * (7 + i), &values[i]))
			return UNWIND_LOST;
	for (unsigned i = 0; i < sizeof(kept); i++)
		registers[kept[i]] = values[i];
	return step_to_caller(stack, fp, fp + 16, registers);
}

/* Leaves a stub that calls nothing. Without a frame pointer, or before it is set, the return
 * address is at `sp`. */
static enum unwind_result leave_leaf(const struct compiled *compiled,
				     const struct unwind_memory *stack, uint64_t registers[])
{
	struct compiled_code caller;
	uint64_t word;

	if (!unwind_word(stack, registers[UNWIND_SP], &word))
		return UNWIND_LOST;
	if (compiled_at(compiled, word - 1, &caller)) {
		registers[UNWIND_SP] += 8;
		registers[UNWIND_IP] = word;
		return UNWIND_CALLER;
	}
	if (registers[FP] < registers[UNWIND_SP] || !unwind_word(stack, registers[FP] + 8, &word) ||
	    !compiled_at(compiled, word - 1, &caller))
		return UNWIND_LOST;
	return step_to_caller(stack, registers[FP], registers[FP] + 16, registers);
}

enum unwind_result compiled_step(const struct compiled *compiled, const struct compiled_code *code,
				 const struct unwind_memory *stack, uint64_t pc,
				 uint64_t registers[UNWIND_REGISTERS], bool interrupted)
{
	uint64_t above = registers[UNWIND_SP] + 8 * (uint64_t)code->frame_words;

	if (!compiled->list->frame_pointers)
		return UNWIND_LOST;
	switch (code->kind) {
	case COMPILED_METHOD:
		if (registers[FP] + 16 != above ||
		    (interrupted && pc - code->start < code->complete))
			return UNWIND_LOST;
		return step_to_caller(stack, registers[FP], above, registers);
	case COMPILED_INTERPRETER:
		return leave_interpreter(stack, registers);
	case COMPILED_LEAF:
		if (interrupted)
			return leave_leaf(compiled, stack, registers);
		return pc + 1 == compiled->list->call_stub ? leave_java(stack, registers)
							   : UNWIND_LOST;
	case COMPILED_FRAME:
		return interrupted ? UNWIND_LOST
				   : step_to_caller(stack, above - 16, above, registers);
	}
	return UNWIND_LOST;
}
