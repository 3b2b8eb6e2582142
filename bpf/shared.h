/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Contract between the programs and their tracer, which are built together; never stored. It has
 * the plan, the state in shared memory, rows of the live view, and the records in the rings.
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
/* The sampling period, see core/sample.bpf.h. */
#define QJ_SAMPLE_NS (300 * 1000000000ULL)
/* Rows per window that differ from others only in tags or session. */
#define QJ_SUMS_TAGGED 8192

_Static_assert(QJ_LOSS_MAX <= QJ_LOSS_SLOTS, "a loss cause has no slot");

/* Which later processes of the server's executable are the server after a restart. */
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
	__u64 facts[QJ_FACTS]; /* for the server's programs: enum qj_<server>_fact; 0: not known */
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
	/* Recordings with stacks: waits to draw per CPU, kind and `wait_period_ns`; 0: none. */
	__u32 waits;
	__u64 wait_period_ns;
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

/* The tracer changes these fields while programs run. */
struct qj_control {
	__u64 epoch_ns;		 /* live view: when the current window began */
	__u32 epoch;		 /* the window's number; sums go to map epoch & 1 */
	__u32 close_all;	 /* the tick closes every slice: tracing is about to end */
	__u32 tagged;		 /* rows created in this window: see QJ_SUMS_TAGGED */
	__u32 adopted;		 /* number of running threads adopted as servers' threads */
	__u32 rows[2];		 /* live view: rows used in the map of each window's number & 1 */
	__u64 realtime_ahead_ns; /* CLOCK_REALTIME minus CLOCK_MONOTONIC */
};

/* A CPU's `serving` while it runs a process that is no server. */
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

/* Live view: the rows that this CPU used last; see core/sums.bpf.h. */
#define QJ_RECENT_ROWS 8 /* a power of two */

struct qj_recent_row {
	struct qj_sums_key key;
	__u32 epoch;
	__u32 row; /* index + 1; 0: none */
};

/* The owner of a slice. Live view: `tags` are the query's, and `naming` is its session's. */
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
 * What a CPU is doing, and its totals. Aligned so that no two CPUs share a pair of cache lines; the
 * fields for every context switch and every read are in the first line.
 */
struct qj_cpu_state {
	__u64 t0_ns;	  /* start of the open slice; 0 until the first event on this CPU */
	__u64 busy_clock; /* see core/counted.h */
	__u32 adopted;	  /* value of `adopted` in struct qj_control when `serving` was set */
	__u8 serving;	/* enum qj_server_kind of the thread, QJ_SERVING_NONE, or 0: not certain */
	__u8 valid;	/* bit i: counter i was readable at t0_ns */
	__u8 has_ended; /* the running thread has a query record to send with its slice */
	__u8 woke;	/* enum qj_woke: idle times that the open slice ended */
	union {		/* of the open slice */
		struct {
			QJ_SLICE_LABEL
		};
		struct qj_slice_label label;
	};
	__u64 ids;	 /* query and session ids made on this CPU */
	__u32 rise_ns;	 /* the last reading's rise of `ahead_ns`, not yet confirmed */
	__u8 exchanging; /* early kernels: a program is exchanging t0_ns */
	__u64 ahead_ns;	 /* CLOCK_MONOTONIC minus the scheduler's clock ... */
	__u64 read_ns;	 /* ... when both were read last, by the scheduler's clock */
	__u64 event_ns;	 /* when a query last began or ended */
	__u64 since_ns;	 /* first event on this CPU */
	__u64 lost_ns;
	__u64 threads_busy_ns;		     /* busy time of the core's other CPUs, at t0_ns */
	struct qj_reading read[QJ_COUNTERS]; /* readings at t0_ns */
	__u32 loss[QJ_LOSS_SLOTS];
	struct qj_recent_row recent[QJ_RECENT_ROWS];
	__u8 looks_up; /* a program is using `recent` */
} __attribute__((aligned(128)));

/* What was idle before a slice, as bits. */
enum qj_woke {
	QJ_WOKE_CORE = 1,
	QJ_WOKE_PACKAGE = 2,
};

/* What slices have used, as in struct qj_aggregate. Only __u64 fields: copied in words. */
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
 * Whether a core or package is awake, and its last two sleeps, whose idle time after them is not
 * yet in a row of sums. See core/sums.bpf.h. Fields that are read together share cache lines.
 */
struct qj_idle {
	__u64 busy;	  /* busy threads of the core, or busy cores of the package */
	__u64 asleep_ns;  /* idle time since the machine booted, up to the last wake-up */
	__u64 from_ns;	  /* the sums include idle time up to here; 0: awake */
	__u64 turn;	  /* index of the last sleep (0 or 1); the other is the sleep before */
	__u64 fell_ns[2]; /* when each sleep began; 0: none yet */
	struct qj_sums_key owners[2];
	/* By the window's number & 1, the sleep, and the length; a core uses the first QJ_TAILS. */
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

struct qj_ring_wait_end {
	struct qj_ring_head head;
	struct qj_wait_end wait;
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
 * A sampled stack before unwinding. It may hold any data that was on the stack, so it never leaves
 * the tracer's memory. Pages are as in memory: `bytes` begins with the page of `sp`.
 */
#define QJ_RING_STACK	  66 /* a value beside enum qj_block_kind */
#define QJ_STACK_PAGE	  4096
#define QJ_STACK_PAGES	  7  /* at least 24 KiB from sp on; a per-CPU map holds less than 32 */
#define QJ_REGISTERS	  17 /* of x86-64 by their numbers in DWARF, the last is the address */
#define QJ_STACK_NODES	  32
#define QJ_NODE_FUNCTIONS 21 /* executor functions: ExecScan() ... */
#define QJ_NODE_ACCESS	  5  /* ... and from here on those that it calls to fetch the next row */

/* A plan node in a server's memory, found by a pointer in a word of its stack. */
struct qj_plan_node {
	__u64 address;
	__u64 state;	   /* address of its statement's state: the same for all nodes of a plan */
	__u64 left, right; /* nodes that supply rows; 0: none, or others */
	__u64 function;	   /* the function that executes the node */
	__u64 row_slot;	   /* scan: where it stores its rows; other nodes: any value */
	__u32 id;	   /* plan_node_id */
	__u32 kind;	   /* NodeTag of the server's version */
};

/*
 * An address in a process's code for which the tracer knows no file. The next sample of this
 * process reports the mapping there, and so do those after it until one says nothing new. A process
 * has slot `tgid % QJ_ASKED`.
 */
#define QJ_ASKED 1024

struct qj_asked {
	__u32 tgid;
	__u32 reserved;
	__u64 address;
};

/* Code mapped at [start, end); or one address, without an inode: there is no code. */
struct qj_mapped {
	__u64 start, end; /* 0: no request */
	__u64 offset;	  /* in the file */
	__u64 inode;	  /* 0: anonymous memory */
	__u64 file_bytes; /* size of the file */
};

struct qj_ring_stack {
	struct qj_ring_head head;
	struct qj_segment segment;
	__u32 flags;		   /* enum qj_stack_flag */
	__u32 pages;		   /* number of pages that were read */
	__u64 shape, tags, naming; /* as in struct qj_stack */
	/* Where the process's code and its stack begin; forks inherit both. */
	__u64 start_code;
	__u64 start_stack;
	__u64 process_ns; /* when the process began: unique together with its number */
	__u64 code_pages; /* pages of mapped code: a change shows that mappings have changed */
	struct qj_mapped mapped; /* the mapping at the requested address */
	__u64 registers[QJ_REGISTERS];
	__u32 node_count;
	__u32 probability;		    /* as in struct qj_stack */
	__u64 functions[QJ_NODE_FUNCTIONS]; /* each executes nodes of several kinds */
	struct qj_plan_node nodes[QJ_STACK_NODES];
	__u8 bytes[QJ_STACK_PAGES * QJ_STACK_PAGE];
};

/*
 * Early kernels: an increment of a row of the live view, which the tracer adds. `calls` is 0 for
 * CPU time; otherwise the calls took `latency_ns` together.
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
	__u64 helper_ns; /* how long a helper worked, whose `wait_ns` these are; 0: no helper */
	__u32 epoch;
	__u32 calls;
	__u32 bucket; /* bucket of the latency */
	__u32 flags;  /* flags of the query */
};

/*
 * Per-CPU batch of segments that context switches close, with the queries that ended in them:
 * reserving room in a ring costs more than the record. A full batch goes to the ring. The tracer
 * takes the unsent rest from an idle CPU's batch through shared memory.
 */
#define QJ_RING_BATCH  64 /* a value beside enum qj_block_kind */
#define QJ_BATCH_BYTES 3328

/*
 * Value of a segment's `counted` if the query that ended in it follows. Batches exist only where no
 * counters are read, so `counted` is unused.
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
