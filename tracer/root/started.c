// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Programs that are started as somebody else: what the user wants run, and the agent's loader. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rights.h"
#include "root.h"

#define LOADER_FILE_BYTES (32 << 20) /* the agent's files are much smaller */
#define LOADER_FILES	  64
#define ABOVE		  32 /* descriptors that a program does not inherit */

static const char *caller_home;

/* In the child: becomes who called us, and the program. */
static int become_caller(const struct root *root, char **words)
{
	sigprocmask(SIG_SETMASK, &root->signals, NULL);
	umask(root->umask);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	if (!root->called_by_root &&
	    (setgroups(0, NULL) || setresgid(root->gid, root->gid, root->gid) ||
	     setresuid(root->uid, root->uid, root->uid) || setenv("HOME", caller_home, 1)))
		return -errno;
	execvp(words[0], words);
	return -errno;
}

/* What the agent's loader inherits, from 3 on (qjoule.servers.agent_loader, Inherited). */
enum {
	LOADER_SOCKET,
	LOADER_JAR,
	LOADER_HOOKS,
	LOADER_LIBRARY,
	LOADER_ROOT,
	LOADER_HANDLE,
	LOADER_FDS
};

static int loader_fds[LOADER_FDS];
static const struct rp_request *loader_request;

/* In the child: becomes the JVM's user, and the loader. */
static int become_loader(const struct root *root, char **words)
{
	struct rlimit none = {0, 0}, bytes = {LOADER_FILE_BYTES, LOADER_FILE_BYTES};
	struct rlimit files = {LOADER_FILES, LOADER_FILES}, processes;
	char *environment[] = {NULL};
	sigset_t signals;
	int error, null = open("/dev/null", O_RDWR); /* 0 to 2 may have been closed */

	(void)root;
	for (int i = 0; i < LOADER_FDS; i++)
		loader_fds[i] = fcntl(loader_fds[i], F_DUPFD_CLOEXEC, ABOVE);
	for (int i = 0; i < 3 + LOADER_FDS; i++)
		if (dup2(i < 3 ? null : loader_fds[i - 3], i) < 0)
			return -errno;
	close_range(3 + LOADER_FDS, ~0U, CLOSE_RANGE_CLOEXEC);
	sigemptyset(&signals);
	sigprocmask(SIG_SETMASK, &signals, NULL);
	umask(0077);
	/* The JVM's threads count as processes of its user, whatever limit the JVM itself has. */
	if (getrlimit(RLIMIT_NPROC, &processes))
		return -errno;
	processes.rlim_cur = processes.rlim_max;
	if (setsid() < 0 || chdir("/") || setrlimit(RLIMIT_CORE, &none) ||
	    setrlimit(RLIMIT_FSIZE, &bytes) || setrlimit(RLIMIT_NOFILE, &files) ||
	    setrlimit(RLIMIT_NPROC, &processes))
		return -errno;
	error = rights_give_up(loader_request->number, loader_request->flags);
	if (error)
		return error;
	execve(words[0], words, environment);
	return -errno;
}

/* Forks; the child does not return from `start` unless that fails. Returns its pid, or why not. */
static pid_t spawn(int (*start)(const struct root *, char **), const struct root *root,
		   char **words)
{
	int report[2], error = 0;
	pid_t pid;

	if (pipe2(report, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (!pid) {
		int end = fcntl(report[1], F_DUPFD_CLOEXEC, ABOVE);

		error = start(root, words);
		_exit(write(end, &error, sizeof(error)) < 0);
	}
	if (pid < 0)
		error = -errno;
	close(report[1]);
	/* Ends without a byte where the program runs. */
	if (pid > 0 && read(report[0], &error, sizeof(error)) > 0)
		waitpid(pid, NULL, 0);
	close(report[0]);
	return error ? error : pid;
}

int started_run(struct root *root, const struct rp_request *request, struct answer *answer)
{
	char **words = root->command;
	pid_t pid;

	while (*words && strcmp(*words, "--"))
		words++;
	if (!*words || !*++words || root->run_pid)
		return -EINVAL; /* nothing is named, or it has run */
	caller_home = request->text;
	pid = spawn(become_caller, root, words);
	if (pid < 0)
		return pid;
	answer->reply.pid = root->run_pid = pid;
	return 0;
}

bool outputs_ended(struct root *root, pid_t pid, int status)
{
	struct answer answer = {.reply = {.pid = status}, .fd = -1};

	if (pid != root->run_pid)
		return false;
	root->run_pid = -1;
	command_tell(&answer);
	return true;
}

int started_loader(const struct root *root, const struct rp_request *request, struct answer *answer)
{
	static const char *const files[] = {"qjoule-agent.jar", "hooks.jar", "libqjoule_agent.so"};
	const char *python = root->command[0];
	int length = (int)(strrchr(python, '/') - python), pair[2], error;
	char path[PATH_MAX], pid[16], own_pid[16], seconds[32];
	char *words[] = {root->command[0],
			 "-I",
			 "-m",
			 "qjoule.servers.agent_loader",
			 pid,
			 own_pid,
			 seconds,
			 request->size & 1 ? "--client-tags" : seconds,
			 request->size & 2 ? "--no-signal" : seconds,
			 NULL};
	struct stat status;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	answer->fd = pair[0];
	loader_request = request;
	loader_fds[LOADER_SOCKET] = pair[1];
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%.*s/../lib/qjoule/%s", length, python, files[i]);
		loader_fds[LOADER_JAR + i] = open(path, O_RDONLY | O_CLOEXEC);
	}
	loader_fds[LOADER_HANDLE] = pidfd_open(request->pid, 0);
	snprintf(pid, sizeof(pid), "%d", request->pid);
	snprintf(own_pid, sizeof(own_pid), "%d", (int)request->offset);
	snprintf(seconds, sizeof(seconds), "--seconds=%u", (unsigned)(request->size >> 2));
	snprintf(path, sizeof(path), "/proc/%d/root", request->pid);
	loader_fds[LOADER_ROOT] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	*strrchr(path, '/') = '\0';
	/* Its directory belongs to its effective user; it still runs, so that was its directory. */
	error = stat(path, &status) ? -errno : -EPERM;
	if (error == -EPERM && status.st_uid && status.st_uid == request->number &&
	    status.st_gid == request->flags &&
	    !pidfd_send_signal(loader_fds[LOADER_HANDLE], 0, NULL, 0))
		error = spawn(become_loader, root, words);
	for (int i = 0; i < LOADER_FDS; i++)
		close(loader_fds[i]);
	return error < 0 ? error : 0;
}
