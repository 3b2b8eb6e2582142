/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which servers there are to the programs that all share. */
#ifndef QJOULE_HOOKS_H
#define QJOULE_HOOKS_H

#include "mongodb/thread.h"
#include "mysql/thread.h"
#include "postgres/thread.h"
#include "redis/thread.h"
#include "voltdb/thread.h"

#define QJ_THREADS(X) X(mysql) X(postgres) X(redis) X(mongodb) X(voltdb)

#endif
