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

#endif /* QJ_ROOT_RIGHTS_H */
