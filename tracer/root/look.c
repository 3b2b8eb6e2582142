// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "candidate.h"
#include "opened.h"
#include "root.h"

static int open_installed(const struct peer *peer, const struct rp_request *request,
			  struct answer *answer)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
	const struct rp_file *file = &answer->reply.file;
	int err;

	(void)peer;
	if (request->text[0] != '/')
		return -EINVAL;
	err = candidate_attached(
	    (int)syscall(SYS_openat2, AT_FDCWD, request->text, &how, sizeof(how)), answer);
	if (err)
		return err;
	return file->uid || file->mode & (S_IWGRP | S_IWOTH) ||
		       (file->mode & (S_IROTH | S_IXOTH)) != (S_IROTH | S_IXOTH)
		   ? -EACCES
		   : 0;
}

/* Gives an opened file a handle, unless it can have none: then it is there to be read. */
static int keep(struct answer *answer)
{
	int fd = fcntl(answer->fd, F_DUPFD_CLOEXEC, 0);
	int handle = fd < 0 ? -errno : opened_keep(fd, &answer->reply.file);

	return handle == -EACCES || handle == -ENFILE || handle > 0 ? 0 : handle;
}

/* Which handles an examiner was given: what it says itself is not to be relied on. */
static int answer_kept(const struct peer *peer, uint64_t index, struct answer *answer)
{
	if (index >= peer->kept)
		return -ENOENT;
	answer->reply.file.handle = peer->handles[index];
	return 0;
}

static int answer_open(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err;

	if (request->number == RP_WHAT_KEPT)
		return answer_kept(peer, request->offset, answer);
	err = guarded(candidate_open, peer, request, answer);
	if (err || (request->number != RP_WHAT_EXE && request->number != RP_WHAT_MAPPED))
		return err;
	if (peer->kept == RP_MAX_KEPT)
		return 0;
	err = keep(answer);
	if (!err)
		peer->handles[peer->kept++] = answer->reply.file.handle;
	return err;
}

static int answer_exe(pid_t pid, struct answer *answer)
{
	char path[32];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = opened_identify(fd, &answer->reply.file);
	if (!err)
		err = candidate_name(fd, answer->reply.text);
	close(fd);
	return err || S_ISREG(answer->reply.file.mode) ? err : -EACCES;
}

static int answer_bind(const struct rp_request *request, struct answer *answer)
{
	struct peer peer = {.kind = PEER_CANDIDATE,
			    .pid = request->pid,
			    .uid = request->number,
			    .gid = request->flags,
			    .group_count = (unsigned)(request->size / sizeof(gid_t))};
	char path[32];

	if (request->pid <= 0 || request->size > sizeof(peer.groups) ||
	    request->size % sizeof(gid_t))
		return -EINVAL;
	memcpy(peer.groups, request->text, request->size);
	snprintf(path, sizeof(path), "/proc/%d", request->pid);
	peer.proc_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (peer.proc_fd < 0)
		return -errno;
	answer->fd = peer_add(&peer);
	if (answer->fd < 0)
		close(peer.proc_fd);
	return answer->fd < 0 ? answer->fd : 0;
}

static int answer_tracer(struct answer *answer)
{
	static bool given;

	if (given)
		return -EBUSY;
	answer->fd = peer_add(&(struct peer){.kind = PEER_TRACER, .proc_fd = -1});
	given = answer->fd >= 0;
	return given ? 0 : answer->fd;
}

int look_answer(struct root *root, struct peer *peer, const struct rp_request *request,
		struct answer *answer)
{
	int err;

	(void)root;
	switch (request->kind) {
	case RP_OPEN:
		return answer_open(peer, request, answer);
	case RP_EXE:
		return answer_exe(request->pid, answer);
	case RP_BIND:
		return answer_bind(request, answer);
	case RP_TRACER:
		return answer_tracer(answer);
	case RP_INSTALLED:
		err = guarded(open_installed, peer, request, answer);
		return err ? err : keep(answer);
	}
	return -ENOSYS;
}
