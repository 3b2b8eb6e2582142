/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which variant of the BPF programs this kernel needs (bpf/core/early.bpf.h). */
#ifndef QJ_EARLY_H
#define QJ_EARLY_H

#include <stdbool.h>

/*
 * Whether the kernel lacks what the common variant uses: bpf_loop() (Linux 5.17), or maps that
 * processes without rights may use (5.19). Tries both; call it without rights.
 */
bool early_kernel(void);

#endif /* QJ_EARLY_H */
