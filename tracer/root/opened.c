// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The files that may be attached to. Each was opened and checked once, and a handle identifies it
 * from then on: no path is looked up a second time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "root.h"

#define MAX_OPENED 256

static struct {
	int fd;
	struct rp_file file; /* with handle 0 */
} opened[MAX_OPENED];
static unsigned opened_count, oldest; /* oldest: which one gives way to a file of the keeper's */

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

	close(own); /* also if it is none */
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
