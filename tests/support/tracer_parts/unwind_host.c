// SPDX-License-Identifier: Apache-2.0
/*
 * Follows a sampled stack by a process' tables, with the tracer's own code:
 *   unwind_host MUTATIONS SEED TABLES SAMPLE [COMPILED]
 * Prints module and offset of each frame from the outermost on, and the flags. With mutations it
 * then changes bytes so often, of COMPILED or else of the tables, and prints how many frames were
 * found in all.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compiled.h"
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

static void follow(const int fds[2], const struct qj_ring_stack *sample, struct stream *stream)
{
	struct stacks *stacks = stacks_new(&fds[0], &fds[1], 1, stream);

	stream->count = 0;
	stacks_received(stacks, sample);
	stacks_free(stacks);
}

/* A file's content as memory that the tracer gets. */
static uint8_t *share(const char *path, int *fd, void **content, size_t *size)
{
	uint8_t *shared;

	*size = read_file(path, content);
	*fd = memfd_create("shared", 0);
	if (!*size)
		return NULL;
	if (ftruncate(*fd, *size))
		exit(2);
	shared = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	memcpy(shared, *content, *size);
	return shared;
}

/* Headers and magic numbers stay, or nothing would be read. */
static void mutate(uint8_t *shared, const void *whole, size_t size, size_t from, size_t to, int n)
{
	for (int i = 0; i < 200; i++)
		shared[from + (((size_t)rand() << 15) + rand()) % (to - from)] = rand();
	if (n % 20 == 0)
		memcpy(shared, whole, size);
}

int main(int argc, char **argv)
{
	static struct stream stream;
	int fds[2] = {0}, mutations = atoi(argv[1]);
	size_t size, compiled_size, from = sizeof(struct stacks_head), to;
	void *tables, *sample, *compiled = NULL;
	uint8_t *shared = share(argv[3], &fds[0], &tables, &size);

	read_file(argv[4], &sample);
	from += STACKS_MODULES * sizeof(struct stacks_module);
	to = size;
	if (argc > 5) {
		uint8_t *lists = share(argv[5], &fds[1], &compiled, &compiled_size);

		if (mutations) {
			munmap(shared, size);
			free(tables);
			shared = lists;
			tables = compiled;
			size = compiled_size;
			compiled = NULL;
			from = offsetof(struct compiled_lists, turn);
			to = offsetof(struct compiled_lists, lists[0].code[8]);
		}
	}
	follow(fds, sample, &stream);
	for (unsigned i = 0; i < stream.count; i++)
		printf("%u %llu\n", stream.calls[i].module,
		       (unsigned long long)stream.calls[i].offset);
	printf("flags %u\n", stream.flags);
	if (mutations) {
		unsigned long frames = 0;

		srand(atoi(argv[2]));
		for (int n = mutations; n; n--) {
			mutate(shared, tables, size, from, to, n);
			follow(fds, sample, &stream);
			frames += stream.count;
		}
		printf("frames %lu\n", frames);
	}
	free(tables);
	free(sample);
	free(compiled);
	return 0;
}
