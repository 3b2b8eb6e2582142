/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef QJ_PRIVILEGES_H
#define QJ_PRIVILEGES_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Gives up everything but what pumping needs: becomes uid and gid, drops all capabilities (but
 * CAP_BPF if maps have to be drained), sets no_new_privs, and allows only the system calls of the
 * pump; others fail with EPERM. Returns 0 or a negative errno.
 */
int privileges_drop(uid_t uid, gid_t gid, bool keep_bpf);

#endif /* QJ_PRIVILEGES_H */
