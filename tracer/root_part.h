/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Asks the root part for what this process may not do without rights. */
#ifndef QJ_ROOT_PART_H
#define QJ_ROOT_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "root/protocol.h"

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

#endif /* QJ_ROOT_PART_H */
