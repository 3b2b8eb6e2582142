// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The command that qjoule-root runs in a virtual machine, where there is no Python:
 *
 *   qjoule-root /bin/traced -I /bin/traced record SERVER OPTION...
 *
 * Requests a handle of SERVER, which it maps and which becomes number 1 (-: none), and becomes the
 * tracer.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "system.h"

int main(int argc, char **argv)
{
	struct rp_request request = {.kind = RP_BIND, .pid = getpid()};
	const char *number = getenv("QJOULE_ROOT_PART");
	char root[16];
	int fd, err = 0;

	if (argc < 5 || !number)
		return 2;
	root_part_use(atoi(number));
	if (strcmp(argv[4], "-")) {
		void *at = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, open(argv[4], O_RDONLY), 0);

		err = root_part_ask(&request, -1, &fd);
		root_part_use(fd);
		request = (struct rp_request){.kind = RP_OPEN,
					      .number = RP_WHAT_MAPPED,
					      .offset = (uintptr_t)at,
					      .size = getpagesize()};
		if (!err)
			err = root_part_ask(&request, -1, &fd);
		root_part_use(atoi(number));
	}
	request = (struct rp_request){.kind = RP_TRACER};
	if (!err)
		err = root_part_ask(&request, -1, &fd);
	if (err) {
		fprintf(stderr, "traced: %s\n", strerror(-err));
		return 1;
	}
	snprintf(root, sizeof(root), "%d", dup(fd)); /* without FD_CLOEXEC */
	argv[2] = "qjoule-tracer";
	argv[3] = "--root";
	argv[4] = root;
	execvp(argv[2], argv + 2);
	perror("traced: qjoule-tracer");
	return 1;
}
