/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The event contract: what the BPF programs send to the tracer, and the tracer to Python.
 *
 * One side of this seam is C (bpf/, tracer/), the other is attribution/src/qjoule/contract.py.
 * tests/fast/tracer/test_contract_headers.py compares sizes and offsets from both sides. Rules:
 * - little-endian, naturally aligned, sizes a multiple of 8, padding named and zeroed;
 * - enum values are explicit and never renumbered;
 * - any change raises QJ_CONTRACT_VERSION and gets a line in bpf/README.md.
 *
 * All times are CLOCK_MONOTONIC nanoseconds (bpf_ktime_get_ns()).
 */
#ifndef QJOULE_H
#define QJOULE_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#include "registry.h" /* generated from attribution/src/qjoule/servers/registry.toml */

#define QJ_CONTRACT_VERSION 24

#define QJ_COMM_BYTES	     16
#define QJ_COUNTERS	     3	   /* cycles, instructions, LLC misses, in this order */
#define QJ_MORE		     12	   /* further counters that a user may ask for */
#define QJ_WHOLE	     65535 /* a share of 100 % */
#define QJ_SAID_UNKNOWN	     (~0ULL)
#define QJ_TEXT_BYTES	     4096 /* a statement is read, hashed and sent up to this length */
#define QJ_STARTUP_BYTES     512  /* a session's first message, for user and database */
#define QJ_APPLICATION_BYTES 64	  /* longest application name that a session reports */
#define QJ_LATENCY_BUCKETS   48	  /* half octaves from 1 us: bucket i starts at 1000 * 2^(i/2) ns */
#define QJ_TAILS	     5	  /* number of a core's tail lengths */
#define QJ_PACKAGE_TAILS     10	  /* of a package: see qj_tail_ns() in core/counted.h */
#define QJ_TAIL_NS	     100000ULL /* the shortest; each next one is twice as long */
#define QJ_WAKE_NS	     1000      /* shorter idle times are a switch between two threads */

/* The owner of a slice of CPU time. Every nanosecond has exactly one owner. */
enum qj_owner_kind {
	QJ_OWNER_IDLE = 0,
	QJ_OWNER_QUERY = 1,   /* a server thread serving a known query */
	QJ_OWNER_SERVER = 2,  /* a server thread outside any query: background, by thread role */
	QJ_OWNER_PROCESS = 3, /* any other process */
	QJ_OWNER_KERNEL = 4,  /* kernel threads */
	QJ_OWNER_TRACER = 5,  /* qjoule-tracer and the process that reads it */
};

#define QJ_SERVER_NUMBER(name, NAME, number) QJ_SERVER_##NAME = number,
enum qj_server_kind {
	QJ_SERVER_NONE = 0,
	QJ_SERVERS(QJ_SERVER_NUMBER)
};
#undef QJ_SERVER_NUMBER

enum qj_attach_mode {
	QJ_ATTACH_NONE = 0,
	QJ_ATTACH_SOCKET = 1,
	QJ_ATTACH_SYMBOL = 2,
	/* 3 is reserved for static probes of a server (USDT). */
	QJ_ATTACH_AGENT = 4,
	QJ_ATTACH_TAG = 5,
	QJ_ATTACH_STATISTICAL = 6,
};

enum qj_command {
	QJ_COMMAND_OTHER = 0,	/* ping, change database, statistics, quit, ... */
	QJ_COMMAND_QUERY = 1,	/* statement text, executed */
	QJ_COMMAND_PREPARE = 2, /* statement text, only prepared */
	QJ_COMMAND_EXECUTE = 3, /* executes a statement prepared before */
	QJ_COMMAND_CONNECT = 4, /* login */
	QJ_COMMAND_CHILD = 5,	/* a statement executed within a query: struct qj_child */
};

/* Flags of a query. */
enum qj_query_flag {
	QJ_QUERY_NO_TEXT = 1 << 0, /* text not seen: shape is 0, or that of its number */
	QJ_QUERY_OPEN = 1 << 1,	   /* the thread ended or tracing stopped before the query ended */
	QJ_QUERY_PIPELINED =
	    1 << 2,		   /* several executions in one request; `executions` counts them */
	QJ_QUERY_RESUMED = 1 << 3, /* suspended and resumed at least once (thread pool) */
	QJ_QUERY_TRUNCATED = 1 << 4,	   /* statement longer than QJ_TEXT_BYTES */
	QJ_QUERY_NO_END = 1 << 5,	   /* the reply is not observed: `end_ns` is `begin_ns` */
	QJ_QUERY_OK = 1 << 6,		   /* the reply was seen and reports success */
	QJ_QUERY_ERROR = 1 << 7,	   /* the reply was seen and reports an error */
	QJ_QUERY_ROWS = 1 << 8,		   /* `rows` is known, from the reply */
	QJ_QUERY_IN_TRANSACTION = 1 << 9,  /* the session is then in a transaction */
	QJ_QUERY_NO_TRANSACTION = 1 << 10, /* ... or in none; neither flag: not known */
	QJ_QUERY_CUT = 1 << 11,	  /* set by a reader: the query began before the saved part */
	QJ_QUERY_WAITS = 1 << 12, /* `wait_ns` is known */
};

/* enum qj_no_text is stored in a query's flags from this bit on; 0: reason not known. */
#define QJ_NO_TEXT_SHIFT 16
enum qj_no_text {
	QJ_NO_TEXT_SEVERAL = 1, /* different statements in one request */
	QJ_NO_TEXT_MESSAGE = 2, /* its message could not be read */
	QJ_NO_TEXT_NONE = 3,	/* the server has no such statement or portal */
	QJ_NO_TEXT_EARLIER = 4, /* its portal was opened before tracing began */
};

/* Why a thread was off its CPU while it served a query. */
enum qj_wait {
	QJ_WAIT_RUN_QUEUE = 0, /* it could have run, and had no CPU */
	QJ_WAIT_LOCK = 1,      /* futex, System V semaphore, file lock */
	QJ_WAIT_IO = 2,	       /* files, page faults */
	QJ_WAIT_NETWORK = 3,   /* sockets, pipes: the client, or another server */
	QJ_WAIT_SLEEP = 4,     /* a timer that the thread set itself */
	QJ_WAIT_OTHER = 5,     /* anything else, or not known */
	QJ_WAITS = 6,
};

/* Why something is missing. Counted per CPU in the kernel, or by the tracer. */
enum qj_loss {
	QJ_LOSS_SEGMENT = 0, /* ring full: a segment; `lost_ns` has its CPU time */
	QJ_LOSS_QUERY = 1,   /* ring full: a query record */
	QJ_LOSS_TEXT = 2,    /* ring full, or text could not be read */
	QJ_LOSS_TASK = 3,    /* ring full: a task event */
	QJ_LOSS_SESSION = 4, /* ring full: a session event */
	QJ_LOSS_STATE = 5, /* no room for a thread's state: its time counts as server background */
	QJ_LOSS_PREPARED = 6, /* the number a server gave to a prepared statement was not seen */
	QJ_LOSS_OPAQUE_SESSION =
	    7, /* TLS or compression: the attach mode `socket` cannot read this session */
	QJ_LOSS_FRAMING = 8, /* protocol framing lost; recovered at the next clear boundary */
	QJ_LOSS_COUNTER = 9, /* a segment lacks a counter: unreadable, stopped, never counting */
	QJ_LOSS_AGGREGATE =
	    10, /* live view: no room for another row; its sums went to the `other` row */
	QJ_LOSS_ENERGY = 11, /* the tracer could not read an energy counter */
	QJ_LOSS_PUMP = 12,   /* the reader was too slow or too late; counted by the tracer */
	QJ_LOSS_SWITCH =
	    13, /* a context switch was missed: a slice may partly belong to another thread */
	/* A counter was scaled up from part of a segment, or a further counter did not count. */
	QJ_LOSS_MULTIPLEXED = 14,
	QJ_LOSS_TASK_RATE = 15, /* task events beyond what a user, or all users, may cause */
	QJ_LOSS_SAMPLE = 16,	/* a query was drawn for the sample, but there was no room for it */
	QJ_LOSS_STACK = 17,	/* ring full, or no memory could be read: a sampled stack */
	QJ_LOSS_MAX = 18,
};

enum qj_task_event {
	QJ_TASK_ALIVE = 1, /* was running when tracing began */
	QJ_TASK_FORK = 2,
	QJ_TASK_EXEC = 3,
	QJ_TASK_EXIT = 4,
	QJ_TASK_RENAME = 5,
	QJ_TASK_ROLE = 6, /* a server thread changed its role; comm has the new role */
};

enum qj_session_event {
	QJ_SESSION_OPEN = 1,	    /* startup bytes follow */
	QJ_SESSION_OPAQUE = 2,	    /* TLS or compression from here on */
	QJ_SESSION_USER = 3,	    /* user changed: the command that changes the user follows */
	QJ_SESSION_DATABASE = 4,    /* default database changed: the new name follows */
	QJ_SESSION_KEPT = 5,	    /* the server refused the last change */
	QJ_SESSION_MET = 6,	    /* seen after its login, or without; a title may follow */
	QJ_SESSION_SETS = 7,	    /* a statement that sets or resets a parameter follows */
	QJ_SESSION_APPLICATION = 8, /* the name that the application reports follows */
};

/* The dialect of a text: the servers' dialects, and two more. */
#define QJ_DIALECT_NUMBER(name, NAME, number) QJ_DIALECT_##NAME = number,
enum qj_dialect {
	QJ_DIALECTS(QJ_DIALECT_NUMBER)
	QJ_DIALECT_TAGS = 9,	/* key='value',...: for all queries whose `tags` equals `shape`; if
				   `single`, for the query with that id */
	QJ_DIALECT_UNSEEN = 14, /* struct qj_unseen: prepared before tracing, text not known */
};
#undef QJ_DIALECT_NUMBER

/* ---- records ------------------------------------------------------------------------------ */

/* A closed slice on one CPU. Idle time has no records: it is the rest of the CPU's time. */
struct qj_segment {
	__u64 t0_ns;
	__u64 t1_ns;
	__u64 query; /* 0 unless owner_kind is QJ_OWNER_QUERY */
	__u32 pid;   /* thread */
	__u32 tgid;  /* process */
	__u16 cpu;
	__u16 server; /* id from the attach plan, 0 none */
	__u8 owner_kind;
	__u8 valid;    /* bit i: counters[i] is valid */
	__u16 counted; /* smallest share of the time that a valid counter counted, in 1/QJ_WHOLE */
};

struct qj_segment_counters {
	struct qj_segment segment;
	__u64 counters[QJ_COUNTERS]; /* increments over the segment, scaled to its whole length */
};

/* Replaces qj_segment_counters if further counters are read, which the energy model ignores. */
struct qj_segment_more {
	struct qj_segment_counters counted;
	__u16 shares[QJ_MORE]; /* like `counted` of a segment, but per counter; 0: no increment */
	__u64 more[QJ_MORE];   /* increments over the segment, scaled to its whole length */
};

struct qj_query {
	__u64 query; /* unique in a trace */
	__u64 begin_ns;
	__u64 end_ns;
	__u64 session; /* unique per connection */
	__u64 shape;   /* keyed hash of the statement without its literals; 0 unknown */
	__u32 pid;
	__u32 tgid;
	__u32 executions; /* number of statements that the server counts for this query */
	__u32 flags;	  /* enum qj_query_flag */
	__u32 statement_bytes;
	__u16 server;
	__u8 attach_mode;
	__u8 command;
	__u64 rows; /* rows returned or changed, as the server reports; valid if QJ_QUERY_ROWS */
	__u8 sqlstate[5]; /* code of the error; zeros: not known */
	__u8 reserved;
	__u16 stream; /* 1 + the request's number if the connection has several at a time; else 0 */
	__u64 tags;   /* hash of the tags sent in the query (bytes: qj_text); 0: none */
	/* By enum qj_wait. The thread ran for the rest of begin_ns to end_ns. */
	__u64 wait_ns[QJ_WAITS];
};

/*
 * A statement executed by a query's stored procedure, function or trigger, as part of that query.
 */
struct qj_child {
	__u64 child; /* replaces the outer query's id in segments */
	__u64 query; /* the outer query */
	__u64 begin_ns;
	__u64 end_ns;
	__u64 session;
	__u64 shape; /* of the child's own statement; 0 unknown */
	__u64 query_shape;
	__u32 pid;
	__u32 tgid;
	__u32 flags; /* enum qj_query_flag */
	__u32 statement_bytes;
	__u16 server;
	__u8 attach_mode;
	__u8 command; /* QJ_COMMAND_CHILD */
	__u32 reserved;
	__u64 tags; /* tags of the outer query */
};

/*
 * The waits of another thread while it worked for a query, from when it joined until it left, which
 * may be after the query's end. The thread ran for the rest of that time. Sent only if it waited.
 */
struct qj_helper {
	__u64 query;
	__u64 begin_ns;
	__u64 end_ns;
	__u32 pid;
	__u32 tgid;
	__u64 wait_ns[QJ_WAITS]; /* by enum qj_wait */
};

/* Flags of a sampled stack. */
enum qj_stack_flag {
	QJ_STACK_KERNEL = 1 << 0, /* the thread was in the kernel: the frames are its callers */
	QJ_STACK_WHOLE = 1 << 1,  /* the stack was unwound to the thread's entry */
	QJ_STACK_WAIT = 1 << 2,	  /* the thread goes to sleep within its query */
};

/* The stack of a server thread at one moment. `segment` begins and ends at that moment. */
struct qj_stack {
	struct qj_segment segment;
	__u64 frame;	   /* the innermost frame (qj_call); 0: none known */
	__u32 flags;	   /* enum qj_stack_flag */
	__u32 probability; /* QJ_STACK_WAIT: of this draw, in 1 / 2^32; 0: certain */
	/* Live view, where queries have no records: as in struct qj_aggregate. Otherwise 0. */
	__u64 shape;
	__u64 tags;
	__u64 naming;
};

/* How a wait ended whose stack was sent. The thread and the begin tell which. */
struct qj_wait_end {
	__u64 begin_ns; /* `t0_ns` of the stack's segment */
	__u64 ns;
	__u64 run_queue_ns; /* the last part of `ns`, in which the thread could have run */
	__u32 pid;
	__u32 kind; /* enum qj_wait: what it was until then */
};

/*
 * An `offset` with this bit is a node of a plan. The bits from QJ_NODE_KIND on are its NodeTag in
 * the module's version of the server, those below its plan_node_id.
 */
#define QJ_NODE	     (1ull << 63)
#define QJ_NODE_KIND 32

/*
 * A place in code with all of its callers: frames of stacks form a tree. The tracer remembers the
 * frames that it has sent in a direct-mapped cache of QJ_CALLS slots, indexed by `frame %
 * QJ_CALLS`. An evicted frame is sent again before the next stack that contains it.
 */
#define QJ_CALLS (1u << 16)

struct qj_call {
	__u64 frame;  /* hash of the fields below */
	__u64 caller; /* the calling frame; 0: none known */
	__u64 offset; /* in the module, from the address that its segments count from; or QJ_NODE */
	__u32 module; /* number of the module in meta.json, from 1 */
	__u32 reserved;
};

/* Sent once per shape that the kernel has not seen (or has forgotten). The text follows. */
struct qj_text {
	__u64 shape;
	__u32 statement_bytes; /* as sent by the client, where known */
	__u32 text_bytes;      /* bytes that follow, at most QJ_TEXT_BYTES */
	__u16 server;
	__u8 dialect;
	__u8 single; /* the shape belongs to one query, even if others have the same text */
	__u8 rules;  /* the session's settings: qjoule.shapes.rules; 0: none known */
	__u8 reserved[3];
};

/* The text of a QJ_DIALECT_UNSEEN. */
struct qj_unseen {
	__u64 session;	 /* 0: `statement` is an enum qj_no_text, for all sessions */
	__u64 statement; /* the server's number for it, or a hash of its name; ~0: unnamed */
};

/* Text of some servers' dialects: a shape's id, as reported by the server. */
struct qj_told_id {
	__u64 shape;
	__u64 id;
};

struct qj_task {
	__u64 t_ns;
	__u32 pid;
	__u32 tgid;
	__u32 parent_tgid;
	__u16 server;
	__u8 event;
	__u8 owner_kind;
	char comm[QJ_COMM_BYTES];
};

struct qj_session {
	__u64 session;
	__u64 t_ns;
	__u32 pid;
	__u32 tgid;
	__u32 text_bytes; /* bytes that follow: the startup message, or what the event specifies */
	__u16 server;
	__u8 event;
	__u8 server_kind;
	/* Both ends, IPv4 as ::ffff:a.b.c.d. Zeros and port 0: a unix socket, or not known. */
	__u8 address[16];
	__u8 server_address[16];
	__u16 port;
	__u16 server_port;
	__u32 reserved;
	__u64 client_inode; /* inode in sockfs of the client's end of a unix socket; else 0 */
	__u64 naming;	    /* live view: number of this event, used by sums; 0 in recordings */
};

/* ---- records that only the tracer writes --------------------------------------------------- */

/* One reading of one energy counter. */
struct qj_energy {
	__u64 t_ns;	     /* middle of the read */
	__u64 raw;	     /* counter value in the domain's units, modulo its range */
	__u32 half_width_ns; /* the read took twice this long */
	__u32 status;	     /* 0, or the errno of a failed read: raw is then meaningless */
	__u16 package;
	__u16 domain; /* index of the qj_domain record */
	__u32 reserved;
};

/* Losses so far on one CPU (0xffffffff: the tracer itself), one record per cause that changed. */
struct qj_loss_count {
	__u64 t_ns;
	__u64 count;
	__u64 lost_ns;
	__u32 cpu;
	__u32 cause;
};

#define QJ_STEAL_UNKNOWN (~0ull)

/* CPU time as summed in the kernel, independently of the segments: the two must agree. */
struct qj_cpu_time {
	__u64 t_ns;
	__u64 busy_ns;
	__u64 idle_ns;
	/* Time that the host stole from a virtual CPU (proc_stat(5), `steal`) since the tracer
	 * began; QJ_STEAL_UNKNOWN. */
	__u64 steal_ns;
	__u32 cpu;
	__u32 reserved;
};

/*
 * Live view: the sums of one owner in one package over one window. For a measured counter, a window
 * ends half the counter's period before its reading, because the reading covers energy drawn until
 * then. The last window of a stream ends at its reading.
 */
struct qj_aggregate {
	__u64 t0_ns;
	__u64 t1_ns;
	__u64 shape;  /* QJ_OWNER_QUERY: shape, 0 unknown text, ~0 the `other` row */
	__u64 tags;   /* as in qj_query, if tags are read; QJ_SAID_UNKNOWN: not known */
	__u64 naming; /* last event of the session; QJ_SAID_UNKNOWN: any session, as rows ran out */
	__u64 cpu_ns;
	__u64 overlap_ns; /* part of cpu_ns in which another thread of the core was busy */
	__u64 scaled_ns;  /* part of cpu_ns over which multiplexed counters were scaled */
	__u64 counters[QJ_COUNTERS];
	__u64 counted_ns[QJ_COUNTERS];	     /* part of cpu_ns that counters[i] cover */
	__u64 overlap_counters[QJ_COUNTERS]; /* part of counters[i], by each slice's overlap */
	__u64 latency_ns;		     /* summed over calls */
	__u64 rows;		 /* rows returned or changed, without the `rowless` calls */
	__u64 wait_ns[QJ_WAITS]; /* waits of the calls whose latency is in `waited_ns` */
	__u64 waited_ns;
	__u64 helpers_wait_ns[QJ_WAITS]; /* as in qj_helper, of helpers that left in this window */
	__u64 helpers_ns;		 /* how long those helpers worked */
	/*
	 * Idle time of the package, and of its cores, up to each length, after this owner was the
	 * last to go to sleep there. Where two sleeps' tails overlap, each has half. All 0 without
	 * a qj_package_time.
	 */
	__u64 package_tail_ns[QJ_PACKAGE_TAILS];
	__u64 core_tail_ns[QJ_TAILS];
	__u32 package_wakes; /* idle times of at least QJ_WAKE_NS that this owner ended */
	__u32 core_wakes;
	__u32 calls; /* executions that ended in this window */
	__u32 tgid;  /* process; 0 for queries */
	__u32 pid;   /* thread, for server background; else 0 */
	__u16 package;
	__u16 server;
	__u8 owner_kind;
	__u8 valid; /* bit i: counters[i] cover all of cpu_ns */
	__u8 reserved[2];
	__u32 errors;	  /* queries that ended with an error */
	__u32 unanswered; /* calls whose outcome is not known */
	__u32 rowless;	  /* calls whose number of rows is not known */
	__u32 latency[QJ_LATENCY_BUCKETS];
};

/*
 * Live view: a randomly drawn query, beside the sums over all queries. The draw depends only on
 * earlier queries, so 1 / probability is its weight in an unbiased estimate.
 */
struct qj_sample {
	struct qj_query query;
	__u64 cpu_ns; /* CPU time of the threads that served the query, without parallel helpers */
	__u32 probability; /* of the draw, in 1 / 2^32; 0: certain */
	__u32 reserved;
};

/* Live view: how long any CPU of a package was busy in a window of sums. */
struct qj_package_time {
	__u64 t0_ns;
	__u64 t1_ns;
	__u64 awake_ns;
	__u32 package;
	__u32 reserved;
};

enum qj_grade {
	QJ_GRADE_NONE = 0,
	QJ_GRADE_MEASURED = 1,
	QJ_GRADE_ESTIMATED = 2,
	QJ_GRADE_SIMULATED = 3,
};

/* First record of a stream. */
struct qj_hello {
	__u32 version; /* QJ_CONTRACT_VERSION */
	__u32 mode;    /* enum qj_mode */
	__u64 t_ns;    /* when the last program was attached: the trace begins here */
	__u64 realtime_ns;
	__u64 window_ns;
	__u32 cpus;
	__u32 counters; /* bit i: counters[i] is read; bit QJ_COUNTERS + i: more[i] is read */
	__u32 domains;
	__u32 grade;
	char energy_source[32];
	char energy_reason[192]; /* why this source was chosen over better ones */
};

enum qj_mode {
	QJ_MODE_RECORD = 1,
	QJ_MODE_LIVE = 2,
};

struct qj_cpu {
	__u32 cpu;
	__u32 package;
	__u32 core;    /* number within its package, from 0 */
	__u32 sibling; /* lowest CPU of the same core, which identifies the core on the machine */
};

/* How a domain's counts are obtained. */
enum qj_domain_kind {
	QJ_DOMAIN_UNKNOWN = 0,
	QJ_DOMAIN_COUNTER = 1, /* a counter that accumulates energy */
	QJ_DOMAIN_POWER = 2, /* readings of power, each taken as the mean since the previous one */
	QJ_DOMAIN_COMPUTED = 3, /* computed from CPU time at each reading */
	QJ_DOMAIN_APPEARED = 4, /* a counter that appeared while tracing, and is not read */
};

/* `die` of a counter that covers its whole package, or the machine. */
#define QJ_WHOLE_PACKAGE 0xffffffffu

struct qj_domain {
	__u32 domain; /* index, unique over packages */
	__u32 package;
	__u64 range;	 /* raw counts from 0 to range - 1; 0: does not wrap */
	double unit_j;	 /* joules per raw count */
	double idle_w;	 /* power with no CPU busy, if the source knows it; else NaN */
	__u64 period_ns; /* how often the counter is updated; 0: not known */
	__u32 kind;	 /* enum qj_domain_kind */
	__u32 error; /* relative 95 % error of the domain's total in thousandths; 0: not known */
	/* die of the package, or QJ_WHOLE_PACKAGE; of one_core: the core's lowest CPU */
	__u32 die;
	char name[20]; /* package, core, uncore, dram, psys, rest, one_core */
};

/* What the spool contains so far. Earlier blocks of the stream define its frames' references. */
struct qj_spooled {
	__u64 frames;
	__u64 bytes;
	__u64 queries;
	__u64 segment; /* number of the ring's segment, ascending from 1; 0: the spool is no ring */
	__u64 segment_begins; /* number of its first frame */
};

/* Last record of a complete stream. */
struct qj_end {
	__u64 t_ns;
	__u32 reason; /* 0: asked to stop, else errno */
	__u32 reserved;
};

/* ---- framing of the stream from the tracer ------------------------------------------------- */

enum qj_block_kind {
	QJ_BLOCK_HELLO = 1,
	QJ_BLOCK_CPU = 2,
	QJ_BLOCK_DOMAIN = 3,
	QJ_BLOCK_ENERGY = 4,
	QJ_BLOCK_SEGMENT = 5,
	QJ_BLOCK_SEGMENT_COUNTERS = 6,
	QJ_BLOCK_QUERY = 7,
	QJ_BLOCK_TEXT = 8, /* one qj_text and its bytes, padded to 8 */
	QJ_BLOCK_TASK = 9,
	QJ_BLOCK_SESSION = 10, /* one qj_session and its bytes, padded to 8 */
	QJ_BLOCK_LOSS = 11,
	QJ_BLOCK_CPU_TIME = 12,
	QJ_BLOCK_AGGREGATE = 13,
	QJ_BLOCK_FLUSH = 14, /* no payload; every segment that began before `t_ns` has been sent */
	QJ_BLOCK_END = 15,
	QJ_BLOCK_CHILD = 16,
	QJ_BLOCK_SEGMENT_MORE = 17,
	QJ_BLOCK_PACKAGE_TIME = 18,
	QJ_BLOCK_SPOOLED = 19,
	QJ_BLOCK_SAMPLE = 20,
	QJ_BLOCK_CALL = 21,
	QJ_BLOCK_STACK = 22,
	QJ_BLOCK_HELPER = 23,
	QJ_BLOCK_WAIT_END = 24,
};

#define QJ_BLOCK_MAGIC 0x31424a51 /* "QJB1" */

/* A block is this header and payload_bytes of records of one kind. */
struct qj_block {
	__u32 magic;
	__u32 kind;
	__u32 count;
	__u32 payload_bytes;
	__u64 t_ns;
};

/* ---- framing of the spool ------------------------------------------------------------------- */

#define QJ_FRAME_MAGIC 0x31464a51 /* "QJF1" */
/* Longest payload of a frame before compression. */
#define QJ_FRAME_BYTES (16u << 20)

enum qj_codec {
	QJ_CODEC_NONE = 0,
	QJ_CODEC_ZSTD = 1,
};

/*
 * A frame is this header and stored_bytes of payload: blocks, without texts, sessions and tasks,
 * which are only in the stream. The checksum is XXH3 (64 bits) of the header, with a checksum of 0,
 * and of the payload as stored.
 */
struct qj_frame {
	__u32 magic;
	__u32 version; /* QJ_CONTRACT_VERSION */
	__u64 number;  /* from 1 */
	__u64 t_ns;
	__u32 bytes; /* of the payload after decompression */
	__u32 stored_bytes;
	__u32 codec; /* enum qj_codec */
	__u32 reserved;
	__u64 checksum;
};

#ifdef __cplusplus
#define QJ_ASSERT_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type)
#else
#define QJ_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#endif
QJ_ASSERT_SIZE(qj_segment, 40);
QJ_ASSERT_SIZE(qj_segment_counters, 64);
QJ_ASSERT_SIZE(qj_segment_more, 184);
QJ_ASSERT_SIZE(qj_query, 136);
QJ_ASSERT_SIZE(qj_child, 88);
QJ_ASSERT_SIZE(qj_helper, 80);
QJ_ASSERT_SIZE(qj_stack, 80);
QJ_ASSERT_SIZE(qj_wait_end, 32);
QJ_ASSERT_SIZE(qj_call, 32);
QJ_ASSERT_SIZE(qj_text, 24);
QJ_ASSERT_SIZE(qj_unseen, 16);
QJ_ASSERT_SIZE(qj_told_id, 16);
QJ_ASSERT_SIZE(qj_task, 40);
QJ_ASSERT_SIZE(qj_session, 88);
QJ_ASSERT_SIZE(qj_energy, 32);
QJ_ASSERT_SIZE(qj_loss_count, 32);
QJ_ASSERT_SIZE(qj_cpu_time, 40);
QJ_ASSERT_SIZE(qj_aggregate, 616);
QJ_ASSERT_SIZE(qj_sample, 152);
QJ_ASSERT_SIZE(qj_package_time, 32);
QJ_ASSERT_SIZE(qj_hello, 272);
QJ_ASSERT_SIZE(qj_cpu, 16);
QJ_ASSERT_SIZE(qj_domain, 72);
QJ_ASSERT_SIZE(qj_end, 16);
QJ_ASSERT_SIZE(qj_block, 24);
QJ_ASSERT_SIZE(qj_spooled, 40);
QJ_ASSERT_SIZE(qj_frame, 48);

#endif /* QJOULE_H */
