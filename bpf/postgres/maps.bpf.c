// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The maps of PostgreSQL's programs. */
#include "io.bpf.h"
#include "pieces.bpf.h"
#include "workers.bpf.h"

struct leaders_map leaders SEC(".maps");
struct io_leaders_map io_leaders SEC(".maps");
struct postgres_pieces_map postgres_pieces SEC(".maps");
