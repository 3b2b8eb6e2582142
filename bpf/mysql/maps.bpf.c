// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The maps of MySQL's programs. */
#include "memory.bpf.h"
#include "sessions.bpf.h"
#include "suspended.bpf.h"

struct suspended_map suspended SEC(".maps");
struct mysql_sessions_map mysql_sessions SEC(".maps");
