/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef QJ_PRIVILEGES_H
#define QJ_PRIVILEGES_H

#include <stdbool.h>

/*
 * Allows only the pump's system calls, and bpf(2) if maps have to be drained, and emptying files
 * of a `ring`; others fail with EPERM. The process started without rights and cannot gain any.
 * Returns 0 or a negative errno.
 */
int privileges_confine(bool call_bpf, bool ring);

#endif /* QJ_PRIVILEGES_H */
