// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Answers RP_EXE, RP_BIND, RP_TRACER, RP_KEEPER, and counts the handles of RP_OPEN. Only root can
 * follow /proc/PID/exe of another user's process; the other requests give out sockets and handles,
 * which stand for what the root part may do.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "root.h"

#define SECONDS_A_LOOK 10 /* the keeper has 64 looks at once, then one per so many seconds */

int answer_open(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err;

	/* What an examiner itself claims about its handles is not trusted. */
	if (request->number == RP_WHAT_KEPT) {
		memcpy(answer->reply.text, peer->handles, sizeof(peer->handles));
		return 0;
	}
	err = guarded(candidate_open, peer, request, answer);
	if (err || (request->number != RP_WHAT_EXE && request->number != RP_WHAT_MAPPED) ||
	    peer->kept == RP_MAX_KEPT)
		return err;
	err = opened_keep(answer);
	if (!err)
		peer->handles[peer->kept++] = answer->reply.file.handle;
	return err;
}

int answer_exe(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	char path[32];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%d/exe", request->pid);
	fd = open(path, O_PATH | O_CLOEXEC);
	err = candidate_identify(fd, answer);
	close(fd); /* also if it is none */
	return err;
}

/* The keeper stays for as long as the tracer: the rate of its looks is limited. */
static bool may_look(void)
{
	static time_t last, all_back; /* all_back: when all looks are there again */
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec == last || all_back > now.tv_sec + 63 * SECONDS_A_LOOK)
		return false;
	last = now.tv_sec;
	all_back = (all_back > last ? all_back : last) + SECONDS_A_LOOK;
	return true;
}

int answer_bind(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	struct peer new = {.kind = PEER_CANDIDATE, .late = peer->late};
	char path[32];

	if (peer->late && !may_look())
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
