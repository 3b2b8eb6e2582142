/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What differs in the object for early kernels, from Linux 5.10 on. All sources are compiled twice;
 * the tracer has the early object loaded where the kernel lacks one of these:
 *
 * - bpf_loop() (5.17, commit e6f2dd0f8067): bounded loops, which the verifier unrolls;
 * - pointers as arguments of functions that are verified once (5.12, e5069b9c23b3): compiled with
 *   -fvisibility=hidden, so the verifier follows functions at each call, except those that are
 *   QJ_VISIBLE, whose arguments are numbers;
 * - task storage (5.11, 4cf1bc1f1045), bpf_get_current_task_btf() (5.11, 3ca1032ab7ab): a hash map
 *   by thread id;
 * - atomic operations that return a value (5.12, 5ffa25502b5a): see each place;
 * - maps in the hands of processes without rights (5.19, c8644cd0efe7): the live view's sums go
 *   through the rings one by one, and the tracer adds them up.
 */
#ifndef QJOULE_EARLY_BPF_H
#define QJOULE_EARLY_BPF_H

#ifdef QJ_EARLY
#define IS_EARLY 1
/* libbpf neither creates hidden maps and programs, nor shares hidden variables with the tracer. */
#define QJ_VISIBLE __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wignored-attributes" /* of declarations */
#undef SEC
#define SEC(name) __attribute__((section(name), used)) QJ_VISIBLE

#define bpf_loop(times, step, context, flags)                                                      \
	({                                                                                         \
		__u32 done_ = 0;                                                                   \
                                                                                                   \
		_Pragma("clang loop unroll(disable)") while (done_ < (times) &&                    \
							     !step(done_, context)) done_++;       \
		(long)done_;                                                                       \
	})
#define bpf_get_current_task_btf() ((struct task_struct *)bpf_get_current_task())
/* A field of a task that may be the current one: not a plain load there. */
#define TASK_FIELD(task, field) BPF_CORE_READ(task, field)
/* Without code for what clients send beside a statement: it would not fit on the stack. */
#define READS_TAGS 0
#else
#define IS_EARLY   0
#define READS_TAGS (plan.tags)
#define QJ_VISIBLE
#define TASK_FIELD(task, field) ((task)->field)
#endif

#endif
