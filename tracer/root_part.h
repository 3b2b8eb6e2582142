/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Asks the root part for what this process, which has no rights, may not have by itself. */
#ifndef QJ_ROOT_PART_H
#define QJ_ROOT_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "root/protocol.h"

/* The socket to the root part; before, there is none and every question fails with -ENOTCONN. */
void root_part_use(int socket_fd);

/* To wait for its hangup; -1: none. */
int root_part_socket(void);

/*
 * Asks, with the descriptor `fd` beside the question (-1: none), and waits for the answer. `out`
 * gets the descriptor beside the answer, or -1; NULL if none is expected. Returns 0 or a negative
 * errno, -ECONNRESET if the root part has ended.
 */
int root_part_ask(const struct rp_request *request, int fd, int *out);

/*
 * A counter of all that runs on a CPU (perf_event_open(2)). `flags`: RP_COUNTER_... of
 * root/protocol.h. Opened with our own rights where they suffice. Returns a descriptor or a
 * negative errno.
 */
int root_part_counter(uint32_t type, uint64_t config, unsigned cpu, uint32_t flags);

/* ROOT/PATH, an energy_uj file, likewise; `root_fd` is ROOT, opened. */
int root_part_energy_file(int root_fd, const char *root, const char *path);

#endif /* QJ_ROOT_PART_H */
