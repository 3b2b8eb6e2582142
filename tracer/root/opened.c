// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "opened.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OPENED 256

static struct {
	int fd;
	struct rp_file file;
} opened[MAX_OPENED];
static unsigned opened_count;

static uint64_t ns_of(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

/* Fills everything but the handle. */
static int identify(int fd, struct rp_file *out, nlink_t *names)
{
	struct stat st;

	memset(out, 0, sizeof(*out));
	if (fstat(fd, &st))
		return -errno;
	*names = st.st_nlink;
	out->mode = st.st_mode;
	out->uid = st.st_uid;
	out->gid = st.st_gid;
	out->device = st.st_dev;
	out->inode = st.st_ino;
	out->size = st.st_size;
	out->mtime_ns = ns_of(&st.st_mtim);
	out->ctime_ns = ns_of(&st.st_ctim);
	return S_ISREG(st.st_mode) ? 0 : -EINVAL;
}

static bool is_same(const struct rp_file *kept, const struct rp_file *now)
{
	struct rp_file same = *now;

	same.handle = kept->handle;
	return !memcmp(kept, &same, sizeof(same));
}

int opened_keep(int fd, struct rp_file *out)
{
	nlink_t names;
	int err = identify(fd, out, &names);

	for (unsigned i = 0; !err && i < opened_count; i++) {
		if (is_same(&opened[i].file, out)) {
			close(fd);
			return out->handle = opened[i].file.handle;
		}
	}
	/* Only files in memory have seals (fcntl(2)). */
	if (!err && !names && fcntl(fd, F_GET_SEALS) >= 0)
		err = -EACCES;
	if (!err && opened_count == MAX_OPENED)
		err = -ENFILE;
	if (err) {
		close(fd);
		return err;
	}
	out->handle = opened_count + 1;
	opened[opened_count].fd = fd;
	opened[opened_count++].file = *out;
	return out->handle;
}

int opened_check(uint32_t handle, uint64_t offset, const void *code, size_t length, int *fd)
{
	char now[RP_CODE_BYTES];
	struct rp_file file;
	nlink_t names;
	int err;

	if (!handle || handle > opened_count)
		return -ENOENT;
	if (!length || length > sizeof(now) || offset > INT64_MAX - length)
		return -EINVAL;
	*fd = opened[handle - 1].fd;
	err = identify(*fd, &file, &names);
	if (err)
		return err;
	if (!is_same(&opened[handle - 1].file, &file) ||
	    pread(*fd, now, length, offset) != (ssize_t)length || memcmp(now, code, length))
		return -ESTALE;
	return 0;
}
