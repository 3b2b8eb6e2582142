/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The options that name servers, and their probe points: values of parts with colons. */
#ifndef QJ_PLAN_OPTIONS_H
#define QJ_PLAN_OPTIONS_H

#include "options.h"

/*
 * A number, decimal or 0x..., of at most `max`, up to the character `stop`; `rest` (may be NULL) is
 * what follows it.
 */
bool plan_number(const char *text, char stop, uint64_t max, uint64_t *out, const char **rest);

/* Each takes in one option's value; -1: it is not one. A server comes before what speaks of it. */
int plan_server(struct options *options, const char *value);
int plan_running(struct options *options, const char *value);
int plan_probe(struct options *options, const char *value);
int plan_fact(struct options *options, const char *value);
int plan_restart(struct options *options, const char *value);

/* What the values of --server and --fact may name, on stdout. */
void plan_print_kinds(void);

#endif /* QJ_PLAN_OPTIONS_H */
