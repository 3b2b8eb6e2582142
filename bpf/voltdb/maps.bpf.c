// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The maps of VoltDB's programs. */
#include "transactions.bpf.h"

struct voltdb_begun_map voltdb_begun SEC(".maps");
