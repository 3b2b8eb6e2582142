// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Empty programs for every hook that qjoule may attach to. Their cost is the kernel's price of
 * calling a program at all, without any of our own work.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

SEC("?tp_btf/sched_switch")
int sched_switch(void *ctx)
{
	return 0;
}

SEC("?tp_btf/hrtimer_expire_entry")
int hrtimer_expire_entry(void *ctx)
{
	return 0;
}

SEC("?tp_btf/sched_process_fork")
int sched_process_fork(void *ctx)
{
	return 0;
}

SEC("?tp_btf/sched_process_exec")
int sched_process_exec(void *ctx)
{
	return 0;
}

SEC("?tp_btf/task_rename")
int task_rename(void *ctx)
{
	return 0;
}

SEC("?tp_btf/sched_process_exit")
int sched_process_exit(void *ctx)
{
	return 0;
}

SEC("?tp_btf/sock_recv_length")
int sock_recv_length(void *ctx)
{
	return 0;
}

SEC("?tp_btf/sock_send_length")
int sock_send_length(void *ctx)
{
	return 0;
}

SEC("?uprobe")
int entry(void *ctx)
{
	return 0;
}

SEC("?uretprobe")
int leave(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
