// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* bpf/core/waits.bpf.h on the host, for tests/fast/tracer/test_waits_laws.py. */
#include <stddef.h>

#include "core/waits.bpf.h"

struct wait {
	__u64 from_ns, to_ns, runnable_ns, deadline_ns, futex;
	__u64 kind;
};

/* What the waits of a query are, as its record has them; `error`: it ended with one. */
void waits_of(size_t count, const struct wait *wait, int error, __u64 *ns)
{
	struct thread_state thread = {.flags = error ? QJ_QUERY_ERROR : 0};
	struct thread_waits *waits = &thread.waits;

	for (size_t i = 0; i < count; i++) {
		waits->kind = wait[i].kind;
		waits->futex = wait[i].futex;
		waits->deadline_ns = wait[i].deadline_ns;
		add_wait(waits, wait[i].to_ns, wait[i].to_ns - wait[i].from_ns,
			 wait[i].runnable_ns);
	}
	waits_mark(&thread);
	__builtin_memcpy(ns, waits->replied_ns, sizeof(waits->replied_ns));
}
