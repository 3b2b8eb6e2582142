/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The machine's CPUs, this process's rights, and requests to the root part.
 */
#ifndef QJ_SYSTEM_H
#define QJ_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "root/protocol.h"
#include "shared.h"

/* ---- root_part.c ---- */

/* Sets the socket to the root part. Before this call every request fails with -ENOTCONN. */
void root_part_use(int socket_fd);

/* The socket, to poll for its hangup; -1: none. */
int root_part_socket(void);

/*
 * Sends a request, with the descriptor `fd` beside it (-1: none), and waits for the reply. `out`
 * gets the descriptor beside the reply, or -1; NULL if none is expected. Returns 0 or a negative
 * errno, -ECONNRESET if the root part has ended.
 */
int root_part_ask(const struct rp_request *request, int fd, int *out);

/*
 * Opens a counter of all that runs on a CPU (perf_event_open(2)). `flags`: RP_COUNTER_... of
 * root/protocol.h. Uses our own rights if they suffice. Returns a descriptor or a negative errno.
 */
int root_part_counter(uint32_t type, uint64_t config, unsigned cpu, uint32_t flags);

/* Likewise opens ROOT/PATH, an energy_uj file; `root_fd` is ROOT, opened. */
int root_part_energy_file(int root_fd, const char *root, const char *path);

/* ---- privileges.c ---- */

/*
 * Keeps other processes of this user from reading the statements that servers received, and from
 * taking our descriptors. Gives up the capability that protected both until now (root/user.c).
 * Returns 0, or -1 with errno set.
 */
int privileges_hide(void);

/*
 * Allows only the pump's system calls, bpf(2) if maps have to be drained, and emptying files of a
 * `ring`; others fail with EPERM. The process started without rights and cannot gain any. Returns 0
 * or a negative errno.
 */
int privileges_confine(bool call_bpf, bool ring);

/* ---- topology.c ---- */

#define TOPOLOGY_DIR "/sys/devices/system/cpu"

/*
 * Online CPUs with their package, core and sibling, from DIR/cpu (TOPOLOGY_DIR). Returns how many,
 * or a negative errno. A CPU without topology information is its own core of package 0.
 */
int topology_read(const char *dir, struct qj_cpu cpus[QJ_MAX_CPUS]);

/* Stores the die of each CPU, as the kernel numbers it. Returns true if any package has several. */
bool topology_dies(const char *dir, const struct qj_cpu *cpus, unsigned count,
		   uint16_t dies[QJ_MAX_CPUS]);

/* Returns true if AMD or Hygon made the CPUs. */
bool topology_amd(void);

/*
 * Chains the CPUs of each core into a ring: next[cpu] is the next CPU, or cpu itself if it is
 * alone. Returns how many CPUs the largest core has.
 */
unsigned topology_rings(const struct qj_cpu *cpus, unsigned count, uint16_t next[QJ_MAX_CPUS]);

/* Stores the lowest CPU of each CPU's core and package; unknown CPUs are alone. */
void topology_firsts(const struct qj_cpu *cpus, unsigned count, uint16_t of_core[QJ_MAX_CPUS],
		     uint16_t of_package[QJ_MAX_CPUS]);

#endif /* QJ_SYSTEM_H */
