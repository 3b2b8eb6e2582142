// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The user that everything but this process runs as. No other program has it, so none can take what
 * ours hold. At the end what this user has written is given to who called us.
 */
#include <dirent.h>
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

/* The users that systemd gives to services for as long as they run (DynamicUser=). */
#define FIRST 61184
#define USERS (65519 - FIRST + 1)
/* Whoever locks the file named like a user has that user; systemd does likewise. */
#define LOCKS "/run/systemd/dynamic-uid"
/* The user as whom root's commands read root's traces (giving_up_root.py). */
#define READER	   61183
#define MOST_DEPTH 8 /* of directories in a trace */
#define MOST_FILES 100000
#define MOST_WAITS 500
#define WAIT_US	   10000

static char lock[sizeof(LOCKS) + 16]; /* path of our user's file; empty: it has none */

static uid_t number_in(const char *variable)
{
	const char *text = getenv(variable);

	return text ? (uid_t)strtoul(text, NULL, 10) : 0;
}

/*
 * In a child: whether no account and no process has this user, not even one that waits until the
 * user becomes ours. Among processes only one that is alone may fork under this limit
 * (getrlimit(2), RLIMIT_NPROC). `flags`: ends the others first.
 */
static int check_unused(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	struct rlimit two = {2, 2};
	pid_t child;
	int err = rights_give_up(request->number, request->number);

	if (err)
		return err;
	if (request->flags)
		kill(-1, SIGKILL);
	else if (getpwuid(request->number) || getgrgid(request->number))
		return -EBUSY;
	answer->reply.pid = getpid();
	child = setrlimit(RLIMIT_NPROC, &two) ? -1 : fork();
	if (!child)
		_exit(0);
	return child < 0 || waitpid(child, NULL, 0) < 0 ? -errno : 0;
}

static int check(uid_t user, bool end_others)
{
	struct rp_request request = {.number = user, .flags = end_others};
	static struct answer answer = {.fd = -1};
	int err = guarded(check_unused, NULL, &request, &answer);

	/* Until they are waited for, it and what it has ended count as processes of this user. */
	if (answer.reply.pid)
		waitpid(answer.reply.pid, NULL, 0);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return err;
}

static int take(uid_t user)
{
	struct stat status;
	int fd;

	snprintf(lock, sizeof(lock), "%s/%u", LOCKS, user);
	mkdir("/run/systemd", 0755);
	mkdir(LOCKS, 0755);
	fd = open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* Without links it was another's, who has ended and removed it. */
	if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &status) && status.st_nlink) {
		if (!check(user, false))
			return 0; /* kept open */
		unlink(lock);
	}
	close(fd);
	return -EBUSY;
}

int user_choose(void)
{
	bool is_agent = !strcmp(root.command[RP_COMMAND_WORD], "agent");
	struct stat store;
	char number[16];
	int err = -EBUSY;

	root.caller_uid = number_in("SUDO_UID");
	root.caller_gid = number_in("SUDO_GID");
	root.uid = number_in("QJOULE_UID");
	root.gid = number_in("QJOULE_GID");
	if (stat(OWN_STORE, &store) || store.st_uid == root.caller_uid)
		store.st_uid = store.st_gid = 0;
	if (is_agent && !root.uid) {
		root.uid = store.st_uid;
		root.gid = store.st_gid;
	}
	if (root.uid && root.gid)
		err = 0;
	root.hands_over = err && !is_agent;
	/* Not always the first one: whoever had it before may have left files. */
	for (unsigned i = 0; err == -EBUSY && i < USERS; i++) {
		root.uid = root.gid = FIRST + (getpid() + i) % USERS;
		err = root.uid == store.st_uid ? -EBUSY : take(root.uid);
	}
	/* Its next start and flight recorder, which are this program again, have its files. */
	if (is_agent) {
		snprintf(number, sizeof(number), "%u", root.uid);
		setenv("QJOULE_UID", number, 1);
		snprintf(number, sizeof(number), "%u", root.gid);
		setenv("QJOULE_GID", number, 1);
	}
	return err;
}

void user_end(void)
{
	for (unsigned i = 0; root.hands_over && i < MOST_WAITS && check(root.uid, true); i++)
		usleep(WAIT_US);
	if (lock[0])
		unlink(lock);
}

/* Also the links and sockets themselves: none of them is followed. */
void user_give_away(int fd, unsigned depth)
{
	const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
	static unsigned given;
	static dev_t device;
	struct stat status;
	gid_t gid = root.caller_uid ? root.caller_gid : READER;
	unsigned mode;
	DIR *listed;
	int below;

	/* Only what our user made, in no other file system; the trace itself is the caller's. */
	if (fstat(fd, &status) || given++ >= MOST_FILES ||
	    (depth && (status.st_uid != root.uid || status.st_dev != device)) ||
	    (!S_ISDIR(status.st_mode) && status.st_nlink != 1))
		return;
	device = status.st_dev;
	mode = status.st_mode & 0700;
	if (!root.caller_uid)
		mode |= mode >> 3;
	if (fchownat(fd, "", root.caller_uid, gid, AT_EMPTY_PATH) || chmod(opened_path(fd), mode) ||
	    !S_ISDIR(status.st_mode) || depth == MOST_DEPTH)
		return;
	listed = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	for (struct dirent *entry; listed && (entry = readdir(listed));) {
		below = openat(fd, entry->d_name, flags);
		if (below >= 0 && strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			user_give_away(below, depth + 1);
		close(below); /* also if it is none */
	}
	closedir(listed);
}
