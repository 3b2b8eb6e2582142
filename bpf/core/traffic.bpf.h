/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Programs on reads and writes of sockets: READS(server, work) and WRITES(server, work) define
 * those of one server, where `work` does what there is to do.
 *
 * Linux 6.3 has tracepoints for both (commit 6e6eda44b939), in sock_recvmsg() and sock_sendmsg().
 * One program for all servers is attached to each, and calls the one of the thread's server
 * (traffic.bpf.c).
 * Before, the same is seen where the functions that those two call return, one for each family of
 * addresses. The tracer loads either these or the tracepoints' programs (tracer/programs.c). In the
 * object for early kernels, which has the same programs, they do nothing and are never loaded.
 */
#ifndef QJOULE_TRAFFIC_BPF_H
#define QJOULE_TRAFFIC_BPF_H

#include "state.bpf.h"

struct msghdr;

/* One more program of `server`, where a read of this family returns. */
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

/* work(struct sock *, int got, int flags); `got`: how many bytes were read, or a negative errno. */
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

/* work(struct sock *, int sent); `sent`: how many bytes were written, or a negative errno. */
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

#endif
