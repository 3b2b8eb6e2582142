/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The kernel types that the programs use, so that builds need no kernel's headers.
 *
 * Fields are in any order. Each access is relocated when the programs are loaded: libbpf looks the
 * field up by its name in the running kernel's BTF (https://docs.kernel.org/bpf/btf.html, CO-RE). A
 * field that a kernel lacks is an error when a program that reads it is loaded.
 * `packaging/tools/btf_fields.py` compares this file with a kernel's BTF and lists missing fields.
 *
 * Types of the kernel's stable interface (include/uapi) keep their numbers and their layout.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef int pid_t;
typedef unsigned int uid_t;
typedef unsigned short umode_t;
typedef __u32 dev_t;
typedef unsigned long __kernel_size_t;
typedef _Bool bool;

enum {
	false = 0,
	true = 1,
};

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
};

enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1ULL << 0,
	BPF_RB_NO_WAKEUP = 1ULL << 0,
	BPF_RB_FORCE_WAKEUP = 1ULL << 1,
	BPF_F_CURRENT_CPU = 0xffffffffULL,
};

enum {
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};

enum {
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17,
};

struct bpf_perf_event_value {
	__u64 counter;
	__u64 enabled;
	__u64 running;
};

/* Read as a whole from a system call's arguments: include/uapi/linux/uio.h, linux/socket.h. */
struct iovec {
	void *iov_base;
	__kernel_size_t iov_len;
};

struct user_msghdr {
	void *msg_name;
	int msg_namelen;
	struct iovec *msg_iov;
	__kernel_size_t msg_iovlen;
	void *msg_control;
	__kernel_size_t msg_controllen;
	unsigned int msg_flags;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long flags;
	unsigned long sp;
	unsigned long ss;
};

struct thread_struct {
	unsigned long fsbase;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};

struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
	__u64 orig_x0;
	__s32 syscallno;
};

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};
#endif

/* include/uapi/linux/uio.h, and the arguments of sendmsg(2) and recvmsg(2). */
struct super_block {
	dev_t s_dev;
};

struct inode {
	umode_t i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	long long i_size;
};

struct file {
	void *private_data;
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct mm_struct {
	unsigned long mmap_base;
	unsigned long total_vm;
	unsigned long exec_vm;
	unsigned long start_code;
	unsigned long end_code;
	unsigned long start_data;
	unsigned long start_brk;
	unsigned long brk;
	unsigned long start_stack;
	unsigned long arg_start;
	unsigned long arg_end;
	struct file *exe_file;
};

typedef struct {
	uid_t val;
} kuid_t;

struct cred {
	kuid_t uid;
};

/* kernel/sched/sched.h */
struct rq {
	__u64 clock; /* sched_clock() when the scheduler last read it */
};

struct cfs_rq {
	struct rq *rq; /* CONFIG_FAIR_GROUP_SCHED */
};

struct sched_entity {
	struct cfs_rq *cfs_rq; /* CONFIG_FAIR_GROUP_SCHED */
};

struct sched_info {	 /* CONFIG_SCHED_INFO */
	u64 run_delay;	 /* ns in which the task was runnable without a CPU, so far */
	u64 last_queued; /* waits for a CPU since then, by the clock of struct rq; 0: not waiting */
};

struct task_struct {
	unsigned int __state; /* since 5.14; read only for servers whose probes need 6.3 */
	unsigned int flags;
	struct sched_entity se;
	struct mm_struct *mm;
	pid_t pid;
	pid_t tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	unsigned long nvcsw;
	u64 start_time;
	struct sched_info sched_info;
	unsigned in_iowait : 1;
	const struct cred *real_cred;
	char comm[16];
	struct files_struct *files;
	void *bpf_storage; /* since 5.11: struct bpf_local_storage */
	struct thread_struct thread;
};

struct hrtimer {
	__s64 _softexpires; /* ktime_t: the planned expiry, on the timer's own clock */
};

struct in6_addr {
	__u8 bytes_[16]; /* in6_u in the kernel; copied as a whole */
};

typedef struct {
	s64 counter;
} atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	u16 sk_protocol;
};

struct socket {
	struct file *file;
	struct sock *sk;
};

struct tcp_sock {
	u32 copied_seq;
	u32 rcv_nxt;
	u64 bytes_received;
};

struct unix_sock {
	struct sock *peer;
};

struct bpf_iter_meta;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
