// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The flight recorder beside the agent, where our own command line has `--recordings DIRECTORY`. It
 * is this program again, as `qjoule record --keep`, with a root part and a tracer of its own. What
 * follows `--` on our command line are its further options; the agent chooses only its seconds and
 * number.
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

static pid_t recording_pid; /* 0: does not run */
static int recording_status;

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
	words[count++] = "--keep";
	words[count++] = seconds;
	words[count++] = "-o";
	words[count++] = output;
	prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
	sigprocmask(SIG_SETMASK, &root.signals, NULL);
	umask(root.umask);
	dup2(root.null_fd, STDIN_FILENO); /* it asks nobody */
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	execv(words[0], words);
	return -errno;
}

int answer_recording(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err;

	if (strcmp(root.command[RP_COMMAND_WORD], "agent") ||
	    !is_given(request->text, "--recordings"))
		return -EPERM;
	if (request->offset) {
		if (recording_pid)
			return -EBUSY;
		if (!request->size || request->size > RP_MAX_SECONDS)
			return -EINVAL;
		err = guarded(become_recording, NULL, request, answer);
		if (err != -EIO) /* it did not become another program */
			return err ? err : -EINVAL;
		recording_pid = answer->reply.pid;
	}
	answer->reply.pid = recording_pid;
	answer->reply.file.mode = recording_status;
	return 0;
}

void recording_ended(pid_t pid, int status)
{
	if (pid == recording_pid) {
		recording_pid = 0;
		recording_status = status;
	}
}

void recording_stop(void)
{
	if (recording_pid)
		kill(recording_pid, SIGTERM);
}
