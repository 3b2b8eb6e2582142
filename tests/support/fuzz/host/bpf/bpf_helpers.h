/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The kernel's helpers, as wire_host.c implements them. */
#ifndef QJOULE_HOST_BPF_HELPERS_H
#define QJOULE_HOST_BPF_HELPERS_H

#include "../vmlinux.h"

#define SEC(name)
#define __uint(name, value)  int(*name)[value]
#define __type(name, value)  typeof(value) *name
#define __array(name, value) typeof(value) *name[]
#define barrier()	     asm volatile("" ::: "memory")
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline	__attribute__((noinline, unused))

long bpf_probe_read_user(void *to, __u32 bytes, const void *from);
long bpf_probe_read_kernel(void *to, __u32 bytes, const void *from);
long bpf_probe_read_user_str(void *to, __u32 bytes, const void *from);
long bpf_probe_read_kernel_str(void *to, __u32 bytes, const void *from);
long bpf_loop(__u32 times, void *step, void *context, __u64 flags);
void *bpf_map_lookup_elem(void *map, const void *key);
long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags);
void *bpf_task_storage_get(void *map, struct task_struct *task, void *value, __u64 flags);
void *bpf_sk_storage_get(void *map, struct sock *sk, void *value, __u64 flags);
long bpf_task_pt_regs(struct task_struct *task);
void *bpf_ringbuf_reserve(void *ring, __u64 bytes, __u64 flags);
void bpf_ringbuf_submit(void *record, __u64 flags);
void bpf_ringbuf_discard(void *record, __u64 flags);
long bpf_ringbuf_output(void *ring, void *record, __u64 bytes, __u64 flags);
long bpf_perf_event_read_value(void *map, __u64 flags, void *value, __u32 bytes);
__u64 bpf_ktime_get_ns(void);
__u64 bpf_get_current_pid_tgid(void);
__u64 bpf_get_socket_cookie(const void *sk);
__u32 bpf_get_smp_processor_id(void);
__u32 bpf_get_prandom_u32(void);
struct task_struct *bpf_get_current_task_btf(void);

/* A test's thread lives as long as the test. */
static inline long bpf_task_storage_delete(void *map, struct task_struct *task)
{
	return 0;
}

#endif
