/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef QJ_PRIVILEGES_H
#define QJ_PRIVILEGES_H

#include <stdbool.h>

/*
 * Keeps other processes of this user from reading the statements that servers received, and from
 * taking our descriptors. Gives up the capability that did so until now (root/rights.c). Returns 0,
 * or -1 with errno set.
 */
int privileges_hide(void);

/*
 * Allows only the pump's system calls, and bpf(2) if maps have to be drained, and emptying files
 * of a `ring`; others fail with EPERM. The process started without rights and cannot gain any.
 * Returns 0 or a negative errno.
 */
int privileges_confine(bool call_bpf, bool ring);

#endif /* QJ_PRIVILEGES_H */
