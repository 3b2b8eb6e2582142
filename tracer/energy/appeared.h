/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Zones of a powercap tree that were not there when tracing began. */
#ifndef QJ_ENERGY_APPEARED_H
#define QJ_ENERGY_APPEARED_H

#include "energy.h"

/* Notes the zones that are there now. NULL if there is no such directory. */
struct appeared *appeared_new(const char *root);
void appeared_free(struct appeared *appeared); /* accepts NULL */

/* Like energy_appeared(). */
unsigned appeared_look(struct appeared *appeared, struct qj_domain *found);

#endif /* QJ_ENERGY_APPEARED_H */
