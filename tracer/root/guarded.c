// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "root.h"

#define MOST_MS	 5000 /* of a busy machine's own files; timeouts add up to twice that */
#define LEAST_MS 250
#define START_MS 30000 /* for a program to start, however busy the machine is */

/* Many processes that make us wait must not add up to minutes: each timeout halves the wait. */
static int patience_ms = MOST_MS;

int guarded(answer_fn work, struct peer *peer, const struct rp_request *request,
	    struct answer *answer)
{
	struct pollfd answered = {.events = POLLIN};
	int pair[2], err = 0;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		/* If the child outlives us, the reader of our output must not wait for it. */
		for (int fd = 0; peer && fd < 3; fd++)
			dup2(root.null_fd, fd);
		answer->reply.status = work(peer, request, answer);
		answer_send(pair[1], answer);
		_exit(1);
	}
	if (child < 0)
		err = -errno;
	close(pair[1]);
	answered.fd = pair[0];
	if (!err && poll(&answered, 1, peer ? patience_ms : START_MS) != 1) {
		/* Not waited for: it may be in a state that no signal reaches. main.c reaps it. */
		kill(child, SIGKILL);
		if (peer && patience_ms > LEAST_MS)
			patience_ms /= 2;
		err = -ETIMEDOUT;
	}
	if (!err && !message_receive(pair[0], &answer->reply, sizeof(answer->reply), &answer->fd)) {
		answer->reply.pid = child;
		err = -EIO;
	}
	close(pair[0]);
	return err ? err : answer->reply.status;
}
