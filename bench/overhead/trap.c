// SPDX-License-Identifier: Apache-2.0
/*
 * What a uprobe costs beyond its program: calls a function with and without a probe whose program
 * only returns, and prints ns per call of each. `trap`: at the function's begin; `trap return`: at
 * its return. As root: gcc -O2 trap.c -lbpf -o trap && ./trap
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALLS  200000
#define ROUNDS 11

static volatile long sink;

__attribute__((noinline, noclone)) void probed(long n)
{
	sink += n;
}

extern const char __executable_start[]; /* the linker's */

static double ns_per_call(void)
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (long n = 0; n < CALLS; n++)
		probed(n);
	clock_gettime(CLOCK_MONOTONIC, &to);
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
	       CALLS;
}

static int read_number(const char *path, const char *format)
{
	FILE *file = fopen(path, "r");
	int number = -1;

	if (!file || fscanf(file, format, &number) != 1)
		number = -1;
	if (file)
		fclose(file);
	return number;
}

static int probe(int program, int is_return)
{
	static const char devices[] = "/sys/bus/event_source/devices/uprobe";
	struct perf_event_attr attr = {.size = sizeof(attr)};
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "%s/type", devices);
	attr.type = (__u32)read_number(path, "%d");
	snprintf(path, sizeof(path), "%s/format/retprobe", devices);
	if (is_return)
		attr.config = 1ull << read_number(path, "config:%d");
	attr.uprobe_path = (__u64)(unsigned long)"/proc/self/exe";
	attr.probe_offset = (__u64)((const char *)probed - __executable_start);
	fd = (int)syscall(SYS_perf_event_open, &attr, getpid(), -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_SET_BPF, program) ||
	    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0)) {
		perror("trap: cannot attach a uprobe");
		exit(1);
	}
	return fd;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(void)
{
	struct bpf_insn returns[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
				     {.code = BPF_JMP | BPF_EXIT}};
	int program = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "empty", "GPL", returns, 2, NULL);

	if (program < 0) {
		fprintf(stderr, "trap: cannot load a program: %s\n", strerror(errno));
		return 1;
	}
	for (int is_return = 0; is_return < 2; is_return++) {
		double more[ROUNDS];

		for (int round = 0; round < ROUNDS; round++) {
			double without = ns_per_call();
			int fd = probe(program, is_return);

			more[round] = ns_per_call() - without;
			close(fd);
		}
		qsort(more, ROUNDS, sizeof(*more), by_value);
		printf("trap%s: median %.0f ns, quartiles %.0f to %.0f\n",
		       is_return ? " return" : "", more[ROUNDS / 2], more[ROUNDS / 4],
		       more[3 * ROUNDS / 4]);
	}
	return 0;
}
