// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "early.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "programs.h"

/* The strings of a kernel's BTF have the name of each helper that it has (enum bpf_func_id). */
static const char loop_helper[] = "\0BPF_FUNC_loop";

/* Whether the file holds these bytes. A file that cannot be read holds nothing. */
static bool holds(const char *path, const char *bytes, size_t length)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	size_t have = 0;
	bool found = false;
	char *all = NULL;

	if (fd >= 0 && !fstat(fd, &status) && status.st_size > 0)
		all = malloc(status.st_size);
	while (all && have < (size_t)status.st_size) {
		ssize_t got = read(fd, all + have, status.st_size - have);

		if (got <= 0)
			break;
		have += got;
	}
	if (all)
		found = memmem(all, have, bytes, length);
	free(all);
	if (fd >= 0)
		close(fd);
	return found;
}

/*
 * The kernel refuses a caller before it looks at the descriptor, unless any process may use maps
 * that it was given (commit c8644cd0efe7), or sysctl kernel.unprivileged_bpf_disabled is 0.
 */
static bool may_use_maps(void)
{
	union bpf_attr attr = {.map_fd = (__u32)-1};

	return syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attr, sizeof(attr)) == 0 || errno != EPERM;
}

bool early_kernel(void)
{
	return !may_use_maps() || !holds(KERNEL_BTF, loop_helper, sizeof(loop_helper));
}
