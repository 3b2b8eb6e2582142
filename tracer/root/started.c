// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Starts programs as another user: the user's own (RP_RUN), and the agent's loader (RP_AS). */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h> /* glibc has the calls for pidfds from 2.36 on */
#include <unistd.h>

#include "root.h"

static char **program;	  /* for RP_RUN */
static int loader_socket; /* for RP_AS: the loader's end */

/* Starts a child and has `become` replace it by another program. */
static int start(answer_fn become, const struct rp_request *request, struct answer *answer)
{
	int err = guarded(become, NULL, request, answer);

	return err == -EIO ? 0 : err;
}

/* In the child: becomes the user who called us, then the program. */
static int become_caller(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
	sigprocmask(SIG_SETMASK, &root.signals, NULL);
	umask(root.umask);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	for (char **word = root.command; word < program; word++)
		if (!strcmp(*word, "--stdout")) { /* the command's own talk is there */
			dup2(root.null_fd, STDIN_FILENO);
			dup2(STDERR_FILENO, STDOUT_FILENO);
		}
	if (root.caller_uid &&
	    (setgroups(0, NULL) || setresgid(root.caller_gid, root.caller_gid, root.caller_gid) ||
	     setresuid(root.caller_uid, root.caller_uid, root.caller_uid) ||
	     setenv("HOME", request->text, 1)))
		return -errno;
	execvp(program[0], program);
	return -errno;
}

int answer_run(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err;

	for (program = root.command; *program && strcmp(*program, "--");)
		program++;
	if (!*program || !*++program || root.run_pid)
		return -EINVAL; /* no program was named, or it has already run */
	err = start(become_caller, request, answer);
	root.run_pid = err ? 0 : answer->reply.pid;
	return err;
}

/* Replaces the child by the loader, and passes it `top` and `handle` of the JVM. */
static int run_loader(const struct rp_request *request, const struct stat *runs_as, int top,
		      int handle)
{
	char own[64], text[RP_TEXT_BYTES], *environment[] = {NULL};
	char *words[] = {
	    root.command[0], "-I", "-m", "qjoule.servers.jvm.agent_loader", own, text, NULL};
	struct rlimit processes;
	sigset_t none;
	int err;

	snprintf(own, sizeof(own), "%d:%d:%d:%d", request->pid, loader_socket, top, handle);
	strcpy(text, request->text);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	for (int i = 0; i < 3; i++)
		if (dup2(root.null_fd, i) < 0)
			return -errno;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* The JVM's threads count as processes of its user, whatever limit the JVM itself has. */
	if (fcntl(loader_socket, F_SETFD, 0) || fcntl(top, F_SETFD, 0) ||
	    fcntl(handle, F_SETFD, 0) || setsid() < 0 || chdir("/") ||
	    getrlimit(RLIMIT_NPROC, &processes))
		return -errno;
	processes.rlim_cur = processes.rlim_max;
	if (setrlimit(RLIMIT_NPROC, &processes))
		return -errno;
	err = rights_give_up(runs_as->st_uid, runs_as->st_gid);
	if (err)
		return err;
	execve(words[0], words, environment);
	return -errno;
}

/* In the child: becomes the JVM's user, then the loader. */
static int become_loader(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int handle = syscall(SYS_pidfd_open, request->pid, 0), top;
	struct stat status;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/root", request->pid);
	top = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	*strrchr(path, '/') = '\0';
	/* The process still runs, so this was its directory, owned by its effective user. */
	if (handle < 0 || top < 0 || stat(path, &status))
		return -errno;
	if (!status.st_uid || syscall(SYS_pidfd_send_signal, handle, 0, NULL, 0))
		return -EPERM;
	return run_loader(request, &status, top, handle);
}

int answer_as(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int pair[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	loader_socket = pair[1];
	err = start(become_loader, request, answer);
	close(pair[1]);
	if (err)
		close(pair[0]);
	else
		answer->fd = pair[0];
	return err;
}

/* Replaces this process by itself if the agent asked for another start (docs/agent.md). */
void start_again(int status, char **argv)
{
	if (status == RP_START_AGAIN << 8 && !strcmp(root.command[RP_COMMAND_WORD], "agent")) {
		sigprocmask(SIG_SETMASK, &root.signals, NULL);
		execv(argv[0], argv);
	}
}
