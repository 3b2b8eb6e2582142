// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Keeps the newest mappings of each server's processes. */
#include "mapped.h"

#include <stdlib.h>

#define SEGMENT_ALIGN 0xffff /* a segment is mapped from the begin of its first page on */

bool mapped_begin(struct mapped *mapped, const struct library *libraries, unsigned count,
		  struct qj_asked *asked)
{
	mapped->libraries = libraries;
	mapped->library_count = count;
	mapped->asked = asked;
	mapped->all = count ? calloc(MAPPED_MOST, sizeof(*mapped->all)) : NULL;
	return mapped->all || !count;
}

void mapped_end(struct mapped *mapped)
{
	free(mapped->all);
}

/*
 * An inode has a number on its file system only, and of a container's files the kernel knows
 * another file system than stat(2). So its size is compared, too.
 */
static const struct library *library_of(const struct mapped *mapped, const struct qj_mapped *place)
{
	for (unsigned i = 0; i < mapped->library_count; i++) {
		const struct library *library = &mapped->libraries[i];

		if (library->inode == place->inode && library->file_bytes == place->file_bytes &&
		    place->offset + SEGMENT_ALIGN >= library->code.start &&
		    place->offset < library->code.end)
			return library;
	}
	return NULL;
}

static bool is_of(const struct mapping *one, const struct qj_ring_stack *sampled)
{
	return one->tgid == sampled->segment.tgid && one->process_ns == sampled->process_ns;
}

/* Each sample of the process looks the address up until then. */
static void end_question(struct mapped *mapped, const struct qj_ring_stack *sampled)
{
	struct qj_asked *asked = &mapped->asked[sampled->segment.tgid % QJ_ASKED];

	if (asked->tgid == sampled->segment.tgid && asked->address >= sampled->mapped.start &&
	    asked->address < sampled->mapped.end)
		__atomic_store_n(&asked->tgid, 0, __ATOMIC_RELAXED);
}

static bool is_known(const struct mapping *one, const struct qj_ring_stack *sampled)
{
	return one->code.start == sampled->mapped.start && one->code.end == sampled->mapped.end &&
	       one->code_pages == sampled->code_pages;
}

void mapped_add(struct mapped *mapped, const struct qj_ring_stack *sampled)
{
	const struct qj_mapped *place = &sampled->mapped;
	const struct library *library = library_of(mapped, place);
	struct mapping *added = NULL;
	bool ends = !library;

	if (!mapped->all || !place->end)
		return;
	for (unsigned i = 0; i < mapped->used; i++) {
		struct mapping *one = &mapped->all[i];

		if (is_of(one, sampled) && one->code.start < place->end &&
		    place->start < one->code.end) {
			ends |= is_known(one, sampled);
			one->tgid = 0;
			added = one;
		}
	}
	/* A process that goes on to map code needs an answer in each sample. */
	if (ends)
		end_question(mapped, sampled);
	if (!library)
		return;
	if (!added) {
		added = &mapped->all[mapped->next];
		mapped->next = (mapped->next + 1) % MAPPED_MOST;
		mapped->used += mapped->used < MAPPED_MOST;
	}
	*added = (struct mapping){.code = library->code,
				  .process_ns = sampled->process_ns,
				  .code_pages = sampled->code_pages,
				  .tgid = sampled->segment.tgid};
	added->code.start = place->start;
	added->code.end = place->end;
	added->code.bias = place->start - place->offset + library->code.bias;
}

const struct unwind_module *mapped_at(const struct mapped *mapped,
				      const struct qj_ring_stack *sampled, uint64_t pc)
{
	struct qj_asked *asked;

	if (!mapped->all)
		return NULL;
	for (unsigned i = 0; i < mapped->used; i++) {
		const struct mapping *one = &mapped->all[i];

		/* With other code mapped by now, this may be elsewhere. */
		if (is_of(one, sampled) && pc >= one->code.start && pc < one->code.end &&
		    one->code_pages == sampled->code_pages)
			return &one->code;
	}
	asked = &mapped->asked[sampled->segment.tgid % QJ_ASKED];
	__atomic_store_n(&asked->address, pc, __ATOMIC_RELAXED);
	__atomic_store_n(&asked->tgid, sampled->segment.tgid, __ATOMIC_RELEASE);
	return NULL;
}
