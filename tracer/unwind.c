// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Evaluates .eh_frame for one step, and caches the simple rules by place. */
#include "unwind.h"

#include <stdlib.h>
#include <string.h>

#include "unwind_program.h"

#define REMEMBERED (1u << 14) /* a power of two */
#define ABSENT	   INT16_MIN
/*
 * Budget for reading tables per stack. An entry has some hundred bytes, of the largest functions
 * some 10,000, and cached places need none.
 */
#define STACK_BYTES (128u << 10)

/* The rules that nearly all places have: every register is on the stack, in words below the CFA. */
struct simple {
	const uint8_t *tables; /* of the file, wherever that is mapped */
	uint64_t pc;
	int32_t cfa_offset;
	uint8_t cfa_register;
	bool is_entry;
	int16_t words[6];
};
/* Registers that a function preserves: rbx, rbp, r12 to r15. */
static const uint8_t preserved[] = {3, 6, 12, 13, 14, 15};
#define PRESERVED (sizeof(preserved) / sizeof(preserved[0]))

struct unwinder {
	struct simple remembered[REMEMBERED];
	struct unwind_saved saved;
	uint32_t bytes_left;
};

struct unwinder *unwinder_new(void)
{
	return calloc(1, sizeof(struct unwinder));
}

void unwinder_free(struct unwinder *unwinder)
{
	free(unwinder);
}

const struct unwind_saved *unwinder_saved(const struct unwinder *unwinder)
{
	return &unwinder->saved;
}

void unwinder_begin(struct unwinder *unwinder)
{
	unwinder->bytes_left = STACK_BYTES;
}

bool unwind_word(const struct unwind_memory *stack, uint64_t address, uint64_t *out)
{
	if (address < stack->from || address > stack->to || stack->to - address < sizeof(*out))
		return false;
	memcpy(out, stack->bytes + (address - stack->from), sizeof(*out));
	return true;
}

/*
 * Reads a register that the function has saved on the stack. In its last instructions it may
 * already have restored it, which the tables do not show: then the register itself is right.
 */
static bool read_saved(const struct unwind_memory *stack, uint64_t address, uint64_t *out)
{
	return address < stack->from || unwind_word(stack, address, out);
}

/* Converts a rule to the simple form; returns false if it has none. */
static bool simplify(const struct unwind_rule *rule, struct simple *out)
{
	bool is_entry = rule->registers[UNWIND_IP].kind == RULE_UNDEFINED;

	if (rule->is_signal || rule->cfa.kind != RULE_REGISTER ||
	    rule->cfa.number >= UNWIND_REGISTERS || rule->cfa.offset != (int32_t)rule->cfa.offset)
		return false;
	*out = (struct simple){
	    .cfa_register = rule->cfa.number, .cfa_offset = rule->cfa.offset, .is_entry = is_entry};
	if (!is_entry && (rule->registers[UNWIND_IP].kind != RULE_OFFSET ||
			  rule->registers[UNWIND_IP].offset != -8))
		return false;
	for (unsigned i = 0; i < PRESERVED; i++) {
		const struct unwind_place *place = &rule->registers[preserved[i]];
		int64_t words = place->offset / 8;

		out->words[i] = ABSENT;
		if (place->kind == RULE_SAME || place->kind == RULE_UNDEFINED)
			continue;
		if (place->kind != RULE_OFFSET || place->offset % 8 || words <= ABSENT ||
		    words > INT16_MAX)
			return false;
		out->words[i] = words;
	}
	return true;
}

/* Steps to the caller. A stack grows down: its part is above, or unwinding might not end. */
static enum unwind_result step_to_caller(uint64_t registers[], const uint64_t callers[],
					 uint64_t cfa)
{
	if (cfa <= registers[UNWIND_SP])
		return UNWIND_LOST;
	memcpy(registers, callers, UNWIND_REGISTERS * sizeof(callers[0]));
	registers[UNWIND_SP] = cfa;
	return registers[UNWIND_IP] ? UNWIND_CALLER : UNWIND_ENTRY;
}

static void keep_saved(struct unwind_saved *saved, unsigned number, uint64_t at)
{
	saved->registers |= 1u << number;
	saved->at[number] = at;
}

static enum unwind_result apply_simple(const struct simple *simple,
				       const struct unwind_memory *stack, uint64_t registers[],
				       struct unwind_saved *saved)
{
	uint64_t cfa = registers[simple->cfa_register] + simple->cfa_offset;
	uint64_t callers[UNWIND_REGISTERS];

	if (simple->is_entry)
		return UNWIND_ENTRY;
	memcpy(callers, registers, sizeof(callers));
	if (!unwind_word(stack, cfa - 8, &callers[UNWIND_IP]))
		return UNWIND_LOST;
	for (unsigned i = 0; i < PRESERVED; i++) {
		if (simple->words[i] == ABSENT)
			continue;
		keep_saved(saved, preserved[i], cfa + 8 * (int64_t)simple->words[i]);
		if (!read_saved(stack, saved->at[preserved[i]], &callers[preserved[i]]))
			return UNWIND_LOST;
	}
	return step_to_caller(registers, callers, cfa);
}

/* Evaluates an expression (DWARF 4, section 2.5), with the operations in tables for x86-64. */
static bool evaluate(struct unwind_bytes code, const struct unwind_memory *stack,
		     const uint64_t registers[], const uint64_t *first, uint64_t *out)
{
	uint64_t values[16];
	unsigned count = 0;

	if (first)
		values[count++] = *first;
	while (code.at < code.end) {
		uint8_t op = bytes_u8(&code);

		if (op >= 0x03 && op != 0x06 && op < 0x12)
			values[count++ & 15] = bytes_constant(&code, op);
		else if (op >= 0x30 && op < 0x50) /* DW_OP_lit0 to 31 */
			values[count++ & 15] = op - 0x30;
		else if (op >= 0x70 && op < 0x70 + UNWIND_REGISTERS) /* DW_OP_breg0 ... */
			values[count++ & 15] = registers[op - 0x70] + bytes_sleb(&code);
		else if (op == 0x23 && count) /* DW_OP_plus_uconst */
			values[count - 1] += bytes_uleb(&code);
		else if (op == 0x06 && count) { /* DW_OP_deref */
			if (!unwind_word(stack, values[count - 1], &values[count - 1]))
				return false;
		} else if (count >= 2) {
			uint64_t right = values[--count], *left = &values[count - 1];

			switch (op) {
			case 0x1a: /* DW_OP_and */
				*left &= right;
				break;
			case 0x1c: /* DW_OP_minus */
				*left -= right;
				break;
			case 0x22: /* DW_OP_plus */
				*left += right;
				break;
			case 0x24: /* DW_OP_shl */
				*left = right < 64 ? *left << right : 0;
				break;
			case 0x2a: /* DW_OP_ge */
				*left = (int64_t)*left >= (int64_t)right;
				break;
			default:
				return false;
			}
		} else {
			return false;
		}
		if (code.bad || count > 16)
			return false;
	}
	*out = count ? values[count - 1] : 0;
	return count;
}

static bool find(const struct unwind_place *place, const struct unwind_memory *stack,
		 const uint64_t registers[], uint64_t cfa, unsigned number, uint64_t *out)
{
	switch (place->kind) {
	case RULE_SAME:
	case RULE_UNDEFINED:
		*out = registers[number];
		return true;
	case RULE_OFFSET:
		*out = registers[number];
		return number == UNWIND_IP ? unwind_word(stack, cfa + place->offset, out)
					   : read_saved(stack, cfa + place->offset, out);
	case RULE_VALUE_OFFSET:
		*out = cfa + place->offset;
		return true;
	case RULE_REGISTER:
		if (place->number >= UNWIND_REGISTERS)
			return false;
		*out = registers[place->number] + place->offset;
		return true;
	case RULE_EXPRESSION:
		return evaluate(place->expression, stack, registers, &cfa, out) &&
		       unwind_word(stack, *out, out);
	case RULE_VALUE_EXPRESSION:
		return evaluate(place->expression, stack, registers, &cfa, out);
	}
	return false;
}

static enum unwind_result apply(const struct unwind_rule *rule, const struct unwind_memory *stack,
				uint64_t registers[], struct unwind_saved *saved)
{
	uint64_t callers[UNWIND_REGISTERS], cfa;

	if (rule->registers[UNWIND_IP].kind == RULE_UNDEFINED)
		return UNWIND_ENTRY;
	if (rule->cfa.kind == RULE_VALUE_EXPRESSION) {
		if (!evaluate(rule->cfa.expression, stack, registers, NULL, &cfa))
			return UNWIND_LOST;
	} else if (!find(&rule->cfa, stack, registers, 0, 0, &cfa)) {
		return UNWIND_LOST;
	}
	for (unsigned i = 0; i < UNWIND_REGISTERS; i++) {
		if (rule->registers[i].kind == RULE_OFFSET)
			keep_saved(saved, i, cfa + rule->registers[i].offset);
		if (!find(&rule->registers[i], stack, registers, cfa, i, &callers[i]))
			return UNWIND_LOST;
	}
	/* A signal's frame names the stack pointer; for any other it is the CFA. */
	return step_to_caller(registers, callers,
			      rule->registers[UNWIND_SP].kind == RULE_SAME ? cfa
									   : callers[UNWIND_SP]);
}

enum unwind_result unwinder_step(struct unwinder *unwinder, const struct unwind_module *module,
				 const struct unwind_memory *stack, uint64_t pc,
				 uint64_t registers[UNWIND_REGISTERS], bool *interrupted)
{
	const uint8_t *tables = module->frames.bytes;
	uint64_t vaddr = pc - module->bias;
	uint64_t hash = (vaddr ^ (uintptr_t)tables << 16) * 0x9e3779b97f4a7c15ull;
	struct simple *known = &unwinder->remembered[hash >> 50 & (REMEMBERED - 1)];
	struct unwind_rule rule;
	struct simple simple;

	*interrupted = false;
	unwinder->saved.registers = 0;
	if (known->tables == tables && known->pc == vaddr)
		return apply_simple(known, stack, registers, &unwinder->saved);
	if (!unwind_rule_at(module, vaddr, &rule, &unwinder->bytes_left))
		return UNWIND_LOST;
	if (!simplify(&rule, &simple)) {
		*interrupted = rule.is_signal;
		return apply(&rule, stack, registers, &unwinder->saved);
	}
	simple.tables = tables;
	simple.pc = vaddr;
	*known = simple;
	return apply_simple(known, stack, registers, &unwinder->saved);
}
