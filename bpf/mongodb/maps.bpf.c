// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The maps of MongoDB's programs. */
#include "state.bpf.h"

struct mongodb_connections_map mongodb_connections SEC(".maps");
struct mongodb_cursors_map mongodb_cursors SEC(".maps");
