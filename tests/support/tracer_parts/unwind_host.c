// SPDX-License-Identifier: Apache-2.0
/*
 * Follows a sampled stack by a process' tables, with the tracer's own code:
 *   unwind_host MUTATIONS SEED ASKED TABLES SAMPLE MAPPED [COMPILED]
 * ASKED: an address that was asked for before, in the sample's process; 0: none. MAPPED: any number
 * of struct place; the sample comes with each of these before it comes as it is. Prints module and
 * offset of each frame from the outermost on, the flags, and the address that is asked for. With
 * mutations it then changes bytes so often, of COMPILED or else of the tables, and prints how many
 * frames were found in all.
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

static struct qj_asked asked[QJ_ASKED];
static uint64_t asked_before;

/* What a sample says of its process. */
struct place {
	uint64_t tgid, process_ns, code_pages;
	struct qj_mapped mapped;
};

static void follow(const int fds[2], const struct place *places, size_t count,
		   const struct qj_ring_stack *sample, struct stream *stream)
{
	static struct qj_ring_stack with;
	struct stacks *stacks = stacks_new(&fds[0], &fds[1], 1, stream, asked);

	stream->count = 0;
	memset(asked, 0, sizeof(asked));
	if (asked_before)
		asked[sample->segment.tgid % QJ_ASKED] =
		    (struct qj_asked){.tgid = sample->segment.tgid, .address = asked_before};
	memcpy(&with, sample, offsetof(struct qj_ring_stack, bytes));
	with.pages = 0;
	for (size_t i = 0; i < count; i++) {
		with.segment.tgid = places[i].tgid;
		with.process_ns = places[i].process_ns;
		with.code_pages = places[i].code_pages;
		with.mapped = places[i].mapped;
		stacks_received(stacks, &with);
	}
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
	size_t size, compiled_size, mappings, from = sizeof(struct stacks_head), to;
	void *tables, *sample, *mapped, *compiled = NULL;
	uint8_t *shared = share(argv[4], &fds[0], &tables, &size);

	asked_before = strtoull(argv[3], NULL, 10);
	read_file(argv[5], &sample);
	mappings = read_file(argv[6], &mapped) / sizeof(struct place);
	from += STACKS_MODULES * sizeof(struct stacks_module);
	to = size;
	if (argc > 7) {
		uint8_t *lists = share(argv[7], &fds[1], &compiled, &compiled_size);

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
	follow(fds, mapped, mappings, sample, &stream);
	for (unsigned i = 0; i < stream.count; i++)
		printf("%u %llu\n", stream.calls[i].module,
		       (unsigned long long)stream.calls[i].offset);
	printf("flags %u\n", stream.flags);
	for (unsigned i = 0; i < QJ_ASKED; i++)
		if (asked[i].tgid)
			printf("asked %llu\n", (unsigned long long)asked[i].address);
	if (mutations) {
		unsigned long frames = 0;

		srand(atoi(argv[2]));
		for (int n = mutations; n; n--) {
			mutate(shared, tables, size, from, to, n);
			follow(fds, mapped, mappings, sample, &stream);
			frames += stream.count;
		}
		printf("frames %lu\n", frames);
	}
	free(tables);
	free(sample);
	free(mapped);
	free(compiled);
	return 0;
}
