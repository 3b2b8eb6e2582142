// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Answers RP_EXE and RP_OPEN: opens files of one process, below its directory in /proc or below its
 * root directory. Only root can: the kernel lets nobody else read another user's executable,
 * mappings, memory, environment and descriptors (ptrace(2), access mode checking), nor open a file
 * with the rights of that process, which only setfsuid(2) gives.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "root.h"

/*
 * Files that probes may be attached to. Each was opened and checked once, and a handle identifies
 * it from then on: no path is looked up a second time.
 */

#define MAX_OPENED 256

static struct {
	int fd;
	struct rp_file file; /* with handle 0 */
} opened[MAX_OPENED];
static unsigned opened_count, oldest; /* oldest: a new file of the keeper's replaces it */

const char *opened_path(int fd)
{
	static char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}

static uint64_t ns_of(const struct statx_timestamp *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + time->tv_nsec;
}

int opened_identify(int fd, struct rp_file *out)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &st))
		return -errno;
	*out = (struct rp_file){.mode = st.stx_mode,
				.uid = st.stx_uid,
				.gid = st.stx_gid,
				.device = makedev(st.stx_dev_major, st.stx_dev_minor),
				.inode = st.stx_ino,
				.size = st.stx_size,
				.mtime_ns = ns_of(&st.stx_mtime),
				.ctime_ns = ns_of(&st.stx_ctime)};
	return 0;
}

/* All files from memfd_create(2) are on one file system, which is mounted nowhere. */
static bool is_unnamed_memory(uint64_t device)
{
	int own = memfd_create("own", MFD_CLOEXEC);
	struct stat st;
	bool same = own < 0 || fstat(own, &st) || st.st_dev == device;

	close(own); /* also if invalid */
	return same;
}

int opened_keep(struct answer *answer)
{
	struct rp_file *file = &answer->reply.file;
	unsigned at = 0;

	file->handle = 0;
	while (at < opened_count && memcmp(&opened[at].file, file, sizeof(*file)))
		at++;
	if (at == opened_count) {
		if ((at == MAX_OPENED && !root.done) || is_unnamed_memory(file->device))
			return 0;
		at = at < MAX_OPENED ? opened_count++ : oldest++ % MAX_OPENED;
		if (opened[at].fd)
			close(opened[at].fd);
		opened[at].fd = fcntl(answer->fd, F_DUPFD_CLOEXEC, 0);
		if (opened[at].fd < 0)
			return -errno;
		opened[at].file = *file;
	}
	file->handle = at + 1;
	return 0;
}

int opened_check(uint32_t handle, uint64_t offset, const void *code, size_t length)
{
	char now[RP_CODE_BYTES];
	struct rp_file file;
	int fd;

	if (!handle || handle > opened_count)
		return -ENOENT;
	if (!length || length > sizeof(now) || offset > INT64_MAX - length)
		return -EINVAL;
	fd = opened[handle - 1].fd;
	if (opened_identify(fd, &file) || memcmp(&opened[handle - 1].file, &file, sizeof(file)) ||
	    pread(fd, now, length, offset) != (ssize_t)length || memcmp(now, code, length))
		return -ESTALE;
	return fd;
}

#define MAX_FILE    (1u << 20)
#define MAX_SOCKETS 100000

/* Opens a name in the process' directory in /proc. */
static int open_in_proc(const struct peer *peer, const char *name, int flags)
{
	return openat(peer->proc_fd, name, flags | O_CLOEXEC);
}

/*
 * The user and group that the process runs as: its directory in /proc belongs to them whatever the
 * process does (task_dump_owner() in fs/proc/base.c), and it cannot belong to another process.
 */
static struct stat runs_as;

/* Reads a link of /proc, which has less than PATH_MAX bytes and no NUL. */
static int link_target(int directory, const char *name, char *text)
{
	ssize_t length = readlinkat(directory, name, text, RP_TEXT_BYTES - 1);

	if (length < 0)
		return -errno;
	text[length] = '\0';
	return 0;
}

/* Reopens for reading an O_PATH descriptor of what was found to be a regular file or a
 * directory. */
static int reopen(int fd, struct answer *answer)
{
	answer->fd = open(opened_path(fd), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return answer->fd < 0 ? -errno : 0;
}

static int identify(int fd, struct answer *answer)
{
	int err = fd < 0 ? -errno : opened_identify(fd, &answer->reply.file);

	if (!err)
		err = link_target(AT_FDCWD, opened_path(fd), answer->reply.text);
	return err || S_ISREG(answer->reply.file.mode) ? err : -EACCES;
}

/* Likewise, and gives the file a handle for attaching. */
static int reopen_attachable(int fd, struct answer *answer)
{
	struct statfs system;
	int err = identify(fd, answer);

	if (err)
		return err;
	/* On FUSE, a program would supply the pages whenever the kernel reads them for us. */
	if (fstatfs(fd, &system) || system.f_type == FUSE_SUPER_MAGIC)
		return -EOPNOTSUPP;
	return reopen(fd, answer);
}

int candidate_read(int fd, struct answer *answer)
{
	int err = identify(fd, answer);

	if (err || answer->reply.file.size > MAX_FILE)
		return err ?: -EFBIG;
	return reopen(fd, answer);
}

static int open_mapped(const struct peer *peer, const struct rp_request *request,
		       struct answer *answer)
{
	const struct rp_file *file = &answer->reply.file;
	char name[64];
	int err;

	snprintf(name, sizeof(name), "map_files/%llx-%llx", (unsigned long long)request->offset,
		 (unsigned long long)(request->offset + request->size));
	err = reopen_attachable(open_in_proc(peer, name, O_PATH), answer);
	if (err)
		return err;
	/* Only root and this user may be able to change the files that probes are attached to. */
	if ((file->uid && file->uid != runs_as.st_uid) || file->mode & S_IWOTH ||
	    (file->mode & S_IWGRP && file->gid && file->gid != runs_as.st_gid))
		return -EACCES;
	return 0;
}

/*
 * Lists the links of the process's sockets, such as `socket:[123]`, in a memory file; each ends
 * with a NUL. The paths of other descriptors are absolute, so none looks like a socket.
 */
static int list_sockets(const struct peer *peer, struct answer *answer)
{
	static char text[RP_TEXT_BYTES];
	int fd = open_in_proc(peer, "fd", O_RDONLY | O_DIRECTORY), left = MAX_SOCKETS;
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);

	answer->fd = directory ? memfd_create("listed", MFD_CLOEXEC) : -1;
	if (answer->fd < 0)
		return -errno;
	for (struct dirent *entry; left-- && (entry = readdir(directory));)
		if (!link_target(fd, entry->d_name, text) && !strncmp(text, "socket:[", 8) &&
		    dprintf(answer->fd, "%s%c", text, '\0') < 0)
			return -errno;
	return 0;
}

/*
 * Opens a path below the root of the process, with no more rights than the process itself has.
 * Files that only root may read are not opened, even for a process of root's.
 */
static int open_own(const struct peer *peer, const struct rp_request *request,
		    struct answer *answer)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	int top = open_in_proc(peer, "root", O_PATH | O_DIRECTORY);
	int fd, err = top < 0 ? -errno : 0;

	if (!err)
		err = runs_as.st_uid ? rights_of_files(runs_as.st_uid, runs_as.st_gid)
				     : rights_of_files(root.uid, root.gid);
	if (err)
		return err;
	fd = (int)syscall(SYS_openat2, top, request->text, &how, sizeof(how));
	err = fd < 0 ? -errno : opened_identify(fd, &answer->reply.file);
	if (err || request->number == RP_WHAT_SAME)
		return err;
	return S_ISDIR(answer->reply.file.mode) ? reopen(fd, answer) : candidate_read(fd, answer);
}

/*
 * Opens one of a fixed list of the process's files and links; its memory only if its executable was
 * examined: a root process may hold every secret of the machine.
 */
static int open_proc(const struct peer *peer, const char *name, struct answer *answer)
{
	static const char *const known[] = {
	    "cmdline",	"environ", "stat",     "status",   "maps", "comm", "limits", "net/tcp",
	    "net/tcp6", "net/udp", "net/udp6", "net/unix", "cwd",  "root", "ns/net", "mem"};
	unsigned number = 0, count = sizeof(known) / sizeof(known[0]);

	while (number < count && strcmp(name, known[number]))
		number++;
	if (number == count || (!strcmp(name, "mem") && (!runs_as.st_uid || !peer->kept)))
		return -EACCES;
	if (!link_target(peer->proc_fd, name, answer->reply.text))
		return 0;
	answer->fd = open_in_proc(peer, name, O_RDONLY | O_NOFOLLOW);
	return answer->fd < 0 ? -errno : 0;
}

/* Answers RP_OPEN except handles, in a child, because it gives up rights. */
static int open_for(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	if (fstat(peer->proc_fd, &runs_as))
		return -errno;
	switch (request->number) {
	case RP_WHAT_EXE:
		return reopen_attachable(open_in_proc(peer, "exe", O_PATH), answer);
	case RP_WHAT_MAPPED:
		return open_mapped(peer, request, answer);
	case RP_WHAT_FILE:
	case RP_WHAT_SAME:
		return open_own(peer, request, answer);
	case RP_WHAT_SOCKETS:
		return list_sockets(peer, answer);
	case RP_WHAT_PROC:
		return open_proc(peer, request->text, answer);
	}
	return -EINVAL;
}

int answer_open(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int err;

	/* An examiner's own claims about its handles are not trusted. */
	if (request->number == RP_WHAT_KEPT) {
		memcpy(answer->reply.text, peer->handles, sizeof(peer->handles));
		return 0;
	}
	err = guarded(open_for, peer, request, answer);
	if (err || (request->number != RP_WHAT_EXE && request->number != RP_WHAT_MAPPED) ||
	    peer->kept == RP_MAX_KEPT)
		return err;
	err = opened_keep(answer);
	if (!err)
		peer->handles[peer->kept++] = answer->reply.file.handle;
	return err;
}

int answer_exe(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	char path[32];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%d/exe", request->pid);
	fd = open(path, O_PATH | O_CLOEXEC);
	err = identify(fd, answer);
	close(fd); /* also if invalid */
	return err;
}
