// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Records of threads and of their sessions. */
#include "query.bpf.h"

/* Identifies the connection as its client can too: by both addresses, or by the client's inode. */
static __always_inline void name_connection(const struct thread_state *thread,
					    struct qj_session *session)
{
	const struct sock *sk = (const struct sock *)thread->socket;
	__u16 family = sk ? BPF_CORE_READ(sk, __sk_common.skc_family) : 0;
	__u8 *client = session->address, *server = session->server_address;

	if (family == AF_UNIX) {
		const struct unix_sock *ours = (const struct unix_sock *)sk;

		session->client_inode = BPF_CORE_READ(ours, peer, sk_socket, file, f_inode, i_ino);
		return;
	}
	if (family == AF_INET) {
		client[10] = client[11] = server[10] = server[11] = 0xff;
		BPF_CORE_READ_INTO((__u32 *)(client + 12), sk, __sk_common.skc_daddr);
		BPF_CORE_READ_INTO((__u32 *)(server + 12), sk, __sk_common.skc_rcv_saddr);
	} else if (family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)client, sk, __sk_common.skc_v6_daddr);
		BPF_CORE_READ_INTO((struct in6_addr *)server, sk, __sk_common.skc_v6_rcv_saddr);
	} else {
		return;
	}
	session->port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	session->server_port = BPF_CORE_READ(sk, __sk_common.skc_num);
}

int emit_role(struct qj_cpu_state *cpu, struct thread_state *thread, const struct role_name *role)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct qj_ring_task *r;

	if (!cpu || !thread)
		return 0;
	r = reserve(sizeof(*r));
	if (!r) {
		count_loss(cpu, QJ_LOSS_TASK);
		return 0;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->head.block = QJ_BLOCK_TASK;
	r->task.t_ns = bpf_ktime_get_ns();
	r->task.pid = TASK_FIELD(task, pid);
	r->task.tgid = TASK_FIELD(task, tgid);
	r->task.parent_tgid = BPF_CORE_READ(task, real_parent, tgid);
	r->task.server = thread->server;
	r->task.event = QJ_TASK_ROLE;
	r->task.owner_kind = QJ_OWNER_SERVER;
	if (role)
		__builtin_memcpy(r->task.comm, role->bytes, sizeof(r->task.comm));
	else
		bpf_probe_read_kernel_str(r->task.comm, sizeof(r->task.comm), task->comm);
	submit(r);
	return 0;
}

int emit_session(struct qj_cpu_state *cpu, struct thread_state *thread, __u32 event, __u64 addr,
		 __u32 length)
{
	__u64 bytes = at_most(length, QJ_STARTUP_BYTES);
	struct qj_ring_session *r;

	if (!cpu || !thread)
		return 0;
	r = reserve_session(cpu, thread, event);
	if (!r)
		return 0;
	if (bytes && !read_text(thread, r->bytes, bytes, addr))
		r->head.text_bytes = r->session.text_bytes = bytes;
	name_connection(thread, &r->session);
	if (sums_by_tags())
		name_sums(cpu, thread, &r->session);
	submit(r);
	return 0;
}
