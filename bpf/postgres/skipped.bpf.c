// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Messages that a backend skips after an error, in attach mode `socket`. A backend calls
 * PortalErrorCleanup() only where a client's statement has failed (src/backend/tcop/postgres.c), so
 * other statements pass no probe. Its position in the last read is in two static variables,
 * PqRecvPointer and PqRecvLength (src/backend/libpq/pqcomm.c): the plan finds both, and their
 * difference is the unread rest.
 */
#include "messages.bpf.h"
#include "requests.bpf.h"
#include "state.bpf.h"

struct skip_walk {
	__u64 addr; /* of the next header */
	__u64 end;
	__u64 failed; /* end of the failed message */
	__u32 skipped;
	__u32 after;  /* executions after the Sync */
	__u8 failing; /* type of the failed message */
	__u8 parsed;  /* the failed message's Execute comes after it */
	__u8 synced;
	__u8 partial; /* type of the last message, if its end has not been read */
};

static __always_inline bool is_extended(__u8 type)
{
	return type == 'P' || type == 'B' || type == 'E' || type == 'D' || type == 'C' ||
	       type == 'H';
}

/* True if the Execute for such a message's statement comes after it. */
static __always_inline bool precedes_execute(__u8 type)
{
	return type == 'P' || type == 'B' || type == 'D';
}

static __always_inline void skip_message(struct skip_walk *walk, __u8 type)
{
	if (walk->synced) {
		walk->after += type == 'E' || type == 'Q';
	} else if (type == 'S') {
		walk->synced = 1;
	} else if (type == 'E') {
		/* A statement that is refused before it runs counts, as it does alone. */
		if (!walk->parsed)
			walk->skipped++;
		walk->parsed = 0;
	}
}

static long skip_step(__u32 i, struct skip_walk *walk)
{
	__u8 head[POSTGRES_HEADER] = {};
	__u64 next;

	if (walk->addr + POSTGRES_HEADER > walk->end)
		return 1;
	bpf_probe_read_user(head, sizeof(head), (const void *)walk->addr);
	next = walk->addr + 1 + postgres_uint(&head[1]);
	if (walk->addr >= walk->failed) {
		if (!is_extended(walk->failing))
			return 1;
		if (next > walk->end) {
			walk->partial = head[0];
			return 1;
		}
		skip_message(walk, head[0]);
	} else if (head[0] != 'd' && head[0] != 'c' && head[0] != 'f') {
		walk->failing = head[0];
		walk->parsed = precedes_execute(head[0]);
	}
	walk->addr = next;
	return 0;
}

/* A message is counted once its needed part has been read. */
static __always_inline void skip_partial(struct thread_state *thread, struct skip_walk *walk)
{
	bool runs = walk->synced || (walk->partial == 'E' && walk->parsed);

	if (thread->postgres.collects && !runs)
		thread->postgres.collects = 0;
	else
		skip_message(walk, walk->partial);
}

int postgres_skip(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 left)
{
	struct skip_walk walk = {};

	if (!cpu || !thread || !thread->postgres.read.from)
		return 0;
	walk.addr = thread->postgres.read.from;
	walk.end = thread->postgres.read.to;
	walk.failed = walk.end - left;
	walk.failing = thread->postgres.read.type;
	walk.parsed = precedes_execute(walk.failing);
	bpf_loop(POSTGRES_MAX_WALK, skip_step, &walk, 0);
	if (!is_extended(walk.failing))
		return 0;
	if (walk.partial)
		skip_partial(thread, &walk);
	if (walk.synced)
		thread->postgres.skips = 0;
	else
		thread->postgres.skips = walk.parsed ? POSTGRES_SKIPS_LATER : POSTGRES_SKIPS;
	if (!walk.skipped || !thread->begin_ns)
		return 0;
	thread->executions -= walk.skipped < thread->executions ? walk.skipped : thread->executions;
	if (thread->executions == 1)
		thread->flags &= ~QJ_QUERY_PIPELINED;
	if (!walk.after && thread->executions && thread->executions <= thread->postgres.same)
		postgres_set_statement(thread, &thread->postgres.first);
	if (cpu->query == thread->query)
		label_query(cpu, thread);
	return 0;
}

/* PortalErrorCleanup() */
SEC("?uprobe")
int BPF_KPROBE(postgres_skips)
{
	struct thread_state *thread = thread_of(bpf_get_current_task_btf());
	const volatile __u64 *facts;
	__u32 at = 0, end = 0;

	if (IS_EARLY || /* no socket is read there */
	    !thread || thread->attach_mode != QJ_ATTACH_SOCKET || thread->borrowed ||
	    thread->phase != PHASE_READY)
		return 0;
	facts = facts_of(thread);
	if (postgres_variable(&at, sizeof(at), facts[QJ_POSTGRES_READ_AT]) ||
	    postgres_variable(&end, sizeof(end), facts[QJ_POSTGRES_READ_END]))
		return 0;
	/* The order of the two does not matter. */
	return postgres_skip(this_cpu(), thread, at < end ? end - at : at - end);
}
