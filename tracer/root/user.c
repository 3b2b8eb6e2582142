// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The user that everything but this process runs as. No other program has it, so none can take what
 * ours hold.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "root.h"

/* Numbers that nobody assigns (systemd's UIDS-GIDS.md), one for each process that may live. */
#define FIRST	   2100000000
#define MOST_WAITS 500
#define WAIT_US	   10000

static uid_t number_in(const char *variable)
{
	const char *text = getenv(variable);

	return text ? (uid_t)strtoul(text, NULL, 10) : 0;
}

bool user_choose(void)
{
	struct stat store;

	root.caller_uid = number_in("SUDO_UID");
	root.caller_gid = number_in("SUDO_GID");
	root.uid = number_in("QJOULE_UID");
	root.gid = number_in("QJOULE_GID");
	/* The agent's files outlast it. */
	if (!root.uid && root.is_agent && !stat(OWN_STORE, &store) &&
	    store.st_uid != root.caller_uid) {
		root.uid = store.st_uid;
		root.gid = store.st_gid;
	}
	root.hands_over = !root.is_agent && (!root.uid || !root.gid);
	if (root.hands_over)
		root.uid = root.gid = FIRST + getpid();
	return root.uid && root.gid;
}

bool user_is_alone(void)
{
	struct rlimit before = {0}, two;
	pid_t child;

	getrlimit(RLIMIT_NPROC, &before);
	two = (struct rlimit){2, before.rlim_max};
	child = setrlimit(RLIMIT_NPROC, &two) ? -1 : fork();
	if (!child)
		_exit(0);
	return child > 0 && waitpid(child, NULL, 0) == child && !setrlimit(RLIMIT_NPROC, &before);
}

/* In a child. Others may take a while to end. */
static int end_others(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err = rights_give_up(root.uid, root.gid);

	if (err)
		return err;
	kill(-1, SIGKILL);
	answer->reply.pid = getpid();
	return user_is_alone() ? 0 : -EAGAIN;
}

void user_end(void)
{
	static struct answer answer;
	int err = root.hands_over;

	for (unsigned i = 0; err && i < MOST_WAITS; i++) {
		err = guarded(end_others, NULL, NULL, &answer);
		/* Until they are waited for, it and what it has ended are still of this user. */
		if (answer.reply.pid)
			waitpid(answer.reply.pid, NULL, 0);
		usleep(err ? WAIT_US : 0);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}
