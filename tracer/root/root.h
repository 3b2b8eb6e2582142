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
	PEER_COMMAND,
	PEER_TRACER,
	PEER_CANDIDATE, /* an examiner: everything it asks is about one process */
};

struct peer {
	int fd;
	enum peer_kind kind;
	pid_t pid;   /* PEER_CANDIDATE: the process that it is about */
	int proc_fd; /* ... its directory in /proc, opened when the peer was made; else -1 */
	uid_t uid;   /* ... whose file rights it has: as the command read in /proc */
	gid_t gid;
	unsigned group_count;
	gid_t groups[RP_MAX_GROUPS];
	unsigned kept; /* ... the handles that its files were given, as they were opened */
	uint32_t handles[RP_MAX_KEPT];
};

struct root {
	char **command; /* what we run without rights: the Python, and its arguments */
	unsigned word_count;
	uid_t uid; /* who everything else runs as */
	gid_t gid;
	bool called_by_root; /* not by another user, through sudo */
	mode_t umask;	     /* the caller's */
	sigset_t signals;    /* ... signal mask */
	pid_t command_pid;
	pid_t run_pid; /* of the program that RP_RUN started; 0 before, -1 after it */
	bool done;     /* the tracer is attached: nothing new is opened */
};

/* What a request is answered with: the reply, and a descriptor that is closed after it is sent. */
struct answer {
	struct rp_reply reply;
	int fd; /* -1: none */
};

/* main.c: a new socket for a peer; returns the end that is given away, or a negative errno. */
int peer_add(const struct peer *peer);
/* main.c: receives `size` bytes and the descriptor beside them (else -1). False: anything else. */
bool message_receive(int socket_fd, void *content, size_t size, int *fd);
bool answer_send(int socket_fd, const struct answer *answer);

/* One room's work for one request. Returns 0 or a negative errno. */
typedef int (*work_fn)(const struct peer *peer, const struct rp_request *request,
		       struct answer *answer);
/*
 * guarded.c: does the work in a child that is killed when it takes too long, because a file system
 * of somebody else's (FUSE, NFS) can let us wait for ever: -ETIMEDOUT. A child that cannot be
 * killed either is left behind.
 */
int guarded(work_fn work, const struct peer *peer, const struct rp_request *request,
	    struct answer *answer);

/* main.c: a reply that the command did not ask for: what it had us run has ended. */
void command_tell(const struct answer *answer);

/*
 * Each returns 0 or a negative errno, which becomes the reply's status. `fd` is the descriptor that
 * came beside the request, or -1; it is closed by the caller.
 */
int look_answer(struct root *root, struct peer *peer, const struct rp_request *request,
		struct answer *answer);
int outputs_answer(struct root *root, const struct rp_request *request, struct answer *answer);
int attach_answer(struct root *root, const struct rp_request *request, int fd,
		  struct answer *answer);

/* started.c: RP_RUN and RP_AS, as outputs_answer. */
int started_run(struct root *root, const struct rp_request *request, struct answer *answer);
int started_loader(const struct root *root, const struct rp_request *request,
		   struct answer *answer);
/* started.c: a child of ours has ended. True: it was what RP_RUN started. */
bool outputs_ended(struct root *root, pid_t pid, int status);
/* Removes what was made for this run alone: the tag socket, a file that was not published. */
void outputs_clear(void);
/* Closes every link, so that nothing is attached any more. */
void attach_clear(void);

#endif /* QJ_ROOT_H */
