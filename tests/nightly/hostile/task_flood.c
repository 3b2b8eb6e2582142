// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Causes task events as fast as possible until it is killed: task_flood rename|fork|exec. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void rename_self(unsigned number)
{
	char name[16];

	snprintf(name, sizeof(name), "flood %u", number);
	prctl(PR_SET_NAME, name);
}

static void start_child(char *self, int execute)
{
	char *argv[] = {self, "nothing", NULL};
	pid_t child = vfork();

	if (!child) {
		if (execute)
			execv(self, argv);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	prctl(PR_SET_PDEATHSIG, 9);
	if (!strcmp(argv[1], "nothing"))
		return 0;
	for (unsigned number = 0;; number++) {
		if (!strcmp(argv[1], "rename"))
			rename_self(number);
		else
			start_child(argv[0], !strcmp(argv[1], "exec"));
	}
}
