// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * qjoule-root PYTHON -I FILE [ARGS...]: runs the command without rights and answers its requests.
 *
 * `sudo qjoule ...` replaces itself by this program before it has imported anything. The command
 * finds its socket by QJOULE_ROOT_PART. However this program ends, the kernel then ends the command
 * and removes our probes.
 *
 * This file answers no request. It decides who may make which one, and passes requests and answers
 * on.
 */
#include <errno.h>
#include <error.h>
#include <fcntl.h>
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

#include "root.h"

#define MAX_PEERS 64

struct root root;
static struct peer peers[MAX_PEERS]; /* the first belongs to the command */
static unsigned peer_count;

/* Only this table decides who may make which request. */
static const struct {
	unsigned who; /* enum peer_kind, as bits */
	answer_fn *answer;
} kinds[] = {
    [RP_EXE] = {PEER_COMMAND | PEER_KEEPER, answer_exe},
    [RP_BIND] = {PEER_COMMAND | PEER_KEEPER, answer_bind},
    [RP_TRACER] = {PEER_COMMAND, answer_peer},
    [RP_DIRECTORY] = {PEER_COMMAND, answer_directory},
    [RP_TAG_SOCKET] = {PEER_COMMAND, answer_tag_socket},
    [RP_AS] = {PEER_COMMAND, answer_as},
    [RP_KEEPER] = {PEER_COMMAND, answer_peer},
    [RP_RUN] = {PEER_COMMAND, answer_run},
    [RP_PUBLISH] = {PEER_COMMAND, answer_publish},
    [RP_ACCOUNTS] = {PEER_COMMAND, answer_accounts},
    [RP_GIVEN] = {PEER_COMMAND, answer_given},
    [RP_PIN] = {PEER_COMMAND, answer_pin},
    [RP_OPEN] = {PEER_CANDIDATE, answer_open},
    [RP_COUNTER] = {PEER_TRACER, answer_counter},
    [RP_ENERGY_FILE] = {PEER_TRACER, answer_energy_file},
    [RP_LOAD] = {PEER_TRACER, answer_load},
    [RP_MAP] = {PEER_TRACER | PEER_KEEPER, answer_map},
    [RP_RING] = {PEER_TRACER, answer_ring},
    [RP_ATTACH] = {PEER_TRACER | PEER_KEEPER, answer_attach},
    [RP_DONE] = {PEER_TRACER | PEER_KEEPER, answer_done},
};

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

/* Removes a peer. Without the tracer nobody reads the programs' records, so they are detached. */
static void peer_remove(unsigned index)
{
	if (peers[index].kind == PEER_TRACER)
		attach_clear();
	/* A child that no signal reaches may hold it too (started.c): closing is not enough. */
	shutdown(peers[index].fd, SHUT_RDWR);
	close(peers[index].fd);
	close(peers[index].proc_fd); /* also if invalid */
	peers[index] = peers[--peer_count];
}

bool message_receive(int socket_fd, void *content, size_t size, int *fd)
{
	/* Room for one descriptor: CMSG_SPACE() would accept two. */
	_Alignas(struct cmsghdr) char control[CMSG_LEN(sizeof(int))];
	struct iovec vector = {content, size};
	struct msghdr message = {.msg_iov = &vector,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *header = got < 0 ? NULL : CMSG_FIRSTHDR(&message);

	/* We enabled no other kind (SO_PASSCRED and the like), and two do not fit. */
	*fd = header ? *(int *)CMSG_DATA(header) : -1;
	if (got == (ssize_t)size && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return true;
	close(*fd); /* also if invalid */
	*fd = -1;
	return false;
}

bool answer_send(int socket_fd, const struct answer *answer)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec vector = {(void *)&answer->reply, sizeof(answer->reply)};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};

	/* A descriptor whose request was refused after opening is not given out. */
	if (answer->fd >= 0 && !answer->reply.status) {
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		*CMSG_FIRSTHDR(&message) =
		    (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &answer->fd, sizeof(int));
	}
	/* Never waits: a peer that does not read its answers is dropped. */
	return sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

static int answer_to(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err;

	if (request->kind >= sizeof(kinds) / sizeof(kinds[0]) ||
	    !(kinds[request->kind].who & peer->kind) ||
	    (root.done != peer->late && (request->kind < RP_RUN || request->kind > RP_PIN)))
		return -EPERM;
	err = kinds[request->kind].answer(peer, request, answer);
	/* Programs are attached all or none; likewise those of a followed server. */
	if (err && request->kind >= RP_LOAD)
		peer->late ? attach_undo() : attach_clear();
	return err;
}

static void serve(unsigned index)
{
	struct peer *peer = &peers[index];
	static struct rp_request request;
	static struct answer answer;
	bool hung;

	if (!message_receive(peer->fd, &request, sizeof(request), &peer->sent)) {
		peer_remove(index);
		return;
	}
	answer = (struct answer){.fd = -1};
	request.text[RP_TEXT_BYTES - 1] = '\0';
	answer.reply.status = answer_to(peer, &request, &answer);
	close(peer->sent); /* also if invalid */
	/* A process whose files made us wait does not get a second wait. */
	hung = peer->kind == PEER_CANDIDATE && answer.reply.status == -ETIMEDOUT;
	if (!answer_send(peer->fd, &answer) || hung)
		peer_remove(index);
	close(answer.fd);
}

/* Reaps ended children. Returns the wait status of the command (waitpid(2)), or -1. */
static int reap(void)
{
	int status, ended = -1;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == root.command_pid)
			ended = status;
		if (pid == root.run_pid) {
			root.run_pid = -1;
			send(root.run_fd, &status, sizeof(status), MSG_NOSIGNAL);
			close(root.run_fd);
		}
	}
	return ended;
}

/* Without CAP_KILL, as in the packaged service, only its own user may send the command signals. */
static void forward_signal(int number)
{
	if (!kill(root.command_pid, number) || errno != EPERM || fork())
		return;
	if (!rights_give_up(root.uid, root.gid))
		kill(root.command_pid, number);
	_exit(0);
}

static int serve_until_it_ends(int signal_fd)
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
		if (read(signal_fd, &signal_info, sizeof(signal_info)) > 0) {
			/* The command gets the terminal's signals itself; we pass on the others. */
			if (signal_info.ssi_signo != SIGCHLD && signal_info.ssi_code != SI_KERNEL)
				forward_signal((int)signal_info.ssi_signo);
			ended = reap();
			if (ended >= 0)
				return ended;
		}
		/* Backwards: a removed peer is replaced by one that has already been served. */
		for (unsigned i = count; i-- > 0;)
			if (polled[1 + i].revents)
				serve(i);
	}
}

static int listen_to_signals(void)
{
	static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&set, numbers[i]);
	/* Ends by a SIGINT that came while qjoule.start had it blocked. */
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	sigprocmask(SIG_BLOCK, &set, &root.signals);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
	static struct answer started;
	int signal_fd, status, err;

	if (argc < 2 + RP_COMMAND_WORD || argv[1][0] != '/' || geteuid() != 0)
		error(2, 0, "usage, as root: qjoule-root /PATH/PYTHON -I FILE ARGS...");
	root.command = argv + 1;
	root.is_agent = !strcmp(root.command[RP_COMMAND_WORD], "agent");
	root.umask = umask(0022);
	do /* descriptors 0 to 2 may be closed */
		root.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (root.null_fd >= 0 && root.null_fd < 3);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* we wait for all orphans of our user's */
	signal_fd = listen_to_signals();
	if (!user_choose())
		error(1, 0, "no user to run as: give " OWN_STORE " to one (docs/agent.md)");
	err = root.null_fd < 0 || signal_fd < 0 ? -EMFILE
						: launch(become_command, NULL, &started, NULL);
	if (err) {
		user_end();
		error(1, -err, "user %d cannot run %s: install it where every user can read it",
		      root.uid, root.command[RP_FILE_WORD]);
	}
	root.command_pid = started.reply.pid;
	peers[peer_count++] = (struct peer){.kind = PEER_COMMAND, .fd = started.fd, .proc_fd = -1};
	status = serve_until_it_ends(signal_fd);
	attach_clear();
	user_end();
	outputs_clear();
	if (status == RP_START_AGAIN << 8 && root.is_agent) {
		if (root.run_pid > 0)
			kill(root.run_pid, SIGTERM);
		exec_program(argv, 0, 0);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
