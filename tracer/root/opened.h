/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The files that may be attached to. Each was opened and checked, and is known by a handle from
 * then on: no path is looked up a second time.
 */
#ifndef QJ_ROOT_OPENED_H
#define QJ_ROOT_OPENED_H

#include <stddef.h>

#include "protocol.h"

/*
 * Fills everything but the handle, as the kernel knows it: a file system that somebody else's
 * program serves is not asked. Returns 0 or a negative errno.
 */
int opened_identify(int fd, struct rp_file *out);

/*
 * Keeps `fd`, a regular file opened to read, and fills `out` with its identity and handle. The
 * descriptor belongs to the table then, also after an error. A file that is kept already, unchanged
 * since, keeps its handle. Returns the handle, from 1, or a negative errno: -EINVAL for a file that
 * is not regular, -EACCES for one in memory without a name (memfd_create(2)): its content changes
 * without its times; -ENFILE when the table is full. After -EACCES and -ENFILE `out` holds the
 * identity, with handle 0.
 */
int opened_keep(int fd, struct rp_file *out);

/*
 * Whether the file of `handle` is still what was kept, and has the `length` (1 to RP_CODE_BYTES)
 * bytes of `code` at `offset`. Returns 0 and lends the descriptor in `*fd`, or a negative errno:
 * -ENOENT without such a handle, -ESTALE for another identity or other bytes.
 */
int opened_check(uint32_t handle, uint64_t offset, const void *code, size_t length, int *fd);

#endif /* QJ_ROOT_OPENED_H */
