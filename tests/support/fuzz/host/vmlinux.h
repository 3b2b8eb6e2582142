/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The kernel definitions that bpf/ uses, so that its parsers compile on the host. */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

#include <linux/types.h>
#include <stdbool.h>

typedef int pid_t;

struct mm_struct {
	unsigned long end_code, start_data, start_brk, brk, mmap_base, total_vm, arg_start, arg_end;
};

struct task_struct {
	void *bpf_storage;
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	unsigned long nvcsw;
	unsigned int flags;
	pid_t pid;
	pid_t tgid;
	char comm[16];
};

struct in6_addr {
	__u8 bytes[16];
};

struct inode {
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct sock;

struct socket {
	struct file *file;
	struct sock *sk;
};

struct sock {
	struct {
		__u16 skc_family;
		__u16 skc_num;
		__u16 skc_dport;
		__u32 skc_daddr;
		__u32 skc_rcv_saddr;
		struct in6_addr skc_v6_daddr;
		struct in6_addr skc_v6_rcv_saddr;
		struct {
			__s64 counter;
		} skc_cookie;
	} __sk_common;
	struct socket *sk_socket;
	__u16 sk_protocol;
};

struct tcp_sock {
	struct sock sk;
	__u64 bytes_received;
	__u32 rcv_nxt;
	__u32 copied_seq;
};

struct unix_sock {
	struct sock sk;
	struct sock *peer;
};

struct pt_regs {
	unsigned long orig_ax, di, si;
};

struct iovec {
	void *iov_base;
	unsigned long iov_len;
};

struct user_msghdr {
	void *msg_name;
	int msg_namelen;
	struct iovec *msg_iov;
};

struct bpf_perf_event_value {
	__u64 counter, enabled, running;
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_F_MMAPABLE = 1024,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_RB_NO_WAKEUP = 1,
};
#define IPPROTO_TCP	  6
#define BPF_F_CURRENT_CPU 0xffffffffULL

#endif
