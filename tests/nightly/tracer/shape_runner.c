/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Runs the BPF program of shape_prog.bpf.c on jobs from stdin and prints the kernel's hash of each.
 * A job: seed (u64), bytes (u32), dialect and rules (u32: rules << 8), text. Usage: shape_runner
 * OBJECT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int run_job(int program, int jobs, struct shape_job *job)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);
	__u32 zero = 0;

	if (bpf_map_update_elem(jobs, &zero, job, BPF_ANY) ||
	    bpf_prog_test_run_opts(program, &options) || bpf_map_lookup_elem(jobs, &zero, job))
		return -1;
	printf("%llu\n", job->shape);
	return 0;
}

int main(int argc, char **argv)
{
	static struct shape_job job;
	struct bpf_object *object;
	struct bpf_program *program;
	int failed = 0;

	if (argc != 2)
		return 2;
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
				 bpf_object__find_map_fd_by_name(object, "jobs"), &job);
	}
	if (failed)
		fprintf(stderr, "shape_runner: a job was malformed or its run failed\n");
	bpf_object__close(object);
	return failed;
}
