// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Starts children with a time limit, and programs: the command, the agent's loader (RP_AS), and the
 * command after `--` on ours (RP_RUN). The agent's is its flight recorder, which ends when we end.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "root.h"

#define MOST_MS	 5000 /* for a busy machine's own files; timeouts add up to twice that */
#define LEAST_MS 250
#define START_MS 30000 /* for a program to start, however busy the machine is */

/* Many processes that make us wait must not add up to minutes: each timeout halves the wait. */
static int time_limit_ms = MOST_MS;

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
	if (!err && poll(&answered, 1, peer ? time_limit_ms : START_MS) != 1) {
		/* Not waited for: it may be in a state that no signal reaches. main.c reaps it. */
		kill(child, SIGKILL);
		if (peer && time_limit_ms > LEAST_MS)
			time_limit_ms /= 2;
		err = -ETIMEDOUT;
	}
	if (!err && !message_receive(pair[0], &answer->reply, sizeof(answer->reply), &answer->fd)) {
		answer->reply.pid = child;
		err = -EIO;
	}
	close(pair[0]);
	return err ? err : answer->reply.status;
}

#define PASSED 3 /* the first descriptor that a program has from us */

static char **rest;	  /* our command line after `--` */
static int childs_socket; /* its other end is in the answer */

int exec_program(char **words, unsigned passed, int when_we_end)
{
	umask(root.umask);
	sigprocmask(SIG_SETMASK, &root.signals, NULL);
	close_range(PASSED + passed, ~0U, CLOSE_RANGE_CLOEXEC); /* also root's shell's */
	prctl(PR_SET_PDEATHSIG, when_we_end, 0, 0, 0);
	execvp(words[0], words);
	return -errno;
}

int become_command(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err = rights_give_up(root.uid, root.gid);

	/* Looking up accounts runs libraries of the host. */
	if (!err && root.hands_over &&
	    (!user_is_alone() || getpwuid(root.uid) || getgrgid(root.gid)))
		return -EBUSY;
	/* SIGINT stays blocked until the command can end by it (interrupts.py). */
	if (err || access(root.command[RP_FILE_WORD], R_OK) || sigaddset(&root.signals, SIGINT) ||
	    dup2(childs_socket, PASSED) < 0 || setenv("QJOULE_ROOT_PART", "3", 1))
		return err ?: -errno;
	return exec_program(root.command, 1, SIGTERM);
}

/* As the user who called us. */
static int become_program(struct peer *peer, const struct rp_request *request,
			  struct answer *answer)
{
	const struct passwd *caller;

	if (root.caller_uid) {
		if (setgroups(0, NULL) ||
		    setresgid(root.caller_gid, root.caller_gid, root.caller_gid) ||
		    setresuid(root.caller_uid, root.caller_uid, root.caller_uid))
			return -errno;
		caller = getpwuid(root.caller_uid);
		setenv("HOME", caller ? caller->pw_dir : "/", 1);
	}
	return exec_program(rest, 0, root.is_agent ? SIGTERM : 0);
}

/* As the user of a JVM, with descriptors of its directories in /proc and its root. */
static int become_loader(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	char path[32],
	    *words[] = {root.command[0],       "-I", "-m", "qjoule.servers.jvm.agent_loader",
			(char *)request->text, NULL};
	struct rlimit processes;
	struct stat runs_as;
	int process, top, err;

	snprintf(path, sizeof(path), "/proc/%d", request->pid);
	process = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	top = process < 0 ? -1 : openat(process, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* The directory belongs to the user that the process runs as, and to root after its end. */
	if (top < 0 || fstat(process, &runs_as) || !runs_as.st_uid)
		return top < 0 ? -errno : -EPERM;
	/* The JVM's threads count as processes of its user, whatever limit the JVM itself has. */
	getrlimit(RLIMIT_NPROC, &processes);
	processes.rlim_cur = processes.rlim_max;
	setrlimit(RLIMIT_NPROC, &processes);
	clearenv();
	for (int fd = 0; fd < PASSED; fd++)
		dup2(root.null_fd, fd);
	dup2(childs_socket, PASSED);
	dup2(process, PASSED + 1);
	dup2(top, PASSED + 2);
	err = rights_give_up(runs_as.st_uid, runs_as.st_gid);
	return err ?: exec_program(words, 3, 0);
}

int launch(answer_fn work, const struct rp_request *request, struct answer *answer, int *kept)
{
	int pair[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	childs_socket = pair[1];
	err = guarded(work, NULL, request, answer);
	answer->fd = pair[0];
	if (err == -EIO && kept)
		*kept = childs_socket;
	else
		close(childs_socket);
	return err == -EIO ? 0 : err; /* -EIO: the child has become another program */
}

int answer_as(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	return launch(become_loader, request, answer, NULL);
}

int answer_run(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err;

	for (rest = root.command; *rest && strcmp(*rest++, "--");)
		;
	if (root.run_pid > 0 || (root.run_pid && !root.is_agent) || !*rest)
		return -EINVAL; /* the command runs, or has run, or was not given */
	err = launch(become_program, request, answer, &root.run_fd);
	if (!err)
		root.run_pid = answer->reply.pid;
	return err;
}
