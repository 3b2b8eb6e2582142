/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The attach plan, parsed from the command line. */
#ifndef QJ_OPTIONS_H
#define QJ_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared.h"
#include "stream.h"

#define MAX_PROBES	    512
#define QJ_PROBE_CODE_BYTES 16 /* the longest instruction has 15 bytes */

#define QJ_PROBE_ROLE(name, role, SERVER) PROBE_##name,
enum probe_role {
	QJ_ROLES(QJ_PROBE_ROLE) PROBE_ROLES, /* number of roles */
};
#undef QJ_PROBE_ROLE

struct probe {
	unsigned server; /* id from 1 */
	enum probe_role role;
	uint32_t handle;		   /* the file's handle at the root part */
	uint64_t offset;		   /* in the file */
	uint8_t code[QJ_PROBE_CODE_BYTES]; /* the instruction there */
	unsigned code_bytes;
};

/* A counter's event, in terms of perf_event_open(2). */
struct counter_option {
	uint32_t type;
	uint32_t flags; /* RP_COUNTER_USER or RP_COUNTER_KERNEL: count only there */
	uint64_t config;
};

struct options {
	enum qj_mode mode;
	unsigned window_ms;
	unsigned flush_ms;
	unsigned ring_mb;
	const char *energy;
	const char *cpu_topology;
	const char *host_root;
	const char *curve;
	const char *curve_label;
	const char *curve_errors;
	struct qj_server_plan servers[QJ_MAX_SERVERS];
	unsigned server_count;
	struct qj_running running[QJ_MAX_RUNNING];
	unsigned running_count;
	bool only_running;
	struct probe probes[MAX_PROBES];
	unsigned probe_count;
	struct counter_option counters[QJ_COUNTERS + QJ_MORE]; /* type ~0: not read */
	unsigned more_counters; /* how many of the last QJ_MORE are used */
	bool effects;		/* sum idle tails and wake-ups; depends on the energy source */
	bool tags;		/* read the tags that clients send within their queries */
	unsigned stacks_hz;	/* stacks to sample per second of CPU time; 0: none */
	int table_fds[QJ_MAX_SERVERS];	  /* servers' modules: stacks.h */
	int compiled_fds[QJ_MAX_SERVERS]; /* likewise; 0: none */
	unsigned table_count;
	unsigned samples; /* live: queries to draw per shape and QJ_SAMPLE_NS; 0: none */
	pid_t reader;
	int control_fd;		    /* the tracer stops at the end of this file; -1: none */
	int root_fd;		    /* socket of the root part; -1: none */
	int spool_fds[SPOOL_FILES]; /* files for the bulk of a recording */
	unsigned spool_files;	    /* 0: no spool, only the stream; several: a ring */
	uint64_t spool_bytes;	    /* the spool's limit */
	uint64_t spool_turn_ns;	    /* time that a segment of the ring holds */
	bool compress;		    /* compress the spool */
	bool verbose;		    /* print libbpf's messages */
};

extern const char *const probe_role_names[PROBE_ROLES];

/* Fills `options`. On a mistake prints one line on stderr and returns -1. */
int options_parse(struct options *options, int argc, char **argv);

/*
 * counters.c: parses the value of the option for hardware counters. Returns -1 if it is
 * invalid or there are too many.
 */
int counter_option(struct options *options, const char *value);

/* ---- plan_options.c: options of servers and probe points, whose values have parts ---- */

/*
 * Parses a number, decimal or 0x..., of at most `max`, up to the character `stop`; `rest` (may be
 * NULL) gets the text after it.
 */
bool plan_number(const char *text, char stop, uint64_t max, uint64_t *out, const char **rest);

/*
 * Each parses one option's value and returns -1 if it is invalid. A server must come before options
 * that refer to it.
 */
int plan_server(struct options *options, const char *value);
int plan_running(struct options *options, const char *value);
int plan_probe(struct options *options, const char *value);
int plan_fact(struct options *options, const char *value);
int plan_restart(struct options *options, const char *value);

/* Prints the names that --server and --fact accept, on stdout. */
void plan_print_kinds(void);

#endif /* QJ_OPTIONS_H */
