// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Recordings beside the agent, where our own command line has `--recordings DIRECTORY`. Each is
 * this program again, as `qjoule record`, with a root part and a tracer of its own. What follows
 * `--` on our command line are its further options; the agent chooses only its seconds and number.
 */
#include <errno.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "root.h"

#define MAX_OPTIONS 64

static struct {
	pid_t pid; /* 0: does not run */
	int status;
} recordings[] = {[RP_RECORDING_TIMED] = {0, 0}, [RP_RECORDING_KEPT] = {0, 0}};

#define COUNT (sizeof(recordings) / sizeof(recordings[0]))

/* In the child. It ends in order if we end, however that is. */
static int become_recording(struct peer *peer, const struct rp_request *request,
			    struct answer *answer)
{
	static char seconds[32], output[RP_TEXT_BYTES + 32];
	char *words[RP_COMMAND_WORD + 1 + MAX_OPTIONS + 6] = {NULL}, **option = root.command;
	unsigned count = 0;

	for (int i = -1; i < RP_COMMAND_WORD; i++)
		words[count++] = root.command[i];
	words[count++] = "record";
	while (*option && strcmp(*option, "--"))
		option++;
	for (unsigned i = 0; *option && *++option; i++) {
		if (i == MAX_OPTIONS || !strcmp(*option, "--"))
			return -E2BIG;
		words[count++] = *option;
	}
	snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)request->size);
	snprintf(output, sizeof(output), "%s/%llu", request->text,
		 (unsigned long long)request->offset);
	words[count++] = request->number == RP_RECORDING_KEPT ? "--keep" : "-d";
	words[count++] = seconds;
	words[count++] = "-o";
	words[count++] = output;
	prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
	sigprocmask(SIG_SETMASK, &root.signals, NULL);
	umask(root.umask);
	dup2(root.null_fd, STDIN_FILENO); /* it asks nobody */
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	unsetenv("NOTIFY_SOCKET");
	execv(words[0], words);
	return -errno;
}

int answer_recording(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	static const int signals[] = {[RP_ORDER_STOP] = SIGTERM, [RP_ORDER_SAVE] = SIGUSR1};
	unsigned number = request->number;
	int err;

	if (number >= COUNT || request->flags > RP_ORDER_SAVE ||
	    strcmp(root.command[RP_COMMAND_WORD], "agent") ||
	    !is_given(request->text, "--recordings"))
		return -EPERM;
	if (request->flags == RP_ORDER_START) {
		if (recordings[number].pid)
			return -EBUSY;
		if (!request->size || request->size > RP_MAX_SECONDS)
			return -EINVAL;
		err = guarded(become_recording, NULL, request, answer);
		if (err != -EIO) /* it did not become another program */
			return err ? err : -EINVAL;
		recordings[number].pid = answer->reply.pid;
	} else if (request->flags != RP_ORDER_STATE && recordings[number].pid) {
		kill(recordings[number].pid, signals[request->flags]);
	}
	answer->reply.pid = recordings[number].pid;
	answer->reply.file.mode = recordings[number].status;
	return 0;
}

void recording_ended(pid_t pid, int status)
{
	for (unsigned i = 0; i < COUNT; i++)
		if (recordings[i].pid == pid) {
			recordings[i].pid = 0;
			recordings[i].status = status;
		}
}

void recordings_stop(void)
{
	for (unsigned i = 0; i < COUNT; i++)
		if (recordings[i].pid)
			kill(recordings[i].pid, SIGTERM);
}
