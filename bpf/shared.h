/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Shared by the programs and their tracer only; both are built together and this is never stored.
 * The plan, the state that is read through shared memory, rows of the live view, and the layout of
 * records in the rings.
 */
#ifndef QJOULE_SHARED_H
#define QJOULE_SHARED_H

#include "core/counted.h"
#include "qjoule.h"

#define QJ_MAX_CPUS    1024 /* a power of two: indices are masked with it */
#define QJ_MAX_SERVERS 64
#define QJ_KINDS       32 /* above every enum qj_server_kind: bits of a mask */
#define QJ_MAX_RUNNING 64
#define QJ_MAX_RINGS   8  /* a power of two */
#define QJ_LOSS_SLOTS  32 /* a power of two, at least QJ_LOSS_MAX */
#define QJ_SUMS_ROWS   16384
/* The period of the sample, see core/sample.bpf.h. */
#define QJ_SAMPLE_NS (300 * 1000000000ULL)
/* Rows per window that differ from others only in tags or session. */
#define QJ_SUMS_TAGGED 8192

_Static_assert(QJ_LOSS_MAX <= QJ_LOSS_SLOTS, "a loss cause has no slot");

/* Which later processes of the server's executable count as the server after a restart. */
enum qj_restart {
	QJ_RESTART_ANY = 0, /* all: the executable is a database server and nothing else */
	QJ_RESTART_SAME =
	    1, /* those with the same arguments: the executable may be a language runtime */
	QJ_RESTART_NEVER = 2,
};

/* One executable that serves queries. */
struct qj_server_plan {
	__u64 inode;
	__u64 arguments; /* for QJ_RESTART_SAME: see core/task.bpf.h */
	__u32 device;	 /* in the kernel's encoding: major << 20 | minor */
	__u8 kind;	 /* enum qj_server_kind; 0 ends the list */
	__u8 attach_mode;
	__u8 restart; /* enum qj_restart */
	__u8 reserved;
	__u64
	    facts[QJ_FACTS]; /* numbers for its own programs: enum qj_<server>_fact; 0: not known */
};

struct qj_running {
	__u32 tgid;
	__u32 server;
};

/* Constant once the programs are loaded. */
struct qj_plan {
	__u64 seed;	/* secret: clients choose the texts that are hashed */
	__u64 slice_ns; /* the timer tick closes slices longer than this */
	__u32 mode;	/* enum qj_mode */
	__u32 rings;
	__u32 counters; /* bit i: counter i is read */
	__u32 tracer_tgid;
	__u32 reader_tgid;
	__u32 root_tgid;    /* the root part, which counts as part of the tracer */
	__u32 more;	    /* bit i: further counter i is read */
	__u32 only_running; /* only `running` processes and their children are servers */
	__u32 kinds;	    /* bit i: a server of kind i is planned */
	__u32 core_threads; /* CPUs of the largest core; 1: no SMT, no overlap to measure */
	__u32 arguments;    /* some server is recognised by its arguments */
	__u32 effects;	    /* live view: sum idle tails and wake-ups, see core/sums.bpf.h */
	__u32 packages_at;  /* the first package's entry in its map */
	__u32 tags;	    /* read the tags that clients send in statements and beside them */
	__u32 samples;	    /* live view: queries to draw per shape and QJ_SAMPLE_NS; 0: none */
	__u32 reserved;
	__u8 kind_attach_modes[QJ_KINDS]; /* per kind, bit i: a server of it uses mode i */
	struct qj_server_plan servers[QJ_MAX_SERVERS]; /* server id - 1 */
	struct qj_running running[QJ_MAX_RUNNING];
	__u16 package_of[QJ_MAX_CPUS];
	/* The next CPU of the same core (after the last comes the first); itself if alone. */
	__u16 next_thread[QJ_MAX_CPUS];
	/* The lowest CPU of the same core, and of the same package. */
	__u16 first_of_core[QJ_MAX_CPUS];
	__u16 first_of_package[QJ_MAX_CPUS];
};

/* Changed by the tracer while programs run. */
struct qj_control {
	__u64 epoch_ns;		 /* live view: when the current window began */
	__u32 epoch;		 /* its number; sums go to map epoch & 1 */
	__u32 close_all;	 /* the tick closes every slice: tracing is about to end */
	__u32 tagged;		 /* rows created in this window: see QJ_SUMS_TAGGED */
	__u32 adopted;		 /* how many running threads were found to be servers' */
	__u32 rows[2];		 /* live view: rows taken in the map of each window's number & 1 */
	__u64 realtime_ahead_ns; /* CLOCK_REALTIME beyond CLOCK_MONOTONIC */
};

/* `serving` of a CPU that runs a process that is no server. */
#define QJ_SERVING_NONE 255

struct qj_sums_key {
	__u64 shape;
	__u64 tags;
	__u64 naming;
	__u32 tgid;
	__u32 pid;
	__u16 package;
	__u16 server;
	__u8 owner_kind;
	__u8 reserved[3];
};

/* Live view: where the rows are that this CPU has used last; see core/sums.bpf.h. */
#define QJ_RECENT_ROWS 8 /* a power of two */

struct qj_recent_row {
	struct qj_sums_key key;
	__u32 epoch;
	__u32 row; /* its index + 1; 0: none */
};

/* Whose a slice is. Live view: `tags` are the query's, and `naming` is its session's. */
#define QJ_SLICE_LABEL                                                                             \
	__u64 query;                                                                               \
	__u64 shape;                                                                               \
	__u32 pid;                                                                                 \
	__u32 tgid;                                                                                \
	__u16 server;                                                                              \
	__u8 owner_kind;                                                                           \
	__u64 tags;                                                                                \
	__u64 naming;

struct qj_slice_label {
	QJ_SLICE_LABEL
};

/*
 * What a CPU is doing, and its totals. Aligned so that no two CPUs share a pair of cache lines;
 * what every context switch and every read needs is in the first line.
 */
struct qj_cpu_state {
	__u64 t0_ns;	  /* start of the open slice; 0 until the first event on this CPU */
	__u64 busy_clock; /* see core/counted.h */
	__u32 adopted;	  /* `adopted` of struct qj_control for which `serving` holds */
	__u8 serving;	/* enum qj_server_kind of the thread, QJ_SERVING_NONE, or 0: not certain */
	__u8 valid;	/* counters that were readable at t0_ns */
	__u8 has_ended; /* the running thread has a query record to send with its slice */
	__u8 woke;	/* enum qj_woke: idle times that the open slice ended */
	union {		/* of the open slice */
		struct {
			QJ_SLICE_LABEL
		};
		struct qj_slice_label label;
	};
	__u64 ids;	 /* query and session ids made on this CPU */
	__u32 rise_ns;	 /* by how much `ahead_ns` was to rise at the last reading */
	__u8 exchanging; /* early kernels: a program is taking the slice over */
	__u64 ahead_ns;	 /* CLOCK_MONOTONIC beyond the clock of the scheduler ... */
	__u64 read_ns;	 /* ... when both were read last, by the latter */
	__u64 event_ns;	 /* a query began or ended */
	__u64 since_ns;	 /* first event on this CPU */
	__u64 lost_ns;
	__u64 threads_busy_ns;		     /* busy time of the core's other CPUs, at t0_ns */
	struct qj_reading read[QJ_COUNTERS]; /* readings at t0_ns */
	__u32 loss[QJ_LOSS_SLOTS];
	struct qj_recent_row recent[QJ_RECENT_ROWS];
	__u8 looks_up; /* a program is using `recent` */
} __attribute__((aligned(128)));

/* Bits: what was idle before a slice. */
enum qj_woke {
	QJ_WOKE_CORE = 1,
	QJ_WOKE_PACKAGE = 2,
};

/* What slices have used. As in struct qj_aggregate, and nothing but __u64: it is moved in words. */
struct qj_used {
	__u64 cpu_ns;
	__u64 overlap_ns;
	__u64 scaled_ns;
	__u64 counters[QJ_COUNTERS];
	__u64 counted_ns[QJ_COUNTERS];
	__u64 overlap_counters[QJ_COUNTERS];
	__u64 package_wakes;
	__u64 core_wakes;
};

/* As in struct qj_aggregate. */
struct qj_sums {
	struct qj_used used;
	__u64 latency_ns;
	__u64 rows;
	__u64 wait_ns[QJ_WAITS];
	__u64 waited_ns;
	__u64 helpers_wait_ns[QJ_WAITS];
	__u64 helpers_ns;
	__u64 package_tail_ns[QJ_PACKAGE_TAILS];
	__u64 core_tail_ns[QJ_TAILS];
	__u32 calls;
	__u32 errors;
	__u32 unanswered;
	__u32 rowless;
	__u32 latency[QJ_LATENCY_BUCKETS];
};

/*
 * A core, or a package: whether it is awake, and its last two sleeps with idle time after them that
 * is not yet in a row of sums. See core/sums.bpf.h. What is read together is in few cache lines.
 */
struct qj_idle {
	__u64 busy;	  /* busy threads of the core, or busy cores of the package */
	__u64 asleep_ns;  /* since the machine booted, up to the last wake-up */
	__u64 from_ns;	  /* idle time is in the sums up to here; 0: it is awake */
	__u64 turn;	  /* 0 or 1: the last sleep. The other one is the sleep before. */
	__u64 fell_ns[2]; /* when; 0: nobody slept yet */
	struct qj_sums_key owners[2];
	/* By the window's number & 1, the sleep, and the length: a core has the first QJ_TAILS. */
	__u64 tail_ns[2][2][QJ_PACKAGE_TAILS];
} __attribute__((aligned(128)));

/* Precedes every record in a ring. */
struct qj_ring_head {
	__u32 block;	  /* enum qj_block_kind */
	__u32 text_bytes; /* used bytes after the record */
};

struct qj_ring_segment {
	struct qj_ring_head head;
	struct qj_segment segment;
};

struct qj_ring_segment_counters {
	struct qj_ring_head head;
	struct qj_segment_counters segment;
};

struct qj_ring_segment_more {
	struct qj_ring_head head;
	struct qj_segment_more segment;
};

struct qj_ring_query {
	struct qj_ring_head head;
	struct qj_query query;
};

struct qj_ring_sample {
	struct qj_ring_head head;
	struct qj_sample sample;
};

struct qj_ring_child {
	struct qj_ring_head head;
	struct qj_child child;
};

struct qj_ring_helper {
	struct qj_ring_head head;
	struct qj_helper helper;
};

struct qj_ring_task {
	struct qj_ring_head head;
	struct qj_task task;
};

struct qj_ring_text {
	struct qj_ring_head head;
	struct qj_text text;
	__u8 bytes[QJ_TEXT_BYTES];
};

struct qj_ring_session {
	struct qj_ring_head head;
	struct qj_session session;
	__u8 bytes[QJ_STARTUP_BYTES];
};

/*
 * A sampled stack, before its frames are known. It holds whatever was on the stack, so it goes no
 * further than the tracer's memory. Pages are as in memory: `bytes` begins with the page of `sp`.
 */
#define QJ_RING_STACK	  66 /* a value beside enum qj_block_kind */
#define QJ_STACK_PAGE	  4096
#define QJ_STACK_PAGES	  7  /* 24 KiB from sp on at least; a per-CPU map holds less than 32 */
#define QJ_REGISTERS	  17 /* of x86-64 by their numbers in DWARF, the last is the address */
#define QJ_STACK_NODES	  32
#define QJ_NODE_FUNCTIONS 21 /* the first is ExecScan() ... */
#define QJ_NODE_ACCESS	  5  /* ... which calls those from here on to find the next row */

/* A node of a plan in a server's memory that a word of its stack points to. */
struct qj_plan_node {
	__u64 address;
	__u64 state;	   /* of its statement: the same for all nodes of a plan */
	__u64 left, right; /* addresses of nodes that it takes rows from; 0: none, or others */
	__u64 function;	   /* that executes it */
	__u64 row_slot;	   /* address of where a scan puts its rows; of others any, or 0 */
	__u32 id;	   /* in its plan */
	__u32 kind;	   /* a number of the server's version */
};

/*
 * An address in a process' code that the tracer knows no file of. The next sample of this process
 * tells what is mapped there. One process has the place `tgid % QJ_ASKED`.
 */
#define QJ_ASKED 1024

struct qj_asked {
	__u32 tgid;
	__u32 reserved;
	__u64 address;
};

/* Code that is mapped at [start, end). */
struct qj_mapped {
	__u64 start, end; /* 0: nothing was asked, or is there */
	__u64 offset;	  /* in the file */
	__u64 inode;	  /* 0: it is no file's */
	__u64 file_bytes; /* its size */
};

struct qj_ring_stack {
	struct qj_ring_head head;
	struct qj_segment segment;
	__u32 flags;		   /* enum qj_stack_flag */
	__u32 pages;		   /* how many were read */
	__u64 shape, tags, naming; /* as in struct qj_stack */
	/* The process' address space, which forks inherit: where its code and its stack begin. */
	__u64 start_code;
	__u64 start_stack;
	__u64 process_ns; /* when the process began: with its number, no other has both */
	__u64 code_pages; /* of all that it has mapped: other ones show that this has changed */
	struct qj_mapped mapped; /* at the address that was asked for */
	__u64 registers[QJ_REGISTERS];
	__u32 node_count;
	__u32 reserved;
	__u64 functions[QJ_NODE_FUNCTIONS]; /* each of which executes nodes of several kinds */
	struct qj_plan_node nodes[QJ_STACK_NODES];
	__u8 bytes[QJ_STACK_PAGES * QJ_STACK_PAGE];
};

/*
 * Early kernels: what the live view adds to a row, for the tracer to add. `calls` is 0 for CPU
 * time; otherwise they took `latency_ns` together.
 */
#define QJ_RING_SUM 65 /* a value beside enum qj_block_kind */

struct qj_ring_sum {
	struct qj_ring_head head;
	struct qj_sums_key key;
	__u64 cpu_ns;
	__u64 overlap_ns;
	__u64 latency_ns;
	__u64 rows;
	__u64 wait_ns[QJ_WAITS];
	__u64
	    helper_ns; /* `wait_ns` is of a helper, which worked that long for the query; 0: not */
	__u32 epoch;
	__u32 calls;
	__u32 bucket; /* of the latency */
	__u32 flags;  /* of the query */
};

/*
 * Segments that context switches close, and the queries that ended in them, gathered per CPU:
 * reserving room in a ring costs more than the record. A full batch goes to the ring. The tracer
 * takes the unsent rest from an idle CPU's batch through shared memory.
 */
#define QJ_RING_BATCH  64 /* a value beside enum qj_block_kind */
#define QJ_BATCH_BYTES 3328

/*
 * A segment, followed by the query that ended in it if the segment's `counted` has this value.
 * Batches exist only where no counters are read, so `counted` is free.
 */
#define QJ_BATCH_QUERY_FOLLOWS 1
#define QJ_BATCH_RECORD_MAX    (sizeof(struct qj_segment) + sizeof(struct qj_query))

struct qj_batch {
	struct qj_ring_head head;
	__u64 generation; /* number of batches this CPU has sent */
	__u64 taken; /* written by the tracer: generation << 16 | bytes taken of that generation */
	__u64 oldest_ns; /* end of the first segment */
	__u64 cursor;	 /* scratch for the BPF program */
	__u32 cpu;
	__u32 used; /* bytes, complete records only */
	__u8 bytes[QJ_BATCH_BYTES];
};

#endif /* QJOULE_SHARED_H */
