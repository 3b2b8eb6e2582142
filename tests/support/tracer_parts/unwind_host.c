// SPDX-License-Identifier: Apache-2.0
/*
 * Follows a sampled stack by a process' tables, with the tracer's own code:
 *   unwind_host TABLES SAMPLE [MUTATIONS SEED FROM]
 * Prints module and offset of each frame from the outermost on, and the flags. With mutations it
 * then changes bytes of the tables, from FROM on, so often, and prints how many frames were found
 * in all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared.h"
#include "stacks.h"

#define MOST 2048

struct stream {
	struct qj_call calls[MOST];
	unsigned count;
	uint32_t flags;
};

void stream_add(struct stream *stream, enum qj_block_kind kind, const void *record, size_t bytes)
{
	if (kind == QJ_BLOCK_CALL && stream->count < MOST)
		memcpy(&stream->calls[stream->count++], record, bytes);
	if (kind == QJ_BLOCK_STACK)
		stream->flags = ((const struct qj_stack *)record)->flags;
}

static size_t read_file(const char *path, void **out)
{
	FILE *file = fopen(path, "rb");
	size_t size;

	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	*out = malloc(size);
	if (fread(*out, 1, size, file) != size)
		exit(2);
	fclose(file);
	return size;
}

static void follow(int fd, const struct qj_ring_stack *sample, struct stream *stream)
{
	struct stacks *stacks = stacks_new(&fd, 1, stream);

	stream->count = 0;
	stacks_received(stacks, sample);
	stacks_free(stacks);
}

int main(int argc, char **argv)
{
	static struct stream stream;
	int fd = memfd_create("tables", 0);
	void *tables, *sample;
	size_t size = read_file(argv[1], &tables);
	uint8_t *shared;

	read_file(argv[2], &sample);
	if (ftruncate(fd, size))
		return 2;
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memcpy(shared, tables, size);
	follow(fd, sample, &stream);
	for (unsigned i = 0; i < stream.count; i++)
		printf("%u %llu\n", stream.calls[i].module,
		       (unsigned long long)stream.calls[i].offset);
	printf("flags %u\n", stream.flags);
	if (argc > 3) {
		size_t from = atol(argv[5]);
		unsigned long frames = 0;

		srand(atoi(argv[4]));
		for (int n = atoi(argv[3]); n; n--) {
			for (int i = 0; i < 200; i++)
				shared[from + (((size_t)rand() << 15) + rand()) % (size - from)] =
				    rand();
			follow(fd, sample, &stream);
			frames += stream.count;
			if (n % 20 == 0)
				memcpy(shared, tables, size);
		}
		printf("frames %lu\n", frames);
	}
	free(tables);
	free(sample);
	return 0;
}
