/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* File descriptors of the current task, for servers that keep a descriptor in their memory. */
#ifndef QJOULE_DESCRIPTOR_BPF_H
#define QJOULE_DESCRIPTOR_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "early.bpf.h"

#define S_IFMT	 0170000 /* include/uapi/linux/stat.h */
#define S_IFSOCK 0140000

/* The struct sock behind this file descriptor of the current task; 0 if it is not a socket. */
static __always_inline __u64 socket_of(__s32 fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *fdt = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(fdt, fd), *file = 0;
	struct socket *socket;

	if (fd < 0 || (__u32)fd >= BPF_CORE_READ(fdt, max_fds))
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	return (__u64)BPF_CORE_READ(socket, sk);
}

#endif
