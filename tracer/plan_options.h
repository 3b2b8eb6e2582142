/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Parses the options for servers and their probe points, whose values are parts with colons. */
#ifndef QJ_PLAN_OPTIONS_H
#define QJ_PLAN_OPTIONS_H

#include "options.h"

/*
 * Parses a number, decimal or 0x..., of at most `max`, up to the character `stop`; `rest` (may be
 * NULL) gets what follows it.
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

#endif /* QJ_PLAN_OPTIONS_H */
