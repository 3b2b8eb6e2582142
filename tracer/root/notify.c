// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Tells the service manager how the agent is: a datagram to a socket that it named (sd_notify(3)).
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "root.h"

int answer_notify(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	static const char *const notices[] = {
	    [RP_NOTICE_READY] = "READY=1",
	    [RP_NOTICE_RELOADING] = "RELOADING=1",
	    [RP_NOTICE_STOPPING] = "STOPPING=1",
	    [RP_NOTICE_ALIVE] = "WATCHDOG=1",
	};
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	char lines[RP_TEXT_BYTES + 64];
	int fd, bytes, err = 0;

	if (!path || strlen(path) >= sizeof(to.sun_path) || request->number < RP_NOTICE_READY ||
	    request->number > RP_NOTICE_ALIVE)
		return -EINVAL;
	/* Another line could be another variable. */
	for (const char *c = request->text; *c; c++)
		if ((unsigned char)*c < ' ')
			return -EINVAL;
	bytes = snprintf(lines, sizeof(lines), "%s\nSTATUS=%s", notices[request->number],
			 request->text);
	strcpy(to.sun_path, path);
	if (*path == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, lines, bytes, MSG_NOSIGNAL, (struct sockaddr *)&to,
		   offsetof(struct sockaddr_un, sun_path) + strlen(path)) < 0)
		err = -errno;
	close(fd);
	return err;
}
