// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "root.h"

#define MOST_MS	 2000
#define LEAST_MS 250

/* Many processes that let us wait must not add up to minutes: each waits half as long. */
static int patience_ms = MOST_MS;

static void work_and_end(work_fn work, const struct peer *peer, const struct rp_request *request,
			 struct answer *answer, int socket_fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	answer->reply.status = work(peer, request, answer);
	answer_send(socket_fd, answer);
	_exit(0);
}

int guarded(work_fn work, const struct peer *peer, const struct rp_request *request,
	    struct answer *answer)
{
	struct pollfd answered = {.events = POLLIN};
	int pair[2], err = 0;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	child = fork();
	if (!child)
		work_and_end(work, peer, request, answer, pair[1]);
	if (child < 0)
		err = -errno;
	close(pair[1]);
	answered.fd = pair[0];
	if (!err && poll(&answered, 1, patience_ms) != 1) {
		/* Not waited for: it may be where no signal reaches it. main.c reaps it. */
		kill(child, SIGKILL);
		if (patience_ms > LEAST_MS)
			patience_ms /= 2;
		err = -ETIMEDOUT;
	}
	if (!err && !message_receive(pair[0], &answer->reply, sizeof(answer->reply), &answer->fd))
		err = -EIO;
	close(pair[0]);
	return err ? err : answer->reply.status;
}
