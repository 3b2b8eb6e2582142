// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The user that everything but this process runs as, and how rights are given up. No other program
 * has this user, so none can take our processes' descriptors.
 */
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "root.h"

/*
 * capset(2): only these capabilities, of the first 32, can be used or passed on; others are no
 * longer ambient either.
 */
static int keep_capabilities(uint32_t mask)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{mask, mask, mask}};

	return syscall(SYS_capset, &header, sets);
}

int rights_give_up(uid_t uid, gid_t gid)
{
	int next = 0;

	/* The bounding set first: that needs CAP_SETPCAP. Numbers beyond the kernel's last fail. */
	while (next == CAP_SETPCAP || !prctl(PR_CAPBSET_DROP, next, 0, 0, 0))
		next++;
	if (errno != EINVAL ||
	    prctl(PR_SET_SECUREBITS,
		  SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED, 0, 0, 0) ||
	    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(gid, gid, gid) ||
	    setresuid(uid, uid, uid) || keep_capabilities(1u << CAP_SETPCAP) ||
	    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SETPCAP, 0, 0) ||
	    prctl(PR_CAPBSET_DROP, CAP_SETPCAP, 0, 0, 0) || prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return 0;
}

int rights_of_files(uid_t uid, gid_t gid)
{
	if (setgroups(0, NULL))
		return -errno;
	setfsgid(gid);
	setfsuid(uid);
	/* They report no failure: called with an impossible id, they return the current one. */
	if ((gid_t)setfsgid(-1) != gid || (uid_t)setfsuid(-1) != uid)
		return -EPERM;
	return keep_capabilities(0) ? -errno : 0;
}

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

/* In a child: ends all other processes of its user, which may take a while. */
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
		/* Until they are waited for, the child and the processes that it has ended are
		 * still of this user. */
		if (answer.reply.pid)
			waitpid(answer.reply.pid, NULL, 0);
		usleep(err ? WAIT_US : 0);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}
