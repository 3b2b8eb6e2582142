// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * empty-loader OBJECT [--program NAME]... [--uprobe PATH:OFFSET]... [--uretprobe PATH:OFFSET]...
 *
 * Attaches the named tracepoint programs of OBJECT, and its `entry` and `leave` at these file
 * offsets in every process of PATH. Prints "attached", and detaches at the end of its standard
 * input.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINKS 128

static struct bpf_link *links[MAX_LINKS];
static int link_count;

static int fail(const char *what, const char *name)
{
	fprintf(stderr, "empty-loader: cannot %s %s: %s\n", what, name, strerror(errno));
	return -1;
}

/* The program to which an option's value applies. */
static struct bpf_program *program_for(struct bpf_object *object, const char *option,
				       const char *value)
{
	if (!strcmp(option, "--program"))
		return bpf_object__find_program_by_name(object, value);
	if (!strcmp(option, "--uprobe"))
		return bpf_object__find_program_by_name(object, "entry");
	if (!strcmp(option, "--uretprobe"))
		return bpf_object__find_program_by_name(object, "leave");
	errno = EINVAL;
	return NULL;
}

static struct bpf_link *attach_uprobe(struct bpf_program *program, const char *value,
				      bool on_return)
{
	const char *colon = strrchr(value, ':');
	char path[4096];

	if (!colon || (size_t)(colon - value) >= sizeof(path)) {
		errno = EINVAL;
		return NULL;
	}
	memcpy(path, value, colon - value);
	path[colon - value] = '\0';
	return bpf_program__attach_uprobe(program, on_return, -1, path,
					  strtoull(colon + 1, NULL, 0));
}

static int attach(struct bpf_program *program, const char *option, const char *value)
{
	struct bpf_link *link;

	if (!strcmp(option, "--program"))
		link = bpf_program__attach(program);
	else
		link = attach_uprobe(program, value, !strcmp(option, "--uretprobe"));
	if (!link)
		return fail("attach to", value);
	links[link_count++] = link;
	return 0;
}

static int load_and_attach(struct bpf_object *object, int argc, char **argv)
{
	for (int i = 2; i + 1 < argc; i += 2) {
		struct bpf_program *program = program_for(object, argv[i], argv[i + 1]);

		if (!program)
			return fail("use", argv[i + 1]);
		bpf_program__set_autoload(program, true);
	}
	if (bpf_object__load(object))
		return fail("load", argv[1]);
	for (int i = 2; i + 1 < argc; i += 2)
		if (attach(program_for(object, argv[i], argv[i + 1]), argv[i], argv[i + 1]))
			return -1;
	return 0;
}

int main(int argc, char **argv)
{
	struct bpf_object *object;
	int err = -1;
	char sink;

	if (argc < 2 || argc % 2 || argc / 2 > MAX_LINKS) {
		fprintf(stderr, "usage: empty-loader OBJECT [--program NAME]... "
				"[--uprobe|--uretprobe PATH:OFFSET]...\n");
		return 2;
	}
	object = bpf_object__open_file(argv[1], NULL);
	if (!object) {
		fail("open", argv[1]);
		return 1;
	}
	err = load_and_attach(object, argc, argv);
	if (!err) {
		puts("attached");
		fflush(stdout);
		while (read(STDIN_FILENO, &sink, 1) > 0)
			;
	}
	while (link_count)
		bpf_link__destroy(links[--link_count]);
	bpf_object__close(object);
	return err ? 1 : 0;
}
