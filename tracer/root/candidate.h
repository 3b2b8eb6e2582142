/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What belongs to a process: below its directory in /proc, or below its root. */
#ifndef QJ_ROOT_CANDIDATE_H
#define QJ_ROOT_CANDIDATE_H

#include "root.h"

/* RP_OPEN, without the handles. Runs in a child (guarded()): it gives up rights on the way. */
int candidate_open(const struct peer *peer, const struct rp_request *request,
		   struct answer *answer);

/*
 * Opens a file to be attached to, and tells its identity and name. `fd` is a descriptor of it that
 * was made with O_PATH, or -1 and errno says why. Returns 0 or a negative errno.
 */
int candidate_attached(int fd, struct answer *answer);

/* What an open file is called, in RP_TEXT_BYTES. Returns 0 or a negative errno. */
int candidate_name(int fd, char *text);

#endif /* QJ_ROOT_CANDIDATE_H */
