/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The hooks of redis.bpf.c on the host: a Redis that reads from one client and replies. Records for
 * the tracer are collected; wire_queries(), wire_names() and wire_loss() return them.
 */
#ifndef QJOULE_REDIS_WIRE_HOST_H
#define QJOULE_REDIS_WIRE_HOST_H

#include "wire_host.h"

/* A new connection, or else one that was open before. */
void redis_open(int is_new);
/* The server reads these bytes; nothing beyond them is readable. */
void redis_receive(const __u8 *bytes, size_t count);
/* The server sends these bytes. */
void redis_reply(const __u8 *bytes, size_t count);
/* The client disconnects; returns how many requests there were. */
size_t redis_close(void);

#endif
