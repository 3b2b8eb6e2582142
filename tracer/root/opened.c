// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "opened.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAX_OPENED 256

static struct {
	int fd;
	struct rp_file file;
} opened[MAX_OPENED];
static unsigned opened_count;

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

/* What memfd_create(2) makes is on one file system, which is mounted nowhere. */
static bool is_unnamed_memory(uint64_t device)
{
	int own = memfd_create("own", MFD_CLOEXEC);
	struct stat st;
	bool same = own < 0 || fstat(own, &st) || st.st_dev == device;

	if (own >= 0)
		close(own);
	return same;
}

static bool is_same(const struct rp_file *kept, const struct rp_file *now)
{
	struct rp_file same = *now;

	same.handle = kept->handle;
	return !memcmp(kept, &same, sizeof(same));
}

int opened_keep(int fd, struct rp_file *out)
{
	int err = opened_identify(fd, out);

	if (!err && !S_ISREG(out->mode))
		err = -EINVAL;
	for (unsigned i = 0; !err && i < opened_count; i++) {
		if (is_same(&opened[i].file, out)) {
			close(fd);
			return out->handle = opened[i].file.handle;
		}
	}
	if (!err && is_unnamed_memory(out->device))
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
	int err;

	if (!handle || handle > opened_count)
		return -ENOENT;
	if (!length || length > sizeof(now) || offset > INT64_MAX - length)
		return -EINVAL;
	*fd = opened[handle - 1].fd;
	err = opened_identify(*fd, &file);
	if (err)
		return err;
	if (!is_same(&opened[handle - 1].file, &file) ||
	    pread(*fd, now, length, offset) != (ssize_t)length || memcmp(now, code, length))
		return -ESTALE;
	return 0;
}
