// SPDX-License-Identifier: Apache-2.0
/*
 * Calls itself to a depth, and there writes its registers and the pages of its stack to standard
 * output, as the kernel side samples them. Then it waits for the end of standard input.
 *   unwound DEPTH [signal|wide|nodes|LIBRARY]
 * wide: below functions that each have 14 KB of tables. nodes: below those that execute a plan.
 * LIBRARY: below the function of a library (through.c) that is mapped for it.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096
#define MOST 7

static volatile int sink;

__attribute__((noinline)) void here(void)
{
	static const int order[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
				    REG_RBP, REG_RSP, REG_R8,  REG_R9,	REG_R10, REG_R11,
				    REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
	static uint8_t pages[MOST][PAGE];
	uint64_t registers[17], count = 0, page;
	ucontext_t now;
	char byte;

	getcontext(&now);
	for (int i = 0; i < 17; i++)
		registers[i] = now.uc_mcontext.gregs[order[i]];
	page = registers[7] & ~(uint64_t)(PAGE - 1);
	while (count < MOST) {
		struct iovec to = {pages[count], PAGE},
			     from = {(void *)(page + count * PAGE), PAGE};

		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != PAGE)
			break;
		count++;
	}
	fwrite(registers, sizeof(registers), 1, stdout);
	fwrite(&count, sizeof(count), 1, stdout);
	fwrite(pages, PAGE, MOST, stdout);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	sink++;
}

static void on_signal(int number)
{
	(void)number;
	here();
	sink++;
}

__attribute__((noinline)) int deeper(int depth, int raises)
{
	if (!depth && raises)
		raise(SIGUSR1);
	else if (!depth)
		here();
	else
		sink += deeper(depth - 1, raises);
	return sink + 1;
}

#define WIDE(name, next)                                                                           \
	__attribute__((noinline)) static void name(void)                                           \
	{                                                                                          \
		asm volatile(".rept 7000\n.cfi_remember_state\n.cfi_restore_state\n.endr");        \
		next();                                                                            \
		sink++;                                                                            \
	}
WIDE(wide1, here)
WIDE(wide2, wide1)
WIDE(wide3, wide2)
WIDE(wide4, wide3)
WIDE(wide5, wide4)
WIDE(wide6, wide5)
WIDE(wide7, wide6)
WIDE(wide8, wide7)
WIDE(wide9, wide8)
WIDE(wide10, wide9)

/*
 * A plan as PostgreSQL's: a join of a join. The function of a scan has left its frame to one that
 * executes all scans. That one calls another for each row, whose frame has an address of a
 * neighbour, as those that were left there before have, and where the row goes.
 */
struct node {
	int (*execute)(struct node *node);
	struct node *left, *right;
	uint64_t row;
};

extern struct node nodes[5];

__attribute__((noinline)) int next_row(struct node *node)
{
	struct node *volatile neighbour = &nodes[3];
	uint64_t *volatile row = &node->row;

	here();
	return neighbour->left || *row ? 0 : sink;
}

__attribute__((noinline)) int scan_rows(struct node *node)
{
	return next_row(node) + (node->left ? 0 : sink);
}

int scan(struct node *node)
{
	return node->left != NULL;
}

int join(struct node *node)
{
	int rows = 0;

	for (int i = 0; i < 2; i++)
		rows += node->left->execute(node->left) + (node->right->left != NULL);
	return rows + (node->left == node);
}

struct node nodes[5] = {{join, &nodes[1], &nodes[4]},
			{join, &nodes[2], &nodes[3]},
			{scan_rows},
			{scan_rows},
			{scan_rows}};

__attribute__((noinline)) int back(void)
{
	return deeper(0, 0);
}

static int below_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	int (*through)(int (*)(void)) = library ? dlsym(library, "through") : NULL;

	return through ? through(back) : 1;
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[2], "wide")) {
		wide10();
		return 0;
	}
	if (argc > 2 && !strcmp(argv[2], "nodes"))
		return join(&nodes[0]);
	if (argc > 2 && strchr(argv[2], '/'))
		return below_library(argv[2]);
	signal(SIGUSR1, on_signal);
	return deeper(atoi(argv[1]), argc > 2) == 0;
}
