// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Answers requests on files that our own command line names. Only root can:
 *
 *   RP_DIRECTORY   make one where root may write, as another user's, for our user's group
 *   RP_TAG_SOCKET  make a socket where nobody else can replace it
 *   RP_PUBLISH     replace a file of root's
 *   RP_GIVEN       open a file that root alone may read
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/openat2.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "root.h"

#define CALIBRATION	  "/var/lib/qjoule/calibration.json"
#define CALIBRATION_BYTES (1 << 20)
#define TAGS		  "/run/qjoule/tags.sock"
#define OWN_MEMORY	  "/.local/state/qjoule/memory.bin"
#define DEFAULT_NAME	  "qjoule-" /* name of a trace; date and time follow */
#define OPEN_DIRECTORY	  (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
/* The user as whom root's commands read root's traces (process.py). */
#define READER	   61183
#define MOST_DEPTH 8 /* of directories in a trace */
#define MOST_FILES 100000

static int trace_fd = -1;
static char trace_name[RP_TEXT_BYTES];
static struct sockaddr_un tags = {.sun_family = AF_UNIX};
static struct stat tags_bound;

/* Returns true if our command line gives `text` to an option: "--name TEXT", "--name=TEXT". */
static bool is_given(const char *text, const char *option)
{
	char joined[RP_TEXT_BYTES + 32];

	snprintf(joined, sizeof(joined), option[1] == '-' ? "%s=%s" : "%s%s", option, text);
	for (char **word = root.command; *text && *word && strcmp(*word, "--"); word++)
		if (!strcmp(*word, joined) ||
		    (!strcmp(*word, option) && word[1] && !strcmp(word[1], text)))
			return true;
	return false;
}

static bool is_output(const char *text)
{
	return is_given(text, "-o") || is_given(text, "--output") || is_given(text, "--keep");
}

/*
 * Opens the caller's own memory of this machine (active_memory.py), which the command line need not
 * name: with the caller's rights, and only in the caller's home. In any other directory the command
 * could have made a link of this name.
 */
static int check_memory(const char *text)
{
	/* First, because looking the home up runs libraries of the host. */
	int err = rights_of_files(root.caller_uid, root.caller_gid);
	const struct passwd *caller = err ? NULL : getpwuid(root.caller_uid);
	const char *home = caller && strcmp(caller->pw_dir, "/") ? caller->pw_dir : "";
	char own[RP_TEXT_BYTES];

	snprintf(own, sizeof(own), "%s" OWN_MEMORY, home);
	return err || !strcmp(text, own) ? err : -EPERM;
}

/* Opens a file that root named and that only root may be able to read. */
static int open_given(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
	const char *text = request->text;
	bool named = is_given(text, "--credentials") || is_given(text, "--config") ||
		     is_given(text, "--calibration") || is_given(text, "--memory");
	int err = named ? 0 : check_memory(text);

	return err
		   ?: candidate_read(syscall(SYS_openat2, AT_FDCWD, text, &how, sizeof(how)),
				     answer);
}

int answer_given(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	return guarded(open_given, peer, request, answer);
}

/*
 * Opens the directory for a file, and returns the file's name in it. The descriptor stays the same
 * directory even if the owner of a directory above replaces it.
 */
static int open_place(const char *text, char name[RP_TEXT_BYTES])
{
	char path[RP_TEXT_BYTES];

	/* This also removes slashes at the end of `path`. */
	strcpy(name, basename(strcpy(path, text)));
	return open(dirname(path), OPEN_DIRECTORY);
}

/*
 * In a child: makes the directory as the caller's, with root's right to write here, so no file of
 * root's changes owner. Replaces an empty directory of the caller's.
 */
static int make_directory(struct peer *peer, const struct rp_request *request,
			  struct answer *answer)
{
	char name[RP_TEXT_BYTES];
	struct stat status;
	int place;

	prctl(PR_SET_SECUREBITS, prctl(PR_GET_SECUREBITS, 0, 0, 0, 0) | SECBIT_NO_SETUID_FIXUP, 0,
	      0, 0);
	setfsgid(root.caller_gid);
	setfsuid(root.caller_uid);
	place = open_place(request->text, name);
	if (place >= 0 && !fstatat(place, name, &status, AT_SYMLINK_NOFOLLOW) &&
	    status.st_uid == root.caller_uid)
		unlinkat(place, name, AT_REMOVEDIR);
	if (place < 0 || mkdirat(place, name, 0700))
		return -errno;
	answer->fd = openat(place, name, OPEN_DIRECTORY | O_NOFOLLOW);
	if (answer->fd < 0 || fstat(answer->fd, &status))
		return -errno;
	if (status.st_uid != root.caller_uid)
		return -EPERM; /* another directory took its place */
	/* Nobody but the caller and our user gets in, so the caller reads what our user writes. */
	return fchown(answer->fd, -1, root.gid) || fchmod(answer->fd, 0770) ? -errno : 0;
}

int answer_directory(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	bool is_trace = !strncmp(request->text, DEFAULT_NAME, strlen(DEFAULT_NAME)) &&
			!strchr(request->text, '/');
	int err;

	/* A user that root named makes the directories itself. */
	if (!root.hands_over || (!is_trace && !is_output(request->text)))
		return -EPERM;
	if (trace_fd >= 0)
		return -EBUSY;
	err = guarded(make_directory, peer, request, answer);
	if (err)
		return err;
	strcpy(trace_name, request->text);
	trace_fd = fcntl(answer->fd, F_DUPFD_CLOEXEC, 0);
	return trace_fd < 0 ? -errno : 0;
}

int answer_tag_socket(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	const char *path = getenv("QJOULE_TAGS_SOCKET") ?: TAGS;
	char parent[sizeof(tags.sun_path)];
	struct stat status;

	if (tags_bound.st_ino || strlen(path) >= sizeof(tags.sun_path))
		return -EINVAL;
	strcpy(tags.sun_path, path);
	mkdir("/run/qjoule", 0755);
	/* Only root may be able to remove or rename root's files there. */
	if (stat(dirname(strcpy(parent, path)), &status) || status.st_uid ||
	    (status.st_mode & (S_IWGRP | S_IWOTH) && !(status.st_mode & S_ISVTX)))
		return -EPERM;
	answer->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	/* Only the socket of a killed recorder may be replaced. */
	if (!lstat(path, &status) && S_ISSOCK(status.st_mode) &&
	    connect(answer->fd, (struct sockaddr *)&tags, sizeof(tags)) && errno == ECONNREFUSED)
		unlink(path);
	/* Every user of the host may connect. */
	if (bind(answer->fd, (struct sockaddr *)&tags, sizeof(tags)) || lstat(path, &tags_bound) ||
	    chmod(path, 0666) || listen(answer->fd, 1024))
		return -errno;
	return 0;
}

/*
 * Replaces a file by a copy of the command's memfd, so the command never has a descriptor of the
 * file. With 0 bytes, only checks that the file could be made.
 */
int answer_publish(struct peer *peer, const struct rp_request *request, struct answer *answer)
{
	char name[RP_TEXT_BYTES], staged[32];
	int place, fd, err;

	if (strcmp(root.command[RP_COMMAND_WORD], "calibrate") ||
	    (strcmp(request->text, CALIBRATION) && !is_output(request->text)))
		return -EPERM;
	/* Only a memfd: reading it never blocks. */
	if (peer->sent < 0 || fcntl(peer->sent, F_GET_SEALS) < 0)
		return -EINVAL;
	if (request->size > CALIBRATION_BYTES)
		return -EFBIG;
	mkdir("/var/lib/qjoule", 0755);
	place = open_place(request->text, name);
	if (place < 0)
		return -errno;
	snprintf(staged, sizeof(staged), ".qjoule-%d", getpid());
	fd = openat(place, staged, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	err = fd < 0 ? -errno : 0;
	errno = EIO; /* the errno of a copy that ends early */
	if (!err && request->size &&
	    (sendfile(fd, peer->sent, &(off_t){0}, request->size) != (ssize_t)request->size ||
	     fsync(fd) || renameat(place, staged, place, name) || fsync(place)))
		err = -errno;
	unlinkat(place, staged, 0); /* fails if it was renamed */
	close(fd);		    /* also if invalid */
	close(place);
	return err;
}

/*
 * Gives the caller all files that our user made on this file system, also links and sockets
 * themselves: no link is followed. The trace (".") is the caller's by then.
 */
static void change_owner(int fd, unsigned depth)
{
	static unsigned given;
	static dev_t device;
	gid_t gid = root.caller_uid ? root.caller_gid : READER;
	struct stat status;
	mode_t mode;
	DIR *listed;
	int below;

	if (fstat(fd, &status) || given++ >= MOST_FILES ||
	    (depth && (status.st_uid != root.uid || status.st_dev != device)) ||
	    (!S_ISDIR(status.st_mode) && status.st_nlink != 1))
		return;
	device = status.st_dev;
	mode = status.st_mode & 0700;
	mode |= root.caller_uid ? 0 : mode >> 3;
	if (fchownat(fd, "", root.caller_uid, gid, AT_EMPTY_PATH) || chmod(opened_path(fd), mode) ||
	    !S_ISDIR(status.st_mode) || depth == MOST_DEPTH)
		return;
	listed = fdopendir(openat(fd, ".", OPEN_DIRECTORY));
	for (struct dirent *entry; listed && (entry = readdir(listed));) {
		below = openat(fd, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (strcmp(entry->d_name, ".."))
			change_owner(below, depth + 1);
		close(below); /* also if invalid */
	}
	closedir(listed);
}

void outputs_clear(void)
{
	struct stat status;

	if (trace_fd >= 0) {
		change_owner(trace_fd, 0);
		/* Removes the directory if nothing was written to it. */
		unlinkat(openat(trace_fd, "..", OPEN_DIRECTORY), basename(trace_name),
			 AT_REMOVEDIR);
	}
	if (tags_bound.st_ino && !lstat(tags.sun_path, &status) &&
	    status.st_ino == tags_bound.st_ino && status.st_dev == tags_bound.st_dev)
		unlink(tags.sun_path);
}
