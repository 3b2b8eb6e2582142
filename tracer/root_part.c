// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Sends requests to the root part, and opens without it what our own rights permit. */
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int root_socket = -1;

void root_part_use(int socket_fd)
{
	root_socket = socket_fd;
}

int root_part_socket(void)
{
	return root_socket;
}

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

static int send_request(const struct rp_request *request, int fd)
{
	union control control = {0};
	struct iovec vector = {(void *)request, sizeof(*request)};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
						  .cmsg_level = SOL_SOCKET,
						  .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	}
	return sendmsg(root_socket, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int receive_reply(int *fd)
{
	static struct rp_reply reply;
	union control control = {0};
	struct iovec vector = {&reply, sizeof(reply)};
	struct msghdr message = {.msg_iov = &vector,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header;
	ssize_t got;

	do {
		got = recvmsg(root_socket, &message, MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(header), sizeof(int));
	if (message.msg_flags & MSG_CTRUNC)
		return -EMFILE;
	return got == sizeof(reply) ? reply.status : -ECONNRESET;
}

int root_part_ask(const struct rp_request *request, int fd, int *out)
{
	int got = -1, err;

	if (out)
		*out = -1;
	if (root_socket < 0)
		return -ENOTCONN;
	err = send_request(request, fd);
	if (err)
		return err == -EPIPE ? -ECONNRESET : err;
	err = receive_reply(&got);
	if (!err && out)
		*out = got;
	else if (got >= 0)
		close(got);
	return !err && out && got < 0 ? -EPROTO : err;
}

/* Asks the root part if only missing rights caused our own error, `own`. */
static int ask_if_denied(int own, const struct rp_request *request)
{
	int fd, err;

	if (root_socket < 0 || (own != -EACCES && own != -EPERM))
		return own;
	err = root_part_ask(request, -1, &fd);
	return err ? err : fd;
}

int root_part_counter(uint32_t type, uint64_t config, unsigned cpu, uint32_t flags)
{
	struct perf_event_attr attr = {.size = sizeof(attr),
				       .type = type,
				       .config = config,
				       .read_format = flags & RP_COUNTER_TIMES,
				       .exclude_kernel = !!(flags & RP_COUNTER_USER),
				       .exclude_user = !!(flags & RP_COUNTER_KERNEL)};
	struct rp_request request = {
	    .kind = RP_COUNTER, .pid = (int)cpu, .number = type, .flags = flags, .size = config};
	int fd;

	fd = (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
	return fd >= 0 ? fd : ask_if_denied(-errno, &request);
}

int root_part_energy_file(int root_fd, const char *root, const char *path)
{
	struct rp_request request = {.kind = RP_ENERGY_FILE};
	/* O_NONBLOCK: opening a pipe that someone placed in the tree must not hang. */
	int fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int err = fd < 0 ? -errno : 0;

	if (fd >= 0)
		return fd;
	if (snprintf(request.text, sizeof(request.text), "%s/%s", root, path) >=
	    (int)sizeof(request.text))
		return -ENAMETOOLONG;
	return ask_if_denied(err, &request);
}
