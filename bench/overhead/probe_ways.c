// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * What a uprobe with an empty program adds to a call of this program's own functions, by the way it
 * is attached: `perf`, an event with a program, as qjoule does; `multi`, a link of many places
 * (Linux 6.6); `session`, one program for a function's begin and return (Linux 6.13).
 *
 * Prints "PLACE WAY NANOSECONDS", the least of many batches: whoever else uses the CPU makes a
 * batch longer and never shorter. A way that the kernel refuses has no line.
 */
#define _GNU_SOURCE
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 400
#define CALLS	300

/* Of include/uapi/linux/bpf.h, which may be older than this kernel. */
#define TRACE_UPROBE_MULTI   48
#define TRACE_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN  1
struct multi_link { /* union bpf_attr, link_create */
	uint32_t program, target, attach, flags;
	uint64_t path, offsets, counters, cookies;
	uint32_t count, probe_flags, pid, unused;
};

/* Functions whose first instructions the kernel emulates: no single step. */
asm(".text\n.p2align 6\n.globl push\npush: push %rbp\npop %rbp\nret\n"
    ".p2align 6\n.globl nop5\nnop5: .byte 0x0f, 0x1f, 0x44, 0, 0\nret\n");
void push(void);
void nop5(void);

static char self[256];

static int empty_program(uint32_t attach)
{
	struct bpf_insn code[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K},
				  {.code = BPF_JMP | BPF_EXIT}};
	union bpf_attr load = {.prog_type = BPF_PROG_TYPE_KPROBE,
			       .expected_attach_type = attach,
			       .insns = (uintptr_t)code,
			       .insn_cnt = 2,
			       .license = (uintptr_t) "GPL"};

	return syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof(load));
}

static int perf(uint64_t offset, bool on_return)
{
	struct perf_event_attr event = {.size = sizeof(event),
					.config = on_return,
					.config1 = (uintptr_t)self,
					.config2 = offset};
	FILE *type = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	int fd = -1, program = empty_program(0);

	if (type && fscanf(type, "%u", &event.type) == 1)
		fd = syscall(SYS_perf_event_open, &event, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	if (type)
		fclose(type);
	if (fd >= 0 &&
	    (ioctl(fd, PERF_EVENT_IOC_SET_BPF, program) || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0))) {
		close(fd);
		fd = -1;
	}
	close(program);
	return fd;
}

static int multi(uint64_t offset, uint32_t attach, uint32_t flags)
{
	struct multi_link link = {.program = empty_program(attach),
				  .attach = attach,
				  .path = (uintptr_t)self,
				  .offsets = (uintptr_t)&offset,
				  .count = 1,
				  .probe_flags = flags};
	int fd = syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof(link));

	close(link.program);
	return fd;
}

static double ns_per_call(void (*function)(void))
{
	struct timespec begin, end;
	double least = 1e9, ns;

	for (int batch = 0; batch < BATCHES; batch++) {
		clock_gettime(CLOCK_MONOTONIC, &begin);
		for (int i = 0; i < CALLS; i++)
			function();
		clock_gettime(CLOCK_MONOTONIC, &end);
		ns = ((end.tv_sec - begin.tv_sec) * 1e9 + end.tv_nsec - begin.tv_nsec) / CALLS;
		least = ns < least ? ns : least;
	}
	return least;
}

/* Closes both probes; `second` may be absent. */
static void report(const char *place, void (*function)(void), const char *way, int first,
		   const int *second)
{
	if (first >= 0 && (!second || *second >= 0))
		printf("%s %s %.0f\n", place, way, ns_per_call(function));
	close(first);
	if (second)
		close(*second);
}

/* `file_begin`: where this program's file would begin in memory. */
static void measure(const char *place, void (*function)(void), uint64_t file_begin)
{
	uint64_t offset = (uint64_t)function - file_begin;
	int second;

	report(place, function, "perf", perf(offset, false), NULL);
	report(place, function, "multi", multi(offset, TRACE_UPROBE_MULTI, 0), NULL);
	second = perf(offset, true);
	report(place, function, "perf+return", perf(offset, false), &second);
	second = multi(offset, TRACE_UPROBE_MULTI, UPROBE_MULTI_RETURN);
	report(place, function, "multi+return", multi(offset, TRACE_UPROBE_MULTI, 0), &second);
	report(place, function, "session", multi(offset, TRACE_UPROBE_SESSION, 0), NULL);
}

int main(void)
{
	unsigned long begin, end, offset, at = (unsigned long)push;
	FILE *maps = fopen("/proc/self/maps", "r");
	uint64_t file_begin = 0;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &begin, &end, &offset) == 3 && begin <= at &&
		    at < end)
			file_begin = begin - offset;
	if (!file_begin || readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	fclose(maps);
	measure("push", push, file_begin);
	measure("nop5", nop5, file_begin);
	return 0;
}
