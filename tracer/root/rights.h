/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef QJ_ROOT_RIGHTS_H
#define QJ_ROOT_RIGHTS_H

#include <sys/types.h>

/*
 * This process becomes `uid` and `gid` for good: no supplementary group, no capability in any set,
 * no way to get one back. Only where a single thread runs: capset(2) and prctl(2) are per thread.
 * Returns 0 or a negative errno.
 */
int rights_give_up(uid_t uid, gid_t gid);

/*
 * From here on this thread may open what that user may, whose groups these are; it keeps its own
 * user and group, so that nobody but root can signal or trace it. Returns 0 or a negative errno.
 */
int rights_of_files(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count);

#endif /* QJ_ROOT_RIGHTS_H */
