/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Runs the BPF program of shape_prog.bpf.c on jobs from stdin and prints one line per job:
 * the kernel's hash, the host's hash, and ns per run (mean over `repeat` runs).
 * A job: seed (u64), bytes (u32), dialect and rules (u32: rules << 8), text. Usage: shape_runner
 * OBJECT REPEAT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "core/shape_hash.h"

#define TEXT_BYTES 4096

struct shape_job {
	__u64 seed;
	__u64 shape;
	__u32 bytes;
	__u32 dialect;
	struct qj_shape_state state;
	__u8 text[TEXT_BYTES];
};

static __u64 host_shape(const struct shape_job *job)
{
	struct qj_shape_state s;

	qj_shape_begin(&s, job->seed, job->dialect & 0xff, job->dialect >> 8);
	for (__u32 at = 0; at < job->bytes; at += QJ_SHAPE_CHUNK)
		qj_shape_feed(&s, job->text + at, job->bytes - at);
	return qj_shape_end(&s);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int run_job(int program, int jobs, struct shape_job *job, int repeat)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);
	double start;
	__u64 host;
	__u32 zero = 0;

	if (bpf_map_update_elem(jobs, &zero, job, BPF_ANY))
		return -1;
	start = now_ns();
	for (int i = 0; i < repeat; i++)
		if (bpf_prog_test_run_opts(program, &options))
			return -1;
	start = (now_ns() - start) / repeat;
	host = host_shape(job);
	if (bpf_map_lookup_elem(jobs, &zero, job))
		return -1;
	printf("%llu %llu %.0f\n", job->shape, host, start);
	return 0;
}

int main(int argc, char **argv)
{
	static struct shape_job job;
	struct bpf_object *object;
	struct bpf_program *program;
	int repeat, failed = 0;

	if (argc != 3 || (repeat = atoi(argv[2])) < 1) {
		fprintf(stderr, "usage: shape_runner OBJECT REPEAT\n");
		return 2;
	}
	object = bpf_object__open(argv[1]);
	if (!object || bpf_object__load(object)) {
		fprintf(stderr, "shape_runner: the kernel did not load %s\n", argv[1]);
		return 1;
	}
	program = bpf_object__find_program_by_name(object, "hash_job");
	while (!failed && fread(&job.seed, sizeof(job.seed), 1, stdin) == 1) {
		memset(job.text, 0, sizeof(job.text));
		failed = fread(&job.bytes, 8, 1, stdin) != 1 || job.bytes > TEXT_BYTES ||
			 fread(job.text, 1, job.bytes, stdin) != job.bytes ||
			 run_job(bpf_program__fd(program),
				 bpf_object__find_map_fd_by_name(object, "jobs"), &job, repeat);
	}
	if (failed)
		fprintf(stderr, "shape_runner: a job was malformed or its run failed\n");
	bpf_object__close(object);
	return failed;
}
