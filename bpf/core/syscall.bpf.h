/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Finds the buffer of the system call that a thread is in. */
#ifndef QJOULE_SYSCALL_BPF_H
#define QJOULE_SYSCALL_BPF_H

#include "state.bpf.h"

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

/* Address of the bytes just received; 0 if this system call has no single buffer that we know. */
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

/* Address of the bytes just sent; 0 if this system call has no single buffer that we know. */
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

#endif
