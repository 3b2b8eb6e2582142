/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The root part: the only process that holds a privilege while qjoule runs. It opens and attaches
 * to requested files after checks, and parses nothing.
 */
#ifndef QJ_ROOT_H
#define QJ_ROOT_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "protocol.h"

/* Index in `command`: PYTHON -I FILE WORD. */
#define RP_FILE_WORD	2
#define RP_COMMAND_WORD 3
#define OWN_STORE	"/var/lib/qjoule/agent" /* the agent's rollups */

/* The kind of peer at the other end of a socket decides which requests it may make. */
enum peer_kind {
	PEER_COMMAND = 1,
	PEER_TRACER = 2,
	PEER_CANDIDATE = 4, /* an examiner: all its requests concern one process */
	PEER_KEEPER = 8,    /* stays while the tracer runs, to follow servers */
};

struct peer {
	int fd;
	enum peer_kind kind;
	bool late; /* the keeper, or bound by it: may send requests only once the tracer is attached
		    */
	int sent;  /* the descriptor that came with the peer's request, or -1 */
	int proc_fd;   /* PEER_CANDIDATE: its process's directory in /proc; else -1 */
	unsigned kept; /* ... number of its files' handles, in the order of opening */
	uint32_t handles[RP_MAX_KEPT];
};

struct root {
	char **command; /* the unprivileged command: the Python, and its arguments */
	uid_t uid;	/* the user that everything else runs as */
	gid_t gid;
	bool is_agent;	  /* we run `qjoule agent` */
	bool hands_over;  /* this user's files are given to the caller at the end */
	uid_t caller_uid; /* who called sudo, or root */
	gid_t caller_gid;
	mode_t umask;	  /* the caller's umask */
	sigset_t signals; /* ... signal mask */
	pid_t command_pid;
	pid_t run_pid; /* process of RP_RUN; 0 before, -1 after it */
	int run_fd;    /* ... its wait status goes here */
	int null_fd;   /* /dev/null */
	bool done;     /* the tracer is attached: nothing new is opened */
};
extern struct root root;

/* The answer to a request: the reply, and a descriptor that is closed after it is sent. */
struct answer {
	struct rp_reply reply;
	int fd; /* -1: none */
};

/* Answers one request. Returns 0 or a negative errno, which becomes the reply's status. */
typedef int answer_fn(struct peer *peer, const struct rp_request *request, struct answer *answer);

/* One function per enum rp_kind, by file. */
answer_fn answer_bind, answer_peer;					     /* bind.c */
answer_fn answer_exe, answer_open;					     /* candidate.c */
answer_fn answer_directory, answer_tag_socket, answer_publish, answer_given; /* outputs.c */
answer_fn answer_as, answer_run;					     /* started.c */
answer_fn answer_pin;							     /* pin.c */
answer_fn answer_counter, answer_energy_file, answer_load, answer_map, answer_ring, answer_attach,
    answer_done, answer_accounts; /* attach.c */

/*
 * started.c: answers in a child that is killed if it takes too long, because someone else's file
 * system (FUSE, NFS) can block for ever: -ETIMEDOUT. A child that cannot be killed is left behind.
 * -EIO: the child did not answer because it has become another program; the reply has its pid.
 */
int guarded(answer_fn work, struct peer *peer, const struct rp_request *request,
	    struct answer *answer);

/* main.c: makes a new socket for a peer; returns the end to give away, or a negative errno. */
int peer_add(const struct peer *peer);
/* main.c: receives `size` bytes and the descriptor beside them (else -1). False: anything else. */
bool message_receive(int socket_fd, void *content, size_t size, int *fd);
bool answer_send(int socket_fd, const struct answer *answer);

/*
 * outputs.c: gives the caller the trace files that our user has written, and removes files that
 * were made only for this run: the tag socket, an unused directory.
 */
void outputs_clear(void);

/*
 * user.c: sets root.uid and its group. QJOULE_UID and QJOULE_GID name the user, or, for the agent,
 * the owner of its store; others get a unique user. Returns false if the agent has none.
 */
bool user_choose(void);
/*
 * user.c: in a process of our user: returns true if no other process has this user, not even one
 * that waited until it was ours. Only a process that is its user's only one may fork under the
 * limit that this sets for a moment (getrlimit(2), RLIMIT_NPROC).
 */
bool user_is_alone(void);
/* user.c: ends the remaining processes of our user, if the user is for this command alone. */
void user_end(void);

/*
 * started.c: has a child become a program, and answers with its pid and a socket. The other end may
 * go to the child; `kept`, unless NULL, gets it for us. Returns 0 or a negative errno.
 */
int launch(answer_fn work, const struct rp_request *request, struct answer *answer, int *kept);
answer_fn become_command; /* ... without rights */
/*
 * started.c: this process becomes a program, with the caller's umask and signal mask. It keeps the
 * first `passed` descriptors from 3 on, and gets the signal `when_we_end`. Returns a negative
 * errno.
 */
int exec_program(char **words, unsigned passed, int when_we_end);

/* attach.c: closes every link, so that nothing remains attached or pinned. */
void attach_clear(void);
/* attach.c: the map of servers' threads; negative: nothing is loaded. */
int attach_threads(void);
/* pin.c: removes our pin, if any. */
void pin_clear(void);
/* attach.c: closes the links that were made since the last RP_DONE. */
void attach_undo(void);

/*
 * candidate.c: identity and name of a regular file of at most 1 MiB, which it opens for reading.
 * `fd` was opened with O_PATH, or is -1 with errno set. Returns 0 or a negative errno.
 */
int candidate_read(int fd, struct answer *answer);

/* candidate.c: a path that reopens our own descriptor; valid until the next call. */
const char *opened_path(int fd);
/*
 * candidate.c: fills everything but the handle from the kernel's own knowledge, without asking a
 * file system served by someone else's program. Returns 0 or a negative errno.
 */
int opened_identify(int fd, struct rp_file *out);
/*
 * candidate.c: gives the answer's regular file a handle, from 1. The handle is 0 if the table is
 * full, or for a file in memory without a name (memfd_create(2)), whose content can change without
 * its times. A file that is already in the table and unchanged keeps its handle. Returns 0 or a
 * negative errno.
 */
int opened_keep(struct answer *answer);
/*
 * candidate.c: checks that the file of `handle` is unchanged and has the `length` (1 to
 * RP_CODE_BYTES) bytes of `code` at `offset`. Returns its descriptor, which the table keeps, or a
 * negative errno: -ENOENT if there is no such handle, -ESTALE for another identity or other bytes.
 */
int opened_check(uint32_t handle, uint64_t offset, const void *code, size_t length);

/*
 * user.c: makes this process and the programs that it becomes `uid` and `gid` for good: no
 * supplementary group, and no way to get a capability. Only CAP_SETPCAP stays, which permits
 * nothing when the bounding set is empty: a process without it cannot trace one that has it, nor
 * take its descriptors, although both are of one user (ptrace(2), __ptrace_may_access). Call only
 * with a single thread: capset(2) and prctl(2) are per thread. Returns 0 or a negative errno.
 */
int rights_give_up(uid_t uid, gid_t gid);
/*
 * user.c: lets this thread open the files of that user and group. It keeps its own user and group,
 * so that nobody but root can signal or trace it. Returns as above.
 */
int rights_of_files(uid_t uid, gid_t gid);

#endif /* QJ_ROOT_H */
