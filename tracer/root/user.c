// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The user that everything but this process runs as. No other program has it, so none can take what
 * ours hold.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

/*
 * In a child: whether no account and no process has our user, not even one that waits until the
 * user becomes ours. Among processes only one that is alone may fork under this limit
 * (getrlimit(2), RLIMIT_NPROC). `flags`: ends the others first.
 */
static int check_unused(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	struct rlimit two = {2, 2};
	pid_t child;
	int err = rights_give_up(root.uid, root.gid);

	if (err)
		return err;
	if (request->flags)
		kill(-1, SIGKILL);
	else if (getpwuid(root.uid) || getgrgid(root.gid))
		return -EBUSY;
	answer->reply.pid = getpid();
	child = setrlimit(RLIMIT_NPROC, &two) ? -1 : fork();
	if (!child)
		_exit(0);
	return child < 0 || waitpid(child, NULL, 0) < 0 ? -errno : 0;
}

static int check(bool end_others)
{
	struct rp_request request = {.flags = end_others};
	static struct answer answer = {.fd = -1};
	int err = guarded(check_unused, NULL, &request, &answer);

	/* Until they are waited for, it and what it has ended count as processes of this user. */
	if (answer.reply.pid)
		waitpid(answer.reply.pid, NULL, 0);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return err;
}

int user_choose(void)
{
	struct stat store;

	root.caller_uid = number_in("SUDO_UID");
	root.caller_gid = number_in("SUDO_GID");
	root.uid = number_in("QJOULE_UID");
	root.gid = number_in("QJOULE_GID");
	if (root.uid && root.gid)
		return 0;
	/* Its files outlast it. */
	if (is_agent()) {
		if (stat(OWN_STORE, &store) || !store.st_uid || !store.st_gid ||
		    store.st_uid == root.caller_uid)
			return -ENOENT;
		root.uid = store.st_uid;
		root.gid = store.st_gid;
		return 0;
	}
	root.hands_over = true;
	root.uid = root.gid = FIRST + getpid();
	return check(false);
}

void user_end(void)
{
	for (unsigned i = 0; root.hands_over && i < MOST_WAITS && check(true); i++)
		usleep(WAIT_US);
}
