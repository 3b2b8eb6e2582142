// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The command that qjoule-root runs in a virtual machine, where there is no Python:
 *
 *   qjoule-root /bin/traced -I /bin/traced record SERVER OPTION...
 *
 * Requests a handle of SERVER, which becomes number 1 (-: none), and becomes the tracer.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "root_part.h"

int main(int argc, char **argv)
{
	struct rp_request request = {.kind = RP_INSTALLED};
	const char *number = getenv("QJOULE_ROOT_PART");
	char root[16];
	int fd, err = 0;

	if (argc < 5 || !number)
		return 2;
	root_part_use(atoi(number));
	if (strcmp(argv[4], "-"))
		err = root_part_ask(&request, open(argv[4], O_RDONLY), &fd);
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
