// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The maps of Redis' programs. */
#include "named.bpf.h"
#include "state.bpf.h"

struct redis_connections_map redis_connections SEC(".maps");
struct redis_namings_map redis_namings SEC(".maps");
