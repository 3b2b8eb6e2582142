// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Implements slot.bpf.h. A backend writes each statement that it takes up, by whichever protocol,
 * into its own entry of the server's list of backends (pgstat_report_activity(), MyBEEntry in
 * src/backend/utils/activity/backend_status.c), where pg_stat_activity shows it. The text stays
 * there until the next one. It is cut at track_activity_query_size.
 */
#include "messages.bpf.h"
#include "session.bpf.h"
#include "slot.bpf.h"

/* Where the text of the backend's last statement is; 0: not known, or track_activities is off. */
static __always_inline __u64 last_text(const struct thread_state *thread)
{
	const volatile __u64 *facts = facts_of(thread);
	__u64 entry = postgres_pointer(facts[QJ_POSTGRES_ENTRY]), text = 0;
	__u8 first = 0;

	if (!entry || !facts[QJ_POSTGRES_ENTRY_TEXT])
		return 0;
	bpf_probe_read_user(&text, sizeof(text),
			    (const void *)(entry + facts[QJ_POSTGRES_ENTRY_TEXT]));
	if (text)
		bpf_probe_read_user(&first, sizeof(first), (const void *)text);
	return first ? text : 0;
}

int postgres_find_text(struct qj_cpu_state *cpu, struct thread_state *thread)
{
	struct postgres_before before;
	__u64 text, name;
	__u32 whole;

	if (!cpu || !thread)
		return 0;
	/* The backend may have refused the request before it took up the statement. */
	if (thread->flags & QJ_QUERY_ERROR || !thread->postgres.send_buffer)
		return 0;
	text = last_text(thread);
	if (!text)
		return 0;
	before = postgres_so_far(thread);
	name = thread->postgres.unknown;
	whole = postgres_pointer(facts_of(thread)[QJ_POSTGRES_ENTRY_BYTES]);
	thread->flags &= ~(QJ_QUERY_NO_TEXT | QJ_QUERY_TRUNCATED);
	if (postgres_text_of(cpu, thread, text, QJ_TEXT_BYTES, whole ? whole - 1 : 0))
		prepared_learn(thread, name);
	if (thread->executions <= 1 && thread->shape)
		return 0;
	/* A pipeline's statements share its time: it has no text. */
	thread->shape = before.shape;
	thread->tags = before.tags;
	thread->flags = before.flags;
	return 0;
}
