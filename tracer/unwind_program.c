// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Reads .eh_frame_hdr and .eh_frame. */
#include "unwind_program.h"

#include <string.h>

#define MOST_STEPS  20000 /* of one program: the largest functions have some thousand */
#define MOST_STATES 8	  /* saved states at a time; compilers use one or two */
/* 4-byte pointers relative to their own place, or to the index: x86-64's linkers write these. */
#define RELATIVE_S4	  0x1b
#define INDEX_RELATIVE_S4 0x3b
#define UNSIGNED_4	  0x03
#define INDEX_HEAD	  12
#define OMITTED		  0xff

/* Returns zeros, and sets `bad`, if fewer bytes are left. */
static void bytes_read(struct unwind_bytes *bytes, void *out, size_t size)
{
	bytes->bad |= (size_t)(bytes->end - bytes->at) < size;
	if (bytes->bad) {
		memset(out, 0, size);
		return;
	}
	memcpy(out, bytes->at, size);
	bytes->at += size;
}

uint8_t bytes_u8(struct unwind_bytes *bytes)
{
	uint8_t value;

	bytes_read(bytes, &value, sizeof(value));
	return value;
}

static uint16_t bytes_u16(struct unwind_bytes *bytes)
{
	uint16_t value;

	bytes_read(bytes, &value, sizeof(value));
	return value;
}

static uint32_t bytes_u32(struct unwind_bytes *bytes)
{
	uint32_t value;

	bytes_read(bytes, &value, sizeof(value));
	return value;
}

static uint64_t leb(struct unwind_bytes *bytes, bool is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = bytes_u8(bytes);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80 && !bytes->bad);
	if (is_signed && byte & 0x40 && shift < 64)
		value |= ~0ull << shift;
	return value;
}

uint64_t bytes_uleb(struct unwind_bytes *bytes)
{
	return leb(bytes, false);
}

int64_t bytes_sleb(struct unwind_bytes *bytes)
{
	return (int64_t)leb(bytes, true);
}

uint64_t bytes_constant(struct unwind_bytes *bytes, uint8_t op)
{
	uint64_t wide = 0;

	switch (op) {
	case 0x08:
		return bytes_u8(bytes);
	case 0x09:
		return (int8_t)bytes_u8(bytes);
	case 0x0a:
		return bytes_u16(bytes);
	case 0x0b:
		return (int16_t)bytes_u16(bytes);
	case 0x0c:
		return bytes_u32(bytes);
	case 0x0d:
		return (int32_t)bytes_u32(bytes);
	case 0x10:
		return bytes_uleb(bytes);
	case 0x11:
		return bytes_sleb(bytes);
	case 0x03:
	case 0x0e:
	case 0x0f:
		bytes_read(bytes, &wide, sizeof(wide));
		return wide;
	}
	bytes->bad = true;
	return 0;
}

/* Cuts off the next `size` bytes. */
static struct unwind_bytes take_part(struct unwind_bytes *bytes, uint64_t size)
{
	struct unwind_bytes cut = {.at = bytes->at, .end = bytes->at, .bad = true};

	if (bytes->bad || (uint64_t)(bytes->end - bytes->at) < size) {
		bytes->bad = true;
		return cut;
	}
	bytes->at += size;
	cut.end = bytes->at;
	cut.bad = false;
	return cut;
}

/* ---- programs ---- */

struct cie {
	uint64_t code_align;
	int64_t data_align;
	struct unwind_bytes program;
	bool is_signal;
};

static void place(struct unwind_rule *rule, uint64_t number, struct unwind_place at)
{
	if (number < UNWIND_REGISTERS)
		rule->registers[number] = at;
}

static struct unwind_place placed(enum unwind_rule_kind kind, int64_t offset)
{
	return (struct unwind_place){.kind = kind, .offset = offset};
}

static struct unwind_place by_expression(struct unwind_bytes *code, enum unwind_rule_kind kind)
{
	uint64_t size = bytes_uleb(code);

	return (struct unwind_place){.kind = kind, .expression = take_part(code, size)};
}

static void restore(struct unwind_rule *rule, uint64_t number, const struct unwind_rule *initial)
{
	if (number < UNWIND_REGISTERS)
		rule->registers[number] =
		    initial ? initial->registers[number] : placed(RULE_SAME, 0);
}

/* Handles instructions that define the CFA. Returns false for any other. */
static bool define_cfa(uint8_t op, struct unwind_bytes *code, const struct cie *cie,
		       struct unwind_rule *rule)
{
	struct unwind_place *cfa = &rule->cfa;

	switch (op) {
	case 0x0c: /* DW_CFA_def_cfa */
	case 0x12: /* DW_CFA_def_cfa_sf */
		*cfa = placed(RULE_REGISTER, 0);
		cfa->number = bytes_uleb(code);
		cfa->offset =
		    op == 0x0c ? (int64_t)bytes_uleb(code) : bytes_sleb(code) * cie->data_align;
		return true;
	case 0x0d: /* DW_CFA_def_cfa_register */
		cfa->number = bytes_uleb(code);
		return true;
	case 0x0e: /* DW_CFA_def_cfa_offset */
		cfa->offset = bytes_uleb(code);
		return true;
	case 0x13: /* DW_CFA_def_cfa_offset_sf */
		cfa->offset = bytes_sleb(code) * cie->data_align;
		return true;
	case 0x0f: /* DW_CFA_def_cfa_expression */
		*cfa = by_expression(code, RULE_VALUE_EXPRESSION);
		return true;
	}
	return false;
}

/* Handles instructions on one register. Returns false for any other. */
static bool define_register(uint8_t op, struct unwind_bytes *code, const struct cie *cie,
			    struct unwind_rule *rule, const struct unwind_rule *initial)
{
	struct unwind_place other = {.kind = RULE_REGISTER};
	uint64_t number = bytes_uleb(code);

	switch (op) {
	case 0x05: /* DW_CFA_offset_extended */
		place(rule, number, placed(RULE_OFFSET, bytes_uleb(code) * cie->data_align));
		return true;
	case 0x11: /* DW_CFA_offset_extended_sf */
		place(rule, number, placed(RULE_OFFSET, bytes_sleb(code) * cie->data_align));
		return true;
	case 0x14: /* DW_CFA_val_offset */
		place(rule, number, placed(RULE_VALUE_OFFSET, bytes_uleb(code) * cie->data_align));
		return true;
	case 0x15: /* DW_CFA_val_offset_sf */
		place(rule, number, placed(RULE_VALUE_OFFSET, bytes_sleb(code) * cie->data_align));
		return true;
	case 0x06: /* DW_CFA_restore_extended */
		restore(rule, number, initial);
		return true;
	case 0x07: /* DW_CFA_undefined */
		place(rule, number, placed(RULE_UNDEFINED, 0));
		return true;
	case 0x08: /* DW_CFA_same_value */
		place(rule, number, placed(RULE_SAME, 0));
		return true;
	case 0x09: /* DW_CFA_register */
		other.number = bytes_uleb(code);
		place(rule, number, other);
		return true;
	case 0x10: /* DW_CFA_expression */
		place(rule, number, by_expression(code, RULE_EXPRESSION));
		return true;
	case 0x16: /* DW_CFA_val_expression */
		place(rule, number, by_expression(code, RULE_VALUE_EXPRESSION));
		return true;
	}
	return false;
}

/* Returns how far an instruction advances in the code, in units; 0 for any other. */
static uint32_t advance(uint8_t op, struct unwind_bytes *code)
{
	switch (op) {
	case 0x02: /* DW_CFA_advance_loc1 */
		return bytes_u8(code);
	case 0x03: /* DW_CFA_advance_loc2 */
		return bytes_u16(code);
	case 0x04: /* DW_CFA_advance_loc4 */
		return bytes_u32(code);
	}
	return op & 0x3f;
}

/* Runs a program up to the offset `until` in its function. */
static bool run(struct unwind_bytes code, const struct cie *cie, uint64_t until,
		struct unwind_rule *rule, const struct unwind_rule *initial)
{
	struct unwind_rule kept[MOST_STATES];
	unsigned kept_count = 0;
	uint64_t at = 0;

	for (unsigned step = 0; code.at < code.end; step++) {
		uint8_t op = bytes_u8(&code), low = op & 0x3f;

		if (step == MOST_STEPS)
			return false;
		if (op >> 6 == 1 || (op >= 0x02 && op <= 0x04)) { /* DW_CFA_advance_loc... */
			at += advance(op, &code) * cie->code_align;
			if (at > until)
				break;
		} else if (op >> 6 == 2) { /* DW_CFA_offset */
			place(rule, low, placed(RULE_OFFSET, bytes_uleb(&code) * cie->data_align));
		} else if (op >> 6 == 3) { /* DW_CFA_restore */
			restore(rule, low, initial);
		} else if (op == 0x0a) { /* DW_CFA_remember_state */
			if (kept_count == MOST_STATES)
				return false;
			kept[kept_count++] = *rule;
		} else if (op == 0x0b) { /* DW_CFA_restore_state */
			if (!kept_count)
				return false;
			*rule = kept[--kept_count];
		} else if (op == 0x2e) { /* DW_CFA_GNU_args_size */
			bytes_uleb(&code);
		} else if (op && !define_cfa(op, &code, cie, rule) &&
			   !define_register(op, &code, cie, rule, initial)) {
			return false;
		}
	}
	return !code.bad;
}

/* ---- entries ---- */

/* Returns the entry at a place of .eh_frame, after its length; empty: there is none. */
static struct unwind_bytes entry_at(const struct unwind_table *frames, uint64_t offset,
				    uint32_t *bytes_left)
{
	struct unwind_bytes all = {frames->bytes, frames->bytes + frames->size, false};
	uint32_t size;

	take_part(&all, offset);
	size = bytes_u32(&all);
	if (size > *bytes_left)
		all.bad = true;
	else
		*bytes_left -= size;
	return take_part(&all, size);
}

/* Skips the pointer to a personality. Returns false if it is coded in an unknown way. */
static bool skip_pointer(struct unwind_bytes *bytes, uint8_t coding)
{
	static const uint8_t sizes[16] = {8, 0, 2, 4, 8, 0, 0, 0, 8, 0, 2, 4, 8, 0, 0, 0};

	if (coding == OMITTED)
		return true;
	take_part(bytes, sizes[coding & 15]);
	return sizes[coding & 15] && (coding & 0x70) != 0x50;
}

static bool read_cie(const struct unwind_table *frames, uint64_t offset, struct cie *cie,
		     uint32_t *bytes_left)
{
	struct unwind_bytes entry = entry_at(frames, offset, bytes_left), name, data;
	uint8_t version, coding = 0;
	uint64_t returns;

	if (bytes_u32(&entry)) /* a CIE has the id 0 */
		return false;
	version = bytes_u8(&entry);
	name = entry;
	while (bytes_u8(&entry))
		;
	cie->code_align = bytes_uleb(&entry);
	cie->data_align = bytes_sleb(&entry);
	returns = version == 1 ? bytes_u8(&entry) : bytes_uleb(&entry);
	if (entry.bad || (version != 1 && version != 3) || returns != UNWIND_IP ||
	    bytes_u8(&name) != 'z')
		return false;
	data = take_part(&entry, bytes_uleb(&entry));
	for (uint8_t letter; (letter = bytes_u8(&name));) {
		if (letter == 'R')
			coding = bytes_u8(&data);
		else if (letter == 'L')
			bytes_u8(&data);
		else if (letter == 'S')
			cie->is_signal = true;
		else if (letter != 'P' || !skip_pointer(&data, bytes_u8(&data)))
			return false;
	}
	cie->program = entry;
	return !entry.bad && !data.bad && coding == RELATIVE_S4;
}

/* Finds in the index the .eh_frame place of the function with this address. */
static bool look_up(const struct unwind_module *module, uint64_t vaddr, uint64_t *offset,
		    uint64_t *begins)
{
	const struct unwind_table *index = &module->index;
	uint32_t first = 0, last;
	int32_t pair[2];

	if (index->size < INDEX_HEAD || index->bytes[0] != 1 || index->bytes[2] != UNSIGNED_4 ||
	    index->bytes[3] != INDEX_RELATIVE_S4)
		return false;
	memcpy(&last, index->bytes + 8, sizeof(last));
	if (last > (index->size - INDEX_HEAD) / sizeof(pair))
		return false;
	while (first < last) { /* the last one that begins at the address or before */
		uint32_t middle = first + (last - first) / 2;

		memcpy(pair, index->bytes + INDEX_HEAD + middle * sizeof(pair), sizeof(pair));
		if ((int64_t)(index->vaddr + pair[0] - vaddr) <= 0)
			first = middle + 1;
		else
			last = middle;
	}
	if (!first)
		return false;
	memcpy(pair, index->bytes + INDEX_HEAD + (first - 1) * sizeof(pair), sizeof(pair));
	*begins = index->vaddr + pair[0];
	*offset = index->vaddr + pair[1] - module->frames.vaddr;
	return *offset < module->frames.size;
}

uint64_t unwind_function(const struct unwind_module *module, uint64_t vaddr)
{
	uint64_t offset, begins;

	return look_up(module, vaddr, &offset, &begins) ? begins : 0;
}

bool unwind_rule_at(const struct unwind_module *module, uint64_t vaddr, struct unwind_rule *rule,
		    uint32_t *bytes_left)
{
	const struct unwind_table *frames = &module->frames;
	struct unwind_rule initial = {0};
	struct unwind_bytes entry;
	struct cie cie = {0};
	uint64_t offset, begins;
	uint32_t back, size;

	if (!look_up(module, vaddr, &offset, &begins))
		return false;
	entry = entry_at(frames, offset, bytes_left);
	back = bytes_u32(&entry);
	if (entry.bad || !back || back > offset + 4 ||
	    !read_cie(frames, offset + 4 - back, &cie, bytes_left))
		return false;
	begins = frames->vaddr + offset + 8;
	begins += (int32_t)bytes_u32(&entry);
	size = bytes_u32(&entry);
	take_part(&entry, bytes_uleb(&entry));
	if (entry.bad || vaddr - begins >= size)
		return false;
	if (!run(cie.program, &cie, UINT64_MAX, &initial, NULL))
		return false;
	*rule = initial;
	rule->is_signal = cie.is_signal;
	return run(entry, &cie, vaddr - begins, rule, &initial);
}
