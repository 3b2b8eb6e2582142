// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The only programs on the tracepoints of reads and writes. Where no server's thread runs, a byte
 * of the CPU's state says so, and they leave at once. Otherwise they pass the event on to the
 * program of that kind of server, by a tail call that the kernel makes a direct jump. So other
 * processes pay the same whatever is planned. As one program, all kinds would exceed the stack, and
 * come near the million instructions that the verifier follows.
 */
#include "state.bpf.h"

/* By the kind of server: its program on reads, or on writes. */
struct traffic_map {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, QJ_KINDS);
	__type(key, __u32);
	__type(value, __u32);
};

struct traffic_map reads SEC(".maps");
struct traffic_map writes SEC(".maps");

/*
 * The kind of server whose thread is running, or QJ_SERVING_NONE. The last context switch has noted
 * it, unless the thread was adopted while it ran. A kernel may exempt its own tasks and init from
 * tracing: then the switch to such a task was seen, and the one from it was not (check_label()), so
 * the task is looked up.
 */
static __always_inline __u8 serving(const struct qj_cpu_state *cpu)
{
	struct thread_state *thread;

	if (cpu->adopted == *(volatile __u32 *)&control.adopted && cpu->serving)
		return cpu->serving;
	thread = thread_of(bpf_get_current_task_btf());
	return thread ? thread->server_kind : QJ_SERVING_NONE;
}

static __always_inline int pass_on(void *ctx, void *programs)
{
	__u8 kind = serving(this_cpu());

	if (kind == QJ_SERVING_NONE)
		return 0;
#define X(name, NAME, number)                                                                      \
	if (PLANNED(NAME) && kind == QJ_SERVER_##NAME)                                             \
		bpf_tail_call_static(ctx, programs, QJ_SERVER_##NAME);
	QJ_SERVERS(X)
#undef X
	return 0;
}

SEC("?tp_btf/sock_recv_length")
int on_read(void *ctx)
{
	return pass_on(ctx, &reads);
}

SEC("?tp_btf/sock_send_length")
int on_write(void *ctx)
{
	return pass_on(ctx, &writes);
}
