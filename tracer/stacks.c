// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Follows sampled stacks to the threads' entries, by the tables of the servers' modules. */
#include "stacks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "compiled.h"
#include "mapped.h"
#include "plan_nodes.h"
#include "shared.h"
#include "unwind.h"

#define MOST_FRAMES 1024 /* a frame takes 16 bytes at least, of 28 KiB */

/* One address space. */
struct space {
	struct stacks_head head;
	const uint8_t *bytes;
	size_t size;
	struct unwind_module *modules;
	struct library *libraries;
	struct mapped mapped;
	const struct compiled_lists *compiled; /* NULL: it is no JVM */
};

struct stacks {
	struct stream *stream;
	struct unwinder *unwinder;
	struct space spaces[QJ_MAX_SERVERS];
	unsigned space_count;
	uint64_t sent[QJ_CALLS]; /* frames, each where its hash says; others are sent again */
};

static bool table_of(const struct space *space, uint64_t at, uint64_t size, uint64_t vaddr,
		     struct unwind_table *out)
{
	if (at > space->size || size > space->size - at)
		return false;
	*out = (struct unwind_table){space->bytes + at, size, vaddr};
	return true;
}

static bool read_module(const struct space *space, unsigned number, struct library *out)
{
	struct stacks_module module;

	memcpy(&module, space->bytes + sizeof(space->head) + number * sizeof(module),
	       sizeof(module));
	out->code.start = module.start;
	out->code.end = module.end;
	out->code.bias = module.bias;
	out->code.number = module.number;
	out->inode = module.inode;
	out->file_bytes = module.file_bytes;
	return table_of(space, module.index_at, module.index_bytes, module.index_vaddr,
			&out->code.index) &&
	       table_of(space, module.frames_at, module.frames_bytes, module.frames_vaddr,
			&out->code.frames);
}

static bool read_modules(struct space *space, struct qj_asked *asked)
{
	unsigned mapped = space->head.count, libraries = space->head.library_count;
	struct library module;

	space->modules = calloc(mapped + 1, sizeof(*space->modules));
	space->libraries = calloc(libraries + 1, sizeof(*space->libraries));
	if (!space->modules || !space->libraries)
		return false;
	for (unsigned i = 0; i < mapped; i++) {
		if (!read_module(space, i, &module))
			return false;
		space->modules[i] = module.code;
	}
	for (unsigned i = 0; i < libraries; i++)
		if (!read_module(space, mapped + i, &space->libraries[i]))
			return false;
	return mapped_begin(&space->mapped, space->libraries, libraries, asked);
}

static void close_space(struct space *space)
{
	compiled_close(space->compiled);
	mapped_end(&space->mapped);
	free(space->libraries);
	free(space->modules);
	munmap((void *)space->bytes, space->size);
}

/* Its header and modules are copied, so that later changes of the memory do not matter. */
static bool open_space(int fd, struct space *space, struct qj_asked *asked)
{
	struct stat status;
	uint64_t count;

	if (fstat(fd, &status) || status.st_size < (off_t)sizeof(space->head))
		return false;
	space->size = status.st_size;
	/* Private: before Linux 6.7 no file that is sealed against writes could be shared. */
	space->bytes = mmap(NULL, space->size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (space->bytes == MAP_FAILED)
		return false;
	memcpy(&space->head, space->bytes, sizeof(space->head));
	count = (uint64_t)space->head.count + space->head.library_count;
	if (space->head.magic == STACKS_MAGIC && count <= STACKS_MODULES &&
	    space->size >= sizeof(space->head) + count * sizeof(struct stacks_module) &&
	    read_modules(space, asked))
		return true;
	close_space(space);
	return false;
}

struct stacks *stacks_new(const int *fds, const int *compiled, unsigned count,
			  struct stream *stream, struct qj_asked *asked)
{
	struct stacks *stacks = calloc(1, sizeof(*stacks));

	if (!stacks)
		return NULL;
	stacks->stream = stream;
	stacks->unwinder = unwinder_new();
	if (!stacks->unwinder) {
		free(stacks);
		return NULL;
	}
	for (unsigned i = 0; i < count && i < QJ_MAX_SERVERS; i++)
		if (open_space(fds[i], &stacks->spaces[stacks->space_count], asked)) {
			if (compiled[i])
				stacks->spaces[stacks->space_count].compiled =
				    compiled_open(compiled[i]);
			stacks->space_count++;
		} else {
			fprintf(stderr,
				"qjoule-tracer: stacks of server %u of %u are not followed: "
				"its tables cannot be mapped, or are damaged\n",
				i + 1, count);
			memset(&stacks->spaces[stacks->space_count], 0, sizeof(struct space));
		}
	return stacks;
}

void stacks_free(struct stacks *stacks)
{
	if (!stacks)
		return;
	for (unsigned i = 0; i < stacks->space_count; i++)
		close_space(&stacks->spaces[i]);
	unwinder_free(stacks->unwinder);
	free(stacks);
}

static struct space *space_of(struct stacks *stacks, const struct qj_ring_stack *s)
{
	for (unsigned i = 0; i < stacks->space_count; i++) {
		const struct stacks_head *head = &stacks->spaces[i].head;

		if (s->start_code >= head->code_from && s->start_code < head->code_to &&
		    s->start_stack >= head->stack_from && s->start_stack < head->stack_to)
			return &stacks->spaces[i];
	}
	return NULL;
}

static const struct unwind_module *module_at(const struct space *space, uint64_t pc)
{
	unsigned first = 0, last = space->head.count;

	while (first < last) {
		unsigned middle = first + (last - first) / 2;

		if (pc >= space->modules[middle].end)
			first = middle + 1;
		else
			last = middle;
	}
	return first < space->head.count && pc >= space->modules[first].start
		   ? &space->modules[first]
		   : NULL;
}

/* The places from the innermost on. `whole`: they reach to where the thread begins. */
static unsigned follow(struct stacks *stacks, const struct space *space,
		       const struct qj_ring_stack *s, struct place places[MOST_FRAMES], bool *whole)
{
	uint64_t sp = s->registers[UNWIND_SP], page = sp & ~(uint64_t)(QJ_STACK_PAGE - 1);
	struct unwind_memory stack = {.bytes = s->bytes + (sp - page),
				      .from = sp,
				      .to = page + (uint64_t)s->pages * QJ_STACK_PAGE};
	struct compiled compiled = compiled_begin(space->compiled, s->segment.t0_ns);
	enum unwind_result result = UNWIND_CALLER;
	uint64_t registers[UNWIND_REGISTERS];
	bool interrupted = true;
	unsigned count = 0;

	memcpy(registers, s->registers, sizeof(registers));
	unwinder_begin(stacks->unwinder);
	while (result == UNWIND_CALLER && count < MOST_FRAMES) {
		/* A call that never returns may be the last of its function. */
		uint64_t pc = registers[UNWIND_IP] - !interrupted;
		const struct unwind_module *module = module_at(space, pc);
		struct node_frame frame = {.all_registers = interrupted};
		struct compiled_code code;

		if (!module && compiled_at(&compiled, pc, &code)) {
			places[count++] = (struct place){.offset = code.number,
							 .module = space->compiled->module};
			result =
			    compiled_step(&compiled, &code, &stack, pc, registers, interrupted);
			interrupted = false;
			continue;
		}
		if (!module)
			module = mapped_at(&space->mapped, s, pc);
		if (!module)
			break;
		places[count] =
		    (struct place){.offset = pc - module->bias, .module = module->number};
		memcpy(frame.registers, registers, sizeof(registers));
		result =
		    unwinder_step(stacks->unwinder, module, &stack, pc, registers, &interrupted);
		if (s->node_count) {
			frame.function =
			    unwind_function(module, places[count].offset) + module->bias;
			frame.end = registers[UNWIND_SP];
			frame.saved = unwinder_saved(stacks->unwinder);
			nodes_of_frame(s, &stack, &frame, &places[count]);
		}
		count++;
	}
	if (!compiled_holds(space->compiled, &compiled)) {
		*whole = false;
		return 0;
	}
	nodes_choose(s, places, count);
	*whole = result == UNWIND_ENTRY;
	return count;
}

static uint64_t send_frame(struct stacks *stacks, uint64_t caller, uint32_t module, uint64_t offset)
{
	struct qj_call call = {.caller = caller, .offset = offset, .module = module};
	uint64_t frame = XXH3_64bits(&call, sizeof(call)) ?: 1;

	if (stacks->sent[frame % QJ_CALLS] != frame) {
		stacks->sent[frame % QJ_CALLS] = frame;
		call.frame = frame;
		stream_add(stacks->stream, QJ_BLOCK_CALL, &call, sizeof(call));
	}
	return frame;
}

/* Sends what of a stack was not sent before, the outermost first. Returns the innermost frame. */
static uint64_t send_frames(struct stacks *stacks, const struct qj_ring_stack *sampled,
			    const struct place *places, unsigned count)
{
	uint64_t frame = 0;

	while (count--) {
		const struct place *place = &places[count];

		if (place->node)
			frame = send_frame(stacks, frame, place->module,
					   node_offset(&sampled->nodes[place->node - 1]));
		frame = send_frame(stacks, frame, place->module, place->offset);
	}
	return frame;
}

void stacks_received(struct stacks *stacks, const struct qj_ring_stack *sampled)
{
	struct space *space = space_of(stacks, sampled);
	struct qj_stack out = {.segment = sampled->segment,
			       .flags = sampled->flags,
			       .probability = sampled->probability,
			       .shape = sampled->shape,
			       .tags = sampled->tags,
			       .naming = sampled->naming};
	struct place places[MOST_FRAMES];
	unsigned count = 0;
	bool whole = false;

	if (space)
		mapped_add(&space->mapped, sampled);
	if (space && sampled->pages && sampled->pages <= QJ_STACK_PAGES)
		count = follow(stacks, space, sampled, places, &whole);
	out.frame = send_frames(stacks, sampled, places, count);
	out.flags |= whole ? QJ_STACK_WHOLE : 0;
	stream_add(stacks->stream, QJ_BLOCK_STACK, &out, sizeof(out));
}
