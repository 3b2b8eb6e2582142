/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Requests to the root part and its replies: structs of fixed size over SOCK_SEQPACKET.
 *
 * attribution/src/qjoule/root_part/protocol.py is the same in Python;
 * tests/fast/tracer/test_contract_headers.py compares them. A request whose size is not that of
 * struct rp_request is refused. A descriptor travels beside its request or reply (SCM_RIGHTS), at
 * most one each.
 */
#ifndef QJ_ROOT_PROTOCOL_H
#define QJ_ROOT_PROTOCOL_H

#include <stdint.h>

#include "shared.h"

#define RP_TEXT_BYTES	 4096
#define RP_CODE_BYTES	 16
#define RP_MAX_MAPS	 128
#define RP_MAX_PROGS	 256
#define RP_START_AGAIN	 75 /* exit code of the agent: start the same command again */
#define RP_MAX_KEPT	 16 /* handles of one process, so that no process uses up the whole table */
#define RP_ACCOUNT_TYPES 64
#define RP_SAMPLES_MAX	 10000 /* a second and CPU */

enum rp_kind {
	/* From the command, until the tracer has sent RP_DONE. */
	RP_EXE = 1, /* pid: identity and name of its executable */
	RP_BIND,   /* pid: a socket on which RP_OPEN opens files of this process, with the rights of
		      the user and group that it runs as at that time */
	RP_TRACER, /* once: the socket on which the tracer sends its requests */
	RP_DIRECTORY,  /* text: makes a directory of the caller's that the user may write; its
			  descriptor */
	RP_TAG_SOCKET, /* the listening socket that applications connect to */
	RP_AS,	   /* pid: starts the agent's loader as the user and group of this JVM; text: its
		      options; its socket */
	RP_KEEPER, /* once: the socket of the keeper, which asks after RP_DONE */
	/* From the command, also after RP_DONE. */
	RP_RUN = 24, /* starts the command after `--` on our own command line, as the user who
			called us: once, or, of the agent, again after its end. Its pid, and a
			socket that gets its wait status (int) */
	RP_PUBLISH,  /* text: a file, replaced by `size` bytes of the memfd beside the request; 0:
			only checks that this is possible */
	RP_ACCOUNTS, /* run times of our programs: text has struct rp_account, RP_ACCOUNT_TYPES
			times. The kernel accounts for all programs while the descriptor is open */
	RP_GIVEN,    /* text: a file that our command line gives to --credentials, --config,
			--calibration or --memory, or the caller's own memory; a descriptor to
			read it */
	RP_PIN,	     /* pins the map of servers' threads (bpf/thread_query.h), if our command line
			has --pin-map, until the tracer or we end */
	/* On a bound socket. */
	RP_OPEN = 32, /* number: enum rp_what; text: a path; offset, size: a mapping. Lists are
			 memory files: read them from their beginning with pread(2) */
	/* From the tracer, until RP_DONE. */
	RP_COUNTER = 64, /* number: type, size: config, pid: CPU; a counter of the whole machine */
	RP_ENERGY_FILE,	 /* text: an energy_uj file of sysfs */
	RP_LOAD,	 /* a memfd beside it holds struct rp_load */
	RP_MAP,		 /* number: of TRACER_MAPS (variant.h); the keeper gets the first */
	RP_RING,	 /* number, size: bytes; makes this ring */
	RP_ATTACH, /* text: from RP_CODE_BYTES on, a program, which is attached to its declared
		      target; of an iterator: a descriptor to read; number: called for threads of
		      this kind of server (bpf/core/segments.bpf.c). A probe goes to the file with
		      the handle `pid`, at offset, where `size` bytes of text are; a sampling
		      program runs `size` times per second of CPU time on the CPU `pid` */
	RP_DONE,   /* all is attached: the links stay, whatever fails later */
		   /* From the keeper, after RP_DONE: RP_EXE, RP_BIND, RP_MAP, RP_ATTACH, and
		      RP_DONE after each server, which keeps its probes. */
};

/* `flags` of a request. */
enum rp_flag {
	/* RP_COUNTER: reads also give the time enabled and the time running (read_format) */
	RP_COUNTER_TIMES = 3,
	RP_COUNTER_USER = 4,   /* RP_COUNTER: counts only in user space, or only in ... */
	RP_COUNTER_KERNEL = 8, /* ... the kernel */
	RP_COUNTER_FLAGS = 15,
	RP_LOAD_VERBOSE = 1, /* RP_LOAD: messages of libbpf and the verifier go to stderr */
	RP_LOAD_EARLY = 2,   /* RP_LOAD: the programs of early kernels */
	RP_LOAD_MULTI = 4,   /* RP_LOAD: the kernel has links of uprobes (uprobe_multi) */
};

/* The file of a process that RP_OPEN opens. */
enum rp_what {
	RP_WHAT_EXE = 1, /* its executable: a handle */
	RP_WHAT_MAPPED,	 /* the file mapped at offset, size bytes: a handle */
	RP_WHAT_FILE,	 /* a regular file or a directory below its root, opened with its own
			    rights */
	RP_WHAT_SAME,	 /* only the identity of the file at a path */
	RP_WHAT_SOCKETS, /* its sockets, such as `socket:[123]`: a descriptor; each ends with a NUL
			  */
	RP_WHAT_PROC,	 /* text: a name in /proc/PID, one of a fixed list; the target of a link is
			    in text */
	RP_WHAT_KEPT, /* text: the handles of the files opened for it, RP_MAX_KEPT times; 0: none */
};

/* A file that was opened and checked; all zero if there is none. */
struct rp_file {
	uint32_t handle; /* from 1; 0: no probes may be attached */
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint64_t device;
	uint64_t inode;
	uint64_t size;
	uint64_t mtime_ns;
	uint64_t ctime_ns;
};

/* All programs of one type (enum bpf_prog_type), while an RP_ACCOUNTS descriptor is open. */
struct rp_account {
	uint64_t runs;
	uint64_t ns; /* includes the kernel's readings of its clock around each run */
};

struct rp_request {
	uint32_t kind;
	int32_t pid;
	uint32_t number;
	uint32_t flags;
	uint64_t offset;
	uint64_t size;
	char text[RP_TEXT_BYTES]; /* ends with NUL, unless `size` is its length */
};

struct rp_reply {
	int32_t status; /* 0, or a negative errno */
	int32_t pid;	/* of the process that was started */
	struct rp_file file;
	char text[RP_TEXT_BYTES];
};

/* How to load the skeleton: decided by the tracer from its plan. */
struct rp_load {
	uint32_t version; /* QJ_CONTRACT_VERSION */
	uint32_t map_count;
	uint32_t program_count;
	uint32_t reserved;
	struct {
		uint32_t create;
		uint32_t max_entries; /* 0: as in the source */
	} maps[RP_MAX_MAPS];
	uint8_t load[RP_MAX_PROGS];
	struct qj_plan plan;
};

#endif /* QJ_ROOT_PROTOCOL_H */
