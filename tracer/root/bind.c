// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Answers RP_BIND, RP_TRACER and RP_KEEPER: gives out sockets, each for some requests only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "root.h"

#define SECONDS_PER_BIND 10 /* the keeper binds 64 at once, then one per so many seconds */

/* Limits the rate at which the keeper, which stays as long as the tracer, binds processes. */
static bool may_bind(void)
{
	static time_t last, full_again; /* full_again: when all 64 are available again */
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec == last || full_again > now.tv_sec + 63 * SECONDS_PER_BIND)
		return false;
	last = now.tv_sec;
	full_again = (full_again > last ? full_again : last) + SECONDS_PER_BIND;
	return true;
}

int answer_bind(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	struct peer new = {.kind = PEER_CANDIDATE, .late = peer->late};
	char path[32];

	if (peer->late && !may_bind())
		return -EAGAIN;
	snprintf(path, sizeof(path), "/proc/%d", request->pid);
	new.proc_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (new.proc_fd < 0)
		return -errno;
	answer->fd = peer_add(&new);
	if (answer->fd < 0)
		close(new.proc_fd);
	return answer->fd < 0 ? answer->fd : 0;
}

/* Gives out the one socket of the tracer, or of the keeper. */
int answer_peer(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	bool late = request->kind == RP_KEEPER;
	static bool given[2];

	if (given[late])
		return -EBUSY;
	answer->fd = peer_add(
	    &(struct peer){.kind = late ? PEER_KEEPER : PEER_TRACER, .late = late, .proc_fd = -1});
	given[late] = answer->fd >= 0;
	return given[late] ? 0 : answer->fd;
}
