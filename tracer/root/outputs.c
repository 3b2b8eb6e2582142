// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What the command leaves behind, listens on or runs: only what our own command line names. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rights.h"
#include "root.h"

#define CALIBRATION	  "/var/lib/qjoule/calibration.json"
#define CALIBRATION_BYTES (1 << 20)
#define TAGS		  "/run/qjoule/tags.sock"
#define DEFAULT_NAME	  "qjoule-" /* of a trace: date and time follow */
#define OPEN_DIRECTORY	  (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#define LOADER_FILE_BYTES (32 << 20) /* the agent's files are much smaller */
#define LOADER_FILES	  64
#define ABOVE		  32 /* descriptors that a program does not inherit */

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

static const char *caller_home;

/* In the child: becomes who called us, and the program. */
static int become_caller(const struct root *root, char **words)
{
	sigprocmask(SIG_SETMASK, &root->signals, NULL);
	umask(root->umask);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	if (!root->called_by_root &&
	    (setgroups(0, NULL) || setresgid(root->gid, root->gid, root->gid) ||
	     setresuid(root->uid, root->uid, root->uid) || setenv("HOME", caller_home, 1)))
		return -errno;
	execvp(words[0], words);
	return -errno;
}

/* What the agent's loader inherits, from 3 on (qjoule.servers.agent_loader, Inherited). */
enum {
	LOADER_SOCKET,
	LOADER_JAR,
	LOADER_HOOKS,
	LOADER_LIBRARY,
	LOADER_ROOT,
	LOADER_HANDLE,
	LOADER_FDS
};

static int loader_fds[LOADER_FDS];
static const struct rp_request *loader_request;

/* In the child: becomes the JVM's user, and the loader. */
static int become_loader(const struct root *root, char **words)
{
	struct rlimit none = {0, 0}, bytes = {LOADER_FILE_BYTES, LOADER_FILE_BYTES};
	struct rlimit files = {LOADER_FILES, LOADER_FILES}, processes;
	char *environment[] = {NULL};
	sigset_t signals;
	int error, null = open("/dev/null", O_RDWR); /* 0 to 2 may have been closed */

	(void)root;
	for (int i = 0; i < LOADER_FDS; i++)
		loader_fds[i] = fcntl(loader_fds[i], F_DUPFD_CLOEXEC, ABOVE);
	for (int i = 0; i < 3 + LOADER_FDS; i++)
		if (dup2(i < 3 ? null : loader_fds[i - 3], i) < 0)
			return -errno;
	close_range(3 + LOADER_FDS, ~0U, CLOSE_RANGE_CLOEXEC);
	sigemptyset(&signals);
	sigprocmask(SIG_SETMASK, &signals, NULL);
	umask(0077);
	/* The JVM's threads count as processes of its user, whatever limit the JVM itself has. */
	if (getrlimit(RLIMIT_NPROC, &processes))
		return -errno;
	processes.rlim_cur = processes.rlim_max;
	if (setsid() < 0 || chdir("/") || setrlimit(RLIMIT_CORE, &none) ||
	    setrlimit(RLIMIT_FSIZE, &bytes) || setrlimit(RLIMIT_NOFILE, &files) ||
	    setrlimit(RLIMIT_NPROC, &processes))
		return -errno;
	error = rights_give_up(loader_request->number, loader_request->flags);
	if (error)
		return error;
	execve(words[0], words, environment);
	return -errno;
}

/* Forks; the child does not return from `start` unless that fails. Returns its pid, or why not. */
static pid_t spawn(int (*start)(const struct root *, char **), const struct root *root,
		   char **words)
{
	int report[2], error = 0;
	pid_t pid;

	if (pipe2(report, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (!pid) {
		int end = fcntl(report[1], F_DUPFD_CLOEXEC, ABOVE);

		error = start(root, words);
		_exit(write(end, &error, sizeof(error)) < 0);
	}
	if (pid < 0)
		error = -errno;
	close(report[1]);
	/* Ends without a byte where the program runs. */
	if (pid > 0 && read(report[0], &error, sizeof(error)) > 0)
		waitpid(pid, NULL, 0);
	close(report[0]);
	return error ? error : pid;
}

static int run(struct root *root, const struct rp_request *request, struct answer *answer)
{
	char **words = root->command;
	pid_t pid;

	while (*words && strcmp(*words, "--"))
		words++;
	if (!*words || !*++words || root->run_pid)
		return -EINVAL; /* nothing is named, or it has run */
	caller_home = request->text;
	pid = spawn(become_caller, root, words);
	if (pid < 0)
		return pid;
	answer->reply.pid = root->run_pid = pid;
	return 0;
}

bool outputs_ended(struct root *root, pid_t pid, int status)
{
	struct answer answer = {.reply = {.pid = status}, .fd = -1};

	if (pid != root->run_pid)
		return false;
	root->run_pid = -1;
	command_tell(&answer);
	return true;
}

static int load_agent(const struct root *root, const struct rp_request *request,
		      struct answer *answer)
{
	static const char *const files[] = {"qjoule-agent.jar", "hooks.jar", "libqjoule_agent.so"};
	const char *python = root->command[0];
	int length = (int)(strrchr(python, '/') - python), pair[2], error;
	char path[PATH_MAX], pid[16], own_pid[16], seconds[32];
	char *words[] = {root->command[0],
			 "-I",
			 "-m",
			 "qjoule.servers.agent_loader",
			 pid,
			 own_pid,
			 seconds,
			 request->size & 1 ? "--client-tags" : seconds,
			 request->size & 2 ? "--no-signal" : seconds,
			 NULL};
	struct stat status;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	answer->fd = pair[0];
	loader_request = request;
	loader_fds[LOADER_SOCKET] = pair[1];
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%.*s/../lib/qjoule/%s", length, python, files[i]);
		loader_fds[LOADER_JAR + i] = open(path, O_RDONLY | O_CLOEXEC);
	}
	loader_fds[LOADER_HANDLE] = pidfd_open(request->pid, 0);
	snprintf(pid, sizeof(pid), "%d", request->pid);
	snprintf(own_pid, sizeof(own_pid), "%d", (int)request->offset);
	snprintf(seconds, sizeof(seconds), "--seconds=%u", (unsigned)(request->size >> 2));
	snprintf(path, sizeof(path), "/proc/%d/root", request->pid);
	loader_fds[LOADER_ROOT] = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	*strrchr(path, '/') = '\0';
	/* Its directory belongs to its effective user; it still runs, so that was its directory. */
	error = stat(path, &status) ? -errno : -EPERM;
	if (error == -EPERM && status.st_uid && status.st_uid == request->number &&
	    status.st_gid == request->flags &&
	    !pidfd_send_signal(loader_fds[LOADER_HANDLE], 0, NULL, 0))
		error = spawn(become_loader, root, words);
	for (int i = 0; i < LOADER_FDS; i++)
		close(loader_fds[i]);
	return error < 0 ? error : 0;
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
		return load_agent(root, request, answer);
	case RP_RUN:
		return run(root, request, answer);
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
