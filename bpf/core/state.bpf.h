/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * State that the programs share: configuration, every CPU's state and every server thread's state.
 *
 * CPU states live in .bss, not in a per-CPU map: the tracer reads them through the skeleton's
 * memory map, and a program reaches its own without a helper call. Tracepoint programs run with
 * preemption off, uprobes do not; a timer tick may interrupt either. So one atomic exchange of a
 * slice's start time takes the slice over (see restart_slice()): the winner accounts for it, once.
 */
#ifndef QJOULE_STATE_BPF_H
#define QJOULE_STATE_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "qjoule.h"
#include "server_threads.h"
#include "shared.h"
#include "shape_hash.h"
#include "thread_query.h"

/*
 * What differs in the object for early kernels, from Linux 5.10 on. All sources are compiled twice;
 * the tracer has the early object loaded where the kernel lacks one of these:
 *
 * - bpf_loop() (5.17, commit e6f2dd0f8067): bounded loops, which the verifier unrolls;
 * - pointers as arguments of functions that are verified once (5.12, e5069b9c23b3): compiled with
 *   -fvisibility=hidden, so the verifier follows functions at each call, except those that are
 *   QJ_VISIBLE, whose arguments are numbers;
 * - task storage (5.11, 4cf1bc1f1045), bpf_get_current_task_btf() (5.11, 3ca1032ab7ab): a hash map
 *   by thread id;
 * - atomic operations that return a value (5.12, 5ffa25502b5a): see each place;
 * - maps in the hands of processes without rights (5.19, c8644cd0efe7): the live view's sums go
 *   through the rings one by one, and the tracer adds them up.
 */

#ifdef QJ_EARLY
#define IS_EARLY 1
/* libbpf neither creates hidden maps and programs, nor shares hidden variables with the tracer. */
#define QJ_VISIBLE __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wignored-attributes" /* on declarations */
#undef SEC
#define SEC(name) __attribute__((section(name), used)) QJ_VISIBLE

#define bpf_loop(times, step, context, flags)                                                      \
	({                                                                                         \
		__u32 done_ = 0;                                                                   \
                                                                                                   \
		_Pragma("clang loop unroll(disable)") while (done_ < (times) &&                    \
							     !step(done_, context)) done_++;       \
		(long)done_;                                                                       \
	})
#define bpf_get_current_task_btf() ((struct task_struct *)bpf_get_current_task())
/* Reads a field of a task that may be the current one: a plain load does not work there. */
#define TASK_FIELD(task, field) BPF_CORE_READ(task, field)
/* Leaves out the code for tags beside a statement, which would not fit on the stack. */
#define READS_TAGS 0
#else
#define IS_EARLY   0
#define READS_TAGS (plan.tags)
#define QJ_VISIBLE
#define TASK_FIELD(task, field) ((task)->field)
#endif

#define PAGE_SHIFT 12	      /* of x86-64 */
#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define EAGAIN	   11
#define MSG_PEEK   2 /* include/linux/socket.h */
#define AF_UNIX	   1
#define AF_INET	   2
#define AF_INET6   10

/* Set before load, constant after: the verifier removes code that a configuration does not need. */
extern const volatile struct qj_plan plan;
/*
 * The servers of the plan. The root part changes an entry while programs run, when it follows a
 * server to another executable.
 */
extern QJ_VISIBLE struct qj_server_plan server_plans[QJ_MAX_SERVERS];

/* The tracer changes this while programs run. */
extern struct qj_control control;

extern struct qj_cpu_state cpus[QJ_MAX_CPUS];

struct shape_chunk {
	__u8 bytes[QJ_SHAPE_CHUNK];
};

/*
 * A session's recently executed prepared statements; most sessions use few. The last entry is for
 * the unnamed statement.
 */
#define RECENT_STATEMENTS 4 /* a power of two */
/* The unnamed statement; a session has one at a time. No other number or hash has this value. */
#define UNNAMED_STATEMENT (~0ULL)

/* Flags of a query that come from its statement. */
#define QJ_LOST_CAUSES	   (7u << QJ_NO_TEXT_SHIFT)
#define QJ_STATEMENT_FLAGS (QJ_QUERY_TRUNCATED | QJ_QUERY_NO_TEXT | QJ_LOST_CAUSES)

struct prepared_statement {
	__u64 shape;
	__u64 tags;
	__u32 statement_bytes;
	__u32 flags; /* QJ_STATEMENT_FLAGS */
};

struct recent_statement {
	__u64 statement; /* 0: none */
	struct prepared_statement prepared;
};

/* The protocol phase of a thread. */
enum phase {
	PHASE_UNKNOWN = 0, /* attached mid-stream: wait for a clear boundary */
	PHASE_STARTUP,	   /* connected, not yet logged in */
	PHASE_READY,
	PHASE_OPAQUE, /* TLS or compression: nothing can be read on this socket */
	PHASE_LOST,   /* like PHASE_UNKNOWN, and counted as loss of framing */
};

/*
 * Room for a hook that looks at the words of a sampled stack: those to be looked at, and by their
 * hash those that are among them.
 */
#define TAKEN_BITS    7
#define SCRATCH_WORDS 1040

struct stack_scratch {
	__u64 taken[1 << TAKEN_BITS];
	__u64 words[SCRATCH_WORDS];
	volatile __u32 count;
};

/* A query that is suspended while its procedure executes a statement (a child). */
struct caller_state {
	__u64 query; /* 0: none */
	__u64 begin_ns;
	__u64 shape;
	__u32 flags;
	__u32 statement_bytes;
};

/* Live view: the use of a thread's query that is in a row of sums without a shape. */
struct unnamed_use {
	__u64 query; /* 0: none */
	__u64 tags;
	__u64 naming;
	__u32 epoch;
	__u16 package;
	__u16 reserved;
	struct qj_used used;
};

/* Why the thread was off its CPU while it served its query: core/waits.bpf.h. */
struct thread_waits {
	__u64 run_delay_ns; /* sched_info.run_delay at `off_ns` */
	__u64 deadline_ns;  /* when its wait on a futex expires; 0: never */
	__u64 futex;
	__u64 expired_ns; /* expired waits on one futex, not yet in `ns` */
	__u64 expired_futex;
	__u64 ns[QJ_WAITS];
	__u64 replied_ns[QJ_WAITS]; /* `ns` at a reply that may be the last one */
	__u8 kind;		    /* enum qj_wait of the wait since `off_ns` */
	__u8 any;		    /* `ns` was written since it was last cleared */
	/* Recordings with stacks: the wait that was drawn last, whose end has not been sent. */
	__u8 drawn_kind;   /* what it proved to be; QJ_WAITS: it has not ended */
	__u32 probability; /* as in struct qj_stack */
	__u64 drawn_ns;	   /* when it began; 0: none */
	__u64 drawn_whole_ns;
	__u64 drawn_runnable_ns;
};

#define SCRATCH_BYTES 256 /* bytes of a server's memory that are read at once */

/*
 * The fields for reads of a client's socket come first, in as few cache lines as possible. In the
 * kernel's storage of a task a value begins 8 bytes after the start of a cache line.
 */
struct thread_state {
	/* From here to `reserved`: struct qj_thread_query, which other programs read. */
	__u64 query;	/* id of the current query, or of the next one; 0: none */
	__u64 begin_ns; /* 0: not begun, the thread waits for its next request */
	__u64 shape;
	__u16 abi;
	__u16 server;
	__u8 server_kind;
	__u8 attach_mode;
	__u8 borrowed; /* serves another thread's query (parallel worker) */
	__u8 reserved;
	__u64 end_ns; /* when a reply was sent that may not be the last one */
	__u64 socket; /* address of the client's struct sock ... */
	__u64 cookie; /* ... and its cookie: together its identity */
	__u64 off_ns; /* off its CPU since then; 0: runs, or has no query */
	__u32 need;   /* remaining bytes of the current message */
	__u32 flags;
	__u8 command;
	__u8 phase;
	__u8 head_bytes; /* bytes seen of a message header that came in pieces */
	__u8 collected;	 /* read_text() reads the statement from the programs' own memory */
	__u32 text_left; /* bytes of the statement still to be hashed */
	__u8 head[8];
	__u64 session;
	__u64 rows; /* valid if QJ_QUERY_ROWS */
	__u64 tags; /* as in struct qj_query */
	__u32 executions;
	__u32 statement_bytes;
	__u16 stream; /* as in struct qj_query */
	__u8 sqlstate[5];
	union { /* state that only one kind of server needs */
		struct of_query cleared;
#define X(name, NAME) struct name##_thread name;
		QJ_THREADS(X)
#undef X
	};
	__u64 text_sent; /* the last shape whose text was certainly sent */
	__u64 named;	 /* live view: the session that `naming` belongs to */
	__u64 naming;	 /* live view: as in struct qj_aggregate */
	__u64 text_addr;
	struct qj_shape_state text;
	struct caller_state caller;
	struct qj_query ended;	 /* not sent yet; query 0: none. Live view: a drawn query */
	__u64 cpu_ns;		 /* live view: CPU time of the query's closed slices */
	__u64 ended_cpu_ns;	 /* likewise, of `ended` */
	__u32 ended_probability; /* as in struct qj_sample */
	struct thread_waits waits;
	struct unnamed_use unnamed;
	__u64 recent_session;
	struct recent_statement recent[RECENT_STATEMENTS + 1];
	struct shape_chunk chunk;
	__u8 scratch[SCRATCH_BYTES];
};

/* bpf/thread_query.h is an ABI: moving a field raises QJ_THREADS_ABI. */
#define SHARED_FIELD(ours, theirs)                                                                 \
	_Static_assert(__builtin_offsetof(struct thread_state, ours) ==                            \
			       __builtin_offsetof(struct qj_thread_query, theirs) &&               \
			   sizeof(((struct thread_state *)0)->ours) ==                             \
			       sizeof(((struct qj_thread_query *)0)->theirs),                      \
		       #ours " is not where other programs read it")
SHARED_FIELD(query, query);
SHARED_FIELD(begin_ns, begin_ns);
SHARED_FIELD(shape, shape);
SHARED_FIELD(abi, abi);
SHARED_FIELD(server, server);
SHARED_FIELD(server_kind, server_kind);
SHARED_FIELD(attach_mode, attach_mode);
SHARED_FIELD(borrowed, helper);
SHARED_FIELD(reserved, reserved);
#undef SHARED_FIELD
_Static_assert(sizeof(struct qj_thread_query) == 32, "other programs read 32 bytes");
_Static_assert(__builtin_offsetof(struct thread_state, stream) == 120,
	       "what reads need is in more than two cache lines");
_Static_assert(!(__builtin_offsetof(struct thread_state, chunk) % sizeof(__u64)),
	       "words of a chunk are read at once");

#define X(name, NAME)                                                                              \
	_Static_assert(!__builtin_offsetof(struct name##_thread, cleared),                         \
		       "struct " #name "_thread does not begin with what is cleared");
QJ_THREADS(X)
#undef X

/* By thread id. An entry is its task's only if the address matches: ids are reused. */
struct early_thread {
	__u64 task;
	struct thread_state state;
};

struct threads_map {
#ifdef QJ_EARLY
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct early_thread);
#else
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
#endif
};
extern struct threads_map threads SEC(".maps");

static __always_inline struct qj_cpu_state *this_cpu(void)
{
	return &cpus[bpf_get_smp_processor_id() & (QJ_MAX_CPUS - 1)];
}

static __always_inline void count_loss(struct qj_cpu_state *cpu, enum qj_loss cause)
{
	/* 32 bits and atomic: a tick may count on this CPU at the same time. */
	__sync_fetch_and_add(&cpu->loss[cause & (QJ_LOSS_SLOTS - 1)], 1);
}

/* Unique in a trace: the CPU's number above a counter whose values no two callers share. */
static __always_inline __u64 new_id(struct qj_cpu_state *cpu)
{
#ifdef QJ_EARLY
	/* No program that makes ids interrupts another one. */
	__u64 n = ++cpu->ids;
#else
	__u64 n = __sync_fetch_and_add(&cpu->ids, 1) + 1;
#endif

	return ((__u64)bpf_get_smp_processor_id() << 44) | (n & ((1ULL << 44) - 1));
}

/*
 * True when recording without counters, the common case: only then batches are used. Early kernels'
 * verifier cannot follow the loop over a batch that found no room.
 */
static __always_inline bool in_batches(void)
{
	return !IS_EARLY && plan.mode == QJ_MODE_RECORD && !plan.counters && !plan.more;
}

/* Stacks are followed on x86-64 only. */
#if defined(__TARGET_ARCH_x86) && !defined(QJ_EARLY)
#define TAKES_STACKS 1
#else
#define TAKES_STACKS 0
#endif

/* True when recording stacks: constant for the verifier. */
static __always_inline bool draws_waits(void)
{
	return TAKES_STACKS && plan.waits;
}

/* True if a server of this kind (with this attach mode) is planned: constant for the verifier. */
#define PLANNED(KIND) (plan.kinds & 1u << QJ_SERVER_##KIND)
#define PLANNED_ON(KIND, ATTACH_MODE)                                                              \
	(plan.kind_attach_modes[QJ_SERVER_##KIND] & 1u << QJ_ATTACH_##ATTACH_MODE)

/* The plan's numbers for the thread's server, indexed by its enum qj_<server>_fact. */
static __always_inline const volatile __u64 *facts_of(const struct thread_state *thread)
{
	return server_plans[(thread->server - 1) & (QJ_MAX_SERVERS - 1)].facts;
}

/*
 * Makes a session's id from the number that the server or its agent uses (the address of a THD, a
 * hash), which must not leave the kernel.
 */
static __always_inline __u64 session_of(__u64 number)
{
	return (number ^ plan.seed) * 0x9e3779b97f4a7c15ULL;
}

/*
 * Returns at most `max`, in a form that the verifier follows. The compiler must neither fold the
 * comparison into other knowledge of n nor compare one register and use another.
 */
static __always_inline __u64 at_most(__u64 n, __u64 max)
{
#ifdef __bpf__
	asm volatile("if %0 <= %1 goto +1\n\t%0 = %1" : "+r"(n) : "r"(max));
#else /* for the parsers' tests */
	n = n <= max ? n : max;
#endif
	return n;
}

/*
 * Eight bytes at once. HAS_ZERO: nonzero if some byte of a word is zero; its lowest set bit is in
 * the first such byte (Henry S. Warren, "Hacker's Delight", section 6-1).
 */
#define EACH_BYTE(byte) (0x0101010101010101ULL * (byte))
#define HAS_ZERO(word)	(((word)-EACH_BYTE(1)) & ~(word)&EACH_BYTE(0x80))

/*
 * Reads a part of the thread's statement from the server's memory, or from the programs' own memory
 * for a collected message. Programs set `collected` only while they handle that message, so an
 * address that a server names is never read as a kernel address.
 */
static __always_inline long read_text(const struct thread_state *thread, void *to, __u32 bytes,
				      __u64 addr)
{
	if (!IS_EARLY && thread->collected)
		return bpf_probe_read_kernel(to, bytes, (const void *)addr);
	return bpf_probe_read_user(to, bytes, (const void *)addr);
}

/* Likewise up to a NUL byte. */
static __always_inline long read_text_str(const struct thread_state *thread, void *to, __u32 bytes,
					  __u64 addr)
{
	if (!IS_EARLY && thread->collected)
		return bpf_probe_read_kernel_str(to, bytes, (const void *)addr);
	return bpf_probe_read_user_str(to, bytes, (const void *)addr);
}

#ifdef QJ_EARLY
static const struct early_thread no_thread = {};

static __always_inline struct thread_state *thread_of(struct task_struct *task)
{
	__u32 pid = TASK_FIELD(task, pid);
	struct early_thread *thread = bpf_map_lookup_elem(&threads, &pid);

	return thread && thread->task == (__u64)task ? &thread->state : 0;
}

/* Returns the state of this task, making it if there is none; 0 without room. */
static __always_inline struct thread_state *thread_get_or_make(struct task_struct *task)
{
	__u32 pid = TASK_FIELD(task, pid);
	struct early_thread *thread;

	bpf_map_update_elem(&threads, &pid, &no_thread, BPF_ANY);
	thread = bpf_map_lookup_elem(&threads, &pid);
	if (!thread)
		return 0;
	thread->task = (__u64)task;
	return &thread->state;
}

static __always_inline void thread_forget(struct task_struct *task)
{
	__u32 pid = TASK_FIELD(task, pid);

	if (thread_of(task))
		bpf_map_delete_elem(&threads, &pid);
}
#else
static __always_inline struct thread_state *thread_of(struct task_struct *task)
{
	/* Most tasks have no storage at all: one load replaces a call. */
	if (!task->bpf_storage)
		return 0;
	return bpf_task_storage_get(&threads, task, 0, 0);
}

static __always_inline struct thread_state *thread_get_or_make(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline void thread_forget(struct task_struct *task)
{
	bpf_task_storage_delete(&threads, task);
}
#endif

#endif
