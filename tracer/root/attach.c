// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Answers the tracer, and after RP_DONE the keeper. Why only root can:
 *
 *   RP_COUNTER      a counter of a whole CPU needs CAP_PERFMON (perf_event_open(2))
 *   RP_ENERGY_FILE  energy_uj is readable by root alone (CVE-2020-8694)
 *   RP_LOAD         loading BPF programs needs CAP_BPF and CAP_PERFMON (capabilities(7))
 *   RP_MAP, RP_RING making a map, or getting an existing one, needs CAP_BPF
 *   RP_ATTACH       whoever holds a program's descriptor could attach it elsewhere; a probe
 *                   needs CAP_PERFMON, too, and goes to a file that was examined, unchanged
 *   RP_DONE         limits later requests, and keeps the links if a later request fails
 *   RP_ACCOUNTS     BPF_ENABLE_STATS needs CAP_SYS_ADMIN (bpf(2))
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "root.h"
#include "variant.h"

#define MAX_LINKS	    2048	 /* also of servers that are followed, and of QJ_MAX_CPUS */
#define RING_BYTES_MAX	    (1ull << 30) /* all rings together */
#define SAMPLE_NS	    1000000000ull
#define SAMPLE_CYCLES	    3000000000ull /* of about a second */
#define TRACE_UPROBE_MULTI  48		  /* enum bpf_attach_type, since Linux 6.6 */
#define PAGE		    4096ul	  /* elsewhere, madvise() refuses */
#define UPROBE_MULTI_RETURN 1		  /* BPF_F_UPROBE_MULTI_RETURN */

static struct qjoule_bpf *skeleton; /* NULL: nothing is loaded */
static struct kept {
	struct bpf_link *link;
	int fd; /* of a link that libbpf does not know (link is NULL) */
} links[MAX_LINKS];
static unsigned link_count;
static bool uprobe_multi;   /* probes are attached by uprobe_multi links */
static unsigned settled;    /* number of links that stay if a request of the keeper fails */
static uint64_t ring_bytes; /* sum over all rings ever made */

static void detach(struct kept kept)
{
	bpf_link__destroy(kept.link);
	if (!kept.link)
		close(kept.fd);
}

void attach_undo(void)
{
	while (link_count > settled)
		detach(links[--link_count]);
}

void attach_clear(void)
{
	settled = 0;
	attach_undo();
	pin_clear();
	qjoule_bpf__destroy(skeleton);
	skeleton = NULL;
}

/* Whether a file has this number: `type` of a PMU. */
static bool is_type(const char *file, uint32_t type)
{
	char text[16] = "";
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t length = read(fd, text, sizeof(text) - 1);

	close(fd); /* also if invalid */
	return length > 0 && type == strtoul(text, NULL, 10);
}

/* Types of the CPU's own events, and of RAPL: others trace, or change what the machine does. */
static bool is_counted(uint32_t type)
{
	return (type <= PERF_TYPE_RAW && type != PERF_TYPE_TRACEPOINT) ||
	       is_type("/sys/bus/event_source/devices/power/type", type) ||
	       is_type("/sys/bus/event_source/devices/power_core/type", type);
}

static int open_event(struct perf_event_attr *attr, int cpu)
{
	return (int)syscall(SYS_perf_event_open, attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Opens an event that counts on a whole CPU and gives only a number: no samples. */
int answer_counter(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	struct perf_event_attr attr = {
	    .size = sizeof(attr), .type = request->number, .config = request->size};

	if (request->pid < 0 || request->flags & ~RP_COUNTER_FLAGS || !is_counted(attr.type))
		return -EINVAL;
	attr.read_format = request->flags & RP_COUNTER_TIMES;
	attr.exclude_kernel = !!(request->flags & RP_COUNTER_USER);
	attr.exclude_user = !!(request->flags & RP_COUNTER_KERNEL);
	answer->fd = open_event(&attr, request->pid);
	return answer->fd < 0 ? -errno : 0;
}

/*
 * Opens an energy_uj file. Opening other files of sysfs may have side effects: the file must have
 * this name, below /sys and on the same file system.
 */
int answer_energy_file(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	struct open_how how = {.flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV};

	if (strncmp(request->text, "/sys/", 5) || strcmp(strrchr(request->text, '/'), "/energy_uj"))
		return -EACCES;

	int top = open("/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
	answer->fd = syscall(SYS_openat2, top, request->text + 5, &how, sizeof(how));
	close(top);
	return answer->fd < 0 ? -errno : 0;
}

/* No map may be larger than the source declares, or than one entry per CPU. */
static int configure(const struct rp_load *plan)
{
	struct bpf_object_skeleton *all = skeleton->skeleton;
	int err = 0;

	if (plan->version != QJ_CONTRACT_VERSION || plan->map_count != (uint32_t)all->map_cnt ||
	    plan->program_count != (uint32_t)all->prog_cnt)
		return -EPROTO;
	for (int i = 0; !err && i < all->map_cnt; i++) {
		struct bpf_map *map = *all->maps[i].map;
		uint32_t entries = plan->maps[i].max_entries, most = bpf_map__max_entries(map);

		if (bpf_map__is_internal(map))
			continue;
		if (entries > most && entries > QJ_MAX_CPUS)
			return -E2BIG;
		err = bpf_map__set_autocreate(map, plan->maps[i].create);
		if (!err && entries)
			err = bpf_map__set_max_entries(map, entries);
	}
	for (int i = 0; !err && i < all->prog_cnt; i++) {
		struct bpf_program *program = *all->progs[i].prog;

		err = bpf_program__set_autoload(program, plan->load[i]);
		if (uprobe_multi && bpf_program__type(program) == BPF_PROG_TYPE_KPROBE)
			bpf_program__set_expected_attach_type(program, TRACE_UPROBE_MULTI);
	}
	skeleton->rodata->plan = plan->plan;
	skeleton->rodata->plan.root_tgid = getpid();
	memcpy(skeleton->data_servers->server_plans, plan->plan.servers,
	       sizeof(plan->plan.servers));
	return err;
}

int answer_load(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	static struct rp_load plan;

	if (skeleton)
		return -EBUSY;
	/* A copy, as the tracer could change it. Only a memfd: reading it never blocks. */
	if (peer->sent < 0 || fcntl(peer->sent, F_GET_SEALS) < 0 ||
	    pread(peer->sent, &plan, sizeof(plan), 0) != sizeof(plan))
		return -EINVAL;
	if (!(request->flags & RP_LOAD_VERBOSE))
		libbpf_set_print(NULL);
	uprobe_multi = request->flags & RP_LOAD_MULTI;
	skeleton = variant_open(request->flags & RP_LOAD_EARLY);
	return skeleton ? configure(&plan) ?: qjoule_bpf__load(skeleton) : -errno;
}

int attach_threads(void)
{
	return skeleton ? bpf_map__fd(skeleton->maps.threads) : -EINVAL;
}

/* Makes a ring, of which the map of rings keeps a reference too. */
int answer_ring(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	uint32_t number = request->number;

	if (!skeleton)
		return -EINVAL;
	if (request->size > RING_BYTES_MAX - ring_bytes)
		return -E2BIG;
	ring_bytes += request->size;
	answer->fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ring", 0, 0, request->size, NULL);
	if (answer->fd < 0)
		return answer->fd;
	return bpf_map__update_elem(skeleton->maps.rings, &number, sizeof(number), &answer->fd,
				    sizeof(answer->fd), 0);
}

/* Gives the tracer only the maps that it reads or writes, and the keeper only the servers. */
int answer_map(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	unsigned number = peer->late ? 0 : request->number;

	if (!skeleton)
		return -EINVAL;

	const struct bpf_map *maps[] = TRACER_MAPS(skeleton);

	if (number >= sizeof(maps) / sizeof(maps[0]))
		return -EINVAL;
	answer->fd = fcntl(bpf_map__fd(maps[number]), F_DUPFD_CLOEXEC, 0);
	return answer->fd < 0 ? -errno : 0;
}

static int keep(struct bpf_link *link, int fd)
{
	struct kept kept = {link, fd};

	if (!link && fd < 0)
		return -errno;
	if (link_count == MAX_LINKS) {
		detach(kept);
		return -ENOSPC;
	}
	links[link_count++] = kept;
	return 0;
}

/*
 * Attaches a probe of all processes without perf_event_open(2), which needs CAP_SYS_ADMIN for
 * probes since 2025 (commit ba677dbe77af); this needs CAP_PERFMON. libbpf has it from 1.3 on.
 */
static int attach_multi(int program, const char *path, uint64_t offset, bool returns)
{
	struct {
		uint32_t program, target, type, flags;
		const char *path;
		uint64_t *offsets, *reference_counters, *cookies;
		uint32_t count, multi_flags, pid, rest;
	} link = {.program = program,
		  .type = TRACE_UPROBE_MULTI,
		  .path = path,
		  .offsets = &offset,
		  .count = 1,
		  .multi_flags = returns ? UPROBE_MULTI_RETURN : 0};

	return keep(NULL, syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof(link)));
}

/*
 * Has a program run every so many cycles of a CPU, so not while it idles; where cycles are not
 * counted, as in most virtual machines, as often per second. Both events have the number 0.
 */
static int sample(const struct bpf_program *program, const struct rp_request *request)
{
	struct perf_event_attr attr = {.size = sizeof(attr), .type = PERF_TYPE_HARDWARE};
	struct bpf_link *link;
	int fd;

	if (!request->size || request->size > RP_SAMPLES_MAX)
		return -EINVAL;
	attr.sample_period = SAMPLE_CYCLES / request->size;
	fd = open_event(&attr, request->pid);
	if (fd < 0) {
		attr.type = PERF_TYPE_SOFTWARE;
		attr.sample_period = SAMPLE_NS / request->size;
		fd = open_event(&attr, request->pid);
	}
	link = fd < 0 ? NULL : bpf_program__attach_perf_event(program, fd);
	if (!link && fd >= 0)
		close(fd);
	return keep(link, -1);
}

/* An iterator's descriptor: reading it to its end runs the program for every task. */
static int iterate(struct bpf_link *link, struct answer *answer)
{
	answer->fd = link ? bpf_iter_create(bpf_link__fd(link)) : -errno;
	bpf_link__destroy(link); /* the iterator holds its own reference */
	return answer->fd < 0 ? answer->fd : 0;
}

/*
 * Has the programs on the tracepoints of reads and writes call this one for threads of this kind of
 * server. It must be of their tracepoint: they pass their arguments on.
 */
static int set_called(const struct bpf_program *program, uint32_t kind)
{
	const char *section = bpf_program__section_name(program);
	bool reads = !strcmp(section, "tp_btf/sock_recv_length");
	int fd = bpf_program__fd(program);

	if (!reads && strcmp(section, "tp_btf/sock_send_length"))
		return -EINVAL;
	return bpf_map__update_elem(reads ? skeleton->maps.reads : skeleton->maps.writes, &kind,
				    sizeof(kind), &fd, sizeof(fd), 0);
}

/*
 * Probes are attached by inode, for every process: a server that restarts is probed from its first
 * query. The keeper attaches nothing but probes.
 */
int answer_attach(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	const char *name = request->text + RP_CODE_BYTES;
	const struct bpf_program *program =
	    skeleton ? bpf_object__find_program_by_name(skeleton->obj, name) : NULL;
	LIBBPF_OPTS(bpf_uprobe_opts, opts);

	if (!program || bpf_program__fd(program) < 0)
		return -EINVAL; /* no such program was loaded */
	if (bpf_program__expected_attach_type(program) == BPF_TRACE_ITER)
		return iterate(bpf_program__attach(program), answer);
	if (request->number && !peer->late)
		return set_called(program, request->number);
	if (bpf_program__type(program) == BPF_PROG_TYPE_PERF_EVENT && !peer->late)
		return sample(program, request);
	if (bpf_program__type(program) != BPF_PROG_TYPE_KPROBE)
		return peer->late ? -EINVAL : keep(bpf_program__attach(program), -1);

	int fd = opened_check(request->pid, request->offset, request->text, request->size);

	if (fd < 0)
		return fd;

	const char *path = opened_path(fd);

	opts.retprobe = !strcmp(bpf_program__section_name(program), "uretprobe");
	if (uprobe_multi)
		return attach_multi(bpf_program__fd(program), path, request->offset, opts.retprobe);
	return keep(bpf_program__attach_uprobe_opts(program, -1, path, request->offset, &opts), -1);
}

/* Probes of a followed server also stay from now on. */
int answer_done(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	root.done = true;
	settled = link_count;
	if (skeleton) /* gives back whole pages of the programs' file, which are constants */
		madvise((void *)(((uintptr_t)skeleton->skeleton->data + PAGE - 1) & -PAGE),
			(skeleton->skeleton->data_sz & -PAGE) - PAGE, MADV_DONTNEED);
	return 0;
}

int answer_accounts(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	struct rp_account *accounts = (void *)answer->reply.text;

	answer->fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	for (int i = 0; skeleton && i < skeleton->skeleton->prog_cnt; i++) {
		struct bpf_prog_info info = {0}; /* stays 0 for an unloaded program */
		uint32_t size = sizeof(info);

		bpf_obj_get_info_by_fd(bpf_program__fd(*skeleton->skeleton->progs[i].prog), &info,
				       &size);
		accounts[info.type % RP_ACCOUNT_TYPES].runs += info.run_cnt;
		accounts[info.type % RP_ACCOUNT_TYPES].ns += info.run_time_ns;
	}
	return answer->fd < 0 ? answer->fd : 0;
}
