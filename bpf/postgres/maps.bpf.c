// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The maps of PostgreSQL's programs. */
#include "workers.bpf.h"

struct leaders_map leaders SEC(".maps");
