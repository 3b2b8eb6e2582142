/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Shared by programs on reads and writes of sockets: how they are attached, the buffer of the
 * system call, and the reads of servers whose threads serve one connection each.
 */
#ifndef QJOULE_SOCKET_BPF_H
#define QJOULE_SOCKET_BPF_H

#include "state.bpf.h"
#include "query.bpf.h"

/*
 * READS(server, work) and WRITES(server, work) define one server's programs on reads and writes of
 * sockets, which call `work`.
 *
 * Linux 6.3 has tracepoints for both (commit 6e6eda44b939), in sock_recvmsg() and sock_sendmsg().
 * One program for all servers is attached to each, and calls the one of the thread's server
 * (segments.bpf.c). Older kernels attach to the returns of the functions that those two call, one
 * for each family of addresses. The tracer loads either these or the tracepoints' programs
 * (tracer/programs.c). In the object for early kernels, the tracepoints' programs do nothing and
 * are never loaded.
 */

struct msghdr;

/* One more program of `server`, at the return of a read of this family. */
#define READS_OF_(server, family, function, work)                                                  \
	SEC("?fexit/" #function)                                                                   \
	int BPF_PROG(server##_recv_##family, struct socket *socket, struct msghdr *message,        \
		     __u64 size, int flags, int got)                                               \
	{                                                                                          \
		if (!IS_EARLY)                                                                     \
			work(socket->sk, got, flags);                                              \
		return 0;                                                                          \
	}

#define WRITES_OF_(server, family, function, work)                                                 \
	SEC("?fexit/" #function)                                                                   \
	int BPF_PROG(server##_send_##family, struct socket *socket, struct msghdr *message,        \
		     __u64 size, int sent)                                                         \
	{                                                                                          \
		if (!IS_EARLY)                                                                     \
			work(socket->sk, sent);                                                    \
		return 0;                                                                          \
	}

/* work(struct sock *, int got, int flags); `got`: number of bytes read, or a negative errno. */
#define READS(server, work)                                                                        \
	SEC("?tp_btf/sock_recv_length")                                                            \
	int BPF_PROG(server##_recv, struct sock *sk, int got, int flags)                           \
	{                                                                                          \
		work(sk, got, flags);                                                              \
		return 0;                                                                          \
	}                                                                                          \
	READS_OF_(server, inet, inet_recvmsg, work)                                                \
	READS_OF_(server, inet6, inet6_recvmsg, work)                                              \
	READS_OF_(server, unix, unix_stream_recvmsg, work)

/* work(struct sock *, int sent); `sent`: number of bytes written, or a negative errno. */
#define WRITES(server, work)                                                                       \
	SEC("?tp_btf/sock_send_length")                                                            \
	int BPF_PROG(server##_send, struct sock *sk, int sent, int flags)                          \
	{                                                                                          \
		work(sk, sent);                                                                    \
		return 0;                                                                          \
	}                                                                                          \
	WRITES_OF_(server, inet, inet_sendmsg, work)                                               \
	WRITES_OF_(server, inet6, inet6_sendmsg, work)                                             \
	WRITES_OF_(server, unix, unix_stream_sendmsg, work)

/* Finds the buffer of the thread's current system call. */

#if defined(__TARGET_ARCH_x86) /* arch/x86/entry/syscalls/syscall_64.tbl */
#define SYSCALL_NUMBER(regs) ((regs)->orig_ax)
#define SYSCALL_FIRST(regs)  ((regs)->di)
#define SYSCALL_BUFFER(regs) ((regs)->si)
#define SYSCALL_FOURTH(regs) ((regs)->r10)
#define SYS_READ	     0
#define SYS_WRITE	     1
#define SYS_SENDTO	     44
#define SYS_RECVFROM	     45
#define SYS_SENDMSG	     46
#define SYS_RECVMSG	     47
#elif defined(__TARGET_ARCH_arm64) /* include/uapi/asm-generic/unistd.h */
#define SYSCALL_NUMBER(regs) ((regs)->syscallno)
#define SYSCALL_FIRST(regs)  ((regs)->orig_x0)
#define SYSCALL_BUFFER(regs) ((regs)->regs[1])
#define SYSCALL_FOURTH(regs) ((regs)->regs[3])
#define SYS_READ	     63
#define SYS_WRITE	     64
#define SYS_SENDTO	     206
#define SYS_RECVFROM	     207
#define SYS_SENDMSG	     211
#define SYS_RECVMSG	     212
#else
#error "unknown architecture"
#endif

/* The file that this system call reads from. */
static __always_inline __u32 received_from(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

	return SYSCALL_FIRST(regs);
}

static __always_inline bool is_reading(struct task_struct *task, __u32 fd)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 number = SYSCALL_NUMBER(regs);

	return (number == SYS_RECVMSG || number == SYS_RECVFROM || number == SYS_READ) &&
	       (__u32)SYSCALL_FIRST(regs) == fd;
}

/* The first buffer of a message if it holds at least this many bytes; otherwise 0. */
static __always_inline __u64 first_buffer(__u64 message, __u64 bytes)
{
	struct user_msghdr header;
	struct iovec first;

	if (bpf_probe_read_user(&header, sizeof(header), (const void *)message) ||
	    bpf_probe_read_user(&first, sizeof(first), header.msg_iov) || first.iov_len < bytes)
		return 0;
	return (__u64)first.iov_base;
}

/* Address of the bytes just received; 0 if this system call has no single known buffer. */
static __always_inline __u64 received_at(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 number = SYSCALL_NUMBER(regs);
	__u64 address = SYSCALL_BUFFER(regs);

	if (number == SYS_RECVFROM || number == SYS_READ)
		return address;
	if (number == SYS_RECVMSG)
		return first_buffer(address, 0);
	return 0;
}

/* Address of the bytes just sent; 0 if this system call has no single known buffer. */
static __always_inline __u64 sent_from(struct task_struct *task, __u32 bytes)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 number = SYSCALL_NUMBER(regs);
	__u64 address = SYSCALL_BUFFER(regs);

	if (number == SYS_SENDTO || number == SYS_WRITE)
		return address;
	if (number == SYS_SENDMSG)
		return first_buffer(address, bytes);
	return 0;
}

/*
 * Reads of sockets by servers whose threads serve one connection each, from request to reply, in
 * attach mode `socket`. A query begins when the thread reads from its socket; a read that finds
 * nothing shows that the reply was sent. Sends need no hook.
 */

/*
 * A socket is identified by its cookie, which is never reused. Its address may be: the next
 * client's socket can have the last one's address. A cookie is created on first request and reads 0
 * until then (net/core/sock_diag.c).
 */
static __always_inline __u64 cookie_of(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
}

static __always_inline bool is_known(const struct thread_state *thread, const struct sock *sk)
{
	/* The verifier knows this pointer's type: a plain load is enough. */
	return thread->socket == (__u64)sk &&
	       thread->cookie == (__u64)sk->__sk_common.skc_cookie.counter;
}

/* A closed socket has lost its file (sock_orphan()), or another socket has reused its memory. */
static __always_inline bool has_client(const struct thread_state *thread)
{
	const struct sock *sk = (const struct sock *)thread->socket;

	return sk && cookie_of(sk) == thread->cookie && BPF_CORE_READ(sk, sk_socket);
}

/*
 * Returns true if `sk` is the client's socket. While a query runs, a server may read from other
 * sockets (federation, replication): these reads are not requests. Between queries, or after the
 * client's socket is closed, another socket means another client; `connected`, unless 0, is called
 * before the thread gets that socket.
 */
static __always_inline bool is_clients_socket(struct qj_cpu_state *cpu, struct thread_state *thread,
					      struct sock *sk, int got,
					      void (*connected)(struct thread_state *))
{
	if (is_known(thread, sk))
		return true;
	if (got <= 0)
		return false;
	if (thread->begin_ns && !thread->end_ns && thread->command != QJ_COMMAND_OTHER &&
	    has_client(thread))
		return false;
	query_abandon(cpu, thread, bpf_ktime_get_ns());
	if (connected)
		connected(thread);
	thread->socket = (__u64)sk;
	thread->cookie = bpf_get_socket_cookie(sk);
	session_begin(cpu, thread);
	if (thread->phase != PHASE_STARTUP)
		emit_session(cpu, thread, QJ_SESSION_MET, 0, 0);
	return true;
}

/*
 * Returns true if a thread of the attach mode `socket` has read `got` bytes of its client's
 * requests, to `addr`. 0 or negative: there was nothing to read.
 */
static __always_inline bool reads_client(struct qj_cpu_state *cpu, struct task_struct *task,
					 struct thread_state *thread, struct sock *sk, int got,
					 void (*connected)(struct thread_state *), __u64 *addr)
{
	if (!is_clients_socket(cpu, thread, sk, got, connected) || thread->phase == PHASE_OPAQUE)
		return false;
	*addr = received_at(task);
	if (got > 0 && !*addr) {
		count_loss(cpu, QJ_LOSS_FRAMING);
		return false;
	}
	return true;
}

#endif
