/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The root part: the only process that holds a privilege while qjoule runs. It opens what it is
 * asked for, checks it, attaches to it, and parses nothing.
 */
#ifndef QJ_ROOT_H
#define QJ_ROOT_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "protocol.h"

/* Of `command`: PYTHON -I FILE WORD. */
#define RP_FILE_WORD	2
#define RP_COMMAND_WORD 3

/* Who is on the other end of a socket decides what it may ask. */
enum peer_kind {
	PEER_COMMAND = 1,
	PEER_TRACER,
	PEER_CANDIDATE, /* an examiner: everything it asks is about one process */
};

struct peer {
	int fd;
	enum peer_kind kind;
	int sent;    /* the descriptor that came beside its request, or -1 */
	int proc_fd; /* PEER_CANDIDATE: the directory in /proc of the process it is about; else -1
		      */
	uid_t uid;   /* ... whose file rights it has: as the command read in /proc */
	gid_t gid;
	unsigned group_count;
	gid_t groups[RP_MAX_GROUPS];
	unsigned kept; /* ... the handles that its files were given, as they were opened */
	uint32_t handles[RP_MAX_KEPT];
};

struct root {
	char **command; /* what we run without rights: the Python, and its arguments */
	uid_t uid;	/* who everything else runs as */
	gid_t gid;
	bool called_by_root; /* not by another user, through sudo */
	mode_t umask;	     /* the caller's */
	sigset_t signals;    /* ... signal mask */
	pid_t command_pid;
	pid_t run_pid; /* of the program that RP_RUN started; 0 before, -1 after it */
	int null_fd;   /* /dev/null */
	bool done;     /* the tracer is attached: nothing new is opened */
};
extern struct root root;

/* What a request is answered with: the reply, and a descriptor that is closed after it is sent. */
struct answer {
	struct rp_reply reply;
	int fd; /* -1: none */
};

/* Answers one request. Returns 0 or a negative errno, which becomes the reply's status. */
typedef int answer_fn(struct peer *peer, const struct rp_request *request, struct answer *answer);

/* Of each enum rp_kind, by file. */
answer_fn answer_exe, answer_bind, answer_installed, answer_tracer, answer_open; /* look.c */
answer_fn answer_directory, answer_tag_socket, answer_stage, answer_publish;	 /* outputs.c */
answer_fn answer_as, answer_run;						 /* started.c */
answer_fn answer_counter, answer_energy_file, answer_load, answer_map, answer_ring, answer_attach,
    answer_uprobe, answer_iterator, answer_done; /* attach.c */

/*
 * guarded.c: answers in a child that is killed when it takes too long, because a file system of
 * somebody else's (FUSE, NFS) can let us wait for ever: -ETIMEDOUT. A child that cannot be killed
 * either is left behind. -EIO: it has not answered, because it runs another program by now; the
 * reply's pid is its.
 */
int guarded(answer_fn work, struct peer *peer, const struct rp_request *request,
	    struct answer *answer);

/* main.c: a new socket for a peer; returns the end that is given away, or a negative errno. */
int peer_add(const struct peer *peer);
/* main.c: receives `size` bytes and the descriptor beside them (else -1). False: anything else. */
bool message_receive(int socket_fd, void *content, size_t size, int *fd);
bool answer_send(int socket_fd, const struct answer *answer);

/* outputs.c: removes what was made for this run alone: the tag socket, an unpublished file. */
void outputs_clear(void);
/* attach.c: closes every link, so that nothing is attached any more. */
void attach_clear(void);

/* candidate.c: RP_OPEN, without the handles. In a child: it gives up rights on the way. */
answer_fn candidate_open;
/*
 * candidate.c: identity and name of a regular file. `fd` was opened with O_PATH, or is -1 and errno
 * says why. Returns 0 or a negative errno.
 */
int candidate_identify(int fd, struct answer *answer);
/* candidate.c: likewise, and opens it to be read and attached to. */
int candidate_attached(int fd, struct answer *answer);

/* opened.c: the name by which our own descriptor is opened again; lent until the next call. */
const char *opened_path(int fd);
/*
 * opened.c: fills everything but the handle, as the kernel knows it: a file system that somebody
 * else's program serves is not asked. Returns 0 or a negative errno.
 */
int opened_identify(int fd, struct rp_file *out);
/*
 * opened.c: gives the answer's regular file a handle, from 1; none, 0, to one in memory without a
 * name (memfd_create(2)), whose content changes without its times, and when the table is full. A
 * file that is kept already, unchanged since, keeps its handle. Returns 0 or a negative errno.
 */
int opened_keep(struct answer *answer);
/*
 * opened.c: whether the file of `handle` is still what was kept, and has the `length` (1 to
 * RP_CODE_BYTES) bytes of `code` at `offset`. Returns its descriptor, lent, or a negative errno:
 * -ENOENT without such a handle, -ESTALE for another identity or other bytes.
 */
int opened_check(uint32_t handle, uint64_t offset, const void *code, size_t length);

/*
 * rights.c: this process becomes `uid` and `gid` for good: no supplementary group, no capability in
 * any set, no way to get one back. Only where a single thread runs: capset(2) and prctl(2) are per
 * thread. Returns 0 or a negative errno.
 */
int rights_give_up(uid_t uid, gid_t gid);
/*
 * rights.c: from here on this thread may open what that user may, whose groups these are; it keeps
 * its own user and group, so that nobody but root can signal or trace it. Returns as above.
 */
int rights_of_files(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count);

#endif /* QJ_ROOT_H */
