/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Where processes of a server have mapped libraries that it had not mapped when it was looked at.
 * An address that a stack stops at is asked for, and the next sample of its process says what is
 * mapped there. The file is one of those whose tables were read before tracing.
 */
#ifndef QJ_MAPPED_H
#define QJ_MAPPED_H

#include "shared.h"
#include "unwind.h"

#define MAPPED_MOST 1024 /* of one server: its processes can only push out each other's */

/*
 * Code of a file that was not mapped: from `start` to `end` in the file, and `bias` above its
 * addresses there.
 */
struct library {
	struct unwind_module code;
	uint64_t inode, file_bytes;
};

struct mapping {
	struct unwind_module code;
	uint64_t process_ns;
	uint64_t code_pages; /* when it was there */
	uint32_t tgid;	     /* 0: something else is there */
};

/* Of one server. */
struct mapped {
	struct mapping *all; /* NULL: there are no libraries */
	unsigned used, next;
	const struct library *libraries;
	unsigned library_count;
	struct qj_asked *asked;
};

/* The arrays stay the caller's. Returns false if there is no memory. */
bool mapped_begin(struct mapped *mapped, const struct library *libraries, unsigned count,
		  struct qj_asked *asked);
void mapped_end(struct mapped *mapped);

/* Takes what a sample says of its process. */
void mapped_add(struct mapped *mapped, const struct qj_ring_stack *sampled);

/* The code at an address in the process of a sample. NULL: not known, but asked for. */
const struct unwind_module *mapped_at(const struct mapped *mapped,
				      const struct qj_ring_stack *sampled, uint64_t pc);

#endif /* QJ_MAPPED_H */
