// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Has the root part load the programs, in the variant that the kernel needs, and takes the maps. */
#include "probes.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system.h"
#include "variant.h"

/* Indices in TRACER_MAPS. */
enum {
	AT_BATCHES = 1,
	AT_BSS,
	AT_OTHERS
};

/* session/follow.py writes these fields. */
_Static_assert(offsetof(struct qjoule_bpf__data_servers, followed) ==
		   QJ_MAX_SERVERS * sizeof(struct qj_server_plan),
	       "followed is not behind the servers");

static int fill(struct rp_load *load, const struct qjoule_bpf *skeleton)
{
	const struct bpf_object_skeleton *all = skeleton->skeleton;

	if (all->map_cnt > RP_MAX_MAPS || all->prog_cnt > RP_MAX_PROGS)
		return -E2BIG;
	load->version = QJ_CONTRACT_VERSION;
	load->map_count = all->map_cnt;
	load->program_count = all->prog_cnt;
	for (int i = 0; i < all->map_cnt; i++) {
		load->maps[i].create = bpf_map__autocreate(*all->maps[i].map);
		load->maps[i].max_entries = bpf_map__max_entries(*all->maps[i].map);
	}
	for (int i = 0; i < all->prog_cnt; i++)
		load->load[i] = bpf_program__autoload(*all->progs[i].prog);
	load->plan = skeleton->rodata->plan;
	return 0;
}

/* The request goes in a memfd, because it is larger than a message. */
static int send_load(const struct rp_load *load, uint32_t flags)
{
	struct rp_request request = {.kind = RP_LOAD, .flags = flags};
	int fd = memfd_create("qjoule load", MFD_CLOEXEC);
	int err;

	if (fd < 0)
		return -errno;
	err = write(fd, load, sizeof(*load)) == sizeof(*load) ? 0 : -EIO;
	if (!err)
		err = root_part_ask(&request, fd, NULL);
	close(fd);
	return err;
}

/* Returns a descriptor of the loaded map with this number in TRACER_MAPS, or a negative errno. */
static int take_map(unsigned number)
{
	struct rp_request request = {.kind = RP_MAP, .number = number};
	int fd, err = root_part_ask(&request, -1, &fd);

	return err ?: fd;
}

/* Replaces maps that are used by bpf(2). */
static int reuse_map(struct bpf_map *map, unsigned number)
{
	int fd = take_map(number), err;

	if (fd < 0)
		return fd;
	err = bpf_map__reuse_fd(map, fd);
	close(fd); /* the skeleton has its own descriptor */
	return err;
}

/* Maps the programs' bss over the memory that libbpf allocated and frees with the skeleton. */
static int share_bss(struct qjoule_bpf *skeleton)
{
	int fd = take_map(AT_BSS);
	size_t page = sysconf(_SC_PAGESIZE);
	size_t bytes = (sizeof(*skeleton->bss) + page - 1) / page * page;
	void *at;
	int err;

	if (fd < 0)
		return fd;
	at = mmap(skeleton->bss, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	err = at == MAP_FAILED ? -errno : 0;
	close(fd);
	return err;
}

/* A kernel's BTF contains the names of its helpers (enum bpf_func_id). */
static const char loop_helper[] = "\0BPF_FUNC_loop";
/* ... and of its types: links of uprobes came with Linux 6.6 (commit 89ae89f53d20). */
static const char uprobe_link[] = "\0bpf_uprobe_multi_link";

/* Returns true if the file contains these bytes; false if it cannot be read. */
static bool file_contains(const char *path, const char *bytes, size_t length)
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

static uint32_t load_flags(const struct probes *probes, bool verbose)
{
	return (verbose ? RP_LOAD_VERBOSE : 0) | (probes->early ? RP_LOAD_EARLY : 0) |
	       (file_contains(KERNEL_BTF, uprobe_link, sizeof(uprobe_link)) ? RP_LOAD_MULTI : 0);
}

int loading_load(struct probes *probes, bool verbose)
{
	struct qjoule_bpf *skeleton = probes->skeleton;
	struct bpf_map *maps[] = TRACER_MAPS(skeleton);
	struct rp_load *load = calloc(1, sizeof(*load));
	int err = load ? fill(load, skeleton) : -ENOMEM;

	if (!err)
		err = send_load(load, load_flags(probes, verbose));
	free(load);
	if (!err)
		err = share_bss(skeleton);
	if (err)
		return err;
	probes->batches_fd = take_map(AT_BATCHES);
	if (probes->batches_fd < 0)
		return probes->batches_fd;
	/* Maps before AT_OTHERS were just mapped, which is all that early kernels allow. */
	for (unsigned i = AT_OTHERS; !err && !probes->early && i < sizeof(maps) / sizeof(maps[0]);
	     i++)
		err = reuse_map(maps[i], i);
	return err;
}

/*
 * Tests if bpf(2) works on a map without rights. The kernel refuses the caller before it checks the
 * descriptor, unless any process may use maps that it was given (commit c8644cd0efe7), or sysctl
 * kernel.unprivileged_bpf_disabled is 0.
 */
static bool may_use_maps(void)
{
	union bpf_attr attr = {.map_fd = (__u32)-1};

	return syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attr, sizeof(attr)) == 0 || errno != EPERM;
}

bool early_kernel(void)
{
	return !may_use_maps() || !file_contains(KERNEL_BTF, loop_helper, sizeof(loop_helper));
}
