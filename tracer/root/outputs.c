// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What the command leaves behind or listens on: only what our own command line names. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "root.h"

#define CALIBRATION	  "/var/lib/qjoule/calibration.json"
#define CALIBRATION_BYTES (1 << 20)
#define TAGS		  "/run/qjoule/tags.sock"
#define DEFAULT_NAME	  "qjoule-" /* of a trace: date and time follow */
#define OPEN_DIRECTORY	  (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

/* A name in a directory that is open. */
struct place {
	int directory;
	char name[NAME_MAX + 1];
};

static struct place trace = {-1, ""}, staged = {-1, ""}, unfinished = {-1, ""};
static int staged_fd = -1;
static struct sockaddr_un tags = {.sun_family = AF_UNIX};
static struct stat tags_bound;

/* Whether our command line gives `text` to one of the options: "-o TEXT" or "--output=TEXT". */
static bool is_given(const struct root *root, const char *text, const char *const *options)
{
	for (char **word = root->command; *word && strcmp(*word, "--"); word++) {
		for (const char *const *option = options; *option; option++) {
			const char *rest = *word + strlen(*option);

			if (strncmp(*word, *option, strlen(*option)))
				continue;
			if (!*rest)
				rest = word[1] ? word[1] : "";
			else if ((*option)[1] == '-' && *rest++ != '=')
				continue;
			if (*text && !strcmp(rest, text))
				return true;
		}
	}
	return false;
}

/* Opens the directory that `text` lies in; those that are missing are made, and are root's. */
static int open_place(const char *text, struct place *place)
{
	char path[RP_TEXT_BYTES];
	char *slash;

	snprintf(path, sizeof(path), "%s", text);
	while ((slash = strrchr(path, '/')) && slash > path && !slash[1])
		*slash = '\0';
	slash = strrchr(path, '/');
	if (snprintf(place->name, sizeof(place->name), "%s", slash ? slash + 1 : path) > NAME_MAX)
		return -ENAMETOOLONG;
	if (!place->name[0] || !strcmp(place->name, ".") || !strcmp(place->name, ".."))
		return -EEXIST;
	for (char *end = path + 1; slash && (end = strchr(end, '/')); *end++ = '/') {
		*end = '\0';
		mkdir(path, 0755); /* what fails here for good, fails below */
	}
	if (slash)
		slash[slash == path] = '\0';
	place->directory = open(slash ? path : ".", OPEN_DIRECTORY);
	return place->directory < 0 ? -errno : 0;
}

static void close_place(struct place *place)
{
	if (place->directory >= 0)
		close(place->directory);
	place->directory = -1;
}

/* The group that --group names: others than that are not shared with. */
static bool is_group_given(const struct root *root, gid_t gid)
{
	static const char *const options[] = {"--group", NULL};
	const struct group *group = getgrgid(gid);

	return group && is_given(root, group->gr_name, options);
}

static int make_directory(const struct root *root, const struct rp_request *request,
			  struct answer *answer)
{
	static const char *const options[] = {"-o", "--output", "--keep", NULL};
	bool is_default = !strncmp(request->text, DEFAULT_NAME, strlen(DEFAULT_NAME)) &&
			  !strchr(request->text, '/');
	int error, before;
	struct stat status;

	if ((!is_default && !is_given(root, request->text, options)) ||
	    (request->flags && !is_group_given(root, request->number)))
		return -EPERM;
	if (trace.directory >= 0)
		return -EBUSY;
	error = open_place(request->text, &trace);
	if (error)
		return error;
	/* Made as the user's with root's right to write here: nothing ever changes hands. */
	before = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
	prctl(PR_SET_SECUREBITS, before | SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
	setfsgid(root->gid);
	setfsuid(root->uid);
	error = mkdirat(trace.directory, trace.name, 0700) ? -errno : 0;
	setfsuid(0);
	setfsgid(0);
	if (prctl(PR_SET_SECUREBITS, before, 0, 0, 0) && !error)
		error = -errno;
	if (error) {
		close_place(&trace);
		return error;
	}
	answer->fd = openat(trace.directory, trace.name, OPEN_DIRECTORY | O_NOFOLLOW);
	if (answer->fd < 0 || fstat(answer->fd, &status))
		return -errno;
	if (status.st_uid != root->uid)
		return -EPERM; /* another one took its place */
	if (request->flags &&
	    (fchown(answer->fd, -1, request->number) || fchmod(answer->fd, 02750)))
		return -errno;
	return 0;
}

/* Where nobody but root can remove or rename what is root's. */
static bool is_roots(const char *path)
{
	char parent[sizeof(tags.sun_path)];
	char *slash = strrchr(strcpy(parent, path), '/');
	struct stat status;

	if (!slash || slash == parent)
		return false;
	*slash = '\0';
	return !stat(parent, &status) && S_ISDIR(status.st_mode) && !status.st_uid &&
	       (status.st_mode & S_ISVTX || !(status.st_mode & (S_IWGRP | S_IWOTH)));
}

/* Removes the socket of a recorder that has gone; not another's, nor what is no socket. */
static int make_room(int probe)
{
	struct stat status;

	if (lstat(tags.sun_path, &status) || !S_ISSOCK(status.st_mode))
		return -ENOTSOCK;
	if (!connect(probe, (struct sockaddr *)&tags, sizeof(tags)) || errno != ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(tags.sun_path) ? -errno : 0;
}

static int listen_for_tags(struct answer *answer)
{
	const char *named = getenv("QJOULE_TAGS_SOCKET");
	const char *path = named && *named ? named : TAGS;
	int error = 0;

	if (tags_bound.st_ino || strlen(path) >= sizeof(tags.sun_path))
		return tags_bound.st_ino ? -EBUSY : -ENAMETOOLONG;
	strcpy(tags.sun_path, path);
	if (path != named)
		mkdir("/run/qjoule", 0755);
	if (!is_roots(path))
		return -EPERM;
	answer->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (answer->fd < 0)
		return -errno;
	umask(0111); /* every user of the host may connect */
	if (bind(answer->fd, (struct sockaddr *)&tags, sizeof(tags))) {
		error = errno == EADDRINUSE ? make_room(answer->fd) : -errno;
		if (!error && bind(answer->fd, (struct sockaddr *)&tags, sizeof(tags)))
			error = -errno;
	}
	umask(0022);
	if (!error && (lstat(path, &tags_bound) || listen(answer->fd, 1024)))
		error = -errno;
	return error;
}

/* A file beside the one that it is to replace, for the command to write. */
static int stage(const struct root *root, const struct rp_request *request, struct answer *answer)
{
	static const char *const options[] = {"-o", "--output", NULL};
	unsigned long number;
	int error;

	if (strcmp(root->command[RP_COMMAND_WORD], "calibrate") ||
	    (strcmp(request->text, CALIBRATION) && !is_given(root, request->text, options)))
		return -EPERM;
	if (staged.directory >= 0)
		return -EBUSY;
	error = open_place(request->text, &staged);
	if (error)
		return error;
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -errno;
	snprintf(unfinished.name, sizeof(unfinished.name), ".qjoule-%lx", number);
	staged_fd = openat(staged.directory, unfinished.name,
			   O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (staged_fd < 0)
		return -errno;
	unfinished.directory = staged.directory;
	answer->fd = fcntl(staged_fd, F_DUPFD_CLOEXEC, 0);
	return answer->fd < 0 ? -errno : 0;
}

static int publish(void)
{
	struct stat status;

	if (unfinished.directory < 0 || fstat(staged_fd, &status))
		return -EINVAL;
	if (!status.st_size || status.st_size > CALIBRATION_BYTES)
		return -EFBIG;
	if (fsync(staged_fd) ||
	    renameat(staged.directory, unfinished.name, staged.directory, staged.name))
		return -errno;
	unfinished.directory = -1;
	return fsync(staged.directory) ? -errno : 0;
}

int outputs_answer(struct root *root, const struct rp_request *request, struct answer *answer)
{
	switch (request->kind) {
	case RP_DIRECTORY:
		return make_directory(root, request, answer);
	case RP_TAG_SOCKET:
		return listen_for_tags(answer);
	case RP_AS:
		return started_loader(root, request, answer);
	case RP_RUN:
		return started_run(root, request, answer);
	case RP_STAGE:
		return stage(root, request, answer);
	case RP_PUBLISH:
		return publish();
	default:
		return -ENOSYS;
	}
}

void outputs_clear(void)
{
	struct stat status;

	if (trace.directory >= 0) /* goes where nothing was written to it */
		unlinkat(trace.directory, trace.name, AT_REMOVEDIR);
	if (unfinished.directory >= 0)
		unlinkat(unfinished.directory, unfinished.name, 0);
	if (tags_bound.st_ino && !lstat(tags.sun_path, &status) &&
	    status.st_ino == tags_bound.st_ino && status.st_dev == tags_bound.st_dev)
		unlink(tags.sun_path);
}
