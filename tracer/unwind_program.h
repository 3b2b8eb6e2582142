/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* unwind_program.c: from a place in code to the rule that .eh_frame has for it. */
#ifndef QJ_UNWIND_PROGRAM_H
#define QJ_UNWIND_PROGRAM_H

#include "unwind.h"

/* A part of a table that is read from its beginning. After a read beyond its end it is `bad`. */
struct unwind_bytes {
	const uint8_t *at, *end;
	bool bad;
};

uint8_t bytes_u8(struct unwind_bytes *bytes);
uint64_t bytes_uleb(struct unwind_bytes *bytes);
int64_t bytes_sleb(struct unwind_bytes *bytes);
/* The operand of DW_OP_addr or DW_OP_const.... */
uint64_t bytes_constant(struct unwind_bytes *bytes, uint8_t op);

enum unwind_rule_kind {
	RULE_SAME = 0,
	RULE_UNDEFINED,
	RULE_OFFSET,	   /* in memory, `offset` above the CFA */
	RULE_VALUE_OFFSET, /* the CFA and `offset` */
	RULE_REGISTER,	   /* the register `number` and `offset` */
	RULE_EXPRESSION,   /* in memory, at the expression's address */
	RULE_VALUE_EXPRESSION,
};

struct unwind_place {
	enum unwind_rule_kind kind;
	uint32_t number;
	int64_t offset;
	struct unwind_bytes expression;
};

/* The rules to restore the caller's registers; `cfa`: the stack pointer before the call. */
struct unwind_rule {
	struct unwind_place cfa;
	struct unwind_place registers[UNWIND_REGISTERS];
	bool is_signal;
};

/*
 * Finds the rule for an address of the file. Returns false without a rule, for a damaged one, or if
 * its entries are longer than `bytes_left`, from which they are subtracted.
 */
bool unwind_rule_at(const struct unwind_module *module, uint64_t vaddr, struct unwind_rule *rule,
		    uint32_t *bytes_left);

#endif /* QJ_UNWIND_PROGRAM_H */
