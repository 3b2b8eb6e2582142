// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Opens what belongs to a process, below its directory in /proc or below its root directory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "root.h"

/* A server with its debug information is 600 MB. */
#define MAX_ATTACHED (4ull << 30)
#define MAX_FILE     (1u << 20)
/* One more than allowed: the asking side sees that there are too many. */
#define MAX_NAMES	  1025
#define MAX_SOCKETS	  100000
#define MAX_THREADS	  4096
#define OF_A_REGULAR_FILE (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

/* Opens a name in the process' directory in /proc. */
static int open_in_proc(const struct peer *peer, const char *name, int flags)
{
	return openat(peer->proc_fd, name, flags | O_CLOEXEC);
}

/*
 * The user and group that the process runs as: its directory in /proc belongs to them whatever the
 * process does (task_dump_owner() in fs/proc/base.c), and it cannot belong to another process.
 */
static int owner(const struct peer *peer, struct stat *runs_as)
{
	return fstat(peer->proc_fd, runs_as) ? -errno : 0;
}

/* Reads a link of /proc; its target may hold any byte but NUL. */
static int link_target(int directory, const char *name, char *text)
{
	ssize_t length = readlinkat(directory, name, text, RP_TEXT_BYTES);

	if (length < 0)
		return -errno;
	if (length == RP_TEXT_BYTES)
		return -ENAMETOOLONG;
	text[length] = '\0';
	return 0;
}

/* Reopens for reading what was opened with O_PATH and found to be a regular file or a directory. */
static int reopen(int fd, int flags)
{
	return open(opened_path(fd), OF_A_REGULAR_FILE | flags);
}

int candidate_identify(int fd, struct answer *answer)
{
	int err = fd < 0 ? -errno : opened_identify(fd, &answer->reply.file);

	if (!err)
		err = link_target(AT_FDCWD, opened_path(fd), answer->reply.text);
	return err || S_ISREG(answer->reply.file.mode) ? err : -EACCES;
}

int candidate_attached(int fd, struct answer *answer)
{
	struct statfs system;
	int err = candidate_identify(fd, answer);

	if (err)
		return err;
	if (answer->reply.file.size > MAX_ATTACHED)
		return -EFBIG;
	/* On FUSE, a program would supply the pages whenever the kernel reads them for us. */
	if (fstatfs(fd, &system) || system.f_type == FUSE_SUPER_MAGIC)
		return -EOPNOTSUPP;
	answer->fd = reopen(fd, 0);
	return answer->fd < 0 ? -errno : 0;
}

static int open_mapped(const struct peer *peer, const struct rp_request *request,
		       struct answer *answer)
{
	const struct rp_file *file = &answer->reply.file;
	struct stat runs_as;
	char name[64];
	int err = owner(peer, &runs_as);

	if (err)
		return err;
	snprintf(name, sizeof(name), "map_files/%llx-%llx", (unsigned long long)request->offset,
		 (unsigned long long)(request->offset + request->size));
	err = candidate_attached(open_in_proc(peer, name, O_PATH), answer);
	if (err)
		return err;
	/* Only root and this user may be able to change what probes are attached to. */
	if ((file->uid && file->uid != runs_as.st_uid) || file->mode & S_IWOTH ||
	    (file->mode & S_IWGRP && file->gid && file->gid != runs_as.st_gid))
		return -EACCES;
	return 0;
}

/* A thread's name from /proc; empty if the thread has ended. */
static void thread_name(int directory, const char *name, char *text)
{
	char path[280];
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "%s/comm", name);
	fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	length = fd < 0 ? 0 : read(fd, text, 64);
	text[length > 0 ? length - 1 : 0] = '\0'; /* the text ends with a newline */
	if (fd >= 0)
		close(fd);
}

/* Lists a directory's content in a memory file. `fd`: opened for reading, or -1 with errno set. */
static int list(int fd, enum rp_what what, unsigned most, struct answer *answer)
{
	static char text[RP_TEXT_BYTES];
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	FILE *listed;

	answer->fd = directory ? memfd_create("listed", MFD_CLOEXEC) : -1;
	listed = answer->fd < 0 ? NULL : fdopen(answer->fd, "w");
	if (!listed)
		return -errno;
	for (struct dirent *entry; most && (entry = readdir(directory));) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		most--;
		if (what == RP_WHAT_NAMES)
			strcpy(text, entry->d_name);
		else if (what == RP_WHAT_THREADS)
			thread_name(fd, entry->d_name, text);
		/* Only sockets' links: a path may contain anything, even what looks like one. */
		else if (link_target(fd, entry->d_name, text) || strncmp(text, "socket:[", 8) != 0)
			continue;
		if (text[0])
			fwrite(text, 1, strlen(text) + 1, listed);
	}
	return fflush(listed) ? -errno : 0;
}

/* Its reader cannot be made to wait, and reads no more than there was. */
int candidate_copy(int fd, struct answer *answer)
{
	size_t left = answer->reply.file.size;
	ssize_t moved = 1;

	if (left > MAX_FILE)
		return -EFBIG;
	fd = reopen(fd, 0);
	answer->fd = fd < 0 ? -1 : memfd_create("copy", MFD_CLOEXEC);
	if (answer->fd < 0)
		return -errno;
	for (; left && moved > 0; left -= (size_t)moved) {
		moved = sendfile(answer->fd, fd, NULL, left);
		if (moved < 0)
			return -errno;
	}
	return 0;
}

/*
 * Opens a path below the root of the process, with no more rights than the process itself has. What
 * only root may read is not opened, even of a process of root's.
 */
static int open_own(const struct peer *peer, const struct rp_request *request,
		    struct answer *answer)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	int top = open_in_proc(peer, "root", O_PATH | O_DIRECTORY);
	struct stat runs_as;
	int err = top < 0 ? -errno : owner(peer, &runs_as);
	int fd;

	if (!err)
		err = runs_as.st_uid ? rights_of_files(runs_as.st_uid, runs_as.st_gid)
				     : rights_of_files(root.uid, root.gid);
	if (err)
		return err;
	fd = (int)syscall(SYS_openat2, top, request->text, &how, sizeof(how));
	err = fd < 0 ? -errno : opened_identify(fd, &answer->reply.file);
	if (err)
		return err;
	if (request->number == RP_WHAT_NAMES)
		return S_ISDIR(answer->reply.file.mode)
			   ? list(reopen(fd, O_DIRECTORY), RP_WHAT_NAMES, MAX_NAMES, answer)
			   : -ENOTDIR;
	if (!S_ISREG(answer->reply.file.mode))
		return -EACCES;
	return request->number == RP_WHAT_FILE ? candidate_copy(fd, answer) : 0;
}

/* Of a process whose executable was examined; root's may hold every secret of the machine. */
static int open_memory(const struct peer *peer, struct answer *answer)
{
	struct stat runs_as;
	int err = owner(peer, &runs_as);

	if (!err && (!runs_as.st_uid || !peer->kept))
		err = -EACCES;
	if (err)
		return err;
	answer->fd = open_in_proc(peer, "mem", O_RDONLY);
	return answer->fd < 0 ? -errno : 0;
}

static int open_proc(const struct peer *peer, const char *name, struct answer *answer)
{
	static const char *const known[] = {"cmdline",	"environ", "stat",     "status",
					    "maps",	"comm",	   "limits",   "net/tcp",
					    "net/tcp6", "net/udp", "net/udp6", "net/unix"};

	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(name, known[i])) {
			answer->fd = open_in_proc(peer, name, O_RDONLY);
			return answer->fd < 0 ? -errno : 0;
		}
	return -EACCES;
}

int candidate_open(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	switch (request->number) {
	case RP_WHAT_EXE:
		return candidate_attached(open_in_proc(peer, "exe", O_PATH), answer);
	case RP_WHAT_MAPPED:
		return open_mapped(peer, request, answer);
	case RP_WHAT_FILE:
	case RP_WHAT_NAMES:
	case RP_WHAT_SAME:
		return open_own(peer, request, answer);
	case RP_WHAT_MEMORY:
		return open_memory(peer, answer);
	case RP_WHAT_SOCKETS:
		return list(open_in_proc(peer, "fd", O_DIRECTORY), RP_WHAT_SOCKETS, MAX_SOCKETS,
			    answer);
	case RP_WHAT_THREADS:
		return list(open_in_proc(peer, "task", O_DIRECTORY), RP_WHAT_THREADS, MAX_THREADS,
			    answer);
	case RP_WHAT_CWD:
		return link_target(peer->proc_fd, "cwd", answer->reply.text);
	case RP_WHAT_ROOT:
		return link_target(peer->proc_fd, "root", answer->reply.text);
	case RP_WHAT_NETWORK:
		return link_target(peer->proc_fd, "ns/net", answer->reply.text);
	case RP_WHAT_PROC:
		return open_proc(peer, request->text, answer);
	}
	return -EINVAL;
}
