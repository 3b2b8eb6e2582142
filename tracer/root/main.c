// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * qjoule-root PYTHON -I FILE [ARGS...]: runs the command without rights, and answers what it asks.
 *
 * `sudo qjoule ...` replaces itself by this program before it has imported anything. The command
 * finds its socket by QJOULE_ROOT_PART. Whatever happens to us, the kernel ends the command and
 * takes our probes away with us.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rights.h"
#include "root.h"

#define NOBODY	  65534
#define MAX_PEERS 64

static struct peer peers[MAX_PEERS];
static unsigned peer_count;

int peer_add(const struct peer *peer)
{
	int pair[2];

	if (peer_count == MAX_PEERS)
		return -EMFILE;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	peers[peer_count] = *peer;
	peers[peer_count++].fd = pair[0];
	return pair[1];
}

/* Without the tracer nobody reads what the programs tell. */
static void peer_remove(unsigned index)
{
	if (peers[index].kind == PEER_TRACER)
		attach_clear();
	close(peers[index].fd);
	if (peers[index].proc_fd >= 0)
		close(peers[index].proc_fd);
	peers[index] = peers[--peer_count];
}

bool message_receive(int socket_fd, void *content, size_t size, int *fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec vector = {content, size};
	/* Room for one descriptor: CMSG_SPACE() would take two. */
	struct msghdr message = {.msg_iov = &vector,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	*fd = -1;
	if (got >= 0 && header && header->cmsg_level == SOL_SOCKET &&
	    header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(header), sizeof(int));
	if (got == (ssize_t)size && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return true;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return false;
}

bool answer_send(int socket_fd, const struct answer *answer)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec vector = {(void *)&answer->reply, sizeof(answer->reply)};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};

	/* What was refused after it was opened stays here. */
	if (answer->fd >= 0 && !answer->reply.status) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
						  .cmsg_level = SOL_SOCKET,
						  .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.header), &answer->fd, sizeof(int));
	}
	/* Never waits: who does not read its answers is let go. */
	return sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

void command_tell(const struct answer *answer)
{
	for (unsigned i = 0; i < peer_count; i++)
		if (peers[i].kind == PEER_COMMAND)
			answer_send(peers[i].fd, answer);
}

/* Which room answers; who may ask what is decided here alone. */
static int answer_to(struct root *root, struct peer *peer, const struct rp_request *request, int fd,
		     struct answer *answer)
{
	switch (peer->kind) {
	case PEER_CANDIDATE:
		if (request->kind == RP_OPEN && !root->done)
			return look_answer(root, peer, request, answer);
		break;
	case PEER_TRACER:
		if (request->kind >= RP_COUNTER && request->kind <= RP_DONE && !root->done)
			return attach_answer(root, request, fd, answer);
		break;
	case PEER_COMMAND:
		if (request->kind == RP_RUN || request->kind == RP_PUBLISH)
			return outputs_answer(root, request, answer);
		if (root->done)
			break;
		if (request->kind <= RP_TRACER)
			return look_answer(root, peer, request, answer);
		if (request->kind <= RP_AS)
			return outputs_answer(root, request, answer);
		break;
	}
	return -EPERM;
}

static void serve(struct root *root, unsigned index)
{
	struct peer *peer = &peers[index];
	static struct rp_request request;
	static struct answer answer;
	bool hung;
	int fd;

	if (!message_receive(peer->fd, &request, sizeof(request), &fd)) {
		peer_remove(index);
		return;
	}
	memset(&answer, 0, sizeof(answer));
	answer.fd = -1;
	request.text[RP_TEXT_BYTES - 1] = '\0';
	answer.reply.status = answer_to(root, peer, &request, fd, &answer);
	/* A process whose files let us wait is not waited for twice. */
	hung = peer->kind == PEER_CANDIDATE && answer.reply.status == -ETIMEDOUT;
	if (!answer_send(peer->fd, &answer) || hung)
		peer_remove(index);
	if (answer.fd >= 0)
		close(answer.fd);
	if (fd >= 0)
		close(fd);
}

/* Children that have ended. Returns what the command ended with (waitpid(2)), or -1. */
static int reap(struct root *root)
{
	int status, ended = -1;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == root->command_pid)
			ended = status;
		else
			outputs_ended(root, pid, status);
	}
	return ended;
}

/* The terminal's signals reach the command without us; those that were sent to us are its. */
static void pass_on(const struct root *root, const struct signalfd_siginfo *signal_info)
{
	if (signal_info->ssi_code != SI_KERNEL)
		kill(root->command_pid, (int)signal_info->ssi_signo);
}

static int serve_until_it_ends(struct root *root, int signal_fd)
{
	for (;;) {
		struct pollfd polled[1 + MAX_PEERS] = {{signal_fd, POLLIN, 0}};
		struct signalfd_siginfo signal_info;
		unsigned count = peer_count;
		int ended;

		for (unsigned i = 0; i < count; i++)
			polled[1 + i] = (struct pollfd){peers[i].fd, POLLIN, 0};
		if (poll(polled, 1 + count, -1) < 0 && errno != EINTR)
			return -1;
		if (polled[0].revents &&
		    read(signal_fd, &signal_info, sizeof(signal_info)) == sizeof(signal_info)) {
			if (signal_info.ssi_signo != SIGCHLD)
				pass_on(root, &signal_info);
			ended = reap(root);
			if (ended >= 0)
				return ended;
		}
		/* From the last: what is removed is replaced by one that has been served. */
		for (unsigned i = count; i-- > 0;)
			if (polled[1 + i].revents)
				serve(root, i);
	}
}

static void run_command(const struct root *root, int socket_fd, pid_t parent)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", socket_fd);
	sigprocmask(SIG_SETMASK, &root->signals, NULL);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC); /* what root's shell had opened, too */
	if (fcntl(socket_fd, F_SETFD, 0) || setenv("QJOULE_ROOT_PART", number, 1) ||
	    rights_give_up(root->uid, root->gid)) {
		perror("qjoule-root: cannot give up root");
		_exit(1);
	}
	umask(root->umask);
	/* After the change of user, which clears it (prctl(2)). */
	prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
	if (getppid() != parent)
		_exit(1);
	if (!access(root->command[RP_FILE_WORD], R_OK))
		execv(root->command[0], root->command);
	fprintf(stderr,
		"qjoule: user %d cannot run %s (%s): install qjoule where every user can read it, "
		"or call it by sudo as a user who can\n",
		root->uid, root->command[RP_FILE_WORD], strerror(errno));
	_exit(1);
}

/* The user of sudo, who then owns what is written; without one, `nobody`. */
static void find_user(struct root *root)
{
	const char *uid = getenv("SUDO_UID"), *gid = getenv("SUDO_GID");

	root->uid = uid ? (uid_t)strtoul(uid, NULL, 10) : 0;
	root->gid = gid ? (gid_t)strtoul(gid, NULL, 10) : 0;
	root->called_by_root = !root->uid;
	if (!root->uid || !root->gid)
		root->uid = root->gid = NOBODY;
}

static int listen_to_signals(sigset_t *before)
{
	static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
	sigset_t signals;

	sigemptyset(&signals);
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&signals, numbers[i]);
	if (sigprocmask(SIG_BLOCK, &signals, before))
		return -1;
	return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
	struct root root = {.command = argv + 1, .word_count = argc - 1, .umask = umask(0022)};
	int signal_fd, command_fd, status;
	pid_t self = getpid();

	if (argc < 2 + RP_COMMAND_WORD || argv[1][0] != '/' || geteuid() != 0) {
		fputs(
		    "usage: qjoule-root /PATH/PYTHON -I FILE ARGS..., as root; `qjoule` does it\n",
		    stderr);
		return 2;
	}
	find_user(&root);
	signal_fd = listen_to_signals(&root.signals);
	command_fd = peer_add(&(struct peer){.kind = PEER_COMMAND, .proc_fd = -1});
	if (signal_fd < 0 || command_fd < 0) {
		perror("qjoule-root");
		return 1;
	}
	root.command_pid = fork();
	if (root.command_pid < 0) {
		perror("qjoule-root: cannot fork");
		return 1;
	}
	if (!root.command_pid)
		run_command(&root, command_fd, self);
	close(command_fd);
	status = serve_until_it_ends(&root, signal_fd);
	attach_clear();
	outputs_clear();
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
