// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Answers RP_PIN: pins the map of servers' threads, for other eBPF programs (bpf/thread_query.h).
 * Only root can: its directory is closed to all others. The request cannot choose the path.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "root.h"
#include "thread_query.h"

#define BPFFS "/sys/fs/bpf"
#define PLACE BPFFS "/qjoule"
#define NAME  "threads" /* of the pin and of the map */

_Static_assert(!__builtin_strcmp(QJ_THREADS_PIN, PLACE "/" NAME), "others look elsewhere");

/* PLACE, which we have locked while the pin is ours: the kernel unlocks it if we are killed. */
static int place = -1;

static int open_place(void)
{
	struct statfs system;
	struct stat status;
	int fd;

	if (statfs(BPFFS, &system) || system.f_type != BPF_FS_MAGIC)
		return -ENODEV;
	if (mkdir(PLACE, 0700) && errno != EEXIST)
		return -errno;
	fd = open(PLACE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &status) && !status.st_uid && !(status.st_mode & (S_IRWXG | S_IRWXO)))
		return fd;
	close(fd);
	return -EACCES;
}

/* Returns true for a map of servers' threads; that of early kernels has another type. */
static bool is_threads(int fd)
{
	struct bpf_map_info info = {0};
	uint32_t size = sizeof(info);

	return !bpf_obj_get_info_by_fd(fd, &info, &size) &&
	       info.type == BPF_MAP_TYPE_TASK_STORAGE && !strcmp(info.name, NAME);
}

static int pin(int map, int directory)
{
	char path[64];
	int left_over;

	if (flock(directory, LOCK_EX | LOCK_NB))
		return -errno;
	snprintf(path, sizeof(path), "%s/" NAME, opened_path(directory));
	left_over = bpf_obj_get(path); /* by a recorder that was killed */
	if (is_threads(left_over))
		unlinkat(directory, NAME, 0);
	close(left_over); /* also if invalid */
	return bpf_obj_pin(map, path);
}

int answer_pin(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	int map = attach_threads(), directory, err;
	char **word = root.command;

	while (*word && strcmp(*word, "--") && strcmp(*word, "--pin-map"))
		word++;
	if (!*word || !strcmp(*word, "--"))
		return -EPERM; /* our command line lacks the option */
	if (!is_threads(map))
		return -EOPNOTSUPP;
	directory = open_place();
	err = directory < 0 ? directory : pin(map, directory);
	if (err)
		close(directory); /* also if invalid */
	else
		place = directory;
	return err;
}

void pin_clear(void)
{
	if (place < 0)
		return;
	unlinkat(place, NAME, 0);
	rmdir(PLACE);
	close(place);
	place = -1;
}
